"""The table "What becomes of a RUNNING task" of design 3.1, end to end: through `finish` and through the sweep."""

from __future__ import annotations

import json

import pytest

from tasks_app.domain.attempts import Answer
from tasks_app.domain.claims import Offer
from tasks_app.endings import Report
from tasks_app.retries import RetryPolicy
from tasks_app.states import TaskState
from tests.tasks_app import factories as f
from tests.tasks_app.factories import NEVER, SAFE, Tenant

NOTHING, CANCEL, DEADLINE, TIMEOUT = "nothing asked", "cancel requested", "deadline passed", "attempt time-out passed"
SUCCEEDED, FAILED, CANCELED, LEASE_ENDS = "SUCCEEDED", "FAILED", "CANCELED", "lease ends"
RETRY = "SCHEDULED"
# (asked, what happens) -> state and error code, for a SAFE task with attempts left and for a NEVER task.
TABLE = {
    (NOTHING, SUCCEEDED): (("SUCCEEDED", None), ("SUCCEEDED", None)),
    (NOTHING, FAILED): ((RETRY, "BROKEN"), ("FAILED", "BROKEN")),
    (NOTHING, LEASE_ENDS): ((RETRY, "WORKER_LOST"), ("UNKNOWN", None)),
    (CANCEL, SUCCEEDED): (("SUCCEEDED", None), ("SUCCEEDED", None)),
    (CANCEL, FAILED): (("FAILED", "BROKEN"), ("FAILED", "BROKEN")),
    (CANCEL, CANCELED): (("CANCELED", None), ("CANCELED", None)),
    (CANCEL, LEASE_ENDS): (("CANCELED", None), ("UNKNOWN", None)),
    (DEADLINE, SUCCEEDED): (("SUCCEEDED", None), ("SUCCEEDED", None)),
    (DEADLINE, FAILED): (("FAILED", "BROKEN"), ("FAILED", "BROKEN")),
    (DEADLINE, CANCELED): (("EXPIRED", None), ("EXPIRED", None)),
    (DEADLINE, LEASE_ENDS): (("EXPIRED", None), ("UNKNOWN", None)),
    (TIMEOUT, SUCCEEDED): (("SUCCEEDED", None), ("SUCCEEDED", None)),
    (TIMEOUT, FAILED): ((RETRY, "BROKEN"), ("FAILED", "BROKEN")),
    (TIMEOUT, CANCELED): ((RETRY, "ATTEMPT_TIMEOUT"), ("FAILED", "ATTEMPT_TIMEOUT")),
    (TIMEOUT, LEASE_ENDS): ((RETRY, "ATTEMPT_TIMEOUT"), ("UNKNOWN", None)),
}
CELLS = [
    pytest.param(asked, ends, retry, *outcome, id=f"{asked}-{ends}-{retry.mode}")
    for (asked, ends), outcomes in TABLE.items()
    for retry, outcome in zip((SAFE, NEVER), outcomes, strict=True)
]


def running(tenant: Tenant, *, asked: str = NOTHING, retry: RetryPolicy = SAFE, **fields: object) -> Offer:
    """A running task of which `asked` is asked now."""
    task_id = f.submit(tenant, retry=retry, expires_in_ms=3_600_000, attempt_timeout_ms=60_000, **fields)
    offer = f.run_one(tenant)
    if asked == CANCEL:
        f.cancel(tenant, task_id)
    elif asked == DEADLINE:
        f.pass_deadline(task_id)
    elif asked == TIMEOUT:
        f.pass_attempt_timeout(task_id)
    return offer


def end(offer: Offer, ends: str) -> Answer | None:
    if ends == LEASE_ENDS:
        f.lose(offer)
        return None
    return f.finish(offer, Report[ends], **({"result": "1"} if ends == SUCCEEDED else {})).answer


@pytest.mark.parametrize(("asked", "ends", "retry", "state", "code"), CELLS)
def test_every_cell_of_the_table(
    tenant: Tenant, asked: str, ends: str, retry: RetryPolicy, state: str, code: str | None
):
    offer = running(tenant, asked=asked, retry=retry)
    answer = end(offer, ends)
    assert answer in (Answer.COMMITTED, None)
    task = f.row(offer.task.task_id)
    assert (task.state, task.error_code) == (TaskState(state), code)
    assert (task.error is None) == (code is None)
    (attempt,) = f.attempts_of(task.task_id)
    assert attempt.state == {LEASE_ENDS: "LOST"}.get(ends, ends)
    assert task.losses == (ends == LEASE_ENDS)
    if state == RETRY:
        assert task.available_at > f.now()
        assert f.events_of(task.task_id)[-1] == "RETRY_SCHEDULED"
    else:
        assert f.events_of(task.task_id)[-1] == state


@pytest.mark.parametrize("retry", [SAFE, NEVER], ids=["SAFE", "NEVER"])
def test_canceled_where_nothing_was_asked_is_invalid_and_the_attempt_goes_on(tenant: Tenant, retry: RetryPolicy):
    offer = running(tenant, retry=retry)
    seen = f.snapshot()
    result = f.finish(offer, Report.CANCELED)
    assert (result.answer, bool(result.message)) == (Answer.INVALID, True)
    assert f.snapshot() == seen
    assert f.finish(offer).answer is Answer.COMMITTED


@pytest.mark.parametrize(
    ("asked", "state"), [(CANCEL, "CANCELED"), (DEADLINE, "EXPIRED"), (TIMEOUT, "SCHEDULED")], ids=str
)
def test_where_several_conditions_hold_the_first_of_cancel_deadline_time_out_decides(
    tenant: Tenant, asked: str, state: str
):
    offer = running(tenant)
    task_id = offer.task.task_id
    f.pass_attempt_timeout(task_id)
    if asked in (DEADLINE, CANCEL):
        f.pass_deadline(task_id)
    if asked == CANCEL:
        f.cancel(tenant, task_id)
    end(offer, LEASE_ENDS)
    assert f.state(task_id) == state


def test_a_failure_without_time_before_the_deadline_is_final(tenant: Tenant):
    offer = running(tenant)
    f.set_columns(offer.task.task_id, deadline_at=f.now() + f.SECOND // 2)  # the back-off is a second
    end(offer, FAILED)
    assert f.state(offer.task.task_id) is TaskState.FAILED


def test_the_last_attempt_is_not_repeated(tenant: Tenant):
    task_id = f.submit(tenant, retry=RetryPolicy.safe(max_attempts=2, initial_backoff_ms=0, max_backoff_ms=0))
    assert f.finish(f.run_one(tenant), Report.FAILED).state is TaskState.READY
    assert f.finish(f.run_one(tenant), Report.FAILED).state is TaskState.FAILED
    assert (f.row(task_id).attempts, f.row(task_id).losses) == (2, 0)


def test_a_task_that_kills_every_worker_is_a_dead_letter_after_three_losses_and_others_go_on(tenant: Tenant):
    """Sidekiq 4633: losses are counted apart from retries."""
    poison = f.submit(tenant, retry=RetryPolicy.safe(max_attempts=100, initial_backoff_ms=0, max_backoff_ms=0))
    for losses in (1, 2):
        f.lose(f.run_one(tenant))
        task = f.row(poison)
        assert (task.state, task.losses, task.attempts) == (TaskState.READY, losses, losses)
    f.lose(f.run_one(tenant))
    task = f.row(poison)
    assert (task.state, task.losses, task.error_code, task.attention) == (TaskState.FAILED, 3, "WORKER_LOST", "DEAD")
    assert "worker" in json.loads(task.error)["message"]
    other = f.submit(tenant)
    assert f.claim_one(tenant).task.task_id == other


def test_a_lost_start_counts_as_an_attempt(tenant: Tenant):
    task_id = f.submit(tenant, retry=RetryPolicy.safe(max_attempts=1))
    f.lose(f.run_one(tenant))
    assert (f.row(task_id).state, f.row(task_id).error_code) == (TaskState.FAILED, "WORKER_LOST")


def test_a_task_that_is_not_safe_to_repeat_is_never_started_twice(tenant: Tenant):
    """Faktory 179: set aside for a person, visible, not run again."""
    task_id = f.submit(tenant, retry=NEVER)
    f.lose(f.run_one(tenant))
    assert (f.state(task_id), f.row(task_id).attention) == (TaskState.UNKNOWN, "UNKNOWN")
    f.sweep()
    assert f.claim_ids(tenant) == []
    assert len(f.attempts_of(task_id)) == 1


def test_a_retry_keeps_the_priority_and_gets_its_place_from_its_new_time(tenant: Tenant):
    task_id = f.submit(tenant, retry=SAFE, priority=7)
    f.finish(f.run_one(tenant), Report.FAILED, retry_after_ms=50_000)
    task = f.row(task_id)
    assert (task.priority, task.dispatch_at) == (7, task.available_at - 7 * 30 * f.SECOND)


def test_the_back_off_grows_and_is_jittered_by_a_fifth(tenant: Tenant):
    policy = RetryPolicy.safe(max_attempts=4, initial_backoff_ms=10_000, max_backoff_ms=25_000, multiplier=2)
    task_id = f.submit(tenant, retry=policy)
    for expected_ms in (10_000, 20_000, 25_000):
        offer = f.run_one(tenant)
        before = f.now()
        f.finish(offer, Report.FAILED)
        wait_us = f.row(task_id).available_at - before
        assert 0.8 * expected_ms * 1000 <= wait_us <= 1.2 * expected_ms * 1000 + f.SECOND
        f.due(task_id, seconds_ago=1)
        f.sweep()


def test_a_task_that_succeeds_after_a_failure_shows_no_error(tenant: Tenant):
    task_id = f.submit(tenant, retry=f.SAFE_AT_ONCE)
    f.finish(f.run_one(tenant), Report.FAILED)
    assert f.row(task_id).error_code == "BROKEN"
    f.finish(f.run_one(tenant), result="1")
    task = f.row(task_id)
    assert (task.state, task.result, task.error, task.error_code) == (TaskState.SUCCEEDED, "1", None, None)


def test_an_error_is_kept_as_it_was_reported(tenant: Tenant):
    task_id = f.submit(tenant)
    f.finish(f.run_one(tenant), Report.FAILED, error_details='{"n": 1.10}', error_message='say "é"')
    assert json.loads(f.row(task_id).error)["message"] == 'say "é"'
    assert '"details": {"n": 1.10}}' in f.row(task_id).error


# -- STRICT: retry_priority


@pytest.mark.parametrize(("mode", "priority"), [("KEEP", 5), ("LOWER", 4)])
@pytest.mark.parametrize("ends", [FAILED, LEASE_ENDS])
def test_a_strict_retry_keeps_or_lowers_its_priority(strict_tenant: Tenant, mode: str, priority: int, ends: str):
    f.change_queue(strict_tenant, retry_priority=mode)
    task_id = f.submit(strict_tenant, retry=f.SAFE_AT_ONCE, priority=5)
    end(f.run_one(strict_tenant), ends)
    task = f.row(task_id)
    assert (task.priority, task.tier) == (priority, -priority)


def test_a_strict_retry_is_lowered_to_no_less_than_minus_9(strict_tenant: Tenant):
    f.change_queue(strict_tenant, retry_priority="LOWER")
    task_id = f.submit(strict_tenant, retry=f.SAFE_AT_ONCE, priority=-8)
    seen = []
    for _ in range(3):
        f.finish(f.run_one(strict_tenant), Report.FAILED)
        seen.append(f.row(task_id).priority)
    assert seen == [-9, -9, -9]
