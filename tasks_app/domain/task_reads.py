"""Looking at tasks: one, a page of them, the events of one (design 1.4). Reads take no locks and no transaction.

What belongs to another namespace is not found: its row is looked for by id and tenant together, which is the same work
as for an id that was never issued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tasks_app import dialect, ids
from tasks_app.domain.submission import Accepted
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import NotFound
from tasks_app.instants import US_PER_SECOND
from tasks_app.retries import RetryPolicy
from tasks_app.states import WAITING, TaskState
from tasks_app.submission_request import SubmitRequest
from tasks_app.transactions import Tx, reading


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as it is shown. Instants are microseconds; `payload`, `result` and `error` are JSON text, exactly as kept,
    and None in a summary (`error` is kept there too: its code and message are shown)."""

    task_id: str
    queue_id: str
    handler: str
    handler_version: str
    payload_version: str
    payload: str | None
    priority: int
    state: TaskState
    revision: int
    attempts: int
    retry: RetryPolicy
    losses: int
    available_at: int
    deadline_at: int | None
    attempt_timeout_ms: int | None
    resource_key: str | None
    created_at: int
    updated_at: int
    finished_at: int | None
    result: str | None
    error: str | None
    cancel_requested: bool
    replayed_from: str | None
    replayed_as: str | None
    plan_id: str | None
    parent_task_id: str | None
    yields: int

    @property
    def waits(self) -> bool:
        return self.state in WAITING


_COLUMNS: Final = (
    "t.task_id, t.queue_id, h.handler, h.handler_version, t.payload_version, {payload}, t.priority, t.state,"
    " t.revision, t.attempts, t.retry_mode, t.max_attempts, t.initial_backoff_ms, t.max_backoff_ms, t.multiplier,"
    " t.losses, t.available_at, t.deadline_at, t.attempt_timeout_ms, k.resource_key, t.created_at, t.updated_at,"
    " t.finished_at, {result}, t.error, t.cancel_requested_at, t.replayed_from, t.replayed_as, t.plan_id,"
    " t.parent_task_id, t.yields"
)
_WHOLE: Final = _COLUMNS.format(payload="t.payload", result="t.result")
_SUMMARY: Final = _COLUMNS.format(payload="NULL", result="NULL")
_JOINS: Final = (
    " JOIN orbit_handler h ON h.handler_ref = t.handler_ref"
    " LEFT JOIN orbit_resource_key k ON k.resource_ref = t.resource_ref"
)


def get(principal: Principal, task_id: str) -> TaskView:
    """Raises NotFound; PermissionDenied for a task of a queue outside the credential's scope."""
    with reading() as tx:
        task = _find(tx, principal.namespace_id, task_id)
    if task is None:
        raise NotFound("no such task")
    principal.require_queue(task.queue_id)
    return task


def find(principal: Principal, task_id: str) -> TaskView | None:
    """The task if it is still kept, for an answer that has checked the scope already."""
    with reading() as tx:
        return _find(tx, principal.namespace_id, task_id)


def as_accepted(accepted: Accepted, request: SubmitRequest, *, replayed_from: str | None = None) -> TaskView | None:
    """The task that `accept` has just written, without a look at the database; None for a repeated acceptance."""
    task = accepted.task
    if task is None:
        return None
    return TaskView(
        task_id=task.task_id,
        queue_id=request.queue_id,
        handler=request.handler,
        handler_version=request.handler_version,
        payload_version=request.payload_version,
        payload=request.payload,
        priority=task.priority,
        state=task.state,
        revision=1,
        attempts=0,
        retry=request.retry,
        losses=0,
        available_at=task.available_at,
        deadline_at=task.deadline_at,
        attempt_timeout_ms=request.attempt_timeout_ms,
        resource_key=request.resource_key,
        created_at=task.created_at,
        updated_at=task.created_at,
        finished_at=None,
        result=None,
        error=None,
        cancel_requested=False,
        replayed_from=replayed_from,
        replayed_as=None,
        plan_id=None,
        parent_task_id=request.parent_task_id,
        yields=0,
    )


def _find(tx: Tx, namespace_id: str, task_id: str) -> TaskView | None:
    row = tx.row(
        f"SELECT {_WHOLE} FROM orbit_task t{_JOINS} WHERE t.task_id = %s AND t.namespace_id = %s",
        [task_id, namespace_id],
    )
    return None if row is None else _from_columns(row)


# -- pages


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """What a page of tasks is narrowed to; None and empty mean everything. Instants are microseconds."""

    queue_id: str | None = None
    states: Sequence[TaskState] = field(default_factory=tuple)
    handler: str | None = None
    priority: int | None = None
    resource_key: str | None = None
    created_from: int | None = None
    created_to: int | None = None
    dead: bool | None = None


def page(
    principal: Principal, narrowed: TaskFilter, *, limit: int, before: str | None
) -> tuple[list[TaskView], str | None]:
    """Up to `limit` summaries in the credential's scope, newest first, and the id to go on before (None at the end).

    Raises NotFound or PermissionDenied for the queue of the filter.
    """
    with reading() as tx:
        if narrowed.queue_id is not None:
            _require_queue(tx, principal, narrowed.queue_id)
        conditions = _conditions(tx, principal, narrowed)
        if conditions is None:
            return [], None
        where, params = conditions
        if before is not None:
            where, params = f"{where} AND t.task_id < %s", [*params, before]
        # Ids first, from an index; the rows of the page alone are then read whole.
        found = tx.rows(
            f"SELECT t.task_id FROM orbit_task t WHERE {where} ORDER BY t.task_id DESC LIMIT {limit + 1}",
            params,
        )
        wanted = [task_id for (task_id,) in found[:limit]]
        tasks = _summaries(tx, wanted)
    return tasks, wanted[-1] if len(found) > limit else None


def _summaries(tx: Tx, task_ids: Sequence[str]) -> list[TaskView]:
    if not task_ids:
        return []
    rows = tx.rows(
        f"SELECT {_SUMMARY} FROM orbit_task t{_JOINS} WHERE t.task_id IN ({dialect.placeholders(task_ids)})"
        " ORDER BY t.task_id DESC",
        task_ids,
    )
    return [_from_columns(row) for row in rows]


def _conditions(tx: Tx, principal: Principal, narrowed: TaskFilter) -> tuple[str, list[Any]] | None:
    """WHERE and its parameters; None where nothing can match."""
    clauses: list[str] = ["t.namespace_id = %s"]
    params: list[Any] = [principal.namespace_id]

    def add(clause: str, *values: Any) -> None:
        clauses.append(clause)
        params.extend(values)

    def among(column: str, values: Sequence[Any]) -> None:
        add(f"{column} IN ({dialect.placeholders(values)})", *values)

    if narrowed.queue_id is not None:
        add("t.queue_id = %s", narrowed.queue_id)
    elif principal.queue_scope is not None:
        if not principal.queue_scope:
            return None
        among("t.queue_id", sorted(principal.queue_scope))
    if narrowed.states:
        among("t.state", [state.value for state in narrowed.states])
        if set(narrowed.states) == {TaskState.UNKNOWN}:
            add("t.attention = 'UNKNOWN'")  # the same rows, by the index of what waits for a person
    if narrowed.dead is True:
        add("t.attention = 'DEAD'")
    elif narrowed.dead is False:
        add("(t.attention IS NULL OR t.attention <> 'DEAD')")
    if narrowed.priority is not None:
        add("t.priority = %s", narrowed.priority)
    if narrowed.handler is not None:
        refs = tx.rows(
            "SELECT handler_ref FROM orbit_handler WHERE namespace_id = %s AND handler = %s",
            [principal.namespace_id, narrowed.handler],
        )
        if not refs:
            return None
        among("t.handler_ref", [ref for (ref,) in refs])
    if narrowed.resource_key is not None:
        ref = tx.row(
            "SELECT resource_ref FROM orbit_resource_key WHERE namespace_id = %s AND resource_key = %s",
            [principal.namespace_id, narrowed.resource_key],
        )
        if ref is None:
            return None
        add("t.resource_ref = %s", ref[0])
    # Ids begin with the moment of acceptance: the range of ids spares the rows outside, the column decides exactly.
    if narrowed.created_from is not None:
        add("t.created_at >= %s AND t.task_id >= %s", narrowed.created_from, _id_floor(narrowed.created_from))
    if narrowed.created_to is not None:
        slack = narrowed.created_to + 2 * US_PER_SECOND  # ids of one burst may run ahead of the clock by a second
        add("t.created_at < %s AND t.task_id < %s", narrowed.created_to, _id_floor(slack))
    return " AND ".join(clauses), params


def _id_floor(at_us: int) -> str:
    return ids.id_floor(max(0, at_us))


def _require_queue(tx: Tx, principal: Principal, queue_id: str) -> None:
    row = tx.row(
        "SELECT 1 FROM orbit_queue WHERE queue_id = %s AND namespace_id = %s", [queue_id, principal.namespace_id]
    )
    if row is None:
        raise NotFound("no such queue", details=[{"field": "queue_id", "reason": "no such queue"}])
    principal.require_queue(queue_id)


def _from_columns(row: Sequence[Any]) -> TaskView:
    (
        task_id, queue_id, handler, handler_version, payload_version, payload, priority, state, revision, attempts,
        retry_mode, max_attempts, initial_backoff_ms, max_backoff_ms, multiplier, losses, available_at, deadline_at,
        attempt_timeout_ms, resource_key, created_at, updated_at, finished_at, result, error, cancel_requested_at,
        replayed_from, replayed_as, plan_id, parent_task_id, yields,
    ) = row  # fmt: skip
    return TaskView(
        task_id=task_id,
        queue_id=queue_id,
        handler=handler,
        handler_version=handler_version,
        payload_version=payload_version,
        payload=payload,
        priority=priority,
        state=TaskState(state),
        revision=revision,
        attempts=attempts,
        retry=RetryPolicy(retry_mode, max_attempts, initial_backoff_ms, max_backoff_ms, multiplier),
        losses=losses,
        available_at=available_at,
        deadline_at=deadline_at,
        attempt_timeout_ms=attempt_timeout_ms,
        resource_key=resource_key,
        created_at=created_at,
        updated_at=updated_at,
        finished_at=finished_at,
        result=result,
        error=error,
        cancel_requested=cancel_requested_at is not None,
        replayed_from=replayed_from,
        replayed_as=replayed_as,
        plan_id=plan_id,
        parent_task_id=parent_task_id,
        yields=yields,
    )
