"""Why a task waits: the first gate that holds, with who holds the permit, when the budget frees, how many are ahead
(3.5).

The gates are those of a claim, in the order of a claim. The rows are read one after the other without locks: an answer
is true of a moment that has just passed, and authorises nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tasks_app import dialect
from tasks_app.domain.quotas import StartBudget
from tasks_app.states import HOLDS_RESOURCE_KEY, LEASED, Lane, TaskState
from tasks_app.transactions import Tx, reading

AHEAD_MAX: Final = 1000  # how far it is counted
HOLDERS_MAX: Final = 10


class Reason(Enum):
    """In the order in which they are looked for."""

    NOT_DUE = "NOT_DUE"
    YIELD_DELAY = "YIELD_DELAY"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    NO_COMPATIBLE_WORKER = "NO_COMPATIBLE_WORKER"
    APPLICATION_LIMIT = "APPLICATION_LIMIT"
    QUEUE_LIMIT = "QUEUE_LIMIT"
    RESOURCE_KEY = "RESOURCE_KEY"
    START_RATE = "START_RATE"
    NO_FREE_WORKER = "NO_FREE_WORKER"
    BEHIND_OTHERS = "BEHIND_OTHERS"


@dataclass(frozen=True, slots=True)
class Waiting:
    """`detail` says what goes with the reason; names that end in `_at` are instants (microseconds)."""

    reason: Reason
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Worker:
    """A connected worker session that takes offers."""

    session_id: str
    queue_ids: frozenset[str]
    handlers: frozenset[tuple[str, str]]
    resource_keys: bool
    capacity: int
    normal_reserved_slots: int = 0


# Who knows the connected workers of a namespace; an app above this one says so. None: nobody does, and nothing is said
# of workers.
_workers_of: Callable[[str], Sequence[Worker]] | None = None


def know_workers_by(look_up: Callable[[str], Sequence[Worker]]) -> None:
    """Registers who tells the connected workers of a namespace (its id), on whatever node they are."""
    global _workers_of
    _workers_of = look_up


def why(task_id: str) -> Waiting | None:
    """Why that task waits; None if it does not wait (any more). The caller has checked who asks."""
    with reading() as tx:
        task = _waiting_task(tx, task_id)
        return None if task is None else _first_gate(tx, task)


@dataclass(frozen=True, slots=True)
class _Task:
    """A waiting task with what its queue, its application and its resource key say at that moment."""

    task_id: str
    namespace_id: str
    queue_id: str
    handler: str
    handler_version: str
    handler_ref: int
    state: str
    lane: int
    priority: int
    tier: int
    dispatch_at: int
    available_at: int
    visible_at: int | None
    yields: int
    resource_ref: int | None
    resource_key: str | None
    held: int | None
    resource_limit: int
    paused: bool
    pause_reason: str | None
    queue_running: int
    queue_max_running: int | None
    application_running: int
    application_max_running: int | None
    queue_budget: StartBudget | None
    application_budget: StartBudget | None
    now_us: int


def _waiting_task(tx: Tx, task_id: str) -> _Task | None:
    row = tx.row(
        "SELECT t.task_id, t.namespace_id, t.queue_id, h.handler, h.handler_version, t.handler_ref, t.state, t.lane,"
        " t.priority, t.tier, t.dispatch_at, t.available_at, t.visible_at, t.yields, t.resource_ref, k.resource_key,"
        " k.held, n.resource_limit, q.paused, q.pause_reason, q.running, q.max_running, a.running, a.max_running,"
        " q.start_rate_starts, q.start_rate_per_ms, q.start_level, q.start_level_at,"
        f" a.start_rate_starts, a.start_rate_per_ms, a.start_level, a.start_level_at, {tx.now_sql}"
        " FROM orbit_task t JOIN orbit_handler h ON h.handler_ref = t.handler_ref"
        " JOIN orbit_queue q ON q.queue_id = t.queue_id JOIN orbit_namespace n ON n.namespace_id = t.namespace_id"
        " JOIN orbit_application a ON a.application_id = t.application_id"
        " LEFT JOIN orbit_resource_key k ON k.resource_ref = t.resource_ref"
        " WHERE t.task_id = %s AND t.state IN ('SCHEDULED', 'READY')",
        [task_id],
    )
    if row is None:
        return None
    values = [*row[:24], StartBudget.of(*row[24:28]), StartBudget.of(*row[28:32]), int(row[32])]
    return _Task(*values)


def _first_gate(tx: Tx, task: _Task) -> Waiting:
    found = _by_its_own_rows(tx, task)
    if found is not None:
        return found
    workers = None if _workers_of is None else _compatible(task, _workers_of(task.namespace_id))
    if workers is not None and not workers:
        detail = {"handler": task.handler, "handler_version": task.handler_version}
        if task.resource_key is not None:
            detail["resource_key"] = task.resource_key
        return Waiting(Reason.NO_COMPATIBLE_WORKER, detail)
    found = _by_permits(tx, task)
    if found is not None:
        return found
    if workers is not None:
        free, capacity = _free_slots(tx, task, workers)
        if free <= 0:
            return Waiting(Reason.NO_FREE_WORKER, {"workers": len(workers), "capacity": capacity})
    ahead = _ahead(tx, task)
    return Waiting(Reason.BEHIND_OTHERS, {"ahead": min(ahead, AHEAD_MAX), "more": ahead > AHEAD_MAX})


def _by_its_own_rows(tx: Tx, task: _Task) -> Waiting | None:
    if task.available_at > task.now_us:
        return Waiting(Reason.NOT_DUE, {"available_at": task.available_at})
    if task.lane == Lane.YIELDED and task.visible_at is not None and task.visible_at > task.now_us:
        return Waiting(Reason.YIELD_DELAY, {"visible_at": task.visible_at, "yields": task.yields})
    if task.paused:
        return Waiting(Reason.QUEUE_PAUSED, {"pause_reason": task.pause_reason})
    return None


def _by_permits(tx: Tx, task: _Task) -> Waiting | None:
    for reason, running, limit in (
        (Reason.APPLICATION_LIMIT, task.application_running, task.application_max_running),
        (Reason.QUEUE_LIMIT, task.queue_running, task.queue_max_running),
    ):
        if limit is not None and running >= limit:
            return Waiting(reason, {"running": running, "max_running": limit})
    if task.resource_ref is not None and task.held is not None and task.held >= task.resource_limit:
        detail = {"resource_key": task.resource_key, "limit": task.resource_limit, "holders": _holders(tx, task)}
        return Waiting(Reason.RESOURCE_KEY, detail)
    for scope, budget in (("application", task.application_budget), ("queue", task.queue_budget)):
        if budget is not None and budget.left(task.now_us) < 1:
            return Waiting(Reason.START_RATE, {"scope": scope, "next_at": budget.next_at(task.now_us)})
    return None


def _holders(tx: Tx, task: _Task) -> list[str]:
    """The tasks that hold the key, some of them if there are many."""
    states = sorted(state.value for state in HOLDS_RESOURCE_KEY)
    rows = tx.rows(
        f"SELECT task_id FROM orbit_task WHERE resource_ref = %s AND state IN ({dialect.placeholders(states)})"
        f" ORDER BY task_id LIMIT {HOLDERS_MAX}",
        [task.resource_ref, *states],
    )
    return [holder for (holder,) in rows]


def _compatible(task: _Task, workers: Sequence[Worker]) -> list[Worker]:
    return [
        worker
        for worker in workers
        if task.queue_id in worker.queue_ids
        and (task.handler, task.handler_version) in worker.handlers
        and (worker.resource_keys or task.resource_ref is None)
    ]


def _free_slots(tx: Tx, task: _Task, workers: Sequence[Worker]) -> tuple[int, int]:
    """(slots free for this task, slots altogether) of those workers."""
    queue_ids = sorted(frozenset().union(*(worker.queue_ids for worker in workers)))
    states = sorted(state.value for state in LEASED)
    rows = tx.rows(
        "SELECT session_id, COUNT(*), SUM(CASE WHEN priority > 0 THEN 1 ELSE 0 END) FROM orbit_task"
        f" WHERE queue_id IN ({dialect.placeholders(queue_ids)}) AND state IN ({dialect.placeholders(states)})"
        " GROUP BY session_id",
        [*queue_ids, *states],
    )
    held = {session_id: (int(count), int(urgent)) for session_id, count, urgent in rows}
    free = 0
    for worker in workers:
        count, urgent = held.get(worker.session_id, (0, 0))
        slots = worker.capacity - count
        if task.priority > 0:
            slots = min(slots, worker.capacity - worker.normal_reserved_slots - urgent)
        free += max(0, slots)
    return free, sum(worker.capacity for worker in workers)


def _ahead(tx: Tx, task: _Task) -> int:
    """How many READY tasks of the queue the order puts first, counted up to one past `AHEAD_MAX`: one seek a
    handler."""
    index = dialect.force_index(tx.connection, "task_to_claim")
    before = (
        "(tier < %s OR (tier = %s AND (dispatch_at < %s OR (dispatch_at = %s"
        " AND (available_at < %s OR (available_at = %s AND task_id < %s))))))"
    )
    place = [
        task.tier,
        task.tier,
        task.dispatch_at,
        task.dispatch_at,
        task.available_at,
        task.available_at,
        task.task_id,
    ]
    total = 0
    for lane in (Lane.OPEN, Lane.KEYED):
        line = [task.queue_id, TaskState.READY.value, lane.value]
        handler_ref = 0
        while total <= AHEAD_MAX:
            row = tx.row(
                f"SELECT handler_ref FROM orbit_task{index} WHERE queue_id = %s AND state = %s AND lane = %s"
                " AND handler_ref > %s ORDER BY handler_ref LIMIT 1",
                [*line, handler_ref],
            )
            if row is None:
                break
            handler_ref = row[0]
            ((count,),) = tx.rows(
                f"SELECT COUNT(*) FROM (SELECT 1 FROM orbit_task{index} WHERE queue_id = %s AND state = %s"
                f" AND lane = %s AND handler_ref = %s AND {before} LIMIT {AHEAD_MAX + 1 - total}) ahead",
                [*line, handler_ref, *place],
            )
            total += int(count)
    return total
