"""Start, renew, finish, release (design 2, 3.5, 3.6): gates in their order, fencing, repeats, leases, late reports."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings

from tasks_app.domain import attempts
from tasks_app.domain.attempts import Answer, FinishItem, RenewItem, StartItem
from tasks_app.domain.claims import Offer
from tasks_app.endings import Report
from tasks_app.states import Action, TaskState
from tests.support.mysql_proxy import Loss, MysqlProxy, When
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import together
from tests.tasks_app.factories import SAFE, SECOND, Tenant, make_tenant

SERVER = pytest.mark.mariadb_only("answers of COMMIT are lost between a client and a server")
LEASE_US, GRACE_US = settings.ORBIT.lease_ms * 1000, settings.ORBIT.finish_grace_ms * 1000


# -- start


def test_a_start_is_a_right_to_run_for_one_lease(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.claim_one(tenant)
    result = f.start(tenant, offer)
    task = f.row(task_id)
    assert (result.answer, result.lease_until) == (Answer.STARTED, task.lease_until)
    assert task.lease_until - task.started_at == LEASE_US == 30 * SECOND
    (attempt,) = f.attempts_of(task_id)
    assert (attempt.attempt_id, attempt.number, attempt.fencing_token, attempt.worker_name, attempt.state) == (
        offer.task.attempt_id, 1, 1, "worker", "RUNNING"
    )  # fmt: skip
    assert (attempt.session_id, attempt.node_id) == (tenant.session_id, settings.ORBIT.node_id)


def test_a_repeated_start_is_started_again_and_counts_once(tenant: Tenant):
    f.change_queue(tenant, start_rate=(5, 60_000))
    task_id = f.submit(tenant)
    offer = f.claim_one(tenant)
    first = f.start(tenant, offer)
    seen = f.snapshot()
    assert f.start(tenant, offer) == first
    assert f.snapshot() == seen
    assert f.row(task_id).attempts == 1


def test_a_repeated_start_after_the_lease_ran_out_is_lost(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.expire_lease(task_id)
    assert f.start(tenant, offer).answer is Answer.LEASE_LOST


STALE: dict[str, Callable[[Tenant, Offer], Any]] = {
    "older token": lambda tenant, offer: f.held(offer, fencing_token=offer.task.fencing_token - 1),
    "newer token": lambda tenant, offer: f.held(offer, fencing_token=offer.task.fencing_token + 1),
    "other attempt": lambda tenant, offer: f.held(offer, attempt_id="f" * 32),
    "other namespace": lambda tenant, offer: f.held(offer, namespace_id=make_tenant().namespace_id),
    "unknown task": lambda tenant, offer: f.held(offer, task_id="f" * 32),
}


@pytest.mark.parametrize("stale", STALE)
def test_a_start_that_is_not_of_this_very_reservation_is_refused_and_changes_nothing(tenant: Tenant, stale: str):
    f.submit(tenant)
    offer = f.claim_one(tenant)
    held = STALE[stale](tenant, offer)
    seen = f.snapshot()
    (result,) = attempts.start([StartItem(held, f.starter(tenant))])
    assert result.answer is Answer.LEASE_LOST
    assert f.snapshot() == seen
    assert f.start(tenant, offer).answer is Answer.STARTED


def test_a_reservation_that_ended_tells_how(tenant: Tenant):
    canceled, expired, released = (f.submit(tenant) for _ in range(3))
    offers = f.claim(tenant, limit=3).offers
    f.cancel(tenant, canceled)
    f.pass_deadline(expired)
    f.sweep()
    f.release(offers[2])
    answers = [result.answer for result in f.start_all(tenant, offers)]
    assert answers == [Answer.CANCELED, Answer.EXPIRED, Answer.LEASE_LOST]
    assert f.state(released) is TaskState.READY


def test_a_reservation_that_ran_out_does_not_start_even_before_a_sweep_noticed(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.claim_one(tenant)
    f.expire_lease(task_id)
    assert f.start(tenant, offer).answer is Answer.LEASE_LOST
    assert f.state(task_id) is TaskState.READY, "it goes back at once"
    assert f.attempts_of(task_id) == []


# -- the gates at start, in the order of 3.5


def close_deadline(tenant: Tenant, offer: Offer) -> None:
    f.pass_deadline(offer.task.task_id)


def close_queue(tenant: Tenant, offer: Offer) -> None:
    f.pause(tenant)


def close_application(tenant: Tenant, offer: Offer) -> None:
    f.set_quotas(tenant, max_running=0)


def close_queue_limit(tenant: Tenant, offer: Offer) -> None:
    f.change_queue(tenant, max_running=0)


def close_queue_budget(tenant: Tenant, offer: Offer) -> None:
    f.change_queue(tenant, start_rate=(1, 60_000))
    empty("orbit_queue")


def close_application_budget(tenant: Tenant, offer: Offer) -> None:
    f.set_quotas(tenant, start_rate=(1, 60_000))
    empty("orbit_application")


def empty(table: str) -> None:
    """All starts of the budget are spent now."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET start_level = 0, start_level_at = %s", [f.now()])


GATES: list[tuple[Callable[[Tenant, Offer], None], Answer, TaskState]] = [
    (close_deadline, Answer.EXPIRED, TaskState.EXPIRED),
    (close_queue, Answer.QUEUE_PAUSED, TaskState.READY),
    (close_application, Answer.LIMITED, TaskState.READY),
    (close_queue_limit, Answer.LIMITED, TaskState.READY),
    (close_application_budget, Answer.LIMITED, TaskState.READY),
    (close_queue_budget, Answer.LIMITED, TaskState.READY),
]


@pytest.mark.parametrize(("close", "answer", "state"), GATES, ids=lambda value: getattr(value, "__name__", None))
@pytest.mark.parametrize("resource_key", [None, "k"], ids=["plain", "keyed"])
def test_a_gate_that_closed_since_the_claim_refuses_the_start(
    tenant: Tenant, close: Any, answer: Answer, state: TaskState, resource_key: str | None
):
    task_id = f.submit(tenant, resource_key=resource_key)
    offer = f.claim_one(tenant)
    close(tenant, offer)
    assert f.start(tenant, offer).answer is answer
    task = f.row(task_id)
    assert (task.state, task.attempts) == (state, 0)
    assert f.attempts_of(task_id) == [], "no attempt is counted"


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(GATES)), ids=lambda gate: gate[0].__name__)
def test_of_two_closed_gates_the_earlier_one_answers(tenant: Tenant, first: Any, second: Any):
    task_id = f.submit(tenant)
    offer = f.claim_one(tenant)
    second[0](tenant, offer)
    first[0](tenant, offer)
    assert f.start(tenant, offer).answer is first[1]
    assert f.state(task_id) is first[2]


def test_a_credential_that_was_revoked_starts_nothing_and_its_reservation_returns(tenant: Tenant):
    """Faults F28: judged in the transaction of the start."""
    task_id = f.submit(tenant)
    offer = f.claim_one(tenant)
    f.revoke(tenant)
    assert f.start(tenant, offer).answer is Answer.LEASE_LOST
    assert f.state(task_id) is TaskState.READY


def test_a_credential_that_may_not_consume_starts_nothing(tenant: Tenant):
    f.submit(tenant)
    offer = f.claim_one(tenant)
    reader = f.make_credential(tenant, actions=[Action.WORKERS_CONNECT])
    (result,) = attempts.start([StartItem(f.held(offer), f.starter(tenant, credential_id=reader.credential_id))])
    assert result.answer is Answer.LEASE_LOST


def test_a_credential_that_was_narrowed_starts_nothing_of_a_queue_outside_its_scope(tenant: Tenant):
    f.submit(tenant)
    offer = f.claim_one(tenant)
    narrow = f.make_credential(tenant, queue_ids=[tenant.queue()])
    (result,) = attempts.start([StartItem(f.held(offer), f.starter(tenant, credential_id=narrow.credential_id))])
    assert result.answer is Answer.LEASE_LOST


def test_what_started_before_the_credential_was_revoked_may_finish(tenant: Tenant):
    f.submit(tenant)
    offer = f.run_one(tenant)
    f.revoke(tenant)
    assert f.finish(offer).answer is Answer.COMMITTED


def test_a_lowered_limit_sends_back_as_many_as_are_too_many(tenant: Tenant):
    for _ in range(4):
        f.submit(tenant)
    offers = f.claim(tenant, limit=4).offers
    f.change_queue(tenant, max_running=3)
    answers = [result.answer for result in f.start_all(tenant, offers)]
    assert sorted(answer.value for answer in answers) == ["LIMITED", "STARTED", "STARTED", "STARTED"]


def test_one_bad_item_never_spoils_the_others(tenant: Tenant):
    for _ in range(2):
        f.submit(tenant)
    one, other = f.claim(tenant, limit=2).offers
    items = [
        StartItem(f.held(one, fencing_token=99), f.starter(tenant)),
        StartItem(f.held(other), f.starter(tenant)),
        StartItem(f.held(other), f.starter(tenant)),
    ]
    assert [result.answer for result in attempts.start(items)] == [Answer.LEASE_LOST, Answer.STARTED, Answer.STARTED]
    assert f.row(other.task.task_id).attempts == 1


# -- start budgets are exact


def test_a_budget_is_spent_at_start_and_not_before(tenant: Tenant):
    f.change_queue(tenant, start_rate=(2, 3_600_000))
    for _ in range(3):
        f.submit(tenant)
    offers = f.claim(tenant, limit=2).offers
    f.release(*offers)
    offers = f.claim(tenant, limit=2).offers
    assert [result.answer for result in f.start_all(tenant, offers)] == [Answer.STARTED, Answer.STARTED]
    outcome = f.claim(tenant)
    assert (outcome.offers, outcome.reason.value) == ((), "start_rate")


def test_simultaneous_starts_spend_exactly_the_budget(tenant: Tenant):
    """N10. What is too much goes back without an attempt."""
    for _ in range(12):
        f.submit(tenant)
    offers = f.claim(tenant, limit=12).offers
    f.change_queue(tenant, start_rate=(5, 3_600_000))
    results = together([lambda offer=offer: f.start(tenant, offer) for offer in offers])
    answers = sorted(result.answer.value for result in results)  # type: ignore[union-attr]
    assert answers == ["LIMITED"] * 7 + ["STARTED"] * 5
    assert len(f.rows_of("orbit_attempt")) == 5


def test_the_budget_of_an_application_is_its_own(tenant: Tenant):
    """Oban 1477: an exhausted tenant blocks no other; what is told is what is decided."""
    other = make_tenant()
    for one in (tenant, other):
        f.set_quotas(one, start_rate=(2, 60_000))
        for _ in range(3):
            f.submit(one)
    for _ in range(2):
        f.run_one(tenant)
    f.run_one(other)
    outcome = f.claim(tenant)
    assert (outcome.offers, outcome.reason.value) == ((), "start_rate")
    assert 0 < outcome.retry_at - f.now() <= 30 * SECOND  # type: ignore[operator]
    assert len(f.claim(other, limit=5).offers) == 1


# -- leases


@pytest.mark.parametrize(
    ("fields", "lease_us"),
    [
        ({}, LEASE_US),
        ({"expires_in_ms": 3_600_000}, LEASE_US),
        ({"attempt_timeout_ms": 10_000}, 10 * SECOND + GRACE_US),
        ({"attempt_timeout_ms": 86_400_000}, LEASE_US),
    ],
)
def test_the_first_lease_reaches_no_further_than_time_out_and_grace(
    tenant: Tenant, fields: dict[str, Any], lease_us: int
):
    task_id = f.submit(tenant, **fields)
    f.run_one(tenant)
    task = f.row(task_id)
    assert task.lease_until - task.started_at == lease_us


def test_the_first_lease_reaches_no_further_than_the_deadline_and_grace(tenant: Tenant):
    task_id = f.submit(tenant, expires_in_ms=10_000)
    f.run_one(tenant)
    task = f.row(task_id)
    assert task.lease_until == task.deadline_at + GRACE_US


def test_a_renewal_gives_a_whole_lease_from_now(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.set_columns(task_id, lease_until=f.now() + SECOND)
    before = f.now()
    result = f.renew(offer)
    assert (result.answer, result.cancel_requested) == (Answer.RENEWED, False)
    assert before + LEASE_US <= result.lease_until <= f.now() + LEASE_US  # type: ignore[operator]
    assert f.row(task_id).lease_until == result.lease_until


@pytest.mark.parametrize("limit", ["deadline_at", "attempt_timeout"])
def test_a_renewal_reaches_no_further_than_the_limit_and_its_grace(tenant: Tenant, limit: str):
    task_id = f.submit(tenant, expires_in_ms=3_600_000, attempt_timeout_ms=3_600_000)
    offer = f.run_one(tenant)
    soon = f.now() + 2 * SECOND
    if limit == "deadline_at":
        f.set_columns(task_id, deadline_at=soon, lease_until=soon)
    else:
        f.set_columns(task_id, started_at=soon - 3_600 * SECOND, lease_until=soon)
    assert f.renew(offer).lease_until == soon + GRACE_US


def test_a_renewal_after_the_deadline_keeps_the_grace_and_tells_no_lie(tenant: Tenant):
    task_id = f.submit(tenant, expires_in_ms=3_600_000)
    offer = f.run_one(tenant)
    past = f.now() - SECOND
    f.set_columns(task_id, deadline_at=past, lease_until=f.now() + SECOND)
    assert f.renew(offer).lease_until == past + GRACE_US


def test_a_renewal_never_shortens_a_lease(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    far = f.now() + 2 * LEASE_US
    f.set_columns(task_id, lease_until=far)
    assert f.renew(offer).lease_until == far


def test_a_renewal_tells_of_a_cancel(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.cancel(tenant, task_id)
    assert f.renew(offer).cancel_requested is True


def test_a_lease_that_ran_out_is_not_renewed_even_before_a_sweep_noticed(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.expire_lease(task_id)
    assert f.renew(offer).answer is Answer.LOST
    assert f.finish(offer).answer is Answer.LOST


def test_progress_is_kept_on_the_attempt_and_told_as_an_event(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.renew(offer, percent=10, message="a")
    f.renew(offer, percent=90)
    (attempt,) = f.attempts_of(task_id)
    assert (attempt.progress_percent, attempt.progress_message) == (90, None)
    progress = [json.loads(row.data) for row in f.rows_of("orbit_event", "type = 'PROGRESS' ORDER BY event_id")]
    assert progress == [{"percent": 10, "message": "a"}, {"percent": 90, "message": None}]


def test_several_renewals_of_one_attempt_in_one_message_are_all_answered(tenant: Tenant):
    """An old and a new connection may renew the same attempt at the same moment."""
    f.submit(tenant)
    f.submit(tenant)
    one, other = f.claim(tenant, limit=2).offers
    f.start_all(tenant, [one, other])
    items = [
        RenewItem(f.held(one)),
        RenewItem(f.held(one), percent=5),
        RenewItem(f.held(other)),
        RenewItem(f.held(one)),
    ]
    assert [result.answer for result in attempts.renew(items)] == [Answer.RENEWED] * 4


@pytest.mark.parametrize("stale", STALE)
@pytest.mark.parametrize("verb", ["renew", "finish", "release"])
def test_whoever_does_not_hold_this_very_attempt_is_refused_and_changes_nothing(tenant: Tenant, stale: str, verb: str):
    f.submit(tenant)
    offer = f.claim_one(tenant)
    if verb != "release":
        f.start(tenant, offer)
    held = STALE[stale](tenant, offer)
    seen = f.snapshot()
    if verb == "renew":
        (result,) = attempts.renew([RenewItem(held)])
    elif verb == "finish":
        (result,) = attempts.finish([FinishItem(held, Report.SUCCEEDED)])
    else:
        (result,) = attempts.release([held])
    assert result.answer is Answer.LOST
    assert f.snapshot() == seen


@pytest.mark.parametrize("verb", ["renew", "finish"])
def test_an_offer_is_not_a_right_to_run(tenant: Tenant, verb: str):
    """N5: nothing is renewed or finished that was not started."""
    f.submit(tenant)
    offer = f.claim_one(tenant)
    seen = f.snapshot()
    assert (f.renew(offer) if verb == "renew" else f.finish(offer)).answer is Answer.LOST
    assert f.snapshot() == seen


# -- finish


def test_a_finish_answers_after_the_commit_with_state_and_revision(tenant: Tenant):
    task_id = f.submit(tenant)
    result = f.finish(f.run_one(tenant), result='{"n": 1.10}')
    task = f.row(task_id)
    assert (result.answer, result.state, result.revision) == (Answer.COMMITTED, TaskState.SUCCEEDED, task.revision)
    assert (task.result, task.finished_at is not None) == ('{"n": 1.10}', True)


def test_a_success_without_a_result_has_the_result_null(tenant: Tenant):
    task_id = f.submit(tenant)
    f.finish(f.run_one(tenant))
    assert f.row(task_id).result == "null"


@pytest.mark.parametrize("report", [Report.SUCCEEDED, Report.FAILED])
def test_a_repeat_of_the_very_same_report_gets_the_same_answer(tenant: Tenant, report: Report):
    f.submit(tenant)
    offer = f.run_one(tenant)
    first = f.finish(offer, report)
    seen = f.snapshot()
    again = f.finish(offer, report)
    assert (again.answer, again.state, again.revision) == (Answer.ALREADY, first.state, first.revision)
    assert f.snapshot() == seen


def test_a_repeat_within_one_message_is_a_repeat(tenant: Tenant):
    f.submit(tenant)
    offer = f.run_one(tenant)
    results = attempts.finish([f.report_of(offer), f.report_of(offer), f.report_of(offer, Report.FAILED)])
    assert [result.answer for result in results] == [Answer.COMMITTED, Answer.ALREADY, Answer.LOST]


def test_a_report_that_failed_and_was_retried_is_known_as_a_repeat_later(tenant: Tenant):
    f.submit(tenant, retry=f.SAFE_AT_ONCE)
    old = f.run_one(tenant)
    f.finish(old, Report.FAILED)
    f.run_one(tenant)
    again = f.finish(old, Report.FAILED)
    assert (again.answer, again.state) == (Answer.ALREADY, TaskState.RUNNING)


@pytest.mark.parametrize("report", [Report.SUCCEEDED, Report.FAILED])
def test_another_report_of_a_finished_attempt_is_lost_and_kept_as_evidence(tenant: Tenant, report: Report):
    """N6: one finish is accepted."""
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.finish(offer, result="1")
    before = f.row(task_id)
    assert f.finish(offer, report, result="2").answer is Answer.LOST
    assert f.row(task_id) == before
    (attempt,) = f.attempts_of(task_id)
    assert json.loads(attempt.late_report)["outcome"] == report.name
    assert attempt.late_report_at is not None


def test_only_the_first_late_report_is_kept(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.finish(offer)
    for result in ('"first"', '"second"'):
        f.finish(offer, result=result)
    (attempt,) = f.attempts_of(task_id)
    assert json.loads(attempt.late_report)["result"] == '"first"'


def test_a_report_of_a_lost_attempt_changes_no_state(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.lose(offer)
    assert f.finish(offer, result="1").answer is Answer.LOST
    assert f.state(task_id) is TaskState.UNKNOWN
    (attempt,) = f.attempts_of(task_id)
    assert (attempt.state, json.loads(attempt.late_report)) == (
        "LOST", {"outcome": "SUCCEEDED", "result": "1", "error": None}
    )  # fmt: skip


def test_the_first_worker_that_finishes_with_its_old_token_frees_no_permit(tenant: Tenant):
    """Solid Queue PR 761: a limit of 1 stays 1."""
    for _ in range(2):
        f.submit(tenant, resource_key="k", retry=SAFE)
    old = f.run_one(tenant)
    f.lose(old)
    second = f.run_one(tenant)
    assert second.task.task_id != old.task.task_id, "the lost one backs off"
    assert f.finish(old).answer is Answer.LOST
    assert f.key_row(tenant).held == 1


def test_several_attempts_finish_in_one_transaction_each_in_its_own_way(tenant: Tenant):
    for number in range(4):
        f.submit(tenant, retry=SAFE, resource_key=f"k{number % 2}" if number < 2 else None)
    offers = f.claim(tenant, limit=4).offers
    f.start_all(tenant, offers)
    reports = [
        f.report_of(offers[0]),
        f.report_of(offers[1], Report.FAILED),
        f.report_of(offers[2], Report.CANCELED),
        f.report_of(offers[3], Report.FAILED, retryable=False),
    ]
    results = attempts.finish(reports)
    assert [(result.answer, result.state) for result in results] == [
        (Answer.COMMITTED, TaskState.SUCCEEDED),
        (Answer.COMMITTED, TaskState.SCHEDULED),
        (Answer.INVALID, None),
        (Answer.COMMITTED, TaskState.FAILED),
    ]


# -- release


def test_a_release_gives_the_place_in_line_back_and_counts_no_attempt(tenant: Tenant):
    first, _ = f.submit(tenant), f.submit(tenant)
    available_at = f.row(first).available_at
    offer = f.claim_one(tenant)
    assert [result.answer for result in f.release(offer)] == [Answer.RELEASED]
    task = f.row(first)
    assert (task.state, task.attempts, task.available_at) == (TaskState.READY, 0, available_at)
    assert f.claim_ids(tenant) == [first]


def test_a_release_is_done_once(tenant: Tenant):
    f.submit(tenant)
    offer = f.claim_one(tenant)
    assert [result.answer for result in f.release(offer, offer)] == [Answer.RELEASED, Answer.LOST]
    assert [result.answer for result in f.release(offer)] == [Answer.LOST]


def test_what_runs_cannot_be_released(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    assert [result.answer for result in f.release(offer)] == [Answer.LOST]
    assert f.state(task_id) is TaskState.RUNNING


# -- who held it, found again


def test_an_attempt_is_found_by_its_id_in_its_own_namespace_only(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    attempt_id = offer.task.attempt_id
    assert attempt_id is not None
    assert attempts.locate(tenant.namespace_id, [attempt_id, "f" * 32]) == {attempt_id: task_id}
    assert attempts.locate(make_tenant().namespace_id, [attempt_id]) == {}
    assert attempts.locate(tenant.namespace_id, []) == {}


# -- lost answers of COMMIT


@SERVER
@pytest.mark.parametrize("when", When)
def test_a_start_whose_answer_was_lost_starts_once(tenant: Tenant, proxy: MysqlProxy, when: When):
    f.change_queue(tenant, start_rate=(5, 3_600_000))
    task_id = f.submit(tenant)
    offer = f.claim_one(tenant)
    proxy.lose(Loss(when))
    assert f.start(tenant, offer).answer is Answer.STARTED
    assert proxy.lost[0].committed is (when is When.AFTER)
    assert (f.row(task_id).attempts, len(f.attempts_of(task_id))) == (1, 1)
    queue = f.queue_row(tenant.queue_id)
    assert queue.start_level == 4 * queue.start_rate_per_ms * 1000, "spent once"


@SERVER
@pytest.mark.parametrize("when", When)
def test_a_finish_whose_answer_was_lost_is_told_as_it_is(tenant: Tenant, proxy: MysqlProxy, when: When):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    proxy.lose(Loss(when))
    result = f.finish(offer)
    assert result.answer is (Answer.ALREADY if when is When.AFTER else Answer.COMMITTED)
    assert (result.state, result.revision) == (TaskState.SUCCEEDED, f.row(task_id).revision)
    assert f.events_of(task_id) == ["ACCEPTED", "STARTED", "SUCCEEDED"]


@SERVER
@pytest.mark.parametrize("when", When)
def test_a_release_whose_answer_was_lost_gives_back_once(tenant: Tenant, proxy: MysqlProxy, when: When):
    task_id = f.submit(tenant, resource_key="k")
    offer = f.claim_one(tenant)
    proxy.lose(Loss(when))
    (result,) = f.release(offer)
    # After it took effect nothing is held any more: LOST is what the holder may rely on, the task is in line.
    assert result.answer is (Answer.LOST if when is When.AFTER else Answer.RELEASED)
    assert f.state(task_id) is TaskState.READY
