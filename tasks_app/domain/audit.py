"""Audit entries: who did what to which object and why, in the transaction that did it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tasks_app import ids
from tasks_app.columns import AUDIT_COLUMNS
from tasks_app.models import ActorKind
from tasks_app.transactions import Tx, insert_statement


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a credential (by id), a user of the admin site (by name), a command, or Orbit itself."""

    kind: ActorKind
    name: str
    request_id: str | None = None


SYSTEM = Actor(ActorKind.SYSTEM, "orbit")


def command(name: str) -> Actor:
    return Actor(ActorKind.COMMAND, name)


def entry(
    tx: Tx,
    actor: Actor,
    action: str,
    object_type: str,
    object_id: str,
    *,
    namespace_id: str | None = None,
    reason: str | None = None,
    revision_before: int | None = None,
    revision_after: int | None = None,
    data: dict[str, Any] | None = None,
) -> tuple[Any, ...]:
    """The values of one entry, for a statement of the caller's. `data` says what changed; no payloads, no secrets."""
    return (
        ids.new_id(tx.now_us), namespace_id, actor.kind.value, actor.name, action, object_type, object_id,
        actor.request_id, reason, revision_before, revision_after,
        json.dumps(data, ensure_ascii=False, separators=(",", ":")) if data else None, tx.now_us,
    )  # fmt: skip


def write(tx: Tx, actor: Actor, action: str, object_type: str, object_id: str, **more: Any) -> None:
    """Writes one entry now; the further arguments are those of `entry`."""
    tx.insert("orbit_audit_entry", AUDIT_COLUMNS, [entry(tx, actor, action, object_type, object_id, **more)])


def statement(
    tx: Tx, actor: Actor, action: str, object_type: str, object_id: str, **more: Any
) -> tuple[str, list[Any]]:
    """The INSERT of one entry, to be written along with other statements."""
    return insert_statement(
        "orbit_audit_entry", AUDIT_COLUMNS, [entry(tx, actor, action, object_type, object_id, **more)]
    )
