"""The `TASKS` backend against the reference of `django.tasks` (A.8), on an Orbit in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.checks import Error
from django.test import override_settings
from django_tasks import TaskResultStatus, task_backends
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist, TaskResultMismatch
from django_tasks.signals import task_enqueued, task_finished, task_started

from orbit_sdk import Credentials, Policy, SubmitTask, TaskState
from orbit_sdk.contrib.django.backend import (
    OrbitBackend,
    OrbitTaskCanceled,
    OrbitTaskExpired,
    OrbitTaskFailed,
    orbit_priority,
)
from orbit_sdk.contrib.django.task_worker import register, task_worker
from orbit_sdk.testing import InMemoryOrbit
from orbit_sdk.worker.handlers import Handlers

BACKEND = "orbit_sdk.contrib.django.backend.OrbitBackend"


def settings_of(orbit: InMemoryOrbit, **options: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": BACKEND, "QUEUES": ["default", "email"], "OPTIONS": {"CLIENT": orbit, **options}}}


# Each test makes the module of tasks anew on a backend of its own; beside others in one process a task was found failed
# although it ran (seen with two test processes, not yet explained), so these run alone.
pytestmark = pytest.mark.serial


@pytest.fixture(params=["STRICT", "AGED"])
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def orbit(policy: str) -> Iterator[InMemoryOrbit]:
    orbit = InMemoryOrbit(queues=["default", "email"], policy=policy)
    with override_settings(TASKS=settings_of(orbit)):
        yield orbit


@pytest.fixture
def tasks(orbit: InMemoryOrbit) -> Any:
    """The module of tasks, made on the backend of this test."""
    import importlib

    from tests.sdk.contrib import tasks as module

    OrbitBackend.known_tasks.clear()
    return importlib.reload(module)


def run(orbit: InMemoryOrbit, **options: Any) -> int:
    handlers = Handlers()
    register(handlers, "default")
    return orbit.run_pending(handlers, **options)


# -- Enqueueing


def test_the_backend_says_what_it_supports(orbit: InMemoryOrbit) -> None:
    backend = task_backends["default"]

    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority
    assert list(backend.check()) == []


def test_a_task_is_enqueued_and_its_result_comes_back(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.add.enqueue(1, b=2)

    assert (result.status, result.args, result.kwargs, result.backend) == (
        TaskResultStatus.READY,
        [1],
        {"b": 2},
        "default",
    )
    assert result.attempts == 0
    assert result.enqueued_at is not None
    assert result.started_at is None and result.finished_at is None
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value

    assert run(orbit) == 1
    result.refresh()

    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)
    assert result.is_finished
    assert result.started_at is not None and result.finished_at is not None
    assert result.last_attempted_at is not None


async def test_the_coroutine_forms(orbit: InMemoryOrbit, tasks: Any) -> None:
    from asgiref.sync import sync_to_async

    result = await tasks.add.aenqueue(1, 2)
    assert await sync_to_async(run)(orbit) == 1
    await result.arefresh()
    again = await tasks.add.aget_result(result.id)

    assert result.return_value == again.return_value == 3


def test_coroutine_tasks_run(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.wait.enqueue(7)
    run(orbit)
    result.refresh()

    assert result.return_value == 7


def test_the_context_is_given_to_a_task_that_takes_it(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.with_context.enqueue(5)
    run(orbit)
    result.refresh()

    assert result.return_value == [1, result.id, "RUNNING", 5]


def test_arguments_are_normalised_to_json(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.send.enqueue(("a", b"bytes"))

    assert result.args == [["a", "bytes"]]
    with pytest.raises(TypeError):
        tasks.send.enqueue(object())
    assert len(list(orbit.list_tasks())) == 1


def test_queue_and_priority_reach_orbit(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.send.enqueue("a@b.com")
    row = orbit.get_task(result.id)

    assert row.queue_id == orbit.credentials.queue_id("email")
    assert row.priority == 5
    assert row.handler == "tests.sdk.contrib.tasks.send"
    assert tasks.send.get_result(result.id).task.priority == 57


@pytest.mark.parametrize(
    ("priority", "strict", "aged"),
    [(-100, -9, 0), (-50, -4, 0), (-6, -1, 0), (0, 0, 0), (5, 0, 0), (6, 1, 1), (50, 4, 4), (94, 8, 8), (100, 9, 9)],
)
def test_priorities_are_mapped_as_documented(priority: int, strict: int, aged: int) -> None:
    assert orbit_priority(priority, Policy.STRICT) == strict
    assert orbit_priority(priority, Policy.AGED) == aged


def test_the_mapping_never_turns_an_order_around() -> None:
    for policy, low in ((Policy.STRICT, -9), (Policy.AGED, 0)):
        levels = [orbit_priority(priority, policy) for priority in range(-100, 101)]
        assert levels == sorted(levels)
        assert set(levels) == set(range(low, 10))


@pytest.mark.parametrize("priority", [-101, 101, 1.5])
def test_a_priority_out_of_range_is_refused(orbit: InMemoryOrbit, tasks: Any, priority: Any) -> None:
    with pytest.raises(InvalidTaskError):
        tasks.add.using(priority=priority)


def test_the_more_urgent_runs_first(orbit: InMemoryOrbit, tasks: Any) -> None:
    low = tasks.add.using(priority=0).enqueue(1)
    high = tasks.add.using(priority=100).enqueue(2)
    run(orbit, limit=1)

    assert (tasks.add.get_result(high.id).status, tasks.add.get_result(low.id).status) == (
        TaskResultStatus.SUCCESSFUL,
        TaskResultStatus.READY,
    )


def test_run_after_defers(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.add.using(run_after=datetime.now(UTC) + timedelta(minutes=1)).enqueue(1)

    assert (result.status, result.metadata["orbit_state"]) == (TaskResultStatus.READY, "SCHEDULED")
    assert run(orbit) == 0
    orbit.advance(61)
    assert run(orbit) == 1


def test_run_after_is_aware_and_at_most_31_days_ahead(orbit: InMemoryOrbit, tasks: Any) -> None:
    with pytest.raises(InvalidTaskError, match="aware"):
        tasks.add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001 (that is the point)
    with pytest.raises(InvalidTaskError, match="31 days"):
        tasks.add.using(run_after=datetime.now(UTC) + timedelta(days=32))


def test_an_unknown_queue_is_refused(orbit: InMemoryOrbit, tasks: Any) -> None:
    with pytest.raises(InvalidTaskError, match="Queue"):
        tasks.add.using(queue_name="nowhere")


def test_a_local_function_is_no_task(orbit: InMemoryOrbit) -> None:
    from django_tasks import task

    def local() -> None: ...

    with pytest.raises(InvalidTaskError, match="module level"):
        task(local)


def test_a_key_makes_one_task_of_many_enqueues(orbit: InMemoryOrbit, tasks: Any) -> None:
    keyed = tasks.add.using(key="order-1", resource_key="disk")

    assert keyed.enqueue(1).id == keyed.enqueue(1).id != tasks.add.enqueue(1).id
    assert orbit.get_task(keyed.enqueue(1).id).resource_key == "disk"
    with pytest.raises(InvalidTaskError, match="key"):
        tasks.add.using(key="with blank")


def test_a_lost_answer_does_not_enqueue_twice(orbit: InMemoryOrbit, tasks: Any) -> None:
    orbit.lose_next_answer()
    tasks.add.enqueue(1)

    assert len(list(orbit.list_tasks())) == 1


def test_retry_is_a_number_of_attempts(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.flaky.enqueue()
    for _ in range(3):
        run(orbit)
        orbit.advance(120)
    result.refresh()

    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)


# -- Results


def test_a_failure_names_the_exception(orbit: InMemoryOrbit, tasks: Any) -> None:
    result = tasks.fail.enqueue()
    run(orbit)
    result.refresh()

    (error,) = result.errors
    assert error.exception_class is tasks.Broken
    assert "on purpose" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("SCHEDULED", "READY"),
        ("READY", "READY"),
        ("RESERVED", "READY"),
        ("RUNNING", "RUNNING"),
        ("UNKNOWN", "RUNNING"),
        ("SUCCEEDED", "SUCCESSFUL"),
        ("FAILED", "FAILED"),
        ("CANCELED", "FAILED"),
        ("EXPIRED", "FAILED"),
    ],
)
def test_every_state_has_its_status_and_unknown_is_never_an_end(
    orbit: InMemoryOrbit, tasks: Any, state: str, status: str
) -> None:
    result = tasks.add.enqueue(1)
    row = orbit.store.tasks[result.id]
    row.state, row.available_at = TaskState(state), row.available_at + 60_000_000  # else it would come due at once
    result.refresh()

    assert result.status == status
    assert result.metadata["orbit_state"] == state
    assert result.is_finished == (state in ("SUCCEEDED", "FAILED", "CANCELED", "EXPIRED"))


@pytest.mark.parametrize(
    ("state", "exception"),
    [("FAILED", OrbitTaskFailed), ("CANCELED", OrbitTaskCanceled), ("EXPIRED", OrbitTaskExpired)],
)
def test_ends_without_an_exception_have_one_with_a_name(
    orbit: InMemoryOrbit, tasks: Any, state: str, exception: type[Exception]
) -> None:
    result = tasks.add.enqueue(1)
    orbit.store.tasks[result.id].state = TaskState(state)
    result.refresh()

    assert [error.exception_class for error in result.errors] == [exception]


@pytest.mark.parametrize("result_id", ["", "unknown", "f" * 32, "../x"])
def test_a_result_that_does_not_exist(orbit: InMemoryOrbit, result_id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result_id)


@pytest.mark.parametrize("handler", ["no.such.module", "os.path.join"])
def test_a_task_of_somebody_else_is_no_result(orbit: InMemoryOrbit, handler: str) -> None:
    payload = {"args": [], "kwargs": {}, "priority": 0}
    accepted = orbit.submit_task("k", SubmitTask(queue="default", handler=handler, payload=payload))

    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(accepted.task_id)


def test_the_result_of_another_task_does_not_match(orbit: InMemoryOrbit, tasks: Any) -> None:
    with pytest.raises(TaskResultMismatch):
        tasks.send.get_result(tasks.add.enqueue(1).id)


def test_signals_are_sent(orbit: InMemoryOrbit, tasks: Any) -> None:
    seen: list[tuple[str, Any]] = []
    receivers = []
    for name, sent in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def receive(sender: type, task_result: Any, name: str = name, **kwargs: Any) -> None:
            assert sender is OrbitBackend
            seen.append((name, task_result.status))

        sent.connect(receive)
        receivers.append((sent, receive))
    try:
        tasks.add.enqueue(1)
        tasks.fail.enqueue()
        run(orbit)
    finally:
        for sent, receive in receivers:
            sent.disconnect(receive)

    assert seen == [
        ("enqueued", "READY"),
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("finished", "SUCCESSFUL"),
        ("started", "RUNNING"),
        ("finished", "FAILED"),
    ]


# -- Set-up


def test_the_system_check_names_a_queue_that_is_not_known() -> None:
    orbit = InMemoryOrbit(queues=["default"])
    with override_settings(TASKS=settings_of(orbit)):
        (found,) = task_backends["default"].check()

    assert isinstance(found, Error)
    assert "email" in found.msg


def test_the_system_check_says_that_credentials_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORBIT_URL", "ORBIT_TOKEN", "ORBIT_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["default"]}}):
        (found,) = task_backends["default"].check()

    assert "ORBIT_CREDENTIALS_FILE" in found.msg


def test_the_worker_serves_the_backends_queues_and_tasks(orbit: InMemoryOrbit, tasks: Any) -> None:
    worker = task_worker(concurrency=2)

    assert worker.queue_ids == [orbit.credentials.queue_id("default"), orbit.credentials.queue_id("email")]
    names = {handler.name.rpartition(".")[2] for handler in worker.handlers}
    assert names == {"add", "send", "wait", "with_context", "fail", "flaky"}


def test_the_policy_may_be_given(orbit: InMemoryOrbit) -> None:
    client = InMemoryOrbit(queues=["default", "email"], policy="STRICT")
    client.credentials = Credentials("http://h", "t", queues=client.credentials.queues)
    with override_settings(TASKS=settings_of(client, POLICY="STRICT")):
        assert task_backends["default"].policy is Policy.STRICT
    with override_settings(TASKS=settings_of(client)):
        assert task_backends["default"].policy is Policy.AGED
