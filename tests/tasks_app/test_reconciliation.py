"""Reconcile (design 1.4, 3.1): a person decides what a machine cannot know."""

from __future__ import annotations

import json

import pytest

from tasks_app.domain import reconciliation
from tasks_app.domain.attempts import Answer
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.reconciliation import Decision, Verdict
from tasks_app.errors import FailedPrecondition, NotFound, PermissionDenied, QueueFull, RevisionConflict
from tasks_app.states import Lane, TaskState
from tests.support.mysql_proxy import Loss, MysqlProxy, When
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import await_lock_wait, beside, together
from tests.tasks_app.factories import Tenant, make_tenant
from tests.tasks_app.test_transitions import in_state

S = TaskState


def unknown(tenant: Tenant, **fields: object) -> str:
    """A task of which nobody knows what became."""
    task_id = f.submit(tenant, **fields)
    f.lose(f.run_one(tenant))
    assert f.state(task_id) is S.UNKNOWN
    return task_id


def test_unknown_keeps_its_resource_key_and_counts_as_unfinished_and_holds_no_running_permit(tenant: Tenant):
    f.change_queue(tenant, max_unfinished=1, max_running=1)
    unknown(tenant, resource_key="k")
    assert f.key_row(tenant).held == 1
    queue = f.queue_row(tenant.queue_id)
    assert (queue.unfinished, queue.running) == (1, 0)
    with pytest.raises(QueueFull):
        f.submit(tenant)


def test_a_waiter_of_the_key_waits_until_the_unknown_one_is_settled(tenant: Tenant):
    task_id = unknown(tenant, resource_key="k")
    waiting = f.submit(tenant, resource_key="k")
    assert (f.row(waiting).lane, f.claim_ids(tenant)) == (Lane.HELD, [])
    f.reconcile(tenant, task_id, Decision.SUCCEEDED)
    assert f.claim_ids(tenant) == [waiting]


@pytest.mark.parametrize(
    ("decision", "state", "unfinished"),
    [(Decision.SUCCEEDED, S.SUCCEEDED, 0), (Decision.FAILED, S.FAILED, 0), (Decision.RETRY, S.READY, 1)],
)
def test_a_decision_settles_the_task_and_tells_who_and_why(
    tenant: Tenant, decision: Decision, state: TaskState, unfinished: int
):
    task_id = unknown(tenant)
    revision = f.row(task_id).revision
    settled = f.reconcile(tenant, task_id, decision, reason="the bank says so")
    task = f.row(task_id)
    assert (settled.state, task.state, task.revision) == (state, state, revision + 1)
    assert f.queue_row(tenant.queue_id).unfinished == unfinished
    event = f.rows_of("orbit_event", "type = 'RECONCILED'")[0]
    assert json.loads(event.data) == {"decision": decision.value, "reason": "the bank says so"}
    (entry,) = f.rows_of("orbit_audit_entry", "action = 'task.reconcile'")
    assert (entry.reason, entry.revision_before, entry.revision_after, json.loads(entry.data)) == (
        "the bank says so", revision, revision + 1, {"decision": decision.value}
    )  # fmt: skip


def test_a_success_takes_the_result_that_was_found(tenant: Tenant):
    task_id = unknown(tenant)
    f.reconcile(tenant, task_id, Decision.SUCCEEDED, result='{"n": 1.10}')
    task = f.row(task_id)
    assert (task.result, task.error, task.attention) == ('{"n": 1.10}', None, None)


def test_a_failure_takes_the_error_that_was_found_or_the_reason(tenant: Tenant):
    given, plain = unknown(tenant), unknown(tenant)
    f.reconcile(tenant, given, Decision.FAILED, error=("NOT_PAID", "no money", '{"n": 1.10}'))
    f.reconcile(tenant, plain, Decision.FAILED, reason="nothing arrived")
    assert (f.row(given).error_code, '"details": {"n": 1.10}' in f.row(given).error) == ("NOT_PAID", True)
    assert (f.row(plain).error_code, json.loads(f.row(plain).error)["message"]) == (
        "RECONCILED_AS_FAILED", "nothing arrived"
    )  # fmt: skip
    assert {f.row(task_id).attention for task_id in (given, plain)} == {"DEAD"}


def test_a_retry_gives_one_more_start_whatever_the_retry_mode(tenant: Tenant):
    """A NEVER task has one start, plus one for each RETRY decision."""
    task_id = unknown(tenant)
    for round_ in (2, 3):
        f.reconcile(tenant, task_id, Decision.RETRY)
        task = f.row(task_id)
        assert (task.max_attempts, task.attempts, task.retry_mode) == (round_, round_ - 1, "NEVER")
        f.lose(f.run_one(tenant))
        assert f.state(task_id) is S.UNKNOWN


def test_a_retry_goes_through_its_key_like_any_other_waiter(tenant: Tenant):
    task_id = unknown(tenant, resource_key="k")
    waiting = f.submit(tenant, resource_key="k", priority=9)
    f.reconcile(tenant, task_id, Decision.RETRY)
    assert f.claim_ids(tenant, limit=2) == [waiting], "the freed permit goes to whom the order puts first"
    assert f.row(task_id).lane == Lane.HELD


def test_a_retry_stands_above_a_deadline_that_passed_meanwhile_and_a_cancel(tenant: Tenant):
    task_id = f.submit(tenant, expires_in_ms=3_600_000)
    offer = f.run_one(tenant)
    f.cancel(tenant, task_id)
    f.pass_deadline(task_id)
    f.lose(offer)
    assert f.state(task_id) is S.UNKNOWN
    f.reconcile(tenant, task_id, Decision.RETRY)
    assert f.finish(f.run_one(tenant)).state is S.SUCCEEDED


def test_a_late_report_is_there_to_decide_by(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.lose(offer)
    assert f.finish(offer, result='"done"').answer is Answer.LOST
    (attempt,) = f.attempts_of(task_id)
    assert json.loads(attempt.late_report)["result"] == '"done"'


@pytest.mark.parametrize("state", [state for state in S if state is not S.UNKNOWN])
@pytest.mark.parametrize("decision", list(Decision))
def test_only_what_is_unknown_can_be_reconciled(tenant: Tenant, state: TaskState, decision: Decision):
    task_id = in_state(tenant, state).task_id
    seen = f.snapshot()
    with pytest.raises(FailedPrecondition):
        f.reconcile(tenant, task_id, decision, revision=99)
    assert f.snapshot() == seen


def test_a_stale_revision_is_refused(tenant: Tenant):
    task_id = unknown(tenant)
    seen = f.snapshot()
    with pytest.raises(RevisionConflict):
        f.reconcile(tenant, task_id, Decision.RETRY, revision=1)
    assert f.snapshot() == seen


def test_foreign_tasks_do_not_exist_and_queues_out_of_scope_are_refused(tenant: Tenant):
    task_id = unknown(tenant)
    confined = f.make_credential(tenant, queue_ids=[tenant.queue()])
    verdict = Verdict(Decision.FAILED, "because")
    for principal, error in ((make_tenant().principal, NotFound), (confined, PermissionDenied)):
        with pytest.raises(error):
            reconciliation.reconcile(principal, task_id, verdict, revision=3, actor=SYSTEM)


def test_of_two_simultaneous_decisions_one_counts(tenant: Tenant):
    task_id = unknown(tenant)
    revision = f.row(task_id).revision
    outcomes = together(
        [
            lambda decision=decision: f.reconcile(tenant, task_id, decision, revision=revision)
            for decision in (Decision.SUCCEEDED, Decision.FAILED, Decision.RETRY)
        ]
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert [type(error) for error in errors] == [FailedPrecondition] * 2
    assert len(f.rows_of("orbit_event", "type = 'RECONCILED'")) == 1


@pytest.mark.mariadb_only("answers of COMMIT are lost between a client and a server")
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("decision", list(Decision))
def test_a_decision_whose_answer_was_lost_is_made_once_and_told(
    tenant: Tenant, proxy: MysqlProxy, when: When, decision: Decision
):
    task_id = unknown(tenant)
    proxy.lose(Loss(when))
    settled = f.reconcile(tenant, task_id, decision)
    assert settled.state is f.state(task_id)
    assert len(f.rows_of("orbit_event", "type = 'RECONCILED'")) == 1


@pytest.mark.mariadb_only("answers of COMMIT are lost between a client and a server")
def test_somebody_elses_decision_is_not_taken_for_ones_own(tenant: Tenant, proxy: MysqlProxy):
    """The lost decision did not take effect, and another person decided before the look-up."""
    task_id = unknown(tenant)
    revision = f.row(task_id).revision
    proxy.lose(Loss(When.BEFORE, then=lambda: _decided_by_another(tenant, task_id, revision)))
    with pytest.raises((FailedPrecondition, RevisionConflict)):
        f.reconcile(tenant, task_id, Decision.SUCCEEDED)
    assert f.state(task_id) is S.FAILED


def _decided_by_another(tenant: Tenant, task_id: str, revision: int) -> None:
    # It gets the row's lock when the server sees the lost connection close, ahead of the look-up, which comes later.
    beside(lambda: f.reconcile(tenant, task_id, Decision.FAILED, revision=revision, reason="somebody else"))
    await_lock_wait()
