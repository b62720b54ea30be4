"""What stands in a queue: counts, backlog by priority with the oldest wait, start budget (design 1.5).

Starvation of low priorities is possible by design in a STRICT namespace; here it is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tasks_app import dialect
from tasks_app.domain.quotas import StartBudget
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import NotFound
from tasks_app.instants import US_PER_MS, US_PER_SECOND
from tasks_app.limits import AGED_STEP_SECONDS
from tasks_app.states import Lane, TaskState
from tasks_app.transactions import Tx, reading


@dataclass(frozen=True, slots=True)
class BudgetView:
    """Starts left now, and when the next one is possible (microseconds; now, if one is)."""

    left: int
    next_at: int


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """`backlog` and `oldest_waiting_ms` count due tasks that nobody holds, by priority, highest first."""

    counts: Mapping[str, int]
    backlog: Mapping[int, int]
    oldest_waiting_ms: Mapping[int, int]
    start_budget: BudgetView | None
    head_task_id: str | None

    @property
    def running(self) -> int:
        return self.counts[TaskState.RUNNING]

    @property
    def reserved(self) -> int:
        return self.counts[TaskState.RESERVED]


def of_queue(principal: Principal, queue_id: str) -> QueueStatistics:
    """Raises NotFound, PermissionDenied."""
    with reading() as tx:
        row = tx.row(
            f"SELECT start_rate_starts, start_rate_per_ms, start_level, start_level_at, {tx.now_sql}"
            " FROM orbit_queue WHERE queue_id = %s AND namespace_id = %s",
            [queue_id, principal.namespace_id],
        )
        if row is None:
            raise NotFound("no such queue", details=[{"field": "queue_id", "reason": "no such queue"}])
        principal.require_queue(queue_id)
        now_us = int(row[4])
        index = dialect.force_index(tx.connection, "task_to_claim")
        counts = {state.value: 0 for state in TaskState} | dict(
            tx.rows(f"SELECT state, COUNT(*) FROM orbit_task{index} WHERE queue_id = %s GROUP BY state", [queue_id])
        )
        backlog, oldest = _backlog(tx, queue_id, now_us)
        head = _head(tx, queue_id)
    budget = StartBudget.of(*row[:4])
    return QueueStatistics(
        counts=counts,
        backlog=backlog,
        oldest_waiting_ms={priority: max(0, now_us - at) // US_PER_MS for priority, at in oldest.items()},
        start_budget=None if budget is None else BudgetView(budget.left(now_us), budget.next_at(now_us)),
        head_task_id=head,
    )


def _backlog(tx: Tx, queue_id: str, now_us: int) -> tuple[dict[int, int], dict[int, int]]:
    """(waiting, oldest `available_at`) by priority.

    The priority is computed back from the columns of the claim index (`dispatch_at` is `available_at` less the
    advantage of the priority, `tier` is minus the priority in a STRICT namespace), so that no row of a long backlog is
    read.
    """
    in_line, to_wake = (dialect.force_index(tx.connection, name) for name in ("task_to_claim", "task_to_wake"))
    # What is due but not moved yet is found by when it should have been woken: among millions that are not due.
    rows = tx.rows(
        "SELECT tier, advantage, SUM(waiting), MIN(oldest) FROM ("
        "SELECT tier, available_at - dispatch_at AS advantage, COUNT(*) AS waiting, MIN(available_at) AS oldest"
        f" FROM orbit_task{in_line} WHERE queue_id = %s AND state = 'READY' GROUP BY tier, available_at - dispatch_at"
        " UNION ALL "
        "SELECT tier, available_at - dispatch_at, COUNT(*), MIN(available_at)"
        f" FROM orbit_task{to_wake}"
        " WHERE wake_at <= %s AND queue_id = %s AND state = 'SCHEDULED' AND available_at <= %s"
        " GROUP BY tier, available_at - dispatch_at) due GROUP BY tier, advantage",
        [queue_id, now_us, queue_id, now_us],
    )
    step_us = AGED_STEP_SECONDS * US_PER_SECOND
    by_priority = {int(advantage) // step_us - tier: (int(count), oldest) for tier, advantage, count, oldest in rows}
    priorities = sorted(by_priority, reverse=True)
    return {p: by_priority[p][0] for p in priorities}, {p: by_priority[p][1] for p in priorities}


def _head(tx: Tx, queue_id: str) -> str | None:
    """The READY task that the order puts first, whatever holds it back: one seek per lane and handler."""
    index = dialect.force_index(tx.connection, "task_to_claim")
    best: tuple[Any, ...] | None = None
    for lane in Lane:
        handler_ref = 0
        while True:
            row = tx.row(
                f"SELECT handler_ref, tier, dispatch_at, available_at, task_id FROM orbit_task{index}"
                " WHERE queue_id = %s AND state = %s AND lane = %s AND handler_ref > %s"
                " ORDER BY handler_ref, tier, dispatch_at, available_at, task_id LIMIT 1",
                [queue_id, TaskState.READY.value, lane.value, handler_ref],
            )
            if row is None:
                break
            handler_ref = row[0]
            best = row[1:] if best is None else min(best, tuple(row[1:]))
    return None if best is None else best[-1]
