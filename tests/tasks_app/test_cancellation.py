"""Cancel (design 1.4): durable, repeatable, judged state first and revision second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks_app import hints
from tasks_app.domain import cancellation
from tasks_app.domain.attempts import Answer
from tasks_app.domain.audit import SYSTEM, Actor
from tasks_app.errors import FailedPrecondition, NotFound, PermissionDenied, RevisionConflict
from tasks_app.hints import Hint, HintKind
from tasks_app.models import ActorKind
from tasks_app.states import TaskState
from tests.support.mysql_proxy import Loss, MysqlProxy, When
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import together
from tests.tasks_app.factories import Tenant, make_tenant
from tests.tasks_app.test_transitions import in_state

S = TaskState


@pytest.fixture
def told() -> Iterator[list[Hint]]:
    seen: list[Hint] = []
    undo = hints.subscribe(seen.append)
    yield seen
    undo()


@pytest.mark.parametrize("state", [S.SCHEDULED, S.READY, S.RESERVED])
def test_what_has_not_started_is_canceled(tenant: Tenant, state: TaskState):
    task_id = in_state(tenant, state).task_id
    task = f.cancel(tenant, task_id, reason="not needed")
    assert (task.state, f.state(task_id)) == (S.CANCELED, S.CANCELED)
    (entry,) = f.rows_of("orbit_audit_entry", "action = 'task.cancel'")
    assert (entry.object_id, entry.reason, entry.revision_before, entry.revision_after) == (
        task_id, "not needed", 1, 2
    )  # fmt: skip


def test_what_runs_is_asked_to_stop(tenant: Tenant):
    task_id = in_state(tenant, S.RUNNING).task_id
    f.cancel(tenant, task_id)
    task = f.row(task_id)
    assert (task.state, task.cancel_requested_at is not None, task.revision) == (S.RUNNING, True, 3)
    assert f.events_of(task_id)[-1] == "CANCEL_REQUESTED"


@pytest.mark.parametrize("state", [S.READY, S.RUNNING])
def test_a_cancel_that_is_asked_for_twice_is_done_once(tenant: Tenant, state: TaskState):
    task_id = in_state(tenant, state).task_id
    f.cancel(tenant, task_id)
    seen = f.snapshot()
    f.cancel(tenant, task_id, revision=1)  # whatever revision was seen
    assert f.snapshot() == seen


@pytest.mark.parametrize("state", [S.UNKNOWN, S.SUCCEEDED, S.FAILED, S.EXPIRED])
@pytest.mark.parametrize("revision", [None, 99], ids=["current revision", "stale revision"])
def test_what_is_unknown_or_ended_otherwise_cannot_be_canceled_whatever_the_revision(
    tenant: Tenant, state: TaskState, revision: int | None
):
    task_id = in_state(tenant, state).task_id
    seen = f.snapshot()
    with pytest.raises(FailedPrecondition) as refused:
        f.cancel(tenant, task_id, revision=revision)
    assert refused.value.details[0]["state"] == state.value
    assert f.snapshot() == seen


@pytest.mark.parametrize("state", [S.SCHEDULED, S.READY, S.RESERVED, S.RUNNING])
def test_a_stale_revision_is_refused_and_told_the_current_one(tenant: Tenant, state: TaskState):
    task_id = in_state(tenant, state).task_id
    current = f.row(task_id).revision
    seen = f.snapshot()
    with pytest.raises(RevisionConflict) as refused:
        f.cancel(tenant, task_id, revision=current - 1)
    assert refused.value.details == [{"field": "revision", "reason": "the task changed since", "current": str(current)}]
    assert f.snapshot() == seen


def test_a_task_of_another_namespace_does_not_exist(tenant: Tenant):
    task_id = f.submit(make_tenant())
    for unknown in (task_id, "f" * 32):
        with pytest.raises(NotFound):
            f.cancel(tenant, unknown, revision=1)


def test_a_task_of_a_queue_outside_the_scope_is_refused(tenant: Tenant):
    task_id = f.submit(tenant)
    confined = f.make_credential(tenant, queue_ids=[tenant.queue()])
    with pytest.raises(PermissionDenied):
        cancellation.cancel(confined, task_id, revision=1, reason=None, actor=SYSTEM)


def test_a_cancel_without_any_worker_is_durable(tenant: Tenant):
    """Django-celery-results 423: whoever connects later is not offered it."""
    task_id = f.submit(tenant)
    f.cancel(tenant, task_id)
    assert f.claim_ids(tenant) == []
    assert f.cancel(tenant, task_id).state is S.CANCELED


def test_a_reservation_that_was_canceled_does_not_start(tenant: Tenant):
    subject = in_state(tenant, S.RESERVED)
    f.cancel(tenant, subject.task_id)
    assert f.start(tenant, subject.held).answer is Answer.CANCELED


def test_the_one_who_holds_it_is_told(tenant: Tenant, told: list[Hint]):
    reserved, running = in_state(tenant, S.RESERVED), in_state(tenant, S.RUNNING)
    for subject in (reserved, running):
        f.cancel(tenant, subject.task_id)
    seen = [
        (hint.kind, hint.task_id, hint.attempt_id, hint.session_id, hint.detail)
        for hint in told
        if hint.kind in (HintKind.CANCEL_REQUESTED, HintKind.RESERVATION_REVOKED)
    ]
    assert seen == [
        (HintKind.RESERVATION_REVOKED, reserved.task_id, reserved.held.task.attempt_id, tenant.session_id, "CANCELED"),
        (HintKind.CANCEL_REQUESTED, running.task_id, running.held.task.attempt_id, tenant.session_id, "REQUESTED"),
    ]


def test_who_did_it_is_in_the_audit(tenant: Tenant):
    task_id = f.submit(tenant)
    actor = Actor(ActorKind.USER, "olga", "a" * 32)
    cancellation.cancel(tenant.principal, task_id, revision=1, reason="why not", actor=actor)
    (entry,) = f.rows_of("orbit_audit_entry", "action = 'task.cancel'")
    assert (entry.actor_kind, entry.actor, entry.request_id) == ("USER", "olga", "a" * 32)


def test_a_cancel_and_a_start_at_the_same_moment_leave_one_of_two_truths(tenant: Tenant):
    for _ in range(8):
        task_id = f.submit(tenant)
        offer = f.claim_one(tenant)
        started, canceled = together(
            [lambda o=offer: f.start(tenant, o), lambda t=task_id: f.cancel(tenant, t, revision=1)]
        )
        if isinstance(canceled, RevisionConflict):  # the start was first
            assert started.answer is Answer.STARTED  # type: ignore[union-attr]
            assert f.state(task_id) is S.RUNNING
            f.finish(offer)
        else:
            assert started.answer is Answer.CANCELED  # type: ignore[union-attr]
            assert f.state(task_id) is S.CANCELED


@pytest.mark.mariadb_only("answers of COMMIT are lost between a client and a server")
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("state", [S.READY, S.RUNNING])
def test_a_cancel_whose_answer_was_lost_is_done_once(tenant: Tenant, proxy: MysqlProxy, when: When, state: TaskState):
    task_id = in_state(tenant, state).task_id
    proxy.lose(Loss(when))
    f.cancel(tenant, task_id)
    assert len(f.rows_of("orbit_audit_entry", "action = 'task.cancel'")) == 1
    assert f.events_of(task_id)[-1] == ("CANCELED" if state is S.READY else "CANCEL_REQUESTED")
