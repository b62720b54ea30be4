"""Yield: unstarted reservations give way to more urgent work (design 3.3; seed strict priority, section 3).

What has started is never touched: a `start` that comes in meanwhile wins or loses by the row's transaction. A yielded
task keeps its place in line (`available_at` stays), is seen again after a short delay, and counts no attempt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.conf import settings

from tasks_app import faults, telemetry
from tasks_app.domain.attempts import Held
from tasks_app.domain.claims import ClaimOrder, claimable
from tasks_app.domain.task_rows import TaskRow, lock
from tasks_app.domain.transitions import Ledger
from tasks_app.instants import US_PER_MS
from tasks_app.states import EventType, Lane, TaskState
from tasks_app.transactions import Tx, unit

YIELD_JITTER_RATIO = 0.2


@dataclass(frozen=True, slots=True)
class Reservation:
    """An unstarted reservation of the session, as its locked row says."""

    held: Held
    priority: int
    yieldable: bool
    yields: int


Choose = Callable[[Sequence[Reservation], Sequence[int]], Sequence[Held]]


def give_way(order: ClaimOrder, reservations: Sequence[Held], choose: Choose) -> list[Held]:
    """Puts back what gives way to tasks that `order`'s session could claim now if it had room; returns what was put
    back.

    `order.limit` is how many urgent tasks at most are looked for. `choose` decides: it gets the reservations that are
    still unstarted and the priorities of the claimable tasks, most urgent first.
    """
    if not reservations:
        return []
    yielded = unit(lambda tx: _give_way_in(tx, order, reservations, choose))
    faults.point("yield.committed")
    return yielded


def _give_way_in(tx: Tx, order: ClaimOrder, reservations: Sequence[Held], choose: Choose) -> list[Held]:
    urgent = sorted((-candidate.tier for candidate in claimable(tx, order, order.limit)), reverse=True)
    if not urgent:
        return []
    rows = lock(tx, sorted(held.task_id for held in reservations), skip_locked=True)
    present = [
        Reservation(held, rows[held.task_id].priority, rows[held.task_id].yieldable, rows[held.task_id].yields)
        for held in reservations
        if _is_unstarted(rows.get(held.task_id), held)
    ]
    ledger = Ledger(tx)
    chosen = list(choose(present, urgent))
    for held in chosen:
        row = rows[held.task_id]
        delay_ms = settings.ORBIT.yield_delay_ms * random.uniform(1 - YIELD_JITTER_RATIO, 1 + YIELD_JITTER_RATIO)  # noqa: S311
        yields = row.yields + 1
        ledger.move(
            row,
            TaskState.READY,
            event=EventType.YIELDED,
            data={"yields": yields},
            changes={
                "lane": Lane.YIELDED.value,
                "visible_at": tx.now_us + round(delay_ms * US_PER_MS),
                "yields": yields,
                "yieldable": yields < settings.ORBIT.max_yields,
            },
        )
    ledger.flush()
    tx.after_commit(lambda: telemetry.YIELDS.inc(len(chosen)))
    faults.point("yield.before_commit")
    return chosen


def _is_unstarted(row: TaskRow | None, held: Held) -> bool:
    return (
        row is not None
        and row.state is TaskState.RESERVED
        and row.attempt_id == held.attempt_id
        and row.fencing_token == held.fencing_token
    )
