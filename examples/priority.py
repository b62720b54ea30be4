"""Three tasks are submitted with priorities 0, 9 and 4; a worker with one slot runs them 9, 4, 0.

    ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=var/demo.credentials.json python examples/priority.py

The credential needs queues:manage, tasks:submit, tasks:read, workers:connect and workers:consume on all queues. Every
run makes a queue and a handler of its own; the tasks stay as history. Anything unexpected ends with a status that is
not 0.
"""

from __future__ import annotations

import secrets
import signal
from typing import Any

from orbit_sdk import Context, OrbitClient, SubmitTask, TaskState, Worker

SCENE_SECONDS = 25
TASK_DEADLINE_MS = 20_000
PRIORITIES = (0, 9, 4)
BIG = 9_007_199_254_740_993  # no float holds it


def main() -> None:
    signal.alarm(SCENE_SECONDS)  # whatever hangs, hangs no longer than this
    run = secrets.token_hex(4)
    with OrbitClient.from_env() as orbit:
        queue = orbit.create_queue(f"priority-{run}")
        accepted = {
            priority: orbit.submit_task(
                f"priority-{run}-{priority}",
                SubmitTask(
                    queue=queue.queue_id,
                    handler=f"object.prepare.{run}",
                    payload={"object_ref": f"objects/{priority}", "sequence": BIG},
                    priority=priority,
                    expires_in_ms=TASK_DEADLINE_MS,
                ),
            )
            for priority in PRIORITIES
        }

        executed: list[int] = []
        worker = Worker.from_env(queues=[queue.queue_id], concurrency=1, drain_timeout=10)

        @worker.handler(f"object.prepare.{run}")
        def prepare(ctx: Context, payload: Any) -> Any:
            executed.append(ctx.priority)
            return payload

        with worker:
            done = {
                priority: orbit.wait_task(receipt.task_id, timeout=SCENE_SECONDS)
                for priority, receipt in accepted.items()
            }
            left_running = worker.close()

    attempts = {task.attempts for task in done.values()}
    for priority, task in done.items():
        assert task.state is TaskState.SUCCEEDED, f"priority {priority}: {task.state}, {task.error}"
        assert task.result == {"object_ref": f"objects/{priority}", "sequence": BIG}, task.result
    assert executed == sorted(PRIORITIES, reverse=True), f"executed {executed}"
    assert attempts == {1}, f"attempts {attempts}"
    assert left_running == 0
    print(f"submitted_priorities={joined(PRIORITIES)} executed_priorities={joined(executed)}")
    print(f"completed={len(done)} attempts_per_task=1 worker_drained=true")


def joined(numbers: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, numbers))


if __name__ == "__main__":
    main()
