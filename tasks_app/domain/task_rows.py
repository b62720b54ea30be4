"""A task's row as the verbs see it: plain values, instants as integers. Read with a lock, or without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from tasks_app import dialect
from tasks_app.endings import Running
from tasks_app.instants import US_PER_MS
from tasks_app.retries import RetryPolicy
from tasks_app.states import TaskState
from tasks_app.transactions import Tx


@dataclass(slots=True)
class TaskRow:
    """Everything but payload, result and error, which the verbs that need them read by themselves."""

    task_id: str
    namespace_id: str
    application_id: str
    queue_id: str
    handler_ref: int
    state: TaskState
    lane: int
    revision: int
    priority: int
    tier: int
    attempts: int
    max_attempts: int
    losses: int
    retry_mode: str
    initial_backoff_ms: int
    max_backoff_ms: int
    multiplier: int
    available_at: int
    visible_at: int | None
    deadline_at: int | None
    attempt_timeout_ms: int | None
    resource_ref: int | None
    fencing_token: int
    attempt_id: str | None
    session_id: str | None
    lease_until: int | None
    started_at: int | None
    cancel_requested_at: int | None
    yields: int
    yieldable: bool
    replayed_as: str | None
    created_at: int

    @property
    def retry(self) -> RetryPolicy:
        return RetryPolicy(
            self.retry_mode, self.max_attempts, self.initial_backoff_ms, self.max_backoff_ms, self.multiplier
        )

    @property
    def attempt_timeout_at(self) -> int | None:
        if self.started_at is None or self.attempt_timeout_ms is None:
            return None
        return self.started_at + self.attempt_timeout_ms * US_PER_MS

    def as_running(self) -> Running:
        return Running(
            retry=self.retry,
            attempts=self.attempts,
            max_attempts=self.max_attempts,
            losses=self.losses,
            deadline_at=self.deadline_at,
            attempt_timeout_at=self.attempt_timeout_at,
            cancel_requested=self.cancel_requested_at is not None,
        )


TASK_COLUMNS = ", ".join(field.name for field in fields(TaskRow))
_STATE = [field.name for field in fields(TaskRow)].index("state")


def from_columns(values: Sequence[object]) -> TaskRow:
    row = TaskRow(*values)  # type: ignore[arg-type]
    row.state = TaskState(row.state)
    row.yieldable = bool(row.yieldable)
    return row


def lock(tx: Tx, task_ids: Sequence[str], *, skip_locked: bool = False) -> dict[str, TaskRow]:
    """The rows of those tasks, locked in the order of their ids (the documented order); absent ones are left out."""
    if not task_ids:
        return {}
    sql = (
        f"SELECT {TASK_COLUMNS} FROM orbit_task WHERE task_id IN ({dialect.placeholders(task_ids)})"
        f" ORDER BY task_id{dialect.for_update(tx.connection, skip_locked=skip_locked)}"
    )
    return {values[0]: from_columns(values) for values in tx.rows(sql, sorted(task_ids))}


def lock_one(tx: Tx, task_id: str, *, namespace_id: str | None = None) -> TaskRow | None:
    """The row of one task, locked; None when there is none (in that namespace)."""
    row = lock(tx, [task_id]).get(task_id)
    return row if row is not None and namespace_id in (None, row.namespace_id) else None
