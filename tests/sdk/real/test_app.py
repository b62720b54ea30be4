"""The App facade in a real STRICT namespace."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

import pytest

from orbit_sdk import App, Config, Context, Credentials, OrbitClient, Priority, QueueConfig, TaskState
from tests.support.fixtures import RunningOrbit

SECONDS = 30.0


@pytest.fixture
def app(orbit_server: RunningOrbit) -> Iterator[App]:
    suffix = secrets.token_hex(4)
    credentials = Credentials.from_file(orbit_server.strict.path, url=orbit_server.url)
    app = App(
        Config(
            credentials=credentials,
            queues={f"email-{suffix}": QueueConfig(weight=3), f"bulk-{suffix}": QueueConfig(default_priority=-4)},
            default_queue=f"bulk-{suffix}",
            concurrency=1,
        ),
        client=OrbitClient.from_credentials(credentials),
    )
    yield app
    app.close()


def test_the_most_urgent_runs_first_across_queues_and_children_inherit(app: App) -> None:
    email = app.config.default_queue.replace("bulk", "email")
    order: list[tuple[str, int]] = []
    gate, running = threading.Event(), threading.Event()

    @app.task(name="blocker")
    def blocker() -> None:
        running.set()
        gate.wait(SECONDS)

    @app.task(name="bulk")
    def bulk(ctx: Context, n: int) -> int:
        order.append(("bulk", ctx.priority))
        return n

    @app.task(name="mail", queue=email, priority=Priority.HIGH)
    def mail(ctx: Context) -> str:
        order.append(("mail", ctx.priority))
        child = ctx.publish(bulk, args=(1,)) if ctx.priority == Priority.CRITICAL else None
        return child.task_id if child else ""

    app.ensure_queues()
    first = blocker.delay(priority=9)
    with app.worker():
        assert running.wait(SECONDS)
        handles = [bulk.delay(0), mail.delay(), bulk.delay(0, priority=0), mail.delay(priority=Priority.CRITICAL)]
        gate.set()
        first.get(SECONDS)
        results = [handle.get(SECONDS) for handle in handles]
        child = app.client.wait_task(str(results[3]), timeout=SECONDS)

    assert child.priority == 9
    assert order == [("mail", 9), ("bulk", 9), ("mail", 5), ("bulk", 0), ("bulk", -4)]


def test_a_handle_cancels_what_runs(app: App) -> None:
    running = threading.Event()

    @app.task(name="long")
    def long(ctx: Context) -> None:
        running.set()
        while not ctx.check_cancelled():
            ctx.wait_cancelled(1)
        ctx.raise_if_cancelled()

    app.ensure_queues()
    handle = long.delay()
    with app.worker():
        assert running.wait(SECONDS)
        assert handle.state is TaskState.RUNNING
        handle.cancel("enough")
        assert app.client.wait_task(handle.task_id, timeout=SECONDS).state is TaskState.CANCELED
