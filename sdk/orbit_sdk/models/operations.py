"""Operation intents of the lifecycle app (design, chapter 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orbit_sdk.fields import Fields
from orbit_sdk.states import OperationState


@dataclass(frozen=True)
class Operation:
    """An intent and what is visible of it. Of a DELETED one only the tombstone is left: members of its row are None."""

    gid: int
    operation_id: str
    state: OperationState
    name: str | None = None
    requester: str | None = None
    delete_operation_id: str | None = None
    status: str | None = None
    status_text: Mapping[str, str] = field(default_factory=dict)
    progress: int | None = None
    storage_node: str | None = None
    last_revision: int | None = None
    legacy: bool = False
    created_at: datetime | None = None
    updated_at: datetime | None = None
    submitted_at: datetime | None = None
    evidence: Any = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, fields: Fields) -> Operation:
        return cls(
            gid=fields.integer("gid"),
            operation_id=fields.id("operation_id"),
            state=fields.word("state", OperationState),
            name=fields.optional("name", fields.text),
            requester=fields.optional("requester", fields.text),
            delete_operation_id=fields.optional("delete_operation_id", fields.id),
            status=fields.optional("status", fields.text),
            status_text=fields.object("status_text").raw if fields.has("status_text") else {},
            progress=fields.optional("progress", fields.integer),
            storage_node=fields.optional("storage_node", fields.text),
            last_revision=fields.optional("last_revision", fields.integer),
            legacy=fields.flag("legacy"),
            created_at=fields.optional("created_at", fields.instant),
            updated_at=fields.optional("updated_at", fields.instant),
            submitted_at=fields.optional("submitted_at", fields.instant),
            evidence=fields.raw.get("evidence"),
            raw=fields.raw,
        )


@dataclass(frozen=True)
class Reconciliation:
    """What a decision left: no operation where it released the intent; `lookup` is the upstream's word after LOOKUP."""

    operation: Operation | None
    lookup: Any = None
