"""What becomes of a RUNNING task when its attempt reports or its lease ends: the table of the design, 3.1, as one
function.

Pure: the rows' own values, the clock and the jitter are arguments. `domain/attempts.py` and the sweeps act on the
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tasks_app.retries import RetryPolicy, retry_at
from tasks_app.states import AttemptState, EventType, RetryMode, TaskState

WORKER_LOST = "WORKER_LOST"
ATTEMPT_TIMEOUT = "ATTEMPT_TIMEOUT"


class Asked(Enum):
    """Why the attempt should stop: the rows of the table. Where several hold, the first one here decides."""

    CANCEL = "cancel requested"
    DEADLINE = "deadline passed"
    ATTEMPT_TIMEOUT = "attempt time-out passed"
    NOTHING = "nothing asked"


class Report(Enum):
    """What is known of the attempt: the columns of the table."""

    SUCCEEDED = "finish SUCCEEDED"
    FAILED = "finish FAILED"
    CANCELED = "finish CANCELED"
    LEASE_ENDED = "lease ends"


@dataclass(frozen=True)
class Running:
    """What the row of a RUNNING task says. `attempts` counts its starts, the running one included."""

    retry: RetryPolicy
    attempts: int
    max_attempts: int
    losses: int
    deadline_at: int | None
    attempt_timeout_at: int | None
    cancel_requested: bool


@dataclass(frozen=True)
class Ending:
    """The task's next state and what goes with it.

    `invalid` is a report that the row does not allow: nothing changes and the attempt goes on. `retry_at`
    (microseconds) is set exactly for a retry. `error_code` is Orbit's own reason; None leaves the worker's error as it
    was reported.
    """

    state: TaskState
    attempt_state: AttemptState
    event: EventType | None
    losses: int
    error_code: str | None = None
    retry_at: int | None = None
    invalid: bool = False


def asked_of(running: Running, now_us: int) -> Asked:
    """What the row asks of its attempt at `now_us`. A limit has passed at its very instant."""
    if running.cancel_requested:
        return Asked.CANCEL
    if running.deadline_at is not None and running.deadline_at <= now_us:
        return Asked.DEADLINE
    if running.attempt_timeout_at is not None and running.attempt_timeout_at <= now_us:
        return Asked.ATTEMPT_TIMEOUT
    return Asked.NOTHING


def ending_of(
    running: Running,
    report: Report,
    *,
    now_us: int,
    max_losses: int,
    random_unit: float,
    retryable: bool = True,
    retry_after_ms: int | None = None,
) -> Ending:
    """The cell of the table that `running` and `report` meet in. `retryable` and `retry_after_ms` are those of a
    FAILED."""
    asked = asked_of(running, now_us)
    if report is Report.SUCCEEDED:
        return _end(TaskState.SUCCEEDED, AttemptState.SUCCEEDED, running.losses)
    if report is Report.FAILED:
        at = None
        if retryable and asked in (Asked.NOTHING, Asked.ATTEMPT_TIMEOUT):
            at = _next_attempt_at(running, now_us, random_unit, retry_after_ms)
        if at is not None:
            return _retry(at, now_us, AttemptState.FAILED, running.losses)
        return _end(TaskState.FAILED, AttemptState.FAILED, running.losses)
    if report is Report.CANCELED:
        return _canceled(running, asked, now_us, random_unit)
    return _lease_ended(running, asked, now_us, max_losses, random_unit)


def _canceled(running: Running, asked: Asked, now_us: int, random_unit: float) -> Ending:
    """A worker may say CANCELED only where the row told it to stop."""
    if asked is Asked.NOTHING:
        return Ending(TaskState.RUNNING, AttemptState.RUNNING, None, running.losses, invalid=True)
    if asked is Asked.CANCEL:
        return _end(TaskState.CANCELED, AttemptState.CANCELED, running.losses)
    if asked is Asked.DEADLINE:
        return _end(TaskState.EXPIRED, AttemptState.CANCELED, running.losses)
    at = _next_attempt_at(running, now_us, random_unit, None)
    if at is not None:
        return _retry(at, now_us, AttemptState.CANCELED, running.losses, error_code=ATTEMPT_TIMEOUT)
    return _end(TaskState.FAILED, AttemptState.CANCELED, running.losses, error_code=ATTEMPT_TIMEOUT)


def _lease_ended(running: Running, asked: Asked, now_us: int, max_losses: int, random_unit: float) -> Ending:
    """Nobody knows what the worker did. Only work that is safe to repeat gets an end or another attempt by itself."""
    losses = running.losses + 1
    if running.retry.mode != RetryMode.SAFE:
        return _end(TaskState.UNKNOWN, AttemptState.LOST, losses)
    if asked is Asked.CANCEL:
        return _end(TaskState.CANCELED, AttemptState.LOST, losses)
    if asked is Asked.DEADLINE:
        return _end(TaskState.EXPIRED, AttemptState.LOST, losses)
    code = ATTEMPT_TIMEOUT if asked is Asked.ATTEMPT_TIMEOUT else WORKER_LOST
    at = _next_attempt_at(running, now_us, random_unit, None) if losses < max_losses else None
    if at is not None:
        return _retry(at, now_us, AttemptState.LOST, losses, error_code=code)
    return _end(TaskState.FAILED, AttemptState.LOST, losses, error_code=code)


def _next_attempt_at(running: Running, now_us: int, random_unit: float, retry_after_ms: int | None) -> int | None:
    if running.retry.mode != RetryMode.SAFE or running.attempts >= running.max_attempts:
        return None
    return retry_at(
        running.retry,
        attempt_n=max(running.attempts, 1),
        now_us=now_us,
        deadline_at=running.deadline_at,
        random_unit=random_unit,
        retry_after_ms=retry_after_ms,
    )


def _retry(at: int, now_us: int, attempt_state: AttemptState, losses: int, *, error_code: str | None = None) -> Ending:
    state = TaskState.SCHEDULED if at > now_us else TaskState.READY
    return Ending(state, attempt_state, EventType.RETRY_SCHEDULED, losses, error_code=error_code, retry_at=at)


def _end(state: TaskState, attempt_state: AttemptState, losses: int, *, error_code: str | None = None) -> Ending:
    return Ending(state, attempt_state, EventType(state.value), losses, error_code=error_code)
