"""Queues: made, changed, paused, resumed, shown (design 1.5). The counters in their rows belong to `quotas.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import IntegrityError

from tasks_app import dialect, ids
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.domain.quotas import StartBudget
from tasks_app.domain.tenancy import Principal, current
from tasks_app.errors import AlreadyExists, Detail, InvalidArgument, NotFound, PermissionDenied, RevisionConflict
from tasks_app.hints import Hint, HintKind, publish
from tasks_app.instants import US_PER_MS
from tasks_app.json_fields import refusal
from tasks_app.limits import (
    NAME_LENGTH_MAX,
    QUEUE_WEIGHT_MAX,
    QUEUE_WEIGHT_MIN,
    QUOTA_MAX,
    REASON_LENGTH_MAX,
    START_RATE_PER_MS_MAX,
    START_RATE_STARTS_MAX,
    STRICT_PRIORITY_MAX,
    STRICT_PRIORITY_MIN,
)
from tasks_app.printable import printable_fault
from tasks_app.states import Action, Policy, RetryPriority
from tasks_app.transactions import Tx, reading, unit

StartRate = tuple[int, int]  # (starts, per_ms)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it is shown. `None` in a limit means none; instants are microseconds."""

    queue_id: str
    name: str
    paused: bool
    pause_reason: str | None
    max_unfinished: int | None
    max_running: int | None
    start_rate: StartRate | None
    weight: int
    default_priority: int | None
    retry_priority: str
    revision: int
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue is made with; `QUEUE_SETTINGS` of these may be changed later."""

    name: str
    max_unfinished: int | None = None
    max_running: int | None = None
    start_rate: StartRate | None = None
    weight: int = 1
    default_priority: int | None = None
    retry_priority: str = RetryPriority.KEEP

    def changes(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in QUEUE_SETTINGS}


QUEUE_SETTINGS: Final = ("max_unfinished", "max_running", "start_rate", "weight", "default_priority", "retry_priority")


# -- making and changing


def create(principal: Principal, settings: QueueSettings, *, actor: Actor) -> Queue:
    """A new queue of the credential's namespace.

    Raises InvalidArgument, AlreadyExists (with the `queue_id` that has the name), PermissionDenied for a credential
    that is confined to a list of queues: it could not see what it made.
    """

    def run(tx: Tx) -> Queue:
        now = current(tx, principal)
        now.require(Action.QUEUES_MANAGE)
        if now.queue_scope is not None:
            raise PermissionDenied("a credential for a list of queues cannot make another queue")
        return create_in(tx, now.namespace_id, now.application_id, now.policy, settings, actor=actor)

    try:
        return unit(run)
    except IntegrityError as error:
        # Another request took the name between our look and our insert.
        if "queue_name_unique" not in str(error) and "orbit_queue.name" not in str(error):
            raise
        return unit(run)


def create_in(
    tx: Tx, namespace_id: str, application_id: str, policy: Policy, settings: QueueSettings, *, actor: Actor
) -> Queue:
    """The same inside a unit, for whoever needs no credential."""
    faults = _faults_of(settings.changes(), policy)
    name_fault = printable_fault(settings.name, length_max=NAME_LENGTH_MAX)
    if name_fault is not None:
        faults.insert(0, {"field": "name", "reason": name_fault})
    if faults:
        raise refusal(faults)
    taken = tx.row(
        "SELECT queue_id FROM orbit_queue WHERE namespace_id = %s AND name = %s", [namespace_id, settings.name]
    )
    if taken is not None:
        raise AlreadyExists(
            "a queue of this name exists already",
            details=[{"field": "name", "reason": "is taken", "queue_id": taken[0]}],
        )
    queue_id = ids.new_id(tx.now_us)
    columns = {
        "queue_id": queue_id,
        "namespace_id": namespace_id,
        "application_id": application_id,
        "name": settings.name,
        "paused": False,
        "unfinished": 0,
        "running": 0,
        "revision": 1,
        "created_at": tx.now_us,
        "updated_at": tx.now_us,
        **_columns_of(settings.changes(), None, tx.now_us),
    }
    tx.insert("orbit_queue", list(columns), [list(columns.values())])
    audit.write(
        tx, actor, "queue.create", "queue", queue_id, namespace_id=namespace_id, revision_after=1,
        data={"name": settings.name, **settings.changes()},
    )  # fmt: skip
    return _find(tx, namespace_id, queue_id)


def change(principal: Principal, queue_id: str, changes: Mapping[str, Any], *, revision: int, actor: Actor) -> Queue:
    """Sets the given ones of `QUEUE_SETTINGS`; None lifts a limit. What is held already is not taken away.

    Raises InvalidArgument, NotFound, PermissionDenied, RevisionConflict when the queue changed since `revision`.
    """

    def run(tx: Tx) -> Queue:
        now, queue = _locked(tx, principal, queue_id)
        faults = _faults_of(changes, now.policy)
        if faults:
            raise refusal(faults)
        if queue.revision != revision:
            raise RevisionConflict(
                details=[
                    {"field": "revision", "reason": "the queue changed since then", "current": str(queue.revision)}
                ]
            )
        different = {name: value for name, value in changes.items() if getattr(queue, name) != value}
        return _write(tx, queue, different, now.namespace_id, "queue.change", actor=actor)

    return unit(run)


def pause(principal: Principal, queue_id: str, *, reason: str | None, actor: Actor) -> Queue:
    """Stops claims and starts; what runs goes on, and the queue still accepts. Repeatable: a new reason takes the place
    of the old one."""
    if reason is not None:
        _check_reason(reason)

    def run(tx: Tx) -> Queue:
        now, queue = _locked(tx, principal, queue_id)
        wanted: dict[str, Any] = {} if queue.paused else {"paused": True, "pause_reason": None}
        if reason is not None and reason != queue.pause_reason:
            wanted["pause_reason"] = reason
        return _write(tx, queue, wanted, now.namespace_id, "queue.pause", actor=actor, reason=reason)

    return unit(run)


def resume(principal: Principal, queue_id: str, *, actor: Actor) -> Queue:
    """Lets the queue be claimed from again. Repeatable."""

    def run(tx: Tx) -> Queue:
        now, queue = _locked(tx, principal, queue_id)
        wanted = {"paused": False, "pause_reason": None} if queue.paused else {}
        return _write(tx, queue, wanted, now.namespace_id, "queue.resume", actor=actor)

    return unit(run)


def _locked(tx: Tx, principal: Principal, queue_id: str) -> tuple[Principal, Queue]:
    """The credential as it is now and the row of the queue, locked."""
    now = current(tx, principal)
    now.require(Action.QUEUES_MANAGE)
    queue = _find(tx, now.namespace_id, queue_id, lock=dialect.for_update(tx.connection))
    now.require_queue(queue_id)
    return now, queue


def _write(
    tx: Tx,
    queue: Queue,
    changes: Mapping[str, Any],
    namespace_id: str,
    action: str,
    *,
    actor: Actor,
    reason: str | None = None,
) -> Queue:
    if not changes:
        return queue
    budget = _budget_of(tx, queue.queue_id) if "start_rate" in changes else None
    columns = _columns_of(changes, budget, tx.now_us)
    assignments = ", ".join(f"{name} = %s" for name in columns)
    tx.execute(
        f"UPDATE orbit_queue SET {assignments}, revision = revision + 1, updated_at = %s WHERE queue_id = %s",
        [*columns.values(), tx.now_us, queue.queue_id],
    )
    audit.write(
        tx, actor, action, "queue", queue.queue_id, namespace_id=namespace_id, reason=reason,
        revision_before=queue.revision, revision_after=queue.revision + 1,
        data={"before": {name: getattr(queue, name) for name in changes}, "after": dict(changes)},
    )  # fmt: skip
    # A lifted limit or a resumed queue may let something run; empty answers of claims are looked at again.
    hint = Hint(HintKind.PERMIT_FREED, namespace_id=namespace_id, queue_id=queue.queue_id)
    tx.after_commit(lambda: publish(hint))
    return _find(tx, namespace_id, queue.queue_id)


def _budget_of(tx: Tx, queue_id: str) -> StartBudget | None:
    row = tx.row(
        "SELECT start_rate_starts, start_rate_per_ms, start_level, start_level_at FROM orbit_queue WHERE queue_id = %s",
        [queue_id],
    )
    return None if row is None else StartBudget.of(*row)


def _columns_of(changes: Mapping[str, Any], budget: StartBudget | None, now_us: int) -> dict[str, Any]:
    """Columns for settings; `budget` is that of the rate in force. A new rate starts with a full bucket, another rate
    keeps the starts that were left, so that changing it back and forth refills nothing."""
    columns = {name: value for name, value in changes.items() if name != "start_rate"}
    if "start_rate" in changes:
        starts, per_ms = changes["start_rate"] or (None, None)
        columns |= {
            "start_rate_starts": starts,
            "start_rate_per_ms": per_ms,
            "start_level": 0,
            "start_level_at": now_us,
        }
        if starts is not None and per_ms is not None:
            left = starts if budget is None else min(budget.left(now_us), starts)
            columns["start_level"] = left * per_ms * US_PER_MS
    return columns


# -- rules


def _faults_of(changes: Mapping[str, Any], policy: Policy) -> list[Detail]:
    """Every rule that the given settings break in a namespace of that policy."""
    faults: list[Detail] = []

    def check(name: str, value: int | None, lowest: int, highest: int) -> None:
        if value is not None and not lowest <= value <= highest:
            faults.append(
                {"field": name, "reason": f"must be {lowest} to {highest}", "minimum": lowest, "maximum": highest}
            )

    for name in ("max_unfinished", "max_running"):
        check(name, changes.get(name), 0, QUOTA_MAX)
    if changes.get("start_rate") is not None:
        starts, per_ms = changes["start_rate"]
        check("start_rate.starts", starts, 1, START_RATE_STARTS_MAX)
        check("start_rate.per_ms", per_ms, 1, START_RATE_PER_MS_MAX)
    check("weight", changes.get("weight"), QUEUE_WEIGHT_MIN, QUEUE_WEIGHT_MAX)
    check("default_priority", changes.get("default_priority"), STRICT_PRIORITY_MIN, STRICT_PRIORITY_MAX)
    retry_priority = changes.get("retry_priority", RetryPriority.KEEP)
    if retry_priority not in RetryPriority.values:
        faults.append({"field": "retry_priority", "reason": "must be KEEP or LOWER", "allowed": RetryPriority.values})
    if policy == Policy.AGED and not faults:
        neutral = {"weight": 1, "default_priority": None, "retry_priority": RetryPriority.KEEP}
        faults += [
            {"field": name, "reason": "means something in a STRICT namespace only"}
            for name, value in neutral.items()
            if changes.get(name, value) != value
        ]
    return faults


def _check_reason(reason: str) -> None:
    if not 1 <= len(reason) <= REASON_LENGTH_MAX:
        raise InvalidArgument.field(
            "reason", f"must be 1 to {REASON_LENGTH_MAX} characters", minimum=1, maximum=REASON_LENGTH_MAX
        )


# -- reading

_COLUMNS: Final = (
    "queue_id, name, paused, pause_reason, max_unfinished, max_running, start_rate_starts, start_rate_per_ms, weight,"
    " default_priority, retry_priority, revision, created_at, updated_at"
)


def get(principal: Principal, queue_id: str) -> Queue:
    """Raises NotFound, PermissionDenied."""
    with reading() as tx:
        queue = _find(tx, principal.namespace_id, queue_id)
    principal.require_queue(queue_id)
    return queue


def page(principal: Principal, *, limit: int, after: str | None) -> tuple[list[Queue], str | None]:
    """Up to `limit` queues in the credential's scope, oldest first, and the id to go on after (None at the end)."""
    where, params = "namespace_id = %s", [principal.namespace_id]
    if after is not None:
        where, params = f"{where} AND queue_id > %s", [*params, after]
    if principal.queue_scope is not None:
        if not principal.queue_scope:
            return [], None
        where = f"{where} AND queue_id IN ({dialect.placeholders(sorted(principal.queue_scope))})"
        params += sorted(principal.queue_scope)
    with reading() as tx:
        rows = tx.rows(
            f"SELECT {_COLUMNS} FROM orbit_queue WHERE {where} ORDER BY queue_id LIMIT {limit + 1}",
            params,
        )
    found = [_from_columns(row) for row in rows[:limit]]
    return found, found[-1].queue_id if len(rows) > limit else None


def _find(tx: Tx, namespace_id: str, queue_id: str, *, lock: str = "") -> Queue:
    row = tx.row(
        f"SELECT {_COLUMNS} FROM orbit_queue WHERE queue_id = %s AND namespace_id = %s{lock}",
        [queue_id, namespace_id],
    )
    if row is None:
        raise NotFound("no such queue", details=[{"field": "queue_id", "reason": "no such queue"}])
    return _from_columns(row)


def _from_columns(row: Sequence[Any]) -> Queue:
    queue_id, name, paused, pause_reason, max_unfinished, max_running, starts, per_ms = row[:8]
    return Queue(
        queue_id, name, bool(paused), pause_reason, max_unfinished, max_running,
        None if starts is None else (starts, per_ms), *row[8:],
    )  # fmt: skip
