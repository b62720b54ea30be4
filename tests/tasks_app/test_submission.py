"""Acceptance (design 1.2): what a receipt means, what a repeat gets, what is refused, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tasks_app import hints
from tasks_app.domain import submission
from tasks_app.endings import Report
from tasks_app.errors import (
    ApplicationFull,
    FailedPrecondition,
    IdempotencyConflict,
    InvalidArgument,
    NotFound,
    OrbitError,
    PayloadTooLarge,
    PermissionDenied,
    QueueFull,
    Unauthenticated,
)
from tasks_app.hints import Hint, HintKind
from tasks_app.models import Operation
from tasks_app.retries import RetryPolicy
from tasks_app.states import Action, Lane, TaskState
from tasks_app.submission_request import digest
from tests.tasks_app import factories as f
from tests.tasks_app.conftest import Points
from tests.tasks_app.factories import SAFE, Tenant, make_tenant

DAY_MS = 86_400_000


@pytest.fixture
def told() -> Iterator[list[Hint]]:
    """The hints of this process."""
    seen: list[Hint] = []
    undo = hints.subscribe(seen.append)
    yield seen
    undo()


# -- what a receipt means


def test_a_receipt_means_task_record_event_audit_entry_and_counters(tenant: Tenant):
    accepted = f.accept(tenant, key="order-1", priority=3, payload='{"n": 1.10}')
    receipt = accepted.receipt
    task = f.row(receipt.task_id)
    assert (task.state, task.priority, task.revision, task.payload) == (TaskState.READY, 3, 1, '{"n": 1.10}')
    assert (receipt.queue_id, receipt.revision, receipt.created_at, receipt.deduplicated) == (
        tenant.queue_id, "1", task.created_at, False
    )  # fmt: skip
    (record,) = f.rows_of("orbit_idempotency_record")
    assert (record.idempotency_key, record.task_id, record.operation) == ("order-1", task.task_id, "task.submit")
    (event,) = f.rows_of("orbit_event", "task_id = %s", [task.task_id])
    assert (event.type, event.revision, event.state, event.created_at) == ("ACCEPTED", 1, "READY", task.created_at)
    (entry,) = f.rows_of("orbit_audit_entry", "object_id = %s", [task.task_id])
    assert (entry.action, entry.actor, entry.namespace_id) == (
        "task.submit", tenant.credential_id, tenant.namespace_id
    )  # fmt: skip
    assert (f.queue_row(tenant.queue_id).unfinished, f.application_row(tenant).unfinished) == (1, 1)


def test_a_unit_that_does_not_commit_leaves_nothing_and_tells_nobody(tenant: Tenant, points: Points, told: list[Hint]):
    f.submit(tenant)  # the handler's row exists
    told.clear()
    seen = f.snapshot()

    def crash() -> None:
        raise RuntimeError("power cut")

    points["accept.before_commit"] = crash
    with pytest.raises(RuntimeError, match="power cut"):
        f.submit(tenant)
    assert (f.snapshot(), told) == (seen, [])


def test_work_that_is_due_is_announced_after_the_commit(tenant: Tenant, told: list[Hint]):
    due = f.submit(tenant)
    f.submit(tenant, delay_ms=60_000)
    assert [(hint.kind, hint.task_id) for hint in told] == [(HintKind.WORK_ADDED, due)]


@pytest.mark.parametrize(
    ("fields", "state", "wait_ms"),
    [
        ({}, TaskState.READY, 0),
        ({"delay_ms": 0}, TaskState.READY, 0),
        ({"delay_ms": 1}, TaskState.SCHEDULED, 1),
        ({"delay_ms": 31 * DAY_MS}, TaskState.SCHEDULED, 31 * DAY_MS),
    ],
)
def test_a_task_that_is_due_is_ready_at_once_and_scheduled_otherwise(
    tenant: Tenant, fields: dict[str, Any], state: TaskState, wait_ms: int
):
    task = f.row(f.submit(tenant, **fields))
    assert (task.state, task.available_at - task.created_at) == (state, wait_ms * 1000)


def test_a_time_in_the_past_means_now(tenant: Tenant):
    """Nobody gains a place by back-dating."""
    task = f.row(f.submit(tenant, available_at=f.now() - 3600 * f.SECOND))
    assert (task.available_at, task.state) == (task.created_at, TaskState.READY)


def test_a_deadline_counts_from_acceptance(tenant: Tenant):
    task = f.row(f.submit(tenant, expires_in_ms=5_000, delay_ms=4_999))
    assert task.deadline_at - task.created_at == 5_000_000


def test_the_policy_is_frozen_in_the_row(tenant: Tenant):
    policy = RetryPolicy.safe(max_attempts=7, initial_backoff_ms=5, max_backoff_ms=50, multiplier=3)
    task = f.row(f.submit(tenant, retry=policy, attempt_timeout_ms=1234))
    assert (task.retry_mode, task.max_attempts, task.initial_backoff_ms, task.max_backoff_ms, task.multiplier) == (
        "SAFE", 7, 5, 50, 3
    )  # fmt: skip
    assert task.attempt_timeout_ms == 1234


# -- idempotency


def test_the_second_submission_with_the_same_key_gets_the_first_receipt_and_writes_nothing(tenant: Tenant):
    first = f.accept(tenant, key="k")
    seen = f.snapshot()
    second = f.accept(tenant, key="k")
    assert second.receipt == replace(first.receipt, deduplicated=True)
    assert second.task is None
    assert f.snapshot() == seen


PATHS: dict[str, Any] = {
    "succeeded": lambda tenant, task_id: f.finish(f.run_one(tenant)),
    "dead letter": lambda tenant, task_id: f.finish(f.run_one(tenant), Report.FAILED),
    "canceled": lambda tenant, task_id: f.cancel(tenant, task_id),
    "expired": lambda tenant, task_id: (f.pass_deadline(task_id), f.sweep()),
    "unknown": lambda tenant, task_id: f.lose(f.run_one(tenant)),
    "running": lambda tenant, task_id: f.run_one(tenant),
}


@pytest.mark.parametrize("path", PATHS)
def test_whatever_became_of_the_task_its_key_gives_the_original_receipt(tenant: Tenant, path: str):
    """Sidekiq 6890: a key always leads to a receipt that can be read."""
    first = f.accept(tenant, key="k")
    PATHS[path](tenant, first.receipt.task_id)
    again = f.accept(tenant, key="k").receipt
    assert again == replace(first.receipt, deduplicated=True)
    assert again.revision == "1"


def test_other_content_under_the_key_is_a_conflict_that_names_the_task_and_writes_nothing(tenant: Tenant):
    first = f.submit(tenant, key="k", payload='{"n": 1}')
    seen = f.snapshot()
    with pytest.raises(IdempotencyConflict) as refused:
        f.submit(tenant, key="k", payload='{"n": 1.0}')
    assert refused.value.details[0]["task_id"] == first
    assert f.snapshot() == seen


@pytest.mark.parametrize("changes", [{"priority": 1}, {"handler": "other"}, {"delay_ms": 5}, {"resource_key": "k"}])
def test_any_member_that_differs_is_a_conflict(tenant: Tenant, changes: dict[str, Any]):
    f.submit(tenant, key="k")
    with pytest.raises(IdempotencyConflict):
        f.submit(tenant, key="k", **changes)


def test_a_conflict_is_told_before_what_is_wrong_with_the_other_content(tenant: Tenant):
    f.submit(tenant, key="k")
    with pytest.raises(IdempotencyConflict):
        f.submit(tenant, key="k", priority=10, delay_ms=10, expires_in_ms=5)


def test_priority_0_and_an_omitted_one_are_the_same_request_in_an_aged_namespace(tenant: Tenant):
    first = f.submit(tenant, key="k")
    assert f.submit(tenant, key="k", priority=0) == first


def test_priority_0_and_an_omitted_one_differ_in_a_strict_namespace(strict_tenant: Tenant):
    f.submit(strict_tenant, key="k")
    with pytest.raises(IdempotencyConflict):
        f.submit(strict_tenant, key="k", priority=0)


def test_keys_of_namespaces_and_operations_are_spaces_of_their_own(tenant: Tenant):
    other = make_tenant()
    wanted = f.request(tenant)
    replayed = submission.Submission("k", wanted, digest(wanted, tenant.policy), operation=Operation.TASK_REPLAY)
    ids = {
        f.submit(tenant, key="k"),
        f.submit(other, key="k"),
        submission.accept(tenant.principal, replayed).receipt.task_id,
    }
    assert len(ids) == 3


@pytest.mark.parametrize("key", ["a", "A", "!", "~" * 128])
def test_keys_compare_byte_for_byte(tenant: Tenant, key: str):
    f.submit(tenant, key="a")
    repeated = f.accept(tenant, key=key).receipt.deduplicated
    assert repeated is (key == "a")


# -- refusals write nothing


REFUSALS: dict[str, tuple[type[OrbitError], dict[str, Any]]] = {
    "priority above the range": (InvalidArgument, {"priority": 10}),
    "priority below the range": (InvalidArgument, {"priority": -1}),
    "empty handler": (InvalidArgument, {"handler": ""}),
    "delay beyond the horizon": (InvalidArgument, {"delay_ms": 31 * DAY_MS + 1}),
    "deadline before the start": (InvalidArgument, {"delay_ms": 10, "expires_in_ms": 10}),
    "payload too large": (PayloadTooLarge, {"payload": '"' + "x" * 256 * 1024 + '"'}),
    "unknown queue": (NotFound, {"queue_id": "f" * 32}),
    "time too far ahead": (InvalidArgument, {"available_at": 2**62}),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_what_is_refused_writes_nothing_and_its_key_stays_free(tenant: Tenant, reason: str):
    error, fields = REFUSALS[reason]
    seen = f.snapshot()
    with pytest.raises(error):
        f.submit(tenant, key="k", **fields)
    assert f.snapshot() == seen
    assert f.accept(tenant, key="k").receipt.deduplicated is False


def test_a_queue_of_another_namespace_does_not_exist(tenant: Tenant):
    other = make_tenant()
    messages = set()
    for queue_id in (other.queue_id, "f" * 32):
        with pytest.raises(NotFound) as refused:
            f.submit(tenant, queue_id=queue_id)
        messages.add(str(refused.value.as_json()))
    assert len(messages) == 1, "a foreign queue and none at all look the same"


def test_a_queue_outside_the_scope_is_refused_even_for_a_receipt(tenant: Tenant):
    elsewhere = tenant.queue()
    confined = f.make_credential(tenant, queue_ids=[tenant.queue_id])
    f.submit(tenant, key="k", queue_id=elsewhere)
    for key in ("k", "new"):
        with pytest.raises(PermissionDenied):
            f.accept(tenant, key=key, queue_id=elsewhere, principal=confined)
    assert f.accept(tenant, principal=confined).receipt.queue_id == tenant.queue_id


def test_a_credential_without_the_action_is_refused(tenant: Tenant):
    reader = f.make_credential(tenant, actions=[Action.TASKS_READ])
    with pytest.raises(PermissionDenied):
        f.accept(tenant, principal=reader)


def test_the_credential_is_judged_again_in_the_transaction(tenant: Tenant):
    """What was read before is not believed: revoked since, the very next submit is refused, repeats included."""
    f.submit(tenant, key="k")
    f.revoke(tenant)
    for key in ("k", "new"):
        with pytest.raises(Unauthenticated):
            f.submit(tenant, key=key)


# -- quotas


def test_a_queue_at_its_limit_refuses_and_says_when_to_come_again(tenant: Tenant):
    f.change_queue(tenant, max_unfinished=1)
    f.submit(tenant)
    with pytest.raises(QueueFull) as refused:
        f.submit(tenant)
    assert refused.value.retry_after_ms == 1000


def test_a_full_queue_still_answers_for_what_it_accepted(tenant: Tenant):
    f.change_queue(tenant, max_unfinished=1)
    first = f.accept(tenant, key="k")
    assert f.accept(tenant, key="k").receipt == replace(first.receipt, deduplicated=True)


def test_a_limit_of_0_accepts_nothing(tenant: Tenant):
    f.change_queue(tenant, max_unfinished=0)
    with pytest.raises(QueueFull):
        f.submit(tenant)


def test_a_lowered_limit_takes_nothing_away_and_holds_for_new_ones(tenant: Tenant):
    for _ in range(3):
        f.submit(tenant)
    f.change_queue(tenant, max_unfinished=1)
    assert f.queue_row(tenant.queue_id).unfinished == 3
    for offer in f.claim(tenant, limit=2).offers:
        f.start(tenant, offer)
        f.finish(offer)
    with pytest.raises(QueueFull):
        f.submit(tenant)


@pytest.mark.parametrize("path", [path for path in PATHS if path not in ("running", "unknown")])
def test_every_end_makes_room(tenant: Tenant, path: str):
    f.change_queue(tenant, max_unfinished=1)
    PATHS[path](tenant, f.submit(tenant))
    f.submit(tenant)


@pytest.mark.parametrize("path", ["running", "unknown"])
def test_what_runs_or_is_unknown_counts_as_unfinished(tenant: Tenant, path: str):
    f.change_queue(tenant, max_unfinished=1)
    PATHS[path](tenant, f.submit(tenant))
    with pytest.raises(QueueFull):
        f.submit(tenant)


def test_the_limit_of_an_application_counts_all_its_queues_and_no_others(tenant: Tenant):
    f.set_quotas(tenant, max_unfinished=2)
    other_queue, other_tenant = tenant.queue(), make_tenant()
    f.submit(tenant)
    f.submit(tenant, queue_id=other_queue)
    f.submit(other_tenant)
    for queue_id in (tenant.queue_id, other_queue):
        with pytest.raises(ApplicationFull) as refused:
            f.submit(tenant, queue_id=queue_id)
        assert refused.value.retry_after_ms == 1000
    f.submit(other_tenant)


def test_a_full_queue_is_told_before_a_full_application(tenant: Tenant):
    f.change_queue(tenant, max_unfinished=0)
    f.set_quotas(tenant, max_unfinished=0)
    with pytest.raises(QueueFull):
        f.submit(tenant)


def test_a_paused_queue_accepts(tenant: Tenant):
    f.pause(tenant)
    assert f.state(f.submit(tenant)) is TaskState.READY


# -- priority (STRICT: given > parent's > queue's default > namespace's default)


@pytest.mark.parametrize(
    ("given", "parent", "queue_default", "namespace_default", "resolved"),
    [
        (None, None, None, 0, 0),
        (None, None, None, -4, -4),
        (None, None, 3, -4, 3),
        (None, None, 0, -4, 0),
        (None, 7, 3, -4, 7),
        (None, -9, 3, -4, -9),
        (5, 7, 3, -4, 5),
        (0, 7, 3, -4, 0),
        (-9, None, None, 0, -9),
        (9, None, None, 0, 9),
    ],
)
def test_a_strict_priority_is_resolved_once_at_acceptance(
    database: None,
    given: int | None,
    parent: int | None,
    queue_default: int | None,
    namespace_default: int,
    resolved: int,
):
    tenant = make_tenant(policy="STRICT", default_priority=namespace_default, queue={"default_priority": queue_default})
    child_of: dict[str, Any] = {}
    if parent is not None:
        f.submit(tenant, priority=parent)
        running = f.run_one(tenant)
        child_of = {
            "parent_task_id": running.task.task_id, "parent_fencing_token": str(running.task.fencing_token)
        }  # fmt: skip
    task_id = f.submit(tenant, priority=given, **child_of)
    assert (f.row(task_id).priority, f.row(task_id).tier) == (resolved, -resolved)
    f.change_queue(tenant, default_priority=8)
    assert f.row(task_id).priority == resolved, "frozen at acceptance"


@pytest.mark.parametrize(("given", "resolved"), [(None, 6), (0, 0), (9, 9)])
def test_a_child_in_an_aged_namespace_takes_its_parents_priority_unless_given(
    tenant: Tenant, given: int | None, resolved: int
):
    f.submit(tenant, priority=6)
    running = f.run_one(tenant)
    task = f.row(f.submit(tenant, priority=given, **as_child_of(running)))
    assert (task.priority, task.tier, task.parent_task_id) == (resolved, 0, running.task.task_id)


@pytest.mark.parametrize("priority", [-10, 10])
def test_a_strict_priority_out_of_range_is_refused_never_clamped(strict_tenant: Tenant, priority: int):
    with pytest.raises(InvalidArgument):
        f.submit(strict_tenant, priority=priority)


# -- parents


def as_child_of(offer: Any) -> dict[str, Any]:
    return {"parent_task_id": offer.task.task_id, "parent_fencing_token": str(offer.task.fencing_token)}


def test_only_a_running_parent_under_its_current_token_has_children(tenant: Tenant):
    f.submit(tenant, retry=SAFE)
    reserved = f.claim_one(tenant)
    with pytest.raises(FailedPrecondition):
        f.submit(tenant, **as_child_of(reserved))
    f.start(tenant, reserved)
    f.submit(tenant, **as_child_of(reserved))
    f.finish(reserved)
    with pytest.raises(FailedPrecondition):
        f.submit(tenant, **as_child_of(reserved))


def test_a_parent_that_was_superseded_is_refused(tenant: Tenant):
    f.submit(tenant, retry=f.SAFE_AT_ONCE)
    old = f.run_one(tenant)
    f.lose(old)
    new = f.run_one(tenant)
    with pytest.raises(FailedPrecondition):
        f.submit(tenant, **as_child_of(old))
    f.submit(tenant, **as_child_of(new))


def test_a_parent_whose_lease_ran_out_is_refused_even_before_a_sweep_noticed(tenant: Tenant):
    f.submit(tenant)
    running = f.run_one(tenant)
    f.expire_lease(running.task.task_id)
    with pytest.raises(FailedPrecondition):
        f.submit(tenant, **as_child_of(running))


def test_a_parent_of_another_namespace_is_refused(tenant: Tenant):
    other = make_tenant()
    f.submit(other)
    with pytest.raises(FailedPrecondition):
        f.submit(tenant, **as_child_of(f.run_one(other)))


def test_the_parents_token_is_judged_after_the_receipt_and_is_no_part_of_the_content(tenant: Tenant):
    f.submit(tenant)
    running = f.run_one(tenant)
    first = f.submit(tenant, key="child", **as_child_of(running))
    f.finish(running)
    stale = as_child_of(running) | {"parent_fencing_token": "99"}
    assert f.submit(tenant, key="child", **stale) == first


# -- resource keys at acceptance


def test_the_first_waiter_of_a_free_key_is_open_and_those_behind_it_are_held(tenant: Tenant):
    first, second, third = (f.submit(tenant, resource_key="k") for _ in range(3))
    assert [f.row(task_id).lane for task_id in (first, second, third)] == [Lane.KEYED, Lane.HELD, Lane.HELD]
    assert f.key_row(tenant).held == 0


def test_handlers_and_keys_are_made_once(tenant: Tenant):
    for _ in range(3):
        f.submit(tenant, resource_key="k")
    submission.forget_references()
    f.submit(tenant, resource_key="k")
    assert len(f.rows_of("orbit_handler")) == len(f.rows_of("orbit_resource_key")) == 1


def test_a_handler_is_known_by_name_and_version_byte_for_byte(tenant: Tenant):
    refs = {
        f.row(f.submit(tenant, handler=handler, handler_version=version)).handler_ref
        for handler in ("h", "H", "\u00e9", "e\u0301")
        for version in ("1", "1.0")
    }
    assert len(refs) == 8
