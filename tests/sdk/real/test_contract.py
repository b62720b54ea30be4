"""One suite over two Orbits: what the in-memory one keeps is what a real node keeps, seen through the same client."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from orbit_sdk import (
    AlreadyExists,
    BatchItem,
    FailedPrecondition,
    IdempotencyConflict,
    InvalidArgument,
    NotFound,
    OrbitClient,
    PayloadTooLarge,
    QueueFull,
    RetryPolicy,
    RevisionConflict,
    SubmitTask,
    TaskState,
)
from orbit_sdk.testing import InMemoryOrbit

NOWHERE = "f" * 32


@pytest.fixture(params=["memory", "node"])
def orbit(request: pytest.FixtureRequest) -> Iterator[OrbitClient]:
    if request.param == "memory":
        yield InMemoryOrbit()
        return
    running = request.getfixturevalue("orbit_server")
    with OrbitClient.from_credentials_file(running.aged.path, url=running.url) as client:
        yield client


@pytest.fixture
def queue(orbit: OrbitClient) -> str:
    """A queue of the test's own, known to the client by its name."""
    return orbit.create_queue(f"contract-{secrets.token_hex(6)}").name


def a_key() -> str:
    return f"contract-{secrets.token_hex(8)}"


def a_task(queue: str, **changes: Any) -> SubmitTask:
    return SubmitTask(**{"queue": queue, "handler": "contract.handler", "payload": {"n": 1}, **changes})


def test_an_accepted_task_can_be_read(orbit: OrbitClient, queue: str) -> None:
    payload = {"n": 9007199254740993, "d": Decimal("0.1000000000000000055"), "list": [None, True, "ü😀"]}
    accepted = orbit.submit_task(a_key(), a_task(queue, payload=payload, priority=3, resource_key="disk"))

    task = orbit.get_task(accepted.task_id)

    assert not accepted.deduplicated
    assert (task.state, task.revision, task.priority, task.attempts) == (TaskState.READY, "1", 3, 0)
    assert (task.payload, task.resource_key, task.max_attempts) == (payload, "disk", 1)
    assert task.retry["mode"] == "NEVER"
    assert abs(task.created_at - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 0},
        {"delay_ms": 0},
        {"retry": RetryPolicy.never()},
        {"retry": RetryPolicy(max_attempts=1)},
    ],
)
def test_an_omitted_default_equals_the_default_written_out(
    orbit: OrbitClient, queue: str, changes: dict[str, Any]
) -> None:
    key = a_key()
    first = orbit.submit_task(key, a_task(queue))
    second = orbit.submit_task(key, a_task(queue, **changes))

    assert (second.task_id, second.deduplicated) == (first.task_id, True)


def test_defaults_of_a_safe_retry_may_be_written_out(orbit: OrbitClient, queue: str) -> None:
    key = a_key()
    orbit.submit_task(key, a_task(queue, retry=RetryPolicy.safe()))
    policy = RetryPolicy.safe(3, initial_backoff_ms=1000, max_backoff_ms=60_000, multiplier=2)

    assert orbit.submit_task(key, a_task(queue, retry=policy)).deduplicated


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": {"n": 2}},
        {"payload": {"n": Decimal("1.0")}},
        {"priority": 1},
        {"delay_ms": 1},
        {"expires_in_ms": 60_000},
        {"handler_version": "v2"},
        {"resource_key": "disk"},
        {"retry": RetryPolicy.safe()},
    ],
)
def test_other_content_under_the_same_key_is_a_conflict(
    orbit: OrbitClient, queue: str, changes: dict[str, Any]
) -> None:
    key = a_key()
    first = orbit.submit_task(key, a_task(queue))

    with pytest.raises(IdempotencyConflict) as conflict:
        orbit.submit_task(key, a_task(queue, **changes))

    assert conflict.value.detail("task_id") == first.task_id


def test_the_order_of_members_does_not_matter(orbit: OrbitClient, queue: str) -> None:
    key = a_key()
    orbit.submit_task(key, a_task(queue, payload={"a": 1, "b": [{"c": 1, "d": 2}]}))

    assert orbit.submit_task(key, a_task(queue, payload={"b": [{"d": 2, "c": 1}], "a": 1})).deduplicated


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 10},
        {"priority": -1},
        {"handler": ""},
        {"handler": " h"},
        {"handler": "h" * 129},
        {"delay_ms": -1},
        {"delay_ms": 2_678_400_001},
        {"expires_in_ms": 0},
        {"expires_in_ms": 10, "delay_ms": 10},
        {"attempt_timeout_ms": 99},
        {"resource_key": ""},
        {"retry": RetryPolicy.safe(0)},
        {"retry": RetryPolicy.safe(initial_backoff_ms=5, max_backoff_ms=4)},
        {"retry": RetryPolicy.safe(multiplier=11)},
        {"retry": RetryPolicy(max_attempts=2)},
    ],
)
def test_what_breaks_a_rule_is_refused(orbit: OrbitClient, queue: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        orbit.submit_task(a_key(), a_task(queue, **changes))


def test_a_payload_of_256_kib_is_the_largest(orbit: OrbitClient, queue: str) -> None:
    orbit.submit_task(a_key(), a_task(queue, payload="x" * (256 * 1024 - 2)))
    with pytest.raises(PayloadTooLarge):
        orbit.submit_task(a_key(), a_task(queue, payload="x" * (256 * 1024 - 1)))


def test_a_queue_that_does_not_exist_is_not_found(orbit: OrbitClient) -> None:
    with pytest.raises(NotFound):
        orbit.submit_task(a_key(), a_task(NOWHERE))


def test_a_full_queue_still_answers_for_what_it_accepted(orbit: OrbitClient) -> None:
    name = f"full-{secrets.token_hex(6)}"
    orbit.create_queue(name, max_unfinished=1)
    key = a_key()
    orbit.submit_task(key, a_task(name))

    with pytest.raises(QueueFull) as full:
        orbit.submit_task(a_key(), a_task(name))

    assert full.value.retry_after == 1.0
    assert orbit.submit_task(key, a_task(name)).deduplicated


def test_each_item_of_a_batch_has_its_own_answer(orbit: OrbitClient, queue: str) -> None:
    known, changed = a_key(), a_key()
    orbit.submit_task(known, a_task(queue))
    orbit.submit_task(changed, a_task(queue))
    items = [
        BatchItem(a_key(), a_task(queue)),
        BatchItem(known, a_task(queue)),
        BatchItem(changed, a_task(queue, payload=2)),
        BatchItem(a_key(), a_task(NOWHERE)),
        BatchItem(a_key(), a_task(queue, priority=10)),
    ]

    for first in (True, False):
        result = orbit.submit_tasks(items)
        assert [item.status for item in result.items] == ["ACCEPTED", "ACCEPTED", "REJECTED", "REJECTED", "REJECTED"]
        codes = [item.error.code for item in result.items if item.error is not None]
        assert codes == ["IDEMPOTENCY_CONFLICT", "NOT_FOUND", "INVALID_ARGUMENT"]
        receipts = [item.receipt.deduplicated for item in result.items if item.receipt is not None]
        assert receipts == [not first, True]


def test_a_task_that_is_not_due_is_scheduled(orbit: OrbitClient, queue: str) -> None:
    accepted = orbit.submit_task(a_key(), a_task(queue, delay_ms=60_000))

    assert accepted.task is not None
    assert accepted.task.state is TaskState.SCHEDULED


def test_a_time_in_the_past_means_now(orbit: OrbitClient, queue: str) -> None:
    accepted = orbit.submit_task(a_key(), a_task(queue, available_at=datetime(2020, 1, 1, tzinfo=UTC)))

    assert accepted.task is not None
    assert accepted.task.state is TaskState.READY
    assert accepted.task.available_at.year > 2020


def test_cancelling_is_guarded_and_repeatable(orbit: OrbitClient, queue: str) -> None:
    accepted = orbit.submit_task(a_key(), a_task(queue))
    with pytest.raises(RevisionConflict) as conflict:
        orbit.cancel_task(accepted.task_id, "7")
    assert conflict.value.detail("current") == "1"

    cancelled = orbit.cancel_task(accepted.task_id, "1", reason="no longer wanted")
    again = orbit.cancel_task(accepted.task_id, "1")

    assert (cancelled.state, cancelled.revision) == (TaskState.CANCELED, "2")
    assert again.state is TaskState.CANCELED
    with pytest.raises(NotFound):
        orbit.cancel_task(NOWHERE, "1")


def test_only_an_unknown_task_is_reconciled(orbit: OrbitClient, queue: str) -> None:
    accepted = orbit.submit_task(a_key(), a_task(queue))
    with pytest.raises(FailedPrecondition):
        orbit.reconcile_task(accepted.task_id, "1", "RETRY", "because")


def test_a_task_is_replayed_once(orbit: OrbitClient, queue: str) -> None:
    accepted = orbit.submit_task(a_key(), a_task(queue, priority=4))
    with pytest.raises(FailedPrecondition):
        orbit.replay_task(a_key(), accepted.task_id)
    orbit.cancel_task(accepted.task_id, "1")

    key = a_key()
    new = orbit.replay_task(key, accepted.task_id)
    again = orbit.replay_task(key, accepted.task_id)

    assert new.task is not None
    assert (new.task.replayed_from, new.task.priority, new.task.state) == (accepted.task_id, 4, TaskState.READY)
    assert (again.task_id, again.deduplicated) == (new.task_id, True)
    assert orbit.get_task(accepted.task_id).replayed_as == new.task_id
    with pytest.raises(AlreadyExists) as exists:
        orbit.replay_task(a_key(), accepted.task_id)
    assert exists.value.detail("task_id") == new.task_id


def test_lists_are_newest_first_and_filtered(orbit: OrbitClient, queue: str) -> None:
    ids = [orbit.submit_task(a_key(), a_task(queue, priority=number % 2)).task_id for number in range(5)]
    orbit.cancel_task(ids[0], "1")

    assert [task.task_id for task in orbit.list_tasks(queue=queue, page_size=2)] == ids[::-1]
    assert [task.task_id for task in orbit.list_tasks(queue=queue, states=["CANCELED"])] == [ids[0]]
    assert [task.task_id for task in orbit.list_tasks(queue=queue, priority=1)] == [ids[3], ids[1]]
    assert list(orbit.list_tasks(queue=queue, handler="nobody")) == []
    assert list(orbit.list_tasks(queue=queue, dead=True)) == []


def test_events_tell_what_happened(orbit: OrbitClient, queue: str) -> None:
    accepted = orbit.submit_task(a_key(), a_task(queue))
    orbit.cancel_task(accepted.task_id, "1")

    events = list(orbit.task_events(accepted.task_id))

    assert [(event.type, event.state, event.revision) for event in events] == [
        ("ACCEPTED", "READY", "1"),
        ("CANCELED", "CANCELED", "2"),
    ]


def test_queues_are_made_changed_paused_and_counted(orbit: OrbitClient, queue: str) -> None:
    with pytest.raises(AlreadyExists) as exists:
        orbit.create_queue(queue)
    before = orbit.get_queue(queue)
    assert exists.value.detail("queue_id") == before.queue_id
    orbit.submit_task(a_key(), a_task(queue, priority=2))

    paused = orbit.pause_queue(queue, reason="maintenance")
    orbit.submit_task(a_key(), a_task(queue))
    resumed = orbit.resume_queue(queue)
    changed = orbit.update_queue(queue, resumed.revision, max_unfinished=9)
    lifted = orbit.update_queue(queue, changed.revision, max_unfinished=None)
    stats = orbit.queue_stats(queue)

    assert (paused.paused, paused.pause_reason, resumed.paused) == (True, "maintenance", False)
    assert (changed.max_unfinished, lifted.max_unfinished) == (9, None)
    with pytest.raises(RevisionConflict):
        orbit.update_queue(queue, before.revision if before.revision != lifted.revision else "99", max_unfinished=1)
    assert stats.counts == {state: 2 if state is TaskState.READY else 0 for state in TaskState}
    assert dict(stats.backlog_by_priority) == {2: 1, 0: 1}
    assert queue in [found.name for found in orbit.list_queues()]
