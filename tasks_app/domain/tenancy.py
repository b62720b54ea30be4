"""Who is asking: credentials and what they may touch. Tenant identity always comes from the credential."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tasks_app import dialect, ids
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.domain.quotas import StartBudget, start_rate_columns
from tasks_app.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from tasks_app.hints import Hint, HintKind, publish
from tasks_app.instants import US_PER_SECOND
from tasks_app.limits import QUOTA_MAX, START_RATE_PER_MS_MAX, START_RATE_STARTS_MAX
from tasks_app.printable import printable_fault
from tasks_app.states import Action, Policy
from tasks_app.transactions import Tx, reading

TOKEN_MARK = "orbit_"  # noqa: S105 - how every token begins
TOKEN_BYTES = 32
TOKEN_PREFIX_LENGTH = 12
_USE_RECORDED_EVERY_US = 60 * US_PER_SECOND


@dataclass(frozen=True, slots=True)
class Principal:
    """A valid credential at one moment, with what its namespace says. `queue_scope` None means every queue."""

    credential_id: str
    namespace_id: str
    application_id: str
    policy: Policy
    default_priority: int
    actions: frozenset[str]
    queue_scope: frozenset[str] | None
    expires_at: int | None

    def may(self, action: Action) -> bool:
        return action.value in self.actions

    def require(self, action: Action) -> None:
        """Raises PermissionDenied where the credential lacks `action`."""
        if not self.may(action):
            raise PermissionDenied(
                f"the credential lacks the action {action.value}",
                details=[{"field": "", "reason": "missing action", "action": action.value}],
            )

    def in_scope(self, queue_id: str) -> bool:
        return self.queue_scope is None or queue_id in self.queue_scope

    def require_queue(self, queue_id: str) -> None:
        """Raises PermissionDenied for a queue of the own namespace that is outside the credential's scope."""
        if not self.in_scope(queue_id):
            raise PermissionDenied(
                "the queue is outside the credential's scope",
                details=[{"field": "queue_id", "reason": "outside the credential's scope", "queue_id": queue_id}],
            )


def token_digest(token: str) -> bytes:
    """What is stored of a token. A fast hash is right for 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


_PRINCIPAL = (
    "SELECT c.credential_id, c.namespace_id, n.application_id, n.policy, n.default_priority, c.actions, c.all_queues,"
    " c.expires_at, c.revoked_at, c.last_used_at, {now}"
    " FROM orbit_credential c JOIN orbit_namespace n ON n.namespace_id = c.namespace_id WHERE {which} = %s"
)


def authenticate(token: str) -> Principal:
    """The principal of a bearer token. Raises Unauthenticated for one that is unknown, expired or revoked.

    Compared through its digest: an attacker who can time the index look-up learns about digests, not about tokens.
    """
    with reading() as tx:
        sql, params = _principal_query(tx, "c.token_digest", token_digest(token))
        return principal_of(tx, tx.rows(sql, params), record_use=True)


NO_CREDENTIAL: Final = ""
_OPERATOR = (
    "SELECT %s, n.namespace_id, n.application_id, n.policy, n.default_priority, %s, 1, NULL, NULL, NULL, {now}"
    " FROM orbit_namespace n WHERE n.namespace_id = %s"
)


def operator_of(namespace_id: str) -> Principal:
    """Whoever acts on a namespace without a credential of it: Orbit itself (a plan fires), a user of the admin site
    whose rights were checked by the caller. Every action, every queue. Raises NotFound.
    """
    with reading() as tx:
        rows = tx.rows(*_operator_query(tx, namespace_id))
        if not rows:
            raise NotFound("no such namespace")
        return principal_of(tx, rows)


def _operator_query(tx: Tx, namespace_id: str) -> tuple[str, list[Any]]:
    return _OPERATOR.format(now=tx.now_sql), [NO_CREDENTIAL, " ".join(Action.values), namespace_id]


def current_query(tx: Tx, principal: Principal) -> tuple[str, list[Any]]:
    """The SELECT for the same principal as it is now, inside a unit; see `principal_of`."""
    if principal.credential_id == NO_CREDENTIAL:
        return _operator_query(tx, principal.namespace_id)
    return principal_query(tx, principal.credential_id)


def current(tx: Tx, principal: Principal) -> Principal:
    """The same principal as it is now, inside a unit. Raises Unauthenticated when its credential is no longer valid."""
    return principal_of(tx, tx.rows(*current_query(tx, principal)))


def principal_again(tx: Tx, credential_id: str) -> Principal:
    """The same credential as it is now, inside a unit. Raises Unauthenticated when it is no longer valid."""
    return principal_of(tx, tx.rows(*principal_query(tx, credential_id)))


def principal_query(tx: Tx, credential_id: str) -> tuple[str, list[Any]]:
    """The SELECT behind `principal_again`, for a caller that sends it along with others; see `principal_of`."""
    return _principal_query(tx, "c.credential_id", credential_id)


def _principal_query(tx: Tx, which: str, value: Any) -> tuple[str, list[Any]]:
    return _PRINCIPAL.format(now=tx.now_sql, which=which), [value]


def principal_of(tx: Tx, rows: Sequence[tuple[Any, ...]], *, record_use: bool = False) -> Principal:
    """The principal that the rows of `principal_query` describe. Raises Unauthenticated."""
    if not rows:
        raise Unauthenticated()
    credential_id, namespace_id, application_id, policy, default_priority, actions, all_queues = rows[0][:7]
    expires_at, revoked_at, last_used_at, now_us = rows[0][7:]
    tx.saw_now(now_us)
    if revoked_at is not None or (expires_at is not None and expires_at <= int(now_us)):
        raise Unauthenticated()
    if record_use and (last_used_at is None or last_used_at < int(now_us) - _USE_RECORDED_EVERY_US):
        tx.execute(
            "UPDATE orbit_credential SET last_used_at = %s WHERE credential_id = %s", [int(now_us), credential_id]
        )
    scope = None
    if not all_queues:
        found = tx.rows("SELECT queue_id FROM orbit_credential_queue WHERE credential_id = %s", [credential_id])
        scope = frozenset(queue_id for (queue_id,) in found)
    return Principal(
        credential_id, namespace_id, application_id, Policy(policy), default_priority, frozenset(actions.split()),
        scope, expires_at,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class IssuedCredential:
    credential_id: str
    token: str
    actions: tuple[str, ...]


def issue_credential(
    tx: Tx,
    *,
    namespace_id: str,
    actions: Iterable[str],
    queue_ids: Sequence[str] | None,
    expires_in_seconds: int | None,
    actor: Actor,
) -> IssuedCredential:
    """A new credential; the only moment at which its token exists in clear. `queue_ids` None means every queue."""
    known = {action.value for action in Action}
    wanted = tuple(sorted(set(actions)))
    for action in wanted:
        if action not in known:
            raise InvalidArgument.field("actions", f"{action} is not an action", allowed=sorted(known))
    if not wanted:
        raise InvalidArgument.field("actions", "must name at least one action")
    if expires_in_seconds is not None and expires_in_seconds < 1:
        raise InvalidArgument.field("expires_in", "must be at least 1 second")
    token = TOKEN_MARK + secrets.token_urlsafe(TOKEN_BYTES)
    credential_id = ids.new_id(tx.now_us)
    expires_at = None if expires_in_seconds is None else tx.now_us + expires_in_seconds * US_PER_SECOND
    tx.insert(
        "orbit_credential",
        ("credential_id", "namespace_id", "token_digest", "token_prefix", "actions", "all_queues", "expires_at",
         "created_at"),
        [(credential_id, namespace_id, token_digest(token), token[:TOKEN_PREFIX_LENGTH], " ".join(wanted),
          queue_ids is None, expires_at, tx.now_us)],
    )  # fmt: skip
    for queue_id in queue_ids or ():
        if (
            tx.row("SELECT 1 FROM orbit_queue WHERE queue_id = %s AND namespace_id = %s", [queue_id, namespace_id])
            is None
        ):
            raise NotFound(
                "no such queue in the namespace", details=[{"field": "queue_scope", "reason": "no such queue"}]
            )
    tx.insert(
        "orbit_credential_queue", ("credential_id", "queue_id"), [(credential_id, queue) for queue in queue_ids or ()]
    )
    audit.write(
        tx, actor, "credential.issue", "credential", credential_id, namespace_id=namespace_id,
        data={"actions": wanted, "queues": "ALL" if queue_ids is None else list(queue_ids)},
    )  # fmt: skip
    return IssuedCredential(credential_id, token, wanted)


def revoke_credential(tx: Tx, credential_id: str, *, actor: Actor, reason: str | None = None) -> bool:
    """False if it had been revoked before. Raises NotFound."""
    row = tx.row(
        "SELECT namespace_id, revoked_at FROM orbit_credential WHERE credential_id = %s"
        f"{dialect.for_update(tx.connection)}",
        [credential_id],
    )
    if row is None:
        raise NotFound("no such credential")
    if row[1] is not None:
        return False
    tx.execute("UPDATE orbit_credential SET revoked_at = %s WHERE credential_id = %s", [tx.now_us, credential_id])
    audit.write(tx, actor, "credential.revoke", "credential", credential_id, namespace_id=row[0], reason=reason)
    tx.after_commit(lambda: publish(Hint(HintKind.CREDENTIAL_CHANGED, namespace_id=row[0], detail=credential_id)))
    return True


def rotate_credential(tx: Tx, credential_id: str, *, overlap_seconds: int, actor: Actor) -> IssuedCredential:
    """A new credential with the same rights; the old one ends after `overlap_seconds`. Raises NotFound."""
    row = tx.row(
        "SELECT namespace_id, actions, all_queues, revoked_at, expires_at FROM orbit_credential"
        " WHERE credential_id = %s"
        f"{dialect.for_update(tx.connection)}",
        [credential_id],
    )
    if row is None or row[3] is not None:
        raise NotFound("no such credential, or it was revoked")
    namespace_id, actions, all_queues, _, expires_at = row
    queues = [
        q for (q,) in tx.rows("SELECT queue_id FROM orbit_credential_queue WHERE credential_id = %s", [credential_id])
    ]
    issued = issue_credential(
        tx, namespace_id=namespace_id, actions=actions.split(), queue_ids=None if all_queues else queues,
        expires_in_seconds=None, actor=actor,
    )  # fmt: skip
    ends_at = tx.now_us + max(1, overlap_seconds * US_PER_SECOND)
    tx.execute(
        "UPDATE orbit_credential SET expires_at = %s, rotated_to = %s WHERE credential_id = %s",
        [min(ends_at, expires_at) if expires_at is not None else ends_at, issued.credential_id, credential_id],
    )
    audit.write(
        tx, actor, "credential.rotate", "credential", credential_id, namespace_id=namespace_id,
        data={"rotated_to": issued.credential_id, "overlap_seconds": overlap_seconds},
    )  # fmt: skip
    return issued


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    environment: str
    policy: Policy = Policy.AGED
    default_priority: int = 0
    resource_limit: int = 1
    weekly_limit: int | None = None


def ensure_application(tx: Tx, name: str, *, actor: Actor) -> tuple[str, bool]:
    """(application_id, made now)."""
    _require_printable("application", name)
    lock = dialect.for_update(tx.connection)
    row = tx.row(f"SELECT application_id FROM orbit_application WHERE name = %s{lock}", [name])
    if row is not None:
        return row[0], False
    application_id = ids.new_id(tx.now_us)
    tx.insert(
        "orbit_application",
        ("application_id", "name", "start_level", "start_level_at", "unfinished", "running", "created_at"),
        [(application_id, name, 0, 0, 0, 0, tx.now_us)],
    )
    audit.write(tx, actor, "application.create", "application", application_id, data={"name": name})
    return application_id, True


def ensure_namespace(
    tx: Tx, application_id: str, name: str, settings: NamespaceSettings, *, actor: Actor
) -> tuple[str, bool]:
    """(namespace_id, made now). An existing one is returned as it is: the caller compares what it asked for."""
    _require_printable("namespace", name)
    _require_printable("environment", settings.environment)
    row = tx.row(
        f"SELECT namespace_id FROM orbit_namespace WHERE application_id = %s AND name = %s"
        f"{dialect.for_update(tx.connection)}",
        [application_id, name],
    )
    if row is not None:
        return row[0], False
    namespace_id = ids.new_id(tx.now_us)
    tx.insert(
        "orbit_namespace",
        ("namespace_id", "application_id", "name", "environment", "policy", "default_priority", "resource_limit",
         "weekly_limit", "created_at"),
        [(namespace_id, application_id, name, settings.environment, settings.policy.value, settings.default_priority,
          settings.resource_limit, settings.weekly_limit, tx.now_us)],
    )  # fmt: skip
    tx.insert("orbit_event_head", ("namespace_id", "position"), [(namespace_id, 0)])
    audit.write(
        tx, actor, "namespace.create", "namespace", namespace_id, namespace_id=namespace_id,
        data={"name": name, "policy": settings.policy.value},
    )  # fmt: skip
    return namespace_id, True


def set_application_quotas(tx: Tx, application_id: str, quotas: dict[str, Any], *, actor: Actor) -> None:
    """Sets the given quotas (`max_unfinished`, `max_running`, `start_rate` as (starts, per_ms)); None lifts one.

    Raises InvalidArgument for a number out of its range.
    """
    columns: dict[str, Any] = {name: quotas[name] for name in ("max_unfinished", "max_running") if name in quotas}
    for name, value in columns.items():
        _require_range(name, value, 0, QUOTA_MAX)
    if "start_rate" in quotas:
        rate = quotas["start_rate"]
        if rate is not None:
            _require_range("start_rate.starts", rate[0], 1, START_RATE_STARTS_MAX)
            _require_range("start_rate.per_ms", rate[1], 1, START_RATE_PER_MS_MAX)
        columns |= start_rate_columns(rate, _budget_of(tx, application_id), tx.now_us)
    if columns:
        tx.execute(
            f"UPDATE orbit_application SET {', '.join(f'{name} = %s' for name in columns)} WHERE application_id = %s",
            [*columns.values(), application_id],
        )
        audit.write(tx, actor, "application.set", "application", application_id, data=quotas)


def _budget_of(tx: Tx, application_id: str) -> StartBudget | None:
    """The start budget as it is; the row is locked, so that no start is spent between this look and the change."""
    row = tx.row(
        "SELECT start_rate_starts, start_rate_per_ms, start_level, start_level_at FROM orbit_application"
        f" WHERE application_id = %s{dialect.for_update(tx.connection)}",
        [application_id],
    )
    return None if row is None else StartBudget.of(*row)


def _require_range(name: str, value: int | None, lowest: int, highest: int) -> None:
    if value is not None and not lowest <= value <= highest:
        raise InvalidArgument.field(name, f"must be {lowest} to {highest}", minimum=lowest, maximum=highest)


def _require_printable(field: str, text: str) -> None:
    fault = printable_fault(text, length_max=128)
    if fault is not None:
        raise InvalidArgument.field(field, fault)
