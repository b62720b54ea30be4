"""Replay and dismiss: what becomes of tasks that ended without success (design 1.4).

A replay is a submit: the task is accepted again as a new one, and in the same unit the old one gets `replayed_as` and
leaves the dead letters. The row of the old task is locked first, so a task is replayed once, whoever asks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.db import IntegrityError

from tasks_app import dialect, faults, ids, telemetry
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.domain.batches import NOT_ATTEMPTED, ItemResult, Verdict
from tasks_app.domain.cancellation import require_revision
from tasks_app.domain.submission import Accepted, AcceptedTask, Submission, accept, find_receipt, is_duplicate_key
from tasks_app.domain.task_rows import TaskRow, lock_one
from tasks_app.domain.tenancy import Principal, current
from tasks_app.domain.transitions import Ledger
from tasks_app.errors import (
    AlreadyExists,
    FailedPrecondition,
    IdempotencyConflict,
    InvalidArgument,
    NotFound,
    OrbitError,
    Unauthenticated,
    Unavailable,
)
from tasks_app.instants import US_PER_MS
from tasks_app.limits import REPLAY_LIMIT_MAX, REPLAY_LIMIT_MIN, RETRY_ATTEMPTS_MAX
from tasks_app.models import ActorKind, Operation
from tasks_app.retries import NEVER, RetryPolicy
from tasks_app.states import REPLAYABLE, Action, EventType, RetryMode, TaskState
from tasks_app.submission_request import SubmitRequest, priority_range
from tasks_app.transactions import CommitOutcomeUnknown, Tx, reading, unit

_ONE_FORM: Final = b"orbit replay 1\n"  # a change of the normal form would need another name
_MANY_FORM: Final = b"orbit replay many 1\n"


# -- one task


@dataclass(frozen=True, slots=True)
class Replayed:
    """`request` is what was submitted for the new task; None where the old one was pruned since (a repeat)."""

    accepted: Accepted
    request: SubmitRequest | None


def replay(
    principal: Principal,
    source_id: str,
    *,
    key: str,
    priority: int | None = None,
    delay_ms: int | None = None,
    request_id: str | None = None,
    traceparent: str | None = None,
    actor: Actor | None = None,
) -> Replayed:
    """Submits a FAILED, EXPIRED or CANCELED task again. The priority is the old one unless given.

    Answers and is refused like a submit; besides NotFound, PermissionDenied (queue out of scope), FailedPrecondition
    (not in such a state) and AlreadyExists (replayed before under another key; `details` name the new task).
    """
    order = _Order(source_id, priority, delay_ms, traceparent=traceparent)
    return _replay(principal, order, Operation.TASK_REPLAY, key, actor or _credential(principal, request_id))


@dataclass(frozen=True, slots=True)
class _Order:
    source_id: str
    priority: int | None = None
    delay_ms: int | None = None
    traceparent: str | None = None

    def digest(self) -> bytes:
        content = {"task_id": self.source_id, "priority": self.priority, "delay_ms": self.delay_ms or None}
        return _digest(_ONE_FORM, content)


def _replay(principal: Principal, order: _Order, operation: Operation, key: str, actor: Actor) -> Replayed:
    def receipt_of_the_key() -> Accepted | None:
        receipt = find_receipt(
            principal, operation=operation, action=Action.TASKS_REPLAY, key=key, digest=order.digest()
        )
        return None if receipt is None else Accepted(receipt, None)

    request = _request_again(principal, order)
    if request is None:
        # Pruned, or never there: only a receipt can still answer.
        if (repeated := receipt_of_the_key()) is None:
            raise NotFound("no such task")
        return Replayed(repeated, None)
    submission = Submission(
        key=key,
        request=request,
        digest=order.digest(),
        operation=operation,
        action=Action.TASKS_REPLAY,
        replayed_from=order.source_id,
        traceparent=order.traceparent,
        in_same_unit=lambda tx, task: _mark_replayed(tx, order.source_id, principal, task, actor),
    )
    try:
        return Replayed(accept(principal, submission, actor=actor), request)
    except AlreadyExists:
        # It may be this very key that replayed it, while this call waited for the row: then that is the receipt.
        if (repeated := receipt_of_the_key()) is None:
            raise
        return Replayed(repeated, request)


def _mark_replayed(tx: Tx, source_id: str, principal: Principal, task: AcceptedTask, actor: Actor) -> None:
    row = lock_one(tx, source_id, namespace_id=principal.namespace_id)
    if row is None:
        raise NotFound("no such task")
    if row.replayed_as is not None:
        raise AlreadyExists(
            "the task was replayed before",
            details=[{"field": "task_id", "reason": "was replayed before", "task_id": row.replayed_as}],
        )
    if row.state not in REPLAYABLE:
        raise FailedPrecondition(
            f"a task that is {row.state.value} cannot be replayed",
            details=[{"field": "state", "reason": "must be FAILED, EXPIRED or CANCELED", "state": row.state.value}],
        )
    ledger = Ledger(tx)
    data = {"replayed_as": task.task_id}
    ledger.note(row, event=EventType.REPLAYED, data=data, changes={"replayed_as": task.task_id})
    ledger.also(
        *audit.statement(
            tx,
            actor,
            "task.replayed",
            "task",
            row.task_id,
            namespace_id=row.namespace_id,
            revision_before=row.revision - 1,
            revision_after=row.revision,
            data=data,
        )  # fmt: skip
    )
    ledger.flush()


def _request_again(principal: Principal, order: _Order) -> SubmitRequest | None:
    """What the source was submitted with, as far as it still means something; None if it is not there."""
    with reading() as tx:
        row = tx.row(
            "SELECT t.queue_id, h.handler, h.handler_version, t.payload_version, t.payload, t.priority, t.created_at,"
            " t.deadline_at, t.attempt_timeout_ms, t.retry_mode, t.max_attempts, t.initial_backoff_ms,"
            " t.max_backoff_ms, t.multiplier, k.resource_key FROM orbit_task t"
            " JOIN orbit_handler h ON h.handler_ref = t.handler_ref"
            " LEFT JOIN orbit_resource_key k ON k.resource_ref = t.resource_ref"
            " WHERE t.task_id = %s AND t.namespace_id = %s",
            [order.source_id, principal.namespace_id],
        )
    if row is None:
        return None
    queue_id, handler, handler_version, payload_version, payload, priority, created_at, deadline_at = row[:8]
    attempt_timeout_ms, mode, max_attempts, initial_backoff_ms, max_backoff_ms, multiplier, resource_key = row[8:]
    # An operator's RETRY may have added an attempt: beyond what a submit may ask for it is not asked for again.
    retry = NEVER
    if mode == RetryMode.SAFE:
        attempts = min(max_attempts, RETRY_ATTEMPTS_MAX)
        retry = RetryPolicy(mode, attempts, initial_backoff_ms, max_backoff_ms, multiplier)
    return SubmitRequest(
        queue_id=queue_id,
        handler=handler,
        handler_version=handler_version,
        payload_version=payload_version,
        payload=payload,
        priority=priority if order.priority is None else order.priority,
        delay_ms=order.delay_ms,
        expires_in_ms=None if deadline_at is None else (deadline_at - created_at) // US_PER_MS,
        attempt_timeout_ms=attempt_timeout_ms,
        retry=retry,
        resource_key=resource_key,
    )


# -- many tasks


@dataclass(frozen=True, slots=True)
class SelectionOrder:
    """Which tasks of a queue: in those states, of that handler (any version; None: any), the oldest `limit` of them.

    Tasks that were replayed or dismissed are never among them. `priority` None keeps that of each.
    """

    queue_id: str
    states: frozenset[TaskState] = frozenset({TaskState.FAILED})
    handler: str | None = None
    limit: int = REPLAY_LIMIT_MAX
    priority: int | None = None

    def digest(self) -> bytes:
        content = {
            "queue_id": self.queue_id,
            "states": sorted(self.states),
            "handler": self.handler,
            "limit": self.limit,
            "priority": self.priority,
        }
        return _digest(_MANY_FORM, content)


@dataclass(frozen=True, slots=True)
class ReplayedItem:
    """What became of one task of the selection; the result is told as that of a batch item."""

    source_task_id: str
    result: ItemResult


def replay_many(
    principal: Principal,
    order: SelectionOrder,
    *,
    key: str,
    is_over: Callable[[], bool],
    request_id: str | None = None,
    actor: Actor | None = None,
) -> list[ReplayedItem]:
    """Replays a selection, oldest first, each task in a transaction of its own.

    The selection is frozen under the key before the first replay: the same key again covers the same tasks, gives the
    same receipts and tries again what was refused or not reached. `is_over` says between two items that time is up.
    Raises InvalidArgument, NotFound, PermissionDenied, IdempotencyConflict, Unavailable, all before any replay.
    """
    who = actor or _credential(principal, request_id)
    sources = frozen_selection(principal, order, key=key, actor=who)
    results: list[ReplayedItem] = []
    for source_id in sources:
        if is_over():
            break
        item = _Order(source_id, order.priority)
        result = _replay_item(principal, item, _item_key(key, source_id), who)
        results.append(ReplayedItem(source_id, result))
        if result.verdict is Verdict.UNKNOWN or isinstance(result.error, Unauthenticated):
            break
    return results + [ReplayedItem(source_id, NOT_ATTEMPTED) for source_id in sources[len(results) :]]


def frozen_selection(
    principal: Principal, order: SelectionOrder, *, key: str, actor: Actor, reason: str | None = None
) -> list[str]:
    """The tasks that the key stands for: those of its first call, selected and frozen now if this is it."""
    fault = _selection_fault(principal, order)

    def run(tx: Tx) -> list[str]:
        now = current(tx, principal)
        now.require(Action.TASKS_REPLAY)
        found = tx.row(
            "SELECT digest, selection FROM orbit_idempotency_record WHERE namespace_id = %s AND operation = %s"
            f" AND idempotency_key = %s{dialect.for_update(tx.connection)}",
            [now.namespace_id, Operation.TASKS_REPLAY.value, key],
        )
        if found is not None:
            if bytes(found[0]) != order.digest():
                rule = "was used with other content"
                raise IdempotencyConflict(details=[{"field": "idempotency_key", "reason": rule}])
            now.require_queue(order.queue_id)
            return list(json.loads(found[1]))
        if fault is not None:
            raise fault
        _require_queue(tx, now, order.queue_id)
        return _freeze(tx, now, order, key, actor, reason)

    while True:
        try:
            selection = unit(run, on_unknown=lambda: unit(run))
            faults.point("replay_many.frozen")
            return selection
        except CommitOutcomeUnknown as error:
            raise Unavailable() from error
        except IntegrityError as error:
            # Another call with this key froze its selection while this one selected: that is the selection.
            if not is_duplicate_key(error):
                raise


def _selection_fault(principal: Principal, order: SelectionOrder) -> InvalidArgument | None:
    if not REPLAY_LIMIT_MIN <= order.limit <= REPLAY_LIMIT_MAX:
        rule = f"must be {REPLAY_LIMIT_MIN} to {REPLAY_LIMIT_MAX}"
        return InvalidArgument.field("limit", rule, minimum=REPLAY_LIMIT_MIN, maximum=REPLAY_LIMIT_MAX)
    if not order.states or not order.states <= REPLAYABLE:
        allowed = sorted(state.value for state in REPLAYABLE)
        return InvalidArgument.field("states", "must be some of CANCELED, EXPIRED and FAILED", allowed=allowed)
    lowest, highest = priority_range(principal.policy)
    if order.priority is not None and not lowest <= order.priority <= highest:
        return InvalidArgument.field("priority", f"must be {lowest} to {highest}", minimum=lowest, maximum=highest)
    return None


def _require_queue(tx: Tx, principal: Principal, queue_id: str) -> None:
    row = tx.row(
        "SELECT 1 FROM orbit_queue WHERE queue_id = %s AND namespace_id = %s", [queue_id, principal.namespace_id]
    )
    if row is None:
        raise NotFound("no such queue", details=[{"field": "queue_id", "reason": "no such queue"}])
    principal.require_queue(queue_id)


def _freeze(
    tx: Tx, principal: Principal, order: SelectionOrder, key: str, actor: Actor, reason: str | None
) -> list[str]:
    selection = _select(tx, principal, order)
    tx.insert(
        "orbit_idempotency_record",
        ("record_id", "namespace_id", "operation", "idempotency_key", "digest", "selection", "created_at"),
        [
            (
                ids.new_id(tx.now_us), principal.namespace_id, Operation.TASKS_REPLAY.value, key, order.digest(),
                json.dumps(selection), tx.now_us,
            )
        ],
    )  # fmt: skip
    asked = {"states": sorted(order.states), "handler": order.handler, "limit": order.limit}
    audit.write(
        tx, actor, Operation.TASKS_REPLAY.value, "queue", order.queue_id, namespace_id=principal.namespace_id,
        reason=reason, data={"selected": len(selection), **asked},
    )  # fmt: skip
    return selection


def _select(tx: Tx, principal: Principal, order: SelectionOrder) -> list[str]:
    """Oldest first: ids begin with the moment of acceptance."""
    where = "namespace_id = %s AND queue_id = %s AND replayed_as IS NULL AND dismissed_at IS NULL"
    params: list[Any] = [principal.namespace_id, order.queue_id]
    if order.states == {TaskState.FAILED}:
        where += " AND attention = 'DEAD'"  # the same rows, in order, by the index of what waits for a person
    else:
        where += f" AND state IN ({dialect.placeholders(sorted(order.states))})"
        params += sorted(state.value for state in order.states)
    if order.handler is not None:
        refs = tx.rows(
            "SELECT handler_ref FROM orbit_handler WHERE namespace_id = %s AND handler = %s",
            [principal.namespace_id, order.handler],
        )
        if not refs:
            return []
        where += f" AND handler_ref IN ({dialect.placeholders(refs)})"
        params += [ref for (ref,) in refs]
    rows = tx.rows(f"SELECT task_id FROM orbit_task WHERE {where} ORDER BY task_id LIMIT {order.limit}", params)
    return [task_id for (task_id,) in rows]


def _item_key(key: str, source_id: str) -> str:
    """The identity of one replay of a selection. The blank in it keeps it apart from every key that callers send."""
    return f"{hashlib.sha256(key.encode()).hexdigest()} {source_id}"


def _replay_item(principal: Principal, item: _Order, key: str, actor: Actor) -> ItemResult:
    try:
        replayed = _replay(principal, item, Operation.TASKS_REPLAY, key, actor)
    except Unavailable as error:
        return ItemResult(Verdict.UNKNOWN, error=error)
    except OrbitError as error:
        return ItemResult(Verdict.REJECTED, error=error)
    except Exception as error:
        # The database failed, or we did: what was committed before this item must be told all the same.
        telemetry.batch_item_failed(error)
        return ItemResult(Verdict.UNKNOWN, error=Unavailable())
    return ItemResult(Verdict.ACCEPTED, receipt=replayed.accepted.receipt)


# -- dismiss


def dismiss(principal: Principal, task_id: str, *, revision: int, reason: str, actor: Actor) -> TaskRow:
    """Takes a FAILED task out of the dead letters. Repeatable: dismissed twice is dismissed once.

    Raises NotFound, PermissionDenied, FailedPrecondition (not FAILED, or replayed; judged before the revision) and
    RevisionConflict.
    """

    def run(tx: Tx) -> TaskRow:
        row = lock_one(tx, task_id, namespace_id=principal.namespace_id)
        if row is None:
            raise NotFound("no such task")
        principal.require_queue(row.queue_id)
        return dismiss_locked(tx, row, revision=revision, reason=reason, actor=actor)

    return unit(run, on_unknown=lambda: unit(run))


def dismiss_locked(tx: Tx, row: TaskRow, *, revision: int, reason: str, actor: Actor) -> TaskRow:
    if row.state is not TaskState.FAILED:
        raise FailedPrecondition(
            f"only a FAILED task can be dismissed; this one is {row.state.value}",
            details=[{"field": "state", "reason": "must be FAILED", "state": row.state.value}],
        )
    if row.replayed_as is not None:
        raise FailedPrecondition(
            "the task was replayed: it is no dead letter",
            details=[{"field": "task_id", "reason": "was replayed", "task_id": row.replayed_as}],
        )
    ((dismissed_at,),) = tx.rows("SELECT dismissed_at FROM orbit_task WHERE task_id = %s", [row.task_id])
    if dismissed_at is not None:
        return row
    require_revision(row, revision)
    ledger = Ledger(tx)
    ledger.note(row, event=EventType.DISMISSED, data={"reason": reason}, changes={"dismissed_at": tx.now_us})
    ledger.also(
        *audit.statement(
            tx,
            actor,
            "task.dismiss",
            "task",
            row.task_id,
            namespace_id=row.namespace_id,
            reason=reason,
            revision_before=revision,
            revision_after=row.revision,
        )  # fmt: skip
    )
    ledger.flush()
    return row


def _credential(principal: Principal, request_id: str | None) -> Actor:
    return Actor(ActorKind.CREDENTIAL, principal.credential_id, request_id)


def _digest(form: bytes, content: dict[str, Any]) -> bytes:
    return hashlib.sha256(form + json.dumps(content, sort_keys=True).encode("ascii")).digest()
