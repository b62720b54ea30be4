"""The table "What becomes of a RUNNING task" of design 3.1, cell by cell."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.endings import ATTEMPT_TIMEOUT, WORKER_LOST, Asked, Ending, Report, Running, asked_of, ending_of
from tasks_app.retries import RetryPolicy
from tasks_app.states import MOVES, AttemptState, EventType, RetryMode, TaskState

NOW = 1_800_000_000_000_000
MAX_LOSSES = 3
SAFE = RetryPolicy.safe(max_attempts=5)
NEVER = RetryPolicy.never()


def running(*, retry: RetryPolicy = SAFE, asked: Asked = Asked.NOTHING, **values: object) -> Running:
    """The first attempt of five of a task of which `asked` is asked at NOW; both limits lie in the future otherwise."""
    row = Running(
        retry=retry,
        attempts=1,
        max_attempts=retry.max_attempts,
        losses=0,
        deadline_at=NOW if asked is Asked.DEADLINE else NOW + 3_600_000_000,
        attempt_timeout_at=NOW if asked is Asked.ATTEMPT_TIMEOUT else NOW + 60_000_000,
        cancel_requested=asked is Asked.CANCEL,
    )
    return replace(row, **values)  # type: ignore[arg-type]


def end(row: Running, report: Report, *, retryable: bool = True, retry_after_ms: int | None = None) -> Ending:
    return ending_of(
        row,
        report,
        now_us=NOW,
        max_losses=MAX_LOSSES,
        random_unit=0.5,
        retryable=retryable,
        retry_after_ms=retry_after_ms,
    )


@pytest.mark.parametrize(
    ("asked", "report", "mode", "state", "code"),
    [
        (Asked.NOTHING, Report.SUCCEEDED, SAFE, TaskState.SUCCEEDED, None),
        (Asked.NOTHING, Report.SUCCEEDED, NEVER, TaskState.SUCCEEDED, None),
        (Asked.NOTHING, Report.FAILED, SAFE, TaskState.SCHEDULED, None),
        (Asked.NOTHING, Report.FAILED, NEVER, TaskState.FAILED, None),
        (Asked.NOTHING, Report.LEASE_ENDED, SAFE, TaskState.SCHEDULED, WORKER_LOST),
        (Asked.NOTHING, Report.LEASE_ENDED, NEVER, TaskState.UNKNOWN, None),
        (Asked.CANCEL, Report.SUCCEEDED, SAFE, TaskState.SUCCEEDED, None),
        (Asked.CANCEL, Report.SUCCEEDED, NEVER, TaskState.SUCCEEDED, None),
        (Asked.CANCEL, Report.FAILED, SAFE, TaskState.FAILED, None),
        (Asked.CANCEL, Report.FAILED, NEVER, TaskState.FAILED, None),
        (Asked.CANCEL, Report.CANCELED, SAFE, TaskState.CANCELED, None),
        (Asked.CANCEL, Report.CANCELED, NEVER, TaskState.CANCELED, None),
        (Asked.CANCEL, Report.LEASE_ENDED, SAFE, TaskState.CANCELED, None),
        (Asked.CANCEL, Report.LEASE_ENDED, NEVER, TaskState.UNKNOWN, None),
        (Asked.DEADLINE, Report.SUCCEEDED, SAFE, TaskState.SUCCEEDED, None),
        (Asked.DEADLINE, Report.SUCCEEDED, NEVER, TaskState.SUCCEEDED, None),
        (Asked.DEADLINE, Report.FAILED, SAFE, TaskState.FAILED, None),
        (Asked.DEADLINE, Report.FAILED, NEVER, TaskState.FAILED, None),
        (Asked.DEADLINE, Report.CANCELED, SAFE, TaskState.EXPIRED, None),
        (Asked.DEADLINE, Report.CANCELED, NEVER, TaskState.EXPIRED, None),
        (Asked.DEADLINE, Report.LEASE_ENDED, SAFE, TaskState.EXPIRED, None),
        (Asked.DEADLINE, Report.LEASE_ENDED, NEVER, TaskState.UNKNOWN, None),
        (Asked.ATTEMPT_TIMEOUT, Report.SUCCEEDED, SAFE, TaskState.SUCCEEDED, None),
        (Asked.ATTEMPT_TIMEOUT, Report.SUCCEEDED, NEVER, TaskState.SUCCEEDED, None),
        (Asked.ATTEMPT_TIMEOUT, Report.FAILED, SAFE, TaskState.SCHEDULED, None),
        (Asked.ATTEMPT_TIMEOUT, Report.FAILED, NEVER, TaskState.FAILED, None),
        (Asked.ATTEMPT_TIMEOUT, Report.CANCELED, SAFE, TaskState.SCHEDULED, ATTEMPT_TIMEOUT),
        (Asked.ATTEMPT_TIMEOUT, Report.CANCELED, NEVER, TaskState.FAILED, ATTEMPT_TIMEOUT),
        (Asked.ATTEMPT_TIMEOUT, Report.LEASE_ENDED, SAFE, TaskState.SCHEDULED, ATTEMPT_TIMEOUT),
        (Asked.ATTEMPT_TIMEOUT, Report.LEASE_ENDED, NEVER, TaskState.UNKNOWN, None),
    ],
    ids=lambda value: getattr(value, "name", None) or getattr(value, "mode", None),
)
def test_every_cell_of_the_table(asked: Asked, report: Report, mode: RetryPolicy, state: TaskState, code: str | None):
    ending = end(running(retry=mode, asked=asked), report)
    assert (ending.state, ending.error_code, ending.invalid) == (state, code, False)
    assert (ending.retry_at is not None) == (state is TaskState.SCHEDULED)
    assert ending.event == (EventType.RETRY_SCHEDULED if ending.retry_at else EventType(state.value))


@pytest.mark.parametrize("retry", [SAFE, NEVER], ids=["SAFE", "NEVER"])
def test_canceled_is_invalid_where_nothing_was_asked_and_the_attempt_goes_on(retry: RetryPolicy):
    ending = end(running(retry=retry), Report.CANCELED)
    assert ending == Ending(TaskState.RUNNING, AttemptState.RUNNING, None, 0, invalid=True)


@pytest.mark.parametrize("asked", list(Asked))
@pytest.mark.parametrize("retry", [SAFE, NEVER], ids=["SAFE", "NEVER"])
def test_a_lease_that_ends_counts_a_loss_and_a_report_does_not(asked: Asked, retry: RetryPolicy):
    row = running(retry=retry, asked=asked, losses=1)
    assert end(row, Report.LEASE_ENDED).losses == 2
    assert [end(row, report).losses for report in Report if report is not Report.LEASE_ENDED] == [1, 1, 1]


@pytest.mark.parametrize(
    ("report", "attempt_state"),
    [
        (Report.SUCCEEDED, AttemptState.SUCCEEDED),
        (Report.FAILED, AttemptState.FAILED),
        (Report.CANCELED, AttemptState.CANCELED),
        (Report.LEASE_ENDED, AttemptState.LOST),
    ],
)
@pytest.mark.parametrize("asked", [Asked.CANCEL, Asked.DEADLINE, Asked.ATTEMPT_TIMEOUT])
def test_the_attempt_says_what_was_reported_whatever_becomes_of_the_task(report, attempt_state, asked):
    assert end(running(asked=asked), report).attempt_state is attempt_state


def test_a_failure_that_is_not_retryable_is_final():
    assert end(running(), Report.FAILED, retryable=False).state is TaskState.FAILED


@pytest.mark.parametrize("asked", [Asked.NOTHING, Asked.ATTEMPT_TIMEOUT])
def test_a_failure_of_the_last_attempt_is_final(asked: Asked):
    assert end(running(asked=asked, attempts=4), Report.FAILED).state is TaskState.SCHEDULED
    assert end(running(asked=asked, attempts=5), Report.FAILED).state is TaskState.FAILED


def test_a_failure_is_final_if_the_next_attempt_would_not_start_before_the_deadline():
    assert end(running(deadline_at=NOW + 1_000_001), Report.FAILED).retry_at == NOW + 1_000_000
    assert end(running(deadline_at=NOW + 1_000_000), Report.FAILED).state is TaskState.FAILED


def test_a_retry_waits_for_its_back_off_and_is_ready_at_once_without_one():
    assert end(running(attempts=3), Report.FAILED).retry_at == NOW + 4_000_000
    at_once = end(running(), Report.FAILED, retry_after_ms=0)
    assert (at_once.state, at_once.retry_at) == (TaskState.READY, NOW)


def test_the_wish_of_the_worker_decides_when_a_failed_attempt_is_repeated():
    assert end(running(), Report.FAILED, retry_after_ms=77).retry_at == NOW + 77_000


def test_a_lost_start_is_final_when_the_attempts_are_used_up():
    ending = end(running(attempts=5), Report.LEASE_ENDED)
    assert (ending.state, ending.error_code) == (TaskState.FAILED, WORKER_LOST)


def test_a_task_whose_worker_always_dies_fails_at_the_last_loss_allowed():
    assert end(running(losses=1), Report.LEASE_ENDED).state is TaskState.SCHEDULED
    ending = end(running(losses=2), Report.LEASE_ENDED)
    assert (ending.state, ending.error_code, ending.losses) == (TaskState.FAILED, WORKER_LOST, 3)


@pytest.mark.parametrize("report", [Report.CANCELED, Report.LEASE_ENDED])
def test_a_timed_out_last_attempt_fails_as_attempt_timeout(report: Report):
    ending = end(running(asked=Asked.ATTEMPT_TIMEOUT, attempts=5), report)
    assert (ending.state, ending.error_code) == (TaskState.FAILED, ATTEMPT_TIMEOUT)


def test_where_several_conditions_hold_cancel_comes_before_deadline_before_time_out():
    row = running(cancel_requested=True, deadline_at=NOW, attempt_timeout_at=NOW)
    assert asked_of(row, NOW) is Asked.CANCEL
    assert asked_of(replace(row, cancel_requested=False), NOW) is Asked.DEADLINE
    assert asked_of(replace(row, cancel_requested=False, deadline_at=NOW + 1), NOW) is Asked.ATTEMPT_TIMEOUT
    assert (
        asked_of(replace(row, cancel_requested=False, deadline_at=None, attempt_timeout_at=None), NOW) is Asked.NOTHING
    )


def test_a_limit_has_passed_at_its_very_instant_and_not_before():
    assert asked_of(running(deadline_at=NOW), NOW - 1) is Asked.NOTHING
    assert asked_of(running(deadline_at=NOW), NOW) is Asked.DEADLINE


rows = st.builds(
    Running,
    retry=st.sampled_from([SAFE, NEVER, RetryPolicy.safe(initial_backoff_ms=0, max_backoff_ms=0)]),
    attempts=st.integers(1, 6),
    max_attempts=st.integers(1, 6),
    losses=st.integers(0, 4),
    deadline_at=st.none() | st.integers(NOW - 5_000_000, NOW + 5_000_000),
    attempt_timeout_at=st.none() | st.integers(NOW - 5_000_000, NOW + 5_000_000),
    cancel_requested=st.booleans(),
)


@given(rows, st.sampled_from(Report), st.floats(0, 1), st.booleans(), st.none() | st.integers(0, 10_000))
def test_whatever_the_row_and_the_report_the_promises_hold(row, report, random_unit, retryable, retry_after_ms):
    ending = ending_of(
        row,
        report,
        now_us=NOW,
        max_losses=MAX_LOSSES,
        random_unit=random_unit,
        retryable=retryable,
        retry_after_ms=retry_after_ms,
    )
    asked = asked_of(row, NOW)
    if ending.invalid:
        assert (report, asked) == (Report.CANCELED, Asked.NOTHING)
        return
    assert ending.state in MOVES[TaskState.RUNNING]
    if report is Report.SUCCEEDED:
        assert ending.state is TaskState.SUCCEEDED
    if ending.retry_at is not None:
        assert row.retry.mode == RetryMode.SAFE
        assert asked not in (Asked.CANCEL, Asked.DEADLINE)
        assert row.attempts < row.max_attempts
        assert NOW <= ending.retry_at
        assert row.deadline_at is None or ending.retry_at < row.deadline_at
        assert (ending.state is TaskState.READY) == (ending.retry_at == NOW)
    if report is Report.LEASE_ENDED and row.retry.mode != RetryMode.SAFE:
        assert ending.state is TaskState.UNKNOWN
    if ending.state is TaskState.UNKNOWN:
        assert report is Report.LEASE_ENDED
