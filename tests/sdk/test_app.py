"""The App facade (design 6.3; strict-priority seed, sections 2, 3.4 and 8)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from orbit_sdk import (
    App,
    Config,
    ConfigError,
    Context,
    Credentials,
    FailedPrecondition,
    Policy,
    Priority,
    QueueConfig,
    Retry,
    RetryPolicy,
    TaskState,
    WaitTimeout,
)
from orbit_sdk.app import TaskCanceled, TaskExpired, TaskFailed, TaskOutcomeUnknown
from orbit_sdk.testing import InMemoryOrbit


@pytest.fixture
def orbit() -> InMemoryOrbit:
    return InMemoryOrbit(queues=["default", "email"], policy="STRICT", default_priority=-2)


def make_app(orbit: InMemoryOrbit, **config: Any) -> App:
    return App(Config(credentials=orbit.credentials, **config), client=orbit)


def test_a_function_is_sent_and_run(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)

    @app.task()
    def add(a: int, b: int = 0) -> int:
        """Add two numbers."""
        return a + b

    handle = add.delay(1, b=2)
    orbit.run_pending(app.worker())

    assert handle.get(timeout=1) == 3
    assert add(4, b=5) == 9
    assert add.__doc__ == "Add two numbers."
    task = handle.task()
    assert (task.handler, task.payload) == (
        f"{__name__}.{add.function.__qualname__}",
        {"args": [1], "kwargs": {"b": 2}},
    )


def test_coroutines_are_tasks_too(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)

    @app.task(name="wait")
    async def wait(n: int) -> int:
        await asyncio.sleep(0)
        return n

    handle = wait.delay(5)
    orbit.run_pending(app.worker())

    assert handle.get(timeout=1) == 5


def test_a_first_parameter_named_ctx_is_given_the_context(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)

    @app.task(name="t", priority=3)
    def task(ctx: Context, n: int) -> Any:
        return [n, ctx.priority, ctx.attempt]

    handle = task.delay(7)
    orbit.run_pending(app.worker())

    assert handle.get(timeout=1) == [7, 3, 1]


# -- Priority: four layers, each covered once (seed §9)


@pytest.mark.parametrize(
    ("call", "task", "queue", "config", "expected"),
    [
        (9, 5, 3, 1, 9),
        (None, 5, 3, 1, 5),
        (None, None, 3, 1, 3),
        (None, None, None, 1, 1),
        (None, None, None, None, -2),
        (0, 5, 3, 1, 0),
        (None, 0, 3, 1, 0),
        (None, None, 0, 1, 0),
    ],
)
def test_the_first_priority_given_counts(
    orbit: InMemoryOrbit, call: int | None, task: int | None, queue: int | None, config: int | None, expected: int
) -> None:
    app = make_app(orbit, default_priority=config, queues={"email": QueueConfig(default_priority=queue)})

    @app.task(queue="email", priority=task, name="t")
    def send() -> None: ...

    assert send.delay(priority=call).task().priority == expected


def test_constants_are_plain_integers() -> None:
    assert (Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.CRITICAL) == (-5, 0, 5, 9)
    assert type(Priority.HIGH) is int


@pytest.mark.parametrize("priority", [-10, 10, 1.0, "5", True, 10**30])
@pytest.mark.parametrize("where", ["config", "queue", "task", "call"])
def test_a_priority_out_of_range_is_a_config_error_and_never_clamped(
    orbit: InMemoryOrbit, priority: Any, where: str
) -> None:
    with pytest.raises(ConfigError, match="from -9 to 9"):
        if where == "config":
            make_app(orbit, default_priority=priority)
        elif where == "queue":
            make_app(orbit, queues={"email": QueueConfig(default_priority=priority)})
        elif where == "task":
            make_app(orbit).task(priority=priority)(lambda: None)
        else:
            make_app(orbit).task(name="t")(lambda: None).delay(priority=priority)
    assert list(orbit.list_tasks()) == []


@pytest.mark.parametrize(
    "config",
    [
        {"queues": {"email": QueueConfig(weight=0)}},
        {"queues": {"email": QueueConfig(weight=101)}},
        {"queues": {"email": QueueConfig(weight=1.5)}},  # type: ignore[arg-type]
        {"queues": {" email": QueueConfig()}},
        {"queues": {"email": {"weight": 1}}},
        {"default_queue": ""},
        {"concurrency": 0},
    ],
)
def test_a_wrong_setting_is_refused_when_the_app_is_built(orbit: InMemoryOrbit, config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make_app(orbit, **config)


def test_an_aged_namespace_knows_no_weights_and_no_negative_priorities() -> None:
    credentials = Credentials("http://h", "t", policy=Policy.AGED)
    with pytest.raises(ConfigError, match="STRICT"):
        App(Config(credentials=credentials, queues={"email": QueueConfig(weight=3)}))
    with pytest.raises(ConfigError, match="from 0 to 9"):
        App(Config(credentials=credentials, default_priority=-1))


def test_the_most_urgent_runs_first_across_queues(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)
    order: list[int] = []

    @app.task(name="a", queue="default")
    def first(n: int) -> None:
        order.append(n)

    @app.task(name="b", queue="email")
    def second(n: int) -> None:
        order.append(n)

    first.delay(0, priority=0)
    second.delay(9, priority=9)
    first.delay(4, priority=4)
    orbit.run_pending(app.worker())

    assert order == [9, 4, 0]


def test_a_child_inherits_its_parents_priority_not_its_tasks_default(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)
    seen: list[tuple[int, str]] = []

    @app.task(name="child", queue="email", priority=Priority.LOW, retry=3)
    def child(ctx: Context, n: int) -> None:
        seen.append((ctx.priority, ctx.task.queue_id))

    @app.task(name="parent")
    def parent(ctx: Context) -> None:
        ctx.publish(child, args=(1,))
        ctx.publish(child, args=(2,), priority=Priority.CRITICAL)

    parent.delay(priority=7)
    orbit.run_pending(app.worker())

    email = orbit.credentials.queue_id("email")
    assert sorted(seen) == [(7, email), (9, email)]


# -- Sending


def test_a_key_is_the_identity_of_a_piece_of_business(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)
    task = app.task(name="t")(lambda n: n)

    first = task.apply_async((1,), key="order-1")
    second = task.apply_async((1,), key="order-1")

    assert (second.task_id, second.deduplicated) == (first.task_id, True)
    assert task.delay(1).task_id != task.delay(1).task_id


def test_a_lost_answer_does_not_send_twice(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)
    task = app.task(name="t")(lambda n: n)
    orbit.lose_next_answer()

    assert task.delay(1).deduplicated
    assert len(list(orbit.list_tasks())) == 1


def test_delay_and_deadline_are_seconds(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)
    task = app.task(name="t")(lambda: None)

    sent = task.apply_async(delay=1.5, expires_in=timedelta(minutes=1)).task()

    assert sent.state is TaskState.SCHEDULED
    assert sent.deadline_at is not None
    assert (sent.deadline_at - sent.available_at) == timedelta(seconds=58.5)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"c": 2})])
def test_arguments_that_the_function_does_not_take_are_refused_at_once(
    orbit: InMemoryOrbit, args: Any, kwargs: Any
) -> None:
    app = make_app(orbit)
    task = app.task(name="t")(lambda a, b=0: a)

    with pytest.raises(TypeError):
        task.delay(*args, **kwargs)


def test_a_parameter_called_priority_is_refused(orbit: InMemoryOrbit) -> None:
    with pytest.raises(ConfigError, match="priority"):
        make_app(orbit).task(name="t")(lambda priority: None)


def test_a_task_has_one_function_per_version(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)
    app.task(name="t")(lambda: None)
    app.task(name="t", version="v2")(lambda: None)

    with pytest.raises(ConfigError, match="already"):
        app.task(name="t")(lambda: None)


@pytest.mark.parametrize(
    "payload", [None, [], {"args": []}, {"args": {}, "kwargs": {}}, {"args": [1, 2], "kwargs": {}}]
)
def test_a_payload_from_elsewhere_that_does_not_fit_fails_for_good(orbit: InMemoryOrbit, payload: Any) -> None:
    from orbit_sdk import SubmitTask

    app = make_app(orbit)
    app.task(name="t", retry=5)(lambda n: n)
    accepted = orbit.submit_task("k", SubmitTask(queue="default", handler="t", payload=payload))
    orbit.run_pending(app.worker())

    task = orbit.get_task(accepted.task_id)
    assert task.error is not None
    assert (task.state, task.error.code) == (TaskState.FAILED, "INVALID_PAYLOAD")


def test_retry_may_be_a_number_of_attempts(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)

    @app.task(name="t", retry=2)
    def flaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise Retry(after=0)
        return ctx.attempt

    policy = app.task(name="p", retry=RetryPolicy.safe(7))(lambda: None)
    handle = flaky.delay()
    orbit.run_pending(app.worker())

    assert handle.get(timeout=1) == 2
    assert policy.delay().task().max_attempts == 7


# -- Handles


def test_a_handle_gives_the_result_or_says_why_there_is_none(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit)

    @app.task(name="t")
    def fail() -> None:
        raise ValueError("no")

    failed, waiting, cancelled, unknown = (fail.delay() for _ in range(4))
    expired = fail.apply_async(delay=10, expires_in=20)
    cancelled.cancel("not needed")
    orbit.become_unknown(unknown.task_id)
    with pytest.raises(WaitTimeout):
        waiting.get(timeout=0.01)
    orbit.run_pending(app.worker(), limit=1)
    app.client.pause_queue("default")
    orbit.advance(30)

    with pytest.raises(TaskFailed) as error:
        failed.get(timeout=1)
    assert (error.value.code, error.value.message, error.value.task.attempts) == ("ValueError", "no", 1)
    with pytest.raises(TaskCanceled):
        cancelled.get(timeout=1)
    with pytest.raises(TaskOutcomeUnknown):
        unknown.get(timeout=1)
    with pytest.raises(TaskExpired):
        expired.get(timeout=1)
    assert waiting.state is TaskState.READY
    with pytest.raises(FailedPrecondition):
        failed.cancel()


# -- Queues and workers


def test_queues_are_made_and_brought_to_the_configuration() -> None:
    orbit = InMemoryOrbit(queues=["email"], policy="STRICT")
    app = make_app(orbit, queues={"email": QueueConfig(weight=3, default_priority=2), "bulk": QueueConfig()})
    app.task(name="t", queue="other")(lambda: None)

    app.ensure_queues()
    again = app.ensure_queues()

    assert [(queue.name, queue.weight, queue.default_priority) for queue in again] == [
        ("bulk", 1, None),
        ("email", 3, 2),
        ("other", 1, None),
    ]
    assert all(queue.revision in ("1", "2") for queue in again)


def test_the_worker_serves_all_queues_of_the_app(orbit: InMemoryOrbit) -> None:
    app = make_app(orbit, concurrency=3)
    app.task(name="t", queue="email")(lambda: None)
    app.task(name="u", version="v2")(lambda: None)

    worker = app.worker(prefetch=8, normal_reserved_slots=2)

    assert worker.queue_ids == [orbit.credentials.queue_id("default"), orbit.credentials.queue_id("email")]
    assert (worker.concurrency, worker.prefetch, worker.normal_reserved_slots) == (3, 8, 2)
    assert [handler.label for handler in worker.handlers] == ["t@v1", "u@v2"]


def test_an_app_without_tasks_has_no_worker(orbit: InMemoryOrbit) -> None:
    with pytest.raises(ConfigError, match="no tasks"):
        make_app(orbit).worker()


def test_the_configuration_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORBIT_URL", "http://h")
    monkeypatch.setenv("ORBIT_TOKEN", "secret")
    monkeypatch.delenv("ORBIT_CREDENTIALS_FILE", raising=False)

    config = Config.from_env(default_priority=3)

    assert config.credentials is not None
    assert (config.credentials.url, config.default_priority) == ("http://h", 3)
    assert "secret" not in repr(config)
