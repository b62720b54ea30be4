"""Acceptance: a receipt means that the task, its idempotency record, its quota change, its event and its audit entry
are in one committed transaction (design 1.2).

    judged before the unit     semantic faults, whatever the time
    in one unit, in order      credential and scope again -> receipt of the key -> times, parent -> rows -> quotas last

Every way to make a task (submit, batch item, replay, plan firing) comes through `accept`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from django.db import IntegrityError

from tasks_app import dialect, faults, ids, telemetry
from tasks_app.columns import AUDIT_COLUMNS, EVENT_COLUMNS, RECORD_COLUMNS, TASK_INSERT_COLUMNS
from tasks_app.domain import audit, quotas, resources
from tasks_app.domain.audit import Actor
from tasks_app.domain.tenancy import Principal, current, current_query, principal_of
from tasks_app.errors import (
    ApplicationFull,
    FailedPrecondition,
    IdempotencyConflict,
    NotFound,
    OrbitError,
    QueueFull,
    Unavailable,
)
from tasks_app.hints import Hint, HintKind, publish
from tasks_app.models import ActorKind, Operation
from tasks_app.states import Action, EventType, Lane, Policy, TaskState
from tasks_app.submission_request import SubmitRequest, resolve_times, semantic_fault, time_fault
from tasks_app.transactions import CommitOutcomeUnknown, Tx, insert_statement, unit

InSameUnit: TypeAlias = "Callable[[Tx, AcceptedTask], None]"


@dataclass(frozen=True, slots=True)
class Submission:
    """One request to accept one task: its identity (operation, key), its content, and what else the task will say."""

    key: str
    request: SubmitRequest
    digest: bytes
    operation: Operation = Operation.TASK_SUBMIT
    action: Action = Action.TASKS_SUBMIT
    replayed_from: str | None = None
    plan_id: str | None = None
    traceparent: str | None = None
    # What belongs to the acceptance beside the task's own rows. Runs in the same unit, before they are written and
    # before any other lock is taken but the key's; what it raises refuses the submission. Not run for a repeat.
    in_same_unit: InSameUnit | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was promised at acceptance; the same for as long as the key lives."""

    task_id: str
    queue_id: str
    created_at: int
    deduplicated: bool
    revision: str = "1"


@dataclass(frozen=True, slots=True)
class AcceptedTask:
    """The task as it was written, for an answer that needs no second look."""

    task_id: str
    priority: int
    state: TaskState
    available_at: int
    deadline_at: int | None
    created_at: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """`task` is None for a repeated acceptance: the task has moved on, ask for it."""

    receipt: Receipt
    task: AcceptedTask | None


def accept(
    principal: Principal, submission: Submission, *, request_id: str | None = None, actor: Actor | None = None
) -> Accepted:
    """Accepts a task, or returns the receipt of the key that it was accepted under before.

    `actor` is who the audit names, where that is not the credential.

    Two simultaneous calls with one key make one task: the second waits for the first, and is the acceptance if the
    first rolls back. Raises a domain error for a refusal (nothing is written), Unavailable when the outcome cannot be
    learned.
    """
    fault = semantic_fault(submission.request, principal.policy)
    try:
        actor = actor or Actor(ActorKind.CREDENTIAL, principal.credential_id, request_id)
        accepted = _accept_until_definite(principal, submission, fault, actor)
    except CommitOutcomeUnknown as error:
        raise Unavailable() from error
    except OrbitError as error:
        telemetry.REJECTED.labels(code=error.code).inc()
        raise
    faults.point("accept.committed")
    telemetry.ACCEPTED.labels(deduplicated=str(accepted.receipt.deduplicated).lower()).inc()
    return accepted


@dataclass
class _References:
    """Rows that the task will point to. They are made and committed before the unit, so that no unit waits for them."""

    handler_ref: int | None = None
    resource_ref: int | None = None


class _ReferenceMissing(Exception):
    """Everything else is in order: make the rows the task points to, then come again."""


def _accept_until_definite(
    principal: Principal, submission: Submission, fault: OrbitError | None, actor: Actor
) -> Accepted:
    references = _References(
        handler_ref=_known_handler(
            principal.namespace_id, submission.request.handler, submission.request.handler_version
        ),
        resource_ref=None
        if submission.request.resource_key is None
        else _known_resource(principal.namespace_id, submission.request.resource_key),
    )

    def run(tx: Tx) -> Accepted:
        return _accept_in(tx, principal, submission, fault, references, actor)

    def look_again() -> Accepted:
        # The locking read in `_accept_in` waits for the lost transaction to end; what it then sees is the truth.
        return unit(run)

    while True:
        try:
            return unit(run, on_unknown=look_again)
        except _ReferenceMissing:
            _make_references(principal.namespace_id, submission.request, references)
        except IntegrityError as error:
            # Another request with the same key committed while this one waited: its receipt answers this one too.
            if not is_duplicate_key(error):
                raise


def _accept_in(
    tx: Tx,
    asked_by: Principal,
    submission: Submission,
    fault: OrbitError | None,
    references: _References,
    actor: Actor,
) -> Accepted:
    request = submission.request
    # One round trip: the credential as it is now, the receipt of the key, the queue and what is in it.
    credential_rows, record_rows, queue_rows = tx.queries(
        current_query(tx, asked_by),
        _record_query(tx, asked_by.namespace_id, submission.operation, submission.key),
        _queue_query(asked_by.namespace_id, request.queue_id),
    )
    principal = principal_of(tx, credential_rows)
    principal.require(submission.action)
    receipt = _receipt_of(record_rows, submission.digest)
    if receipt is not None:
        principal.require_queue(receipt.queue_id)
        return Accepted(receipt, None)
    if fault is not None:
        raise fault
    queue = _queue_of(queue_rows, principal, request)
    if (found := time_fault(request, tx.now_us)) is not None:
        raise found
    parent_priority = _parent_priority(tx, principal, request)
    task = _shape(tx, principal, request, queue, parent_priority)
    if submission.in_same_unit is not None:
        submission.in_same_unit(tx, task)
    _refuse_if_full(queue)
    if references.handler_ref is None or (request.resource_key is not None and references.resource_ref is None):
        raise _ReferenceMissing
    _insert(tx, principal, submission, references, task, actor)
    faults.point("accept.before_commit")
    return Accepted(Receipt(task.task_id, request.queue_id, task.created_at, deduplicated=False), task)


def find_receipt(
    principal: Principal, *, operation: Operation, action: Action, key: str, digest: bytes
) -> Receipt | None:
    """The receipt of a key, for a repeat whose request cannot be made up again. Raises IdempotencyConflict and what
    the credential refuses.
    """

    def look(tx: Tx) -> Receipt | None:
        now = current(tx, principal)
        now.require(action)
        receipt = _receipt_of(tx.rows(*_record_query(tx, now.namespace_id, operation, key)), digest)
        if receipt is not None:
            now.require_queue(receipt.queue_id)
        return receipt

    return unit(look)


def _record_query(tx: Tx, namespace_id: str, operation: Operation, key: str) -> tuple[str, list[Any]]:
    """A locking read: it waits for a transaction that is still writing the key."""
    return (
        "SELECT digest, task_id, queue_id, created_at FROM orbit_idempotency_record"
        f" WHERE namespace_id = %s AND operation = %s AND idempotency_key = %s{dialect.for_update(tx.connection)}",
        [namespace_id, operation.value, key],
    )


def _receipt_of(rows: Sequence[tuple[Any, ...]], wanted: bytes) -> Receipt | None:
    """The receipt of the key, if it has one. Raises IdempotencyConflict when the key stands for other content."""
    if not rows:
        return None
    digest, task_id, queue_id, created_at = rows[0]
    if bytes(digest) != wanted:
        raise IdempotencyConflict(
            details=[{"field": "idempotency_key", "reason": "was used with other content", "task_id": task_id}]
        )
    return Receipt(task_id, queue_id, created_at, deduplicated=True)


@dataclass(frozen=True, slots=True)
class _Queue:
    default_priority: int | None
    max_unfinished: int | None
    unfinished: int
    application_max_unfinished: int | None
    application_unfinished: int


def _queue_query(namespace_id: str, queue_id: str) -> tuple[str, list[Any]]:
    return (
        "SELECT q.default_priority, q.max_unfinished, q.unfinished, a.max_unfinished, a.unfinished"
        " FROM orbit_queue q JOIN orbit_application a ON a.application_id = q.application_id"
        " WHERE q.queue_id = %s AND q.namespace_id = %s",
        [queue_id, namespace_id],
    )


def _queue_of(rows: Sequence[tuple[Any, ...]], principal: Principal, request: SubmitRequest) -> _Queue:
    if not rows:
        raise NotFound("no such queue", details=[{"field": "queue_id", "reason": "no such queue"}])
    principal.require_queue(request.queue_id)
    return _Queue(*rows[0])


def _refuse_if_full(queue: _Queue) -> None:
    """Spares the writes where the limit is reached already; the guarded counters decide."""
    if queue.max_unfinished is not None and queue.unfinished >= queue.max_unfinished:
        raise QueueFull()
    if (
        queue.application_max_unfinished is not None
        and queue.application_unfinished >= queue.application_max_unfinished
    ):
        raise ApplicationFull()


def _parent_priority(tx: Tx, principal: Principal, request: SubmitRequest) -> int | None:
    """The priority of the running parent; None where there is no parent. Raises FailedPrecondition for a stale
    token.
    """
    if request.parent_task_id is None:
        return None
    row = tx.row(
        "SELECT state, fencing_token, priority, lease_until FROM orbit_task WHERE task_id = %s AND namespace_id = %s"
        f"{dialect.for_update(tx.connection)}",
        [request.parent_task_id, principal.namespace_id],
    )
    current = row is not None and row[0] == TaskState.RUNNING and str(row[1]) == request.parent_fencing_token
    # A lease that ran out is over even before a sweep has noticed.
    if row is None or not current or row[3] <= tx.now_us:
        raise FailedPrecondition(
            "the parent is not running under this fencing token",
            details=[{"field": "parent_fencing_token", "reason": "is not the current token of a running parent"}],
        )
    return int(row[2])


def _shape(
    tx: Tx, principal: Principal, request: SubmitRequest, queue: _Queue, parent_priority: int | None
) -> AcceptedTask:
    available_at, deadline_at = resolve_times(request, tx.now_us)
    if request.priority is not None:
        priority = request.priority
    elif parent_priority is not None:
        priority = parent_priority
    elif principal.policy is Policy.AGED:
        priority = 0
    else:
        priority = principal.default_priority if queue.default_priority is None else queue.default_priority
    return AcceptedTask(
        task_id=ids.new_id(tx.now_us),
        priority=priority,
        state=TaskState.READY if available_at <= tx.now_us else TaskState.SCHEDULED,
        available_at=available_at,
        deadline_at=deadline_at,
        created_at=tx.now_us,
    )


def _insert(
    tx: Tx, principal: Principal, submission: Submission, references: _References, task: AcceptedTask, actor: Actor
) -> None:
    request, now = submission.request, tx.now_us
    ready = task.state is TaskState.READY
    keyed = references.resource_ref is not None
    tier = 0 if principal.policy is Policy.AGED else -task.priority
    lane = Lane.HELD if ready and keyed else Lane.OPEN
    retry = request.retry
    record = insert_statement(
        "orbit_idempotency_record",
        RECORD_COLUMNS,
        [(ids.new_id(now), principal.namespace_id, submission.operation.value, submission.key, submission.digest,
          task.task_id, request.queue_id, now)],
    )  # fmt: skip
    row = insert_statement(
        "orbit_task",
        TASK_INSERT_COLUMNS,
        [(task.task_id, principal.namespace_id, principal.application_id, request.queue_id, references.handler_ref,
          request.payload_version, request.payload, task.priority, tier, task.state.value, lane.value, 1, 0,
          retry.max_attempts, 0, retry.mode, retry.initial_backoff_ms, retry.max_backoff_ms, retry.multiplier,
          task.available_at, task.deadline_at, request.attempt_timeout_ms, references.resource_ref, 0, 0, True,
          submission.replayed_from, submission.plan_id, request.parent_task_id, submission.traceparent, now, now)],
    )  # fmt: skip
    event = insert_statement(
        "orbit_event",
        EVENT_COLUMNS,
        [(ids.new_id(now), principal.namespace_id, task.task_id, request.queue_id, EventType.ACCEPTED.value, 1,
          task.state.value, now, json.dumps({"priority": task.priority}))],
    )  # fmt: skip
    entry = insert_statement(
        "orbit_audit_entry",
        AUDIT_COLUMNS,
        [audit.entry(tx, actor, submission.operation.value, "task", task.task_id, namespace_id=principal.namespace_id,
                     revision_after=1)],
    )  # fmt: skip
    counters, judge = quotas.counter_statements({request.queue_id: (1, 0)}, {principal.application_id: (1, 0)})
    if keyed and ready:
        assert references.resource_ref is not None and references.handler_ref is not None
        tx.script([record, row])
        group = (request.queue_id, references.handler_ref)
        resources.settle_one(tx, references.resource_ref, held=0, groups=[group])
        judge(tx.script([event, entry, *counters])[2:])
    else:
        judge(tx.script([record, row, event, entry, *counters])[4:])
    hint = Hint(HintKind.WORK_ADDED, namespace_id=principal.namespace_id, queue_id=request.queue_id,
                task_id=task.task_id, handler_ref=references.handler_ref or 0,
                priority=task.priority)  # fmt: skip
    if ready:
        tx.after_commit(lambda: publish(hint))


def is_duplicate_key(error: IntegrityError) -> bool:
    """The unique key of idempotency records was hit; any other broken constraint is a fault of ours."""
    text = str(error)
    return "idempotency_key_unique" in text or "orbit_idempotency_record.idempotency_key" in text


# -- handlers and resource keys: made on demand, in a transaction of their own, never inside the unit that needs them


def _make_references(namespace_id: str, request: SubmitRequest, references: _References) -> None:
    references.handler_ref = handler_ref(namespace_id, request.handler, request.handler_version, make=True)
    if request.resource_key is not None:
        references.resource_ref = _resource_ref(namespace_id, request.resource_key, make=True)


def handler_ref(namespace_id: str, handler: str, handler_version: str, *, make: bool = False) -> int | None:
    """The small integer of a handler; made if asked for, else None when nobody ever submitted to it."""
    known = _known_handler(namespace_id, handler, handler_version)
    if known is not None:
        return known
    identity = {"namespace_id": namespace_id, "handler": handler, "handler_version": handler_version}
    found = _look_up("orbit_handler", "handler_ref", identity, {}, make)
    if found is not None:
        _handlers[namespace_id, handler, handler_version] = found
    return found


def _resource_ref(namespace_id: str, resource_key: str, *, make: bool) -> int | None:
    identity = {"namespace_id": namespace_id, "resource_key": resource_key}
    return _look_up("orbit_resource_key", "resource_ref", identity, {"held": 0}, make)


_CACHE_SIZE_MAX = 10_000
_handlers: dict[tuple[str, str, str], int] = {}


def _known_handler(namespace_id: str, handler: str, handler_version: str) -> int | None:
    """From this process's memory: the row of a handler never changes and is never deleted."""
    if len(_handlers) > _CACHE_SIZE_MAX:
        _handlers.clear()
    return _handlers.get((namespace_id, handler, handler_version))


def _known_resource(namespace_id: str, resource_key: str) -> int | None:
    return _resource_ref(namespace_id, resource_key, make=False)


def forget_references() -> None:
    """For tests that empty the tables under a running process."""
    _handlers.clear()


def _look_up(table: str, column: str, identity: dict[str, Any], more: dict[str, Any], make: bool) -> int | None:
    where = " AND ".join(f"{name} = %s" for name in identity)
    select = f"SELECT {column} FROM {table} WHERE {where}"

    def find(tx: Tx) -> int | None:
        row = tx.row(select, list(identity.values()))
        if row is None and make:
            columns = {**identity, **more}
            tx.execute(
                f"{dialect.insert_ignore(tx.connection)} {table} ({', '.join(columns)})"
                f" VALUES ({dialect.placeholders(list(columns))})",
                list(columns.values()),
            )
        return None if row is None else int(row[0])

    found = unit(find)
    # A row that another request made meanwhile is seen by a fresh look.
    return unit(functools.partial(_only, select, list(identity.values()))) if found is None and make else found


def _only(select: str, params: list[Any], tx: Tx) -> int:
    row = tx.row(select, params)
    assert row is not None
    return int(row[0])


def with_priority(request: SubmitRequest, priority: int | None) -> SubmitRequest:
    return request if priority is None else replace(request, priority=priority)
