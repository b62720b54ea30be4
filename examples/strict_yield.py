"""In a STRICT namespace an urgent task cuts in line: a reservation that has not started gives way, what runs is left
alone.

    ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=strict.credentials.json python examples/strict_yield.py

A worker runs one task of priority 0 and holds three more. A task of priority 9 arrives: exactly one of the three goes
back, the urgent one runs as soon as the slot is free, and the one that gave way runs later, in its one attempt.
"""

from __future__ import annotations

import secrets
import signal
import threading
import time
from typing import Any

from orbit_sdk import Context, Credentials, OrbitClient, Policy, Priority, SubmitTask, TaskState, Worker

SCENE_SECONDS = 25
HELD = 4


def main() -> None:
    signal.alarm(SCENE_SECONDS)
    credentials = Credentials.from_env()
    assert credentials.policy is Policy.STRICT, "this example wants the credentials of a STRICT namespace"
    run = secrets.token_hex(4)
    order: list[int] = []
    running, go_on = threading.Event(), threading.Event()
    with OrbitClient.from_credentials(credentials) as orbit:
        queue = orbit.create_queue(f"strict-yield-{run}").queue_id
        worker = Worker.from_credentials(credentials, queues=[queue], concurrency=1, prefetch=HELD, drain_timeout=10)

        @worker.handler(f"work.{run}")
        def work(ctx: Context, payload: Any) -> bool:
            order.append(ctx.priority)
            if payload == 0:
                running.set()
                go_on.wait(SCENE_SECONDS)
            return ctx.cancelled

        def submit(number: int, priority: int) -> str:
            task = SubmitTask(queue=queue, handler=f"work.{run}", payload=number, priority=priority)
            return orbit.submit_task(f"strict-yield-{run}-{number}", task).task_id

        normal = [submit(number, Priority.NORMAL) for number in range(HELD)]
        with worker:
            assert running.wait(SCENE_SECONDS)
            wait_until(lambda: orbit.queue_stats(queue).reserved == HELD - 1)
            urgent = submit(HELD, Priority.CRITICAL)
            wait_until(lambda: sum(orbit.get_task(task_id).raw.get("yields", 0) for task_id in normal) == 1)
            go_on.set()
            done = [orbit.wait_task(task_id, timeout=SCENE_SECONDS) for task_id in [*normal, urgent]]
            assert worker.close() == 0

    assert [task.state for task in done] == [TaskState.SUCCEEDED] * (HELD + 1)
    assert not any(task.result for task in done), "nothing that ran was asked to stop"
    assert {task.attempts for task in done} == {1}
    assert order == [0, 9, 0, 0, 0], order
    print(f"held={HELD} yielded={sum(task.yields for task in done)} interrupted=0")
    print(f"executed_priorities={','.join(map(str, order))} attempts_per_task=1")


def wait_until(condition: Any) -> None:
    """Until it holds; the alarm ends a wait that would be for ever."""
    while not condition():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
