"""The worker with a real node: attempts, retries, cancels, children, lost workers, restarts, priorities."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import orbit_sdk
from orbit_sdk import (
    Context,
    Fail,
    OrbitClient,
    Queue,
    Retry,
    RetryPolicy,
    SubmitTask,
    TaskState,
    Worker,
    WorkerRefused,
)
from tests.support.fixtures import RunningOrbit
from tests.support.waiting import eventually

SDK = Path(orbit_sdk.__file__).parents[1]
SECONDS = 30.0


@pytest.fixture
def orbit(orbit_server: RunningOrbit) -> Iterator[OrbitClient]:
    with OrbitClient.from_credentials_file(orbit_server.aged.path, url=orbit_server.url) as client:
        yield client


@pytest.fixture
def queue(orbit: OrbitClient) -> Queue:
    return orbit.create_queue(f"worker-{secrets.token_hex(6)}")


@pytest.fixture
def worker(orbit: OrbitClient, queue: Queue) -> Worker:
    return Worker.from_credentials(orbit.credentials, queues=[queue.name], concurrency=4, drain_timeout=10)


def submit(orbit: OrbitClient, queue: Queue, **changes: Any) -> str:
    task = SubmitTask(**{"queue": queue.queue_id, "handler": "h", "payload": {"n": 1}, **changes})
    return orbit.submit_task(f"worker-{secrets.token_hex(8)}", task).task_id


def test_results_and_errors_come_back_digit_for_digit(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    big = 9007199254740993

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> Any:
        if payload["fail"]:
            raise Fail("NO", "never", details={"big": big})
        return {"big": payload["big"]}

    good = submit(orbit, queue, payload={"big": big, "fail": False})
    bad = submit(orbit, queue, payload={"big": big, "fail": True}, retry=RetryPolicy.safe())
    with worker:
        succeeded, failed = orbit.wait_task(good, timeout=SECONDS), orbit.wait_task(bad, timeout=SECONDS)

    assert (succeeded.state, succeeded.result) == (TaskState.SUCCEEDED, {"big": big})
    assert failed.error is not None
    assert (failed.state, failed.attempts) == (TaskState.FAILED, 1)
    assert (failed.error.code, failed.error.message, failed.error.details) == ("NO", "never", {"big": big})


def test_a_retry_runs_again_and_numbers_its_attempts(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    attempts: list[int] = []

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise Retry(after=0)
        return ctx.attempt

    task_id = submit(orbit, queue, retry=RetryPolicy.safe(5))
    with worker:
        task = orbit.wait_task(task_id, timeout=SECONDS)

    assert (task.state, task.result, attempts) == (TaskState.SUCCEEDED, 3, [1, 2, 3])


def test_a_task_that_is_not_safe_to_repeat_runs_once(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    runs: list[int] = []

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> None:
        runs.append(1)
        raise ValueError("once")

    task_id = submit(orbit, queue)
    with worker:
        task = orbit.wait_task(task_id, timeout=SECONDS)

    assert (task.state, len(runs)) == (TaskState.FAILED, 1)


def test_a_cancel_reaches_the_running_handler(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    running = threading.Event()

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> None:
        running.set()
        ctx.wait_cancelled(SECONDS)
        ctx.raise_if_cancelled()

    task_id = submit(orbit, queue)
    with worker:
        assert running.wait(SECONDS)
        asked = orbit.cancel_task(task_id, orbit.get_task(task_id).revision, reason="enough")
        task = orbit.wait_task(task_id, timeout=SECONDS)

    assert asked.cancel_requested
    assert task.state is TaskState.CANCELED


def test_an_attempt_time_out_is_told_to_the_handler(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    reasons: list[str | None] = []

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> None:
        assert ctx.remaining_seconds is not None
        ctx.wait_cancelled(SECONDS)
        reasons.append(ctx.cancel_reason)
        ctx.raise_if_cancelled()

    task_id = submit(orbit, queue, attempt_timeout_ms=300)
    with worker:
        task = orbit.wait_task(task_id, timeout=SECONDS)

    assert reasons == ["ATTEMPT_TIMEOUT"]
    assert task.error is not None
    assert (task.state, task.error.code) == (TaskState.FAILED, "ATTEMPT_TIMEOUT")


def test_children_are_accepted_once_and_inherit(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    children: list[str] = []

    @worker.handler("parent")
    def parent(ctx: Context, payload: Any) -> None:
        children.append(ctx.publish("child", {"n": 1}).task_id)
        if ctx.attempt == 1:
            raise Retry(after=0)

    worker.handler("child")(lambda ctx, payload: ctx.priority)

    task_id = submit(orbit, queue, handler="parent", priority=7, retry=RetryPolicy.safe())
    with worker:
        orbit.wait_task(task_id, timeout=SECONDS)
        child = orbit.wait_task(children[0], timeout=SECONDS)

    assert children[0] == children[1]
    assert (child.result, child.parent_task_id) == (7, task_id)


def test_progress_is_recorded(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    seen = threading.Event()

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> None:
        ctx.progress(40, "on the way")
        seen.wait(SECONDS)

    task_id = submit(orbit, queue)
    with worker:
        eventually(lambda: [event for event in orbit.task_events(task_id) if event.type == "PROGRESS"], SECONDS)
        seen.set()
        orbit.wait_task(task_id, timeout=SECONDS)


def test_aged_tasks_run_in_the_order_of_their_priority(orbit: OrbitClient, queue: Queue) -> None:
    worker = Worker.from_credentials(orbit.credentials, queues=[queue.name], concurrency=1)
    order: list[int] = []
    worker.handler("h")(lambda ctx, payload: order.append(ctx.priority))

    task_ids = [submit(orbit, queue, priority=priority) for priority in (0, 9, 4)]
    with worker:
        for task_id in task_ids:
            orbit.wait_task(task_id, timeout=SECONDS)

    assert order == [9, 4, 0]


def test_a_handler_version_that_nobody_has_waits(orbit: OrbitClient, queue: Queue, worker: Worker) -> None:
    worker.handler("h", version="v1")(lambda ctx, payload: "v1")

    old, new = submit(orbit, queue), submit(orbit, queue, handler_version="v2")
    with worker:
        assert orbit.wait_task(old, timeout=SECONDS).result == "v1"
        task = orbit.get_task(new)

    assert task.state is TaskState.READY


def test_hundreds_of_tasks_have_one_attempt_each(orbit: OrbitClient, queue: Queue) -> None:
    worker = Worker.from_credentials(orbit.credentials, queues=[queue.name], concurrency=10, prefetch=64)
    runs: dict[str, int] = {}

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> None:
        runs[ctx.task.task_id] = runs.get(ctx.task.task_id, 0) + 1

    items = [
        orbit_sdk.BatchItem(f"many-{secrets.token_hex(8)}", SubmitTask(queue=queue.name, handler="h", payload=number))
        for number in range(320)
    ]
    ids = []
    for start in range(0, len(items), 32):
        result = orbit.submit_tasks(items[start : start + 32])
        ids += [item.receipt.task_id for item in result.items if item.receipt is not None]
    with worker:
        for task_id in ids:
            assert orbit.wait_task(task_id, timeout=SECONDS).attempts == 1

    assert sorted(runs) == sorted(ids)
    assert set(runs.values()) == {1}


def test_a_worker_without_the_right_is_refused(orbit_server: RunningOrbit, queue: Queue, tmp_path: Path) -> None:
    path = tmp_path / "reader.json"
    orbit_server.manage(
        *("orbit_credential", "issue", "--application", "tests", "--namespace", "aged"),
        *("--actions", "tasks:read", "--output", str(path)),
    )
    worker = Worker.from_credentials_file(path, url=orbit_server.url, queues=[queue.queue_id])
    worker.handler("h")(lambda ctx, payload: None)

    worker.start()
    with pytest.raises(WorkerRefused, match="403"):
        worker.join(SECONDS)


# -- Nodes and workers that go away


PROGRAM = """
import sys, time
from orbit_sdk import Worker
worker = Worker.from_env(queues=[sys.argv[1]], concurrency=1)

@worker.handler("h")
def handle(ctx, payload):
    ctx.progress(1)
    time.sleep(60)

worker.run(quiet=True)
"""


def killed_worker(running: RunningOrbit, orbit: OrbitClient, queue: Queue, task_id: str) -> None:
    """A worker process that starts the task and is killed in the middle of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, queue.queue_id],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SDK),
            "ORBIT_URL": running.url,
            "ORBIT_CREDENTIALS_FILE": str(running.aged.path),
        },
    )
    try:
        eventually(lambda: orbit.get_task(task_id).state is TaskState.RUNNING, SECONDS)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)


def test_a_killed_worker_leaves_unknown_or_a_retry_by_the_tasks_policy(
    start_orbit_server: Callable[..., RunningOrbit],
) -> None:
    running = start_orbit_server(
        ORBIT_LEASE_MS="3000", ORBIT_RESERVATION_MS="2000", ORBIT_SCAN_CYCLE_MS="500", ORBIT_FINISH_GRACE_MS="1000"
    )
    with OrbitClient.from_credentials_file(running.aged.path, url=running.url) as orbit:
        queue = orbit.create_queue("killed")
        never = submit(orbit, queue)
        killed_worker(running, orbit, queue, never)
        safe = submit(orbit, queue, retry=RetryPolicy.safe(initial_backoff_ms=0))
        killed_worker(running, orbit, queue, safe)

        assert orbit.wait_task(never, timeout=SECONDS).state is TaskState.UNKNOWN
        worker = Worker.from_credentials(orbit.credentials, queues=["killed"], concurrency=1)
        worker.handler("h")(lambda ctx, payload: ctx.attempt)
        with worker:
            again = orbit.wait_task(safe, timeout=SECONDS)

        assert (again.state, again.result, again.losses) == (TaskState.SUCCEEDED, 2, 1)


def test_a_killed_node_interrupts_nothing_that_runs(start_orbit_server: Callable[..., RunningOrbit]) -> None:
    running = start_orbit_server()
    with OrbitClient.from_credentials_file(running.aged.path, url=running.url) as orbit:
        queue = orbit.create_queue("restart")
        worker = Worker.from_credentials(orbit.credentials, queues=["restart"], concurrency=1)
        started, release = threading.Event(), threading.Event()
        runs: list[int] = []

        @worker.handler("h")
        def handle(ctx: Context, payload: Any) -> str:
            runs.append(ctx.attempt)
            started.set()
            release.wait(SECONDS)
            return "survived"

        task_id = submit(orbit, queue)
        with worker:
            assert started.wait(SECONDS)
            assert running.server.process is not None
            running.server.process.kill()
            running.server.process.wait(SECONDS)
            eventually(lambda: not worker.connected, SECONDS)
            running.server.start()
            eventually(lambda: worker.connected, SECONDS)
            release.set()
            task = orbit.wait_task(task_id, timeout=SECONDS)

    assert (task.state, task.result, task.attempts, runs) == (TaskState.SUCCEEDED, "survived", 1, [1])


def test_a_node_that_drains_lets_the_handler_finish(start_orbit_server: Callable[..., RunningOrbit]) -> None:
    running = start_orbit_server()
    with OrbitClient.from_credentials_file(running.aged.path, url=running.url) as orbit:
        queue = orbit.create_queue("drain")
        worker = Worker.from_credentials(orbit.credentials, queues=["drain"], concurrency=1)
        started, release = threading.Event(), threading.Event()

        @worker.handler("h")
        def handle(ctx: Context, payload: Any) -> str:
            started.set()
            release.wait(SECONDS)
            return "in time"

        task_id = submit(orbit, queue)
        with worker:
            assert started.wait(SECONDS)
            assert running.server.process is not None
            running.server.process.send_signal(signal.SIGTERM)
            release.set()
            assert running.server.process.wait(SECONDS) == 0
            running.server.start()
            task = orbit.wait_task(task_id, timeout=SECONDS)

    assert (task.state, task.result, task.attempts) == (TaskState.SUCCEEDED, "in time", 1)
