"""Sweeps: what time does to tasks (design 3.6). Every node runs them every second, in small batches.

One index (`wake_at`, computed by the database) names the rows whose time has come; each is locked with SKIP LOCKED,
looked at again, and moved by the row's own stored policy. A sweep that acts on an old reading changes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from django.conf import settings

from tasks_app import dialect, faults, telemetry
from tasks_app.domain import resources
from tasks_app.domain.attempts import apply_ending
from tasks_app.domain.task_rows import TaskRow, lock
from tasks_app.domain.transitions import Ledger
from tasks_app.endings import Report, ending_of
from tasks_app.hints import Hint, HintKind
from tasks_app.states import AttemptState, EventType, Lane, Policy, RetryPriority, TaskState
from tasks_app.transactions import Tx, unit

BATCH = 200
RECHECK_BATCH = 50


@dataclass(frozen=True, slots=True)
class Swept:
    """How many rows were due for a look, and how many of them changed."""

    seen: int
    changed: int

    @property
    def more(self) -> bool:
        """A full batch: there may be more, sweep again at once."""
        return self.seen >= BATCH


def sweep_due() -> Swept:
    """One batch of tasks whose `wake_at` has come: due, deadline, reservation or lease ended, yield delay over."""
    swept = unit(_sweep_in)
    faults.point("sweep.committed")
    return swept


def _sweep_in(tx: Tx) -> Swept:
    index = dialect.force_index(tx.connection, "task_to_wake")
    ids = [
        task_id
        for (task_id,) in tx.rows(
            f"SELECT task_id FROM orbit_task{index} WHERE wake_at <= %s ORDER BY wake_at LIMIT {BATCH}",
            [tx.now_us],
        )
    ]
    if not ids:
        return Swept(0, 0)
    faults.point("sweep.read")
    rows = lock(tx, ids, skip_locked=True)
    ledger = Ledger(tx)
    changed = sum(_wake(tx, ledger, row) for row in rows.values())
    ledger.flush()
    faults.point("sweep.before_commit")
    return Swept(len(ids), changed)


def _wake(tx: Tx, ledger: Ledger, row: TaskRow) -> bool:
    """Does to one locked task what its time asks for; False if it asks for nothing any more."""
    now = tx.now_us
    deadline_passed = row.deadline_at is not None and row.deadline_at <= now
    if row.state in (TaskState.SCHEDULED, TaskState.READY, TaskState.RESERVED) and deadline_passed:
        _tell_holder(ledger, row, "EXPIRED")
        ledger.move(row, TaskState.EXPIRED, event=EventType.EXPIRED)
        return True
    if row.state is TaskState.SCHEDULED and row.available_at <= now:
        ledger.move(row, TaskState.READY)
        return True
    if (
        row.state is TaskState.READY
        and row.lane == Lane.YIELDED
        and row.visible_at is not None
        and row.visible_at <= now
    ):
        ledger.enter_line(row)
        return True
    if row.lease_until is None or row.lease_until > now:
        return False
    if row.state is TaskState.RESERVED:
        _tell_holder(ledger, row, "LEASE_LOST")
        ledger.move(row, TaskState.READY)
        return True
    if row.state is TaskState.RUNNING:
        _lose(tx, ledger, row)
        return True
    return False


def _lose(tx: Tx, ledger: Ledger, row: TaskRow) -> None:
    """A running lease ran out: the table of 3.1, columns "lease ends"."""
    ending = ending_of(
        row.as_running(),
        Report.LEASE_ENDED,
        now_us=tx.now_us,
        max_losses=settings.ORBIT.max_losses,
        random_unit=random.random(),  # noqa: S311 - jitter
    )
    if row.attempt_id is not None:
        ledger.end_attempt(row.attempt_id, AttemptState.LOST)
    _tell_holder(ledger, row, "LEASE_LOST")
    apply_ending(ledger, row, ending, lower_priority=_lowers(tx, row))
    tx.after_commit(telemetry.LEASES_LOST.inc)


def _lowers(tx: Tx, row: TaskRow) -> bool:
    found = tx.row(
        "SELECT q.retry_priority, n.policy FROM orbit_queue q JOIN orbit_namespace n ON n.namespace_id = q.namespace_id"
        " WHERE q.queue_id = %s",
        [row.queue_id],
    )
    return found is not None and found[0] == RetryPriority.LOWER and found[1] == Policy.STRICT


def _tell_holder(ledger: Ledger, row: TaskRow, reason: str) -> None:
    if row.session_id is not None and row.attempt_id is not None:
        ledger.hint(
            Hint(
                HintKind.RESERVATION_REVOKED,
                namespace_id=row.namespace_id,
                queue_id=row.queue_id,
                task_id=row.task_id,
                session_id=row.session_id,
                attempt_id=row.attempt_id,
                detail=reason,
            )
        )


def recheck_resource_keys() -> int:
    """Looks again at keys of which a waiter had to be passed over. Returns how many keys were looked at."""

    def due(tx: Tx) -> list[int]:
        return [
            ref
            for (ref,) in tx.rows(
                "SELECT resource_ref FROM orbit_resource_key WHERE recheck_at IS NOT NULL AND recheck_at <= %s"
                f" ORDER BY recheck_at LIMIT {RECHECK_BATCH}",
                [tx.now_us],
            )
        ]

    refs = unit(due)
    for ref in refs:
        unit(lambda tx, ref=ref: resources.recheck(tx, ref))  # type: ignore[misc]
    return len(refs)
