"""A batch of eight is half refused by a quota of four; room is made, and the refused half is sent again, same keys.

    ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=var/demo.credentials.json python examples/batch.py

Each item ends in one of four answers. A refused one was not stored; sent again with its own key and content it is a new
attempt at the same identity, never a second task. Anything unexpected ends with a status that is not 0.
"""

from __future__ import annotations

import secrets
import signal
from collections import Counter
from typing import Any

from orbit_sdk import BatchItem, BatchResult, BatchStatus, Context, OrbitClient, SubmitTask, TaskState, Worker

SCENE_SECONDS = 25
ITEMS = 8
ROOM = 4


def main() -> None:
    signal.alarm(SCENE_SECONDS)
    run = secrets.token_hex(4)
    with OrbitClient.from_env() as orbit:
        queue = orbit.create_queue(f"batch-{run}", max_unfinished=ROOM)
        # In a real program these stand in your own database before they are sent.
        items = [
            BatchItem(
                key=f"conversion-{run}-{number:03}",
                task=SubmitTask(
                    queue=queue.queue_id, handler=f"file.convert.{run}", payload={"source_ref": f"objects/{number}"}
                ),
            )
            for number in range(ITEMS)
        ]
        first = orbit.submit_tasks(items)
        refused = [items[item.index] for item in first.items if item.status is BatchStatus.REJECTED]
        assert statuses(first) == ["ACCEPTED"] * ROOM + ["REJECTED"] * (ITEMS - ROOM), statuses(first)
        assert codes(first) == Counter(QUEUE_FULL=ITEMS - ROOM), codes(first)
        print(f"{ITEMS} sent: {ROOM} ACCEPTED, {len(refused)} REJECTED QUEUE_FULL")

        runs: Counter[str] = Counter()
        worker = Worker.from_env(queues=[queue.queue_id], concurrency=4, drain_timeout=10)

        @worker.handler(f"file.convert.{run}")
        def convert(ctx: Context, payload: Any) -> str:
            runs[payload["source_ref"]] += 1
            return str(payload["source_ref"])

        with worker:
            for item in first.items:
                if item.receipt is not None:
                    assert orbit.wait_task(item.receipt.task_id, timeout=SCENE_SECONDS).state is TaskState.SUCCEEDED
            second = orbit.submit_tasks(refused)
            assert second.all_accepted, statuses(second)
            for item in second.items:
                assert item.receipt is not None
                assert not item.receipt.deduplicated
                assert orbit.wait_task(item.receipt.task_id, timeout=SCENE_SECONDS).state is TaskState.SUCCEEDED
            # The whole batch once more, as after a lost answer: eight original receipts and not one task more.
            again = orbit.submit_tasks(items)
            assert worker.close() == 0

    tasks = [item.receipt.task_id for item in again.items if item.receipt is not None and item.receipt.deduplicated]
    assert len(set(tasks)) == ITEMS, statuses(again)
    assert sorted(runs.values()) == [1] * ITEMS, runs
    print(f"room made: {len(second.items)} ACCEPTED with the same keys, {sum(runs.values())} run, 0 doubled")


def statuses(result: BatchResult) -> list[str]:
    return [str(item.status) for item in result.items]


def codes(result: BatchResult) -> Counter[str]:
    return Counter(item.error.code for item in result.items if item.error is not None)


if __name__ == "__main__":
    main()
