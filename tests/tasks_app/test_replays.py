"""Replay one, replay many, dismiss (design 1.4)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection

from tasks_app.domain import replays
from tasks_app.domain.audit import SYSTEM, Actor
from tasks_app.domain.batches import Verdict
from tasks_app.domain.reconciliation import Decision
from tasks_app.domain.replays import ReplayedItem, SelectionOrder
from tasks_app.domain.tenancy import Principal, operator_of
from tasks_app.endings import Report
from tasks_app.errors import (
    AlreadyExists,
    ApplicationFull,
    FailedPrecondition,
    IdempotencyConflict,
    InvalidArgument,
    NotFound,
    OrbitError,
    PermissionDenied,
    QueueFull,
    RevisionConflict,
    Unauthenticated,
)
from tasks_app.models import ActorKind
from tasks_app.states import TaskState
from tests.tasks_app.factories import (
    SAFE_AT_ONCE,
    Tenant,
    accept,
    cancel,
    change_queue,
    events_of,
    finish,
    lose,
    make_credential,
    make_tenant,
    now,
    reconcile,
    revoke,
    row,
    rows_of,
    run_one,
    set_columns,
    set_quotas,
    snapshot,
    submit,
    sweep,
)


def failed(tenant: Tenant, **fields: Any) -> str:
    """A dead letter."""
    task_id = submit(tenant, **fields)
    more = {"queue_ids": [fields["queue_id"]]} if "queue_id" in fields else {}
    handlers = {"handlers": [fields["handler"]]} if "handler" in fields else {}
    finish(run_one(tenant, **more, **handlers), Report.FAILED, retryable=False)
    assert row(task_id).state == TaskState.FAILED
    return task_id


def expired(tenant: Tenant) -> str:
    task_id = submit(tenant, expires_in_ms=60_000)
    accepted_at = now() - 61_000_000
    set_columns(task_id, created_at=accepted_at, available_at=accepted_at, deadline_at=accepted_at + 60_000_000)
    sweep()
    return task_id


def canceled(tenant: Tenant) -> str:
    task_id = submit(tenant)
    cancel(tenant, task_id)
    return task_id


def replay(tenant: Tenant, source_id: str, *, key: str = "again", **more: Any) -> str:
    """The id of the new task."""
    return replays.replay(more.pop("principal", tenant.principal), source_id, key=key, **more).accepted.receipt.task_id


def refusal(act: Callable[[], Any], kind: type[OrbitError]) -> OrbitError:
    """The error of an act that changes nothing."""
    before = snapshot()
    with pytest.raises(kind) as refused:
        act()
    assert snapshot() == before
    return refused.value


# -- one


@pytest.mark.parametrize("ended", [failed, expired, canceled])
def test_a_task_that_ended_without_success_is_submitted_again(tenant: Tenant, ended: Callable[[Tenant], str]) -> None:
    source_id = ended(tenant)
    before = row(source_id)

    replayed = replays.replay(tenant.principal, source_id, key="again")

    new_id = replayed.accepted.receipt.task_id
    assert not replayed.accepted.receipt.deduplicated
    new, old = row(new_id), row(source_id)
    assert (new.state, new.revision, new.attempts, new.replayed_from) == (TaskState.READY, 1, 0, source_id)
    assert (old.state, old.replayed_as, old.revision) == (before.state, new_id, before.revision + 1)
    assert old.attention is None, "it left the dead letters"
    assert events_of(source_id)[-1] == "REPLAYED"
    assert events_of(new_id) == ["ACCEPTED"]
    assert replayed.accepted.task is not None and replayed.request is not None


def test_the_new_task_asks_for_what_the_old_one_asked_for(tenant: Tenant) -> None:
    source_id = failed(
        tenant,
        payload='{"n": 9007199254740993, "f": 1.10}',
        payload_version="7",
        priority=4,
        resource_key="k",
        attempt_timeout_ms=5000,
        expires_in_ms=90_000,
        retry=SAFE_AT_ONCE,
    )
    new, old = row(replay(tenant, source_id)), row(source_id)
    same = (
        "queue_id", "handler_ref", "payload", "payload_version", "priority", "resource_ref", "attempt_timeout_ms",
        "retry_mode", "max_attempts", "initial_backoff_ms", "max_backoff_ms", "multiplier",
    )  # fmt: skip
    assert {name: getattr(new, name) for name in same} == {name: getattr(old, name) for name in same}
    assert new.deadline_at == new.created_at + 90_000_000, "the deadline is counted from the new acceptance"


@pytest.mark.parametrize(("policy", "priority"), [("AGED", 7), ("STRICT", -6)])
def test_priority_and_delay_may_be_given(database: None, policy: str, priority: int) -> None:
    tenant = make_tenant(policy=policy)
    new = row(replay(tenant, failed(tenant, priority=2), priority=priority, delay_ms=60_000))
    assert (new.priority, new.state) == (priority, TaskState.SCHEDULED)
    assert new.available_at == new.created_at + 60_000_000


def test_priority_is_kept_in_a_strict_namespace_whose_default_is_another(database: None) -> None:
    tenant = make_tenant(policy="STRICT", default_priority=5)
    assert row(replay(tenant, failed(tenant, priority=-3))).priority == -3


@pytest.mark.parametrize(("priority", "delay_ms"), [(10, None), (-1, None), (None, -1), (None, 2_678_400_001)])
def test_values_out_of_range_are_refused(tenant: Tenant, priority: int | None, delay_ms: int | None) -> None:
    source_id = failed(tenant)
    refusal(lambda: replay(tenant, source_id, priority=priority, delay_ms=delay_ms), InvalidArgument)


def test_an_attempt_that_an_operator_added_is_not_asked_for_again(tenant: Tenant) -> None:
    """NEVER means one start; after a RETRY decision the row says two, which no submit may ask for."""
    task_id = submit(tenant)
    lose(run_one(tenant))
    reconcile(tenant, task_id, Decision.RETRY)
    finish(run_one(tenant), Report.FAILED)
    assert row(task_id).max_attempts == 2
    assert row(replay(tenant, task_id)).max_attempts == 1


def test_same_key_and_content_gives_the_same_receipt(tenant: Tenant) -> None:
    source_id = failed(tenant)
    first = replays.replay(tenant.principal, source_id, key="again", priority=3)
    before = snapshot()
    second = replays.replay(tenant.principal, source_id, key="again", priority=3)
    assert snapshot() == before
    assert second.accepted.receipt.deduplicated and second.accepted.task is None
    assert second.accepted.receipt.task_id == first.accepted.receipt.task_id
    assert second.accepted.receipt.created_at == first.accepted.receipt.created_at


def test_omitted_and_zero_delay_are_the_same_content(tenant: Tenant) -> None:
    source_id = failed(tenant)
    assert replay(tenant, source_id, delay_ms=0) == replay(tenant, source_id)


@pytest.mark.parametrize("other", [{"priority": 4}, {"delay_ms": 5}, "another task"])
def test_same_key_with_other_content_is_a_conflict(tenant: Tenant, other: Any) -> None:
    source_id, another = failed(tenant), failed(tenant)
    new_id = replay(tenant, source_id)
    changed, fields = (another, {}) if isinstance(other, str) else (source_id, other)
    conflict = refusal(lambda: replay(tenant, changed, **fields), IdempotencyConflict)
    assert conflict.details[0]["task_id"] == new_id


def test_keys_of_submits_and_of_replays_are_two_spaces(tenant: Tenant) -> None:
    source_id = failed(tenant)
    submitted = accept(tenant, key="again").receipt.task_id
    assert replay(tenant, source_id, key="again") != submitted


def test_a_task_is_replayed_once(tenant: Tenant) -> None:
    source_id = failed(tenant)
    new_id = replay(tenant, source_id)
    exists = refusal(lambda: replay(tenant, source_id, key="another"), AlreadyExists)
    assert exists.details[0]["task_id"] == new_id


def test_a_replay_that_failed_can_be_replayed_itself(tenant: Tenant) -> None:
    source_id = failed(tenant)
    second = replay(tenant, source_id)
    finish(run_one(tenant), Report.FAILED)
    third = replay(tenant, second, key="once more")
    assert row(third).replayed_from == second and row(source_id).replayed_as == second


def test_receipt_outlives_the_old_task(tenant: Tenant) -> None:
    source_id = failed(tenant)
    new_id = replay(tenant, source_id)
    delete_task(source_id)
    replayed = replays.replay(tenant.principal, source_id, key="again")
    assert replayed.accepted.receipt.task_id == new_id and replayed.request is None
    with pytest.raises(NotFound):
        replay(tenant, source_id, key="another")
    delete_records(source_id)


def delete_task(task_id: str) -> None:
    """As retention does, but for the receipt."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orbit_task WHERE task_id = %s", [task_id])
        cursor.execute("DELETE FROM orbit_attempt WHERE task_id = %s", [task_id])
        cursor.execute("DELETE FROM orbit_event WHERE task_id = %s", [task_id])


def delete_records(task_id: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orbit_idempotency_record WHERE task_id = %s", [task_id])


@pytest.mark.parametrize("state", ["READY", "RUNNING", "UNKNOWN", "SUCCEEDED"])
def test_other_states_cannot_be_replayed(tenant: Tenant, state: str) -> None:
    task_id = submit(tenant)
    if state != "READY":
        offer = run_one(tenant)
        if state == "UNKNOWN":
            lose(offer)
        if state == "SUCCEEDED":
            finish(offer)
    assert row(task_id).state == state
    error = refusal(lambda: replay(tenant, task_id), FailedPrecondition)
    assert error.details[0]["state"] == state


def test_what_is_foreign_or_out_of_scope_is_not_replayed(tenant: Tenant) -> None:
    source_id = failed(tenant)
    stranger = make_tenant().principal
    refusal(lambda: replay(tenant, source_id, principal=stranger), NotFound)
    refusal(lambda: replay(tenant, "0" * 32), NotFound)
    confined = make_credential(tenant, queue_ids=[tenant.queue()])
    refusal(lambda: replay(tenant, source_id, principal=confined), PermissionDenied)


def test_rights_are_looked_at_in_the_unit(tenant: Tenant) -> None:
    source_id = failed(tenant)
    reader = make_credential(tenant, actions=["tasks:submit", "tasks:read"])
    refusal(lambda: replay(tenant, source_id, principal=reader), PermissionDenied)
    revoke(tenant)
    refusal(lambda: replay(tenant, source_id), Unauthenticated)


def test_quotas_refuse_a_replay_and_leave_the_dead_letter(tenant: Tenant) -> None:
    source_id = failed(tenant)
    change_queue(tenant, max_unfinished=0)
    assert refusal(lambda: replay(tenant, source_id), QueueFull).retry_after_ms == 1000
    change_queue(tenant, max_unfinished=None)
    set_quotas(tenant, max_unfinished=0)
    refusal(lambda: replay(tenant, source_id), ApplicationFull)
    set_quotas(tenant, max_unfinished=None)
    assert row(replay(tenant, source_id)).state == TaskState.READY


def test_replayed_before_is_said_even_when_the_queue_is_full(tenant: Tenant) -> None:
    source_id = failed(tenant)
    replay(tenant, source_id)
    change_queue(tenant, max_unfinished=0)
    refusal(lambda: replay(tenant, source_id, key="another"), AlreadyExists)
    assert replay(tenant, source_id)


def test_an_operator_replays_without_a_credential(tenant: Tenant) -> None:
    source_id = failed(tenant)
    revoke(tenant)
    user = Actor(ActorKind.USER, "ada")
    new_id = replay(tenant, source_id, principal=operator_of(tenant.namespace_id), actor=user)
    entries = rows_of("orbit_audit_entry", "object_id IN (%s, %s) AND actor = 'ada'", [source_id, new_id])
    assert {(entry.object_id, entry.action) for entry in entries} == {
        (source_id, "task.replayed"),
        (new_id, "task.replay"),
    }


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each of the acts gave or raised, all started together."""
    barrier = threading.Barrier(len(acts))
    answers: list[Any] = [None] * len(acts)

    def run(number: int, act: Callable[[], Any]) -> None:
        try:
            barrier.wait(20)
            answers[number] = act()
        except Exception as error:
            answers[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def test_one_key_many_times_at_once_makes_one_task(tenant: Tenant) -> None:
    source_id = failed(tenant)
    answers = at_once([lambda: replay(tenant, source_id)] * 6)
    assert len(set(answers)) == 1 and row(answers[0]).replayed_from == source_id
    assert len(rows_of("orbit_task", "replayed_from = %s", [source_id])) == 1


def test_many_keys_at_once_make_one_task_and_name_it(tenant: Tenant) -> None:
    source_id = failed(tenant)
    answers = at_once([lambda key=f"key {n}": replay(tenant, source_id, key=key.replace(" ", "-")) for n in range(6)])
    (new,) = rows_of("orbit_task", "replayed_from = %s", [source_id])
    assert answers.count(new.task_id) == 1
    others = [answer for answer in answers if answer != new.task_id]
    assert all(isinstance(error, AlreadyExists) and error.details[0]["task_id"] == new.task_id for error in others)


# -- many


def replay_many(
    tenant: Tenant, *, key: str = "all", principal: Principal | None = None, stop_after: int | None = None, **order: Any
) -> list[ReplayedItem]:
    asked: list[None] = []

    def is_over() -> bool:
        asked.append(None)
        return stop_after is not None and len(asked) > stop_after

    wanted = SelectionOrder(**{"queue_id": tenant.queue_id, "limit": 500, **order})
    return replays.replay_many(principal or tenant.principal, wanted, key=key, is_over=is_over)


def verdicts(items: list[ReplayedItem]) -> list[str]:
    return [item.result.verdict.value for item in items]


def test_replays_the_dead_letters_of_a_queue_oldest_first(tenant: Tenant) -> None:
    dead = [failed(tenant, priority=n) for n in range(3)]
    submit(tenant)
    canceled(tenant)
    finish(run_one(tenant))
    failed(tenant, queue_id=tenant.queue())

    items = replay_many(tenant)

    assert [item.source_task_id for item in items] == dead
    assert verdicts(items) == ["ACCEPTED"] * 3
    for item, source_id in zip(items, dead, strict=True):
        assert item.result.receipt is not None
        new = row(item.result.receipt.task_id)
        assert (new.replayed_from, new.priority) == (source_id, row(source_id).priority)
    (entry,) = rows_of("orbit_audit_entry", "action = 'tasks.replay' AND object_type = 'queue'")
    assert json.loads(entry.data)["selected"] == 3


def test_states_handler_limit_and_priority_narrow_the_selection(tenant: Tenant) -> None:
    first, second = failed(tenant), failed(tenant)
    other = failed(tenant, handler="other")
    gone, stopped = expired(tenant), canceled(tenant)

    def chosen(**order: Any) -> list[str]:
        items = replay_many(tenant, key=json.dumps(order, default=sorted).replace(" ", ""), **order)
        with connection.cursor() as cursor:  # they are to be found again by the next call
            cursor.execute("UPDATE orbit_task SET replayed_as = NULL")
        return [item.source_task_id for item in items]

    assert chosen(limit=1) == [first]
    assert chosen(handler="h") == [first, second]
    assert chosen(handler="nobody's") == []
    assert chosen(states=frozenset({TaskState.EXPIRED})) == [gone]
    every = frozenset({TaskState.FAILED, TaskState.EXPIRED, TaskState.CANCELED})
    assert chosen(states=every, priority=8) == sorted([first, second, other, gone, stopped])
    assert {task.priority for task in rows_of("orbit_task", "replayed_from IS NOT NULL AND priority = 8")} == {8}
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_task SET replayed_as = 'x' WHERE state = 'FAILED'")


def test_replayed_and_dismissed_ones_are_not_selected(tenant: Tenant) -> None:
    replayed, dismissed, left = failed(tenant), failed(tenant), failed(tenant)
    replay(tenant, replayed)
    dismiss(tenant, dismissed)
    assert [item.source_task_id for item in replay_many(tenant)] == [left]
    both = frozenset({TaskState.FAILED, TaskState.CANCELED})
    assert replay_many(tenant, key="both", states=both) == []


def test_same_key_covers_the_same_tasks_and_gives_the_same_receipts(tenant: Tenant) -> None:
    dead = [failed(tenant) for _ in range(2)]
    first = replay_many(tenant)
    failed_later(tenant)
    before = snapshot()

    second = replay_many(tenant)

    assert snapshot() == before
    assert [item.source_task_id for item in second] == dead
    assert [item.result.receipt.task_id for item in second if item.result.receipt] == [
        item.result.receipt.task_id for item in first if item.result.receipt
    ]
    assert all(item.result.receipt and item.result.receipt.deduplicated for item in second)
    assert len(replay_many(tenant, key="a new key")) == 1, "what failed since needs a key of its own"


def failed_later(tenant: Tenant) -> str:
    other = tenant.queue()
    task_id = failed(tenant, queue_id=other)
    set_columns(task_id, queue_id=tenant.queue_id)
    with connection.cursor() as cursor:
        for table in ("orbit_event", "orbit_idempotency_record"):
            cursor.execute(f"UPDATE {table} SET queue_id = %s WHERE task_id = %s", [tenant.queue_id, task_id])
    return task_id


def test_what_was_refused_is_tried_again(tenant: Tenant) -> None:
    dead = [failed(tenant) for _ in range(3)]
    change_queue(tenant, max_unfinished=2)
    first = replay_many(tenant)
    assert verdicts(first) == ["ACCEPTED", "ACCEPTED", "REJECTED"]
    assert isinstance(first[2].result.error, QueueFull)

    change_queue(tenant, max_unfinished=None)
    second = replay_many(tenant)

    assert verdicts(second) == ["ACCEPTED"] * 3
    assert [item.result.receipt.deduplicated for item in second if item.result.receipt] == [True, True, False]
    assert len(rows_of("orbit_task", "replayed_from IS NOT NULL")) == len(dead)


def test_time_up_leaves_the_rest_not_attempted_and_the_same_key_goes_on(tenant: Tenant) -> None:
    dead = [failed(tenant) for _ in range(3)]
    first = replay_many(tenant, stop_after=1)
    assert verdicts(first) == ["ACCEPTED", "NOT_ATTEMPTED", "NOT_ATTEMPTED"]
    assert [item.source_task_id for item in first] == dead
    assert verdicts(replay_many(tenant)) == ["ACCEPTED"] * 3
    assert len(rows_of("orbit_task", "replayed_from IS NOT NULL")) == 3


def test_one_replayed_by_another_hand_is_refused_and_does_not_stop_the_others(tenant: Tenant) -> None:
    dead = [failed(tenant) for _ in range(3)]
    replay_many(tenant, stop_after=0)
    new_id = replay(tenant, dead[1])
    items = replay_many(tenant)
    assert verdicts(items) == ["ACCEPTED", "REJECTED", "ACCEPTED"]
    assert isinstance(items[1].result.error, AlreadyExists)
    assert items[1].result.error.details[0]["task_id"] == new_id


def test_a_credential_revoked_midway_ends_it(tenant: Tenant, points: Any) -> None:
    [failed(tenant) for _ in range(3)]
    points.once("accept.committed", lambda: revoke(tenant))
    items = replay_many(tenant)
    assert verdicts(items) == ["ACCEPTED", "REJECTED", "NOT_ATTEMPTED"]
    assert isinstance(items[1].result.error, Unauthenticated)


def test_key_with_other_content_is_a_conflict(tenant: Tenant) -> None:
    failed(tenant)
    replay_many(tenant)
    refusal(lambda: replay_many(tenant, limit=5), IdempotencyConflict)
    refusal(lambda: replay_many(tenant, handler="h"), IdempotencyConflict)
    refusal(lambda: replay_many(tenant, priority=1), IdempotencyConflict)


def test_a_callers_key_is_never_an_items_key(tenant: Tenant) -> None:
    """Both are in the space `tasks.replay`; only printable ASCII without blanks can be sent."""
    failed(tenant)
    replay_many(tenant)
    keys = [record.idempotency_key for record in rows_of("orbit_idempotency_record", "operation = 'tasks.replay'")]
    assert sorted(" " in key for key in keys) == [False, True]
    assert max(map(len, keys)) <= 128


@pytest.mark.parametrize(
    "order",
    [
        {"limit": 0},
        {"limit": 501},
        {"states": frozenset()},
        {"states": frozenset({TaskState.SUCCEEDED})},
        {"states": frozenset({TaskState.FAILED, TaskState.UNKNOWN})},
        {"priority": 10},
        {"priority": -1},
    ],
)
def test_a_selection_out_of_range_is_refused(tenant: Tenant, order: dict[str, Any]) -> None:
    failed(tenant)
    refusal(lambda: replay_many(tenant, **order), InvalidArgument)


def test_a_selection_of_a_foreign_or_closed_queue_is_refused(tenant: Tenant) -> None:
    failed(tenant)
    other = make_tenant()
    refusal(lambda: replay_many(tenant, queue_id=other.queue_id), NotFound)
    refusal(lambda: replay_many(tenant, queue_id="0" * 32), NotFound)
    confined = make_credential(tenant, queue_ids=[tenant.queue()])
    refusal(lambda: replay_many(tenant, principal=confined), PermissionDenied)
    reader = make_credential(tenant, actions=["tasks:read"])
    refusal(lambda: replay_many(tenant, principal=reader), PermissionDenied)


def test_one_key_twice_at_once_freezes_one_selection(tenant: Tenant) -> None:
    dead = [failed(tenant) for _ in range(4)]
    answers = at_once([lambda: replay_many(tenant)] * 3)
    for items in answers:
        assert [item.source_task_id for item in items] == dead
        assert verdicts(items) == ["ACCEPTED"] * 4
    assert len(rows_of("orbit_task", "replayed_from IS NOT NULL")) == 4


def test_a_pruned_source_keeps_its_receipt(tenant: Tenant) -> None:
    source_id = failed(tenant)
    (first,) = replay_many(tenant)
    delete_task(source_id)
    (again,) = replay_many(tenant)
    assert again.result.verdict is Verdict.ACCEPTED
    assert again.result.receipt and first.result.receipt
    assert again.result.receipt.task_id == first.result.receipt.task_id
    delete_records(source_id)


# -- dismiss


def dismiss(tenant: Tenant, task_id: str, *, revision: int | None = None, principal: Principal | None = None) -> Any:
    seen = row(task_id).revision if revision is None else revision
    return replays.dismiss(principal or tenant.principal, task_id, revision=seen, reason="not needed", actor=SYSTEM)


def test_dismiss_takes_a_task_out_of_the_dead_letters(tenant: Tenant) -> None:
    task_id = failed(tenant)
    before = row(task_id)
    assert before.attention == "DEAD"

    answer = dismiss(tenant, task_id)

    after = row(task_id)
    assert (after.state, after.attention, after.revision) == (TaskState.FAILED, None, before.revision + 1)
    assert answer.revision == after.revision
    assert events_of(task_id)[-1] == "DISMISSED"
    (entry,) = rows_of("orbit_audit_entry", "action = 'task.dismiss'")
    assert (entry.object_id, entry.reason) == (task_id, "not needed")


def test_dismissed_twice_is_dismissed_once(tenant: Tenant) -> None:
    task_id = failed(tenant)
    seen = row(task_id).revision
    dismiss(tenant, task_id, revision=seen)
    before = snapshot()
    dismiss(tenant, task_id, revision=seen)
    assert snapshot() == before


def test_a_dismissed_task_can_still_be_replayed(tenant: Tenant) -> None:
    task_id = failed(tenant)
    dismiss(tenant, task_id)
    assert row(replay(tenant, task_id)).replayed_from == task_id


@pytest.mark.parametrize("ended", [submit, expired, canceled])
def test_only_failed_tasks_can_be_dismissed(tenant: Tenant, ended: Callable[[Tenant], str]) -> None:
    task_id = ended(tenant)
    refusal(lambda: dismiss(tenant, task_id, revision=99), FailedPrecondition)


def test_a_replayed_task_is_no_dead_letter(tenant: Tenant) -> None:
    task_id = failed(tenant)
    replay(tenant, task_id)
    refusal(lambda: dismiss(tenant, task_id), FailedPrecondition)


def test_dismiss_needs_the_revision_that_was_seen(tenant: Tenant) -> None:
    task_id = failed(tenant)
    conflict = refusal(lambda: dismiss(tenant, task_id, revision=1), RevisionConflict)
    assert conflict.details[0]["current"] == str(row(task_id).revision)


def test_dismiss_of_what_is_foreign_or_out_of_scope(tenant: Tenant) -> None:
    task_id = failed(tenant)
    stranger = make_tenant().principal
    refusal(lambda: dismiss(tenant, task_id, principal=stranger), NotFound)
    confined = make_credential(tenant, queue_ids=[tenant.queue()])
    refusal(lambda: dismiss(tenant, task_id, principal=confined), PermissionDenied)
