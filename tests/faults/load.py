"""Many workers, many tasks, several nodes: every task exactly one attempt, no error answer, memory flat, permits exact.

The suite runs a short form; the long one is a command: `python -m tests.faults.load --tasks 100000 --workers 128
--nodes 1` (a private MariaDB; prints one line of figures and exits 1 on a broken promise).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.api import Api
from tests.support.worker_sockets import PATH, SUBPROTOCOL

BATCH = 32
QUEUES = 8
IDLE_SECONDS_MAX = 60.0


@dataclass
class Told:
    """What the workers were told, all together."""

    started: Counter[str] = field(default_factory=Counter)  # task_id -> STARTED answers
    committed: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    running_most: int = 0
    running: int = 0
    by_connection: Counter[int] = field(default_factory=Counter)
    last_at: float = field(default_factory=time.monotonic)


class LoadWorker:
    """One connection that starts and finishes whatever it is offered, at once."""

    def __init__(self, number: int, told: Told, *, capacity: int) -> None:
        self._number, self._told, self._capacity = number, told, capacity
        self._seq = 0
        self._pending: dict[int, list[dict[str, Any]]] = {}

    async def run(self, url: str, token: str, queues: Sequence[str], done: asyncio.Event) -> None:
        async with connect(
            url + PATH,
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
            additional_headers={"Authorization": f"Bearer {token}"},
            compression=None,
            proxy=None,
            open_timeout=60,
        ) as socket:
            hello = {"type": "hello", "protocol": 1, "worker_name": f"load-{self._number}", "capacity": self._capacity,
                     "queues": list(queues), "handlers": [{"handler": "echo", "handler_version": "v1"}]}  # fmt: skip
            await socket.send(json.dumps(hello))
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    await self._take(socket, json.loads(await asyncio.wait_for(socket.recv(), 0.5)))

    async def _take(self, socket: ClientConnection, message: dict[str, Any]) -> None:
        told = self._told
        match message["type"]:
            case "offer":
                await self._send(socket, "start", [message])
            case "started":
                for item, offer in zip(message["items"], self._pending.pop(message["re"]), strict=True):
                    if item["status"] == "STARTED":
                        told.started[offer["task"]["task_id"]] += 1
                        told.by_connection[self._number] += 1
                        told.running += 1
                        told.running_most = max(told.running_most, told.running)
                        await self._send(socket, "finish", [offer], outcome="SUCCEEDED")
                    elif item["code"] != "LIMITED":
                        told.errors.append(f"start: {item}")
            case "finished":
                for item, offer in zip(message["items"], self._pending.pop(message["re"]), strict=True):
                    told.running -= 1
                    told.last_at = time.monotonic()
                    if item["status"] == "COMMITTED":
                        told.committed[offer["task"]["task_id"]] += 1
                    else:
                        told.errors.append(f"finish: {item}")
            case "error" | "revoke":
                told.errors.append(json.dumps(message))

    async def _send(self, socket: ClientConnection, kind: str, offers: list[dict[str, Any]], **more: Any) -> None:
        self._seq += 1
        self._pending[self._seq] = offers
        items = [
            {"attempt_id": offer["attempt_id"], "fencing_token": offer["fencing_token"], **more} for offer in offers
        ]
        await socket.send(json.dumps({"type": kind, "seq": self._seq, "items": items}))


def submit(api: Api, queues: Sequence[str], count: int, *, name: str) -> None:
    """`count` tasks over the queues in turn, 32 a request."""
    for first in range(0, count, BATCH):
        items = [
            {
                "idempotency_key": f"{name}-{number}",
                "task": {"queue_id": queues[number % len(queues)], "handler": "echo", "handler_version": "v1",
                         "payload_version": "v1", "payload": number},
            }
            for number in range(first, min(first + BATCH, count))
        ]  # fmt: skip
        summary = api.post("/v1/tasks:batch", {"items": items}).expect(200).data["summary"]
        assert summary["accepted"] == len(items), summary


async def work(
    urls: Sequence[str], token: str, queues: Sequence[str], *, workers: int, capacity: int, count: int
) -> Told:
    """`workers` connections over the nodes in turn, until `count` tasks are committed or nothing happens any more."""
    told, done = Told(), asyncio.Event()
    jobs = [
        asyncio.create_task(
            LoadWorker(number, told, capacity=capacity).run(urls[number % len(urls)], token, queues, done)
        )
        for number in range(workers)
    ]
    while sum(told.committed.values()) < count and time.monotonic() - told.last_at < IDLE_SECONDS_MAX:
        await asyncio.sleep(0.1)
        for job in jobs:
            if job.done():
                await job  # a worker that fell must be heard
    done.set()
    await asyncio.gather(*jobs)
    return told


def resident_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=128)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--capacity", type=int, default=8)
    options = parser.parse_args()
    os.environ["ORBIT_TEST_ENGINE"] = "mysql"
    from tests.faults.auditor import Database, audit
    from tests.support import engine
    from tests.support.fixtures import make_site
    from tests.support.server import ServerProcess

    engine._prepare()
    with make_site() as site:
        servers = [ServerProcess(site.database_url, ORBIT_NODE_ID=f"node-{n}").start() for n in range(options.nodes)]
        token = site.aged.token
        with Api(servers[0].url, token) as api:
            queues = [str(api.make_queue()["queue_id"]) for _ in range(QUEUES)]
            submit(api, queues, options.tasks, name="load")
        processes = [server.process for server in servers if server.process is not None]
        before = [resident_mib(process.pid) for process in processes]
        begin = time.monotonic()
        told = asyncio.run(
            work(
                [server.websocket_url for server in servers], token, queues,
                workers=options.workers, capacity=options.capacity, count=options.tasks,
            )
        )  # fmt: skip
        seconds = time.monotonic() - begin
        after = [resident_mib(process.pid) for process in processes]
        statuses = [server.stop() for server in servers]
        database = Database(site.database_url)
        faults = audit(database, [])
        database.close()
    faults += told.errors[:20]
    faults += [f"task {task_id} started {count} times" for task_id, count in told.started.items() if count != 1]
    if len(told.committed) != options.tasks:
        faults.append(f"{len(told.committed)} of {options.tasks} tasks were committed")
    print(
        f"{options.tasks} tasks, {options.workers} workers, {options.nodes} nodes: {options.tasks / seconds:,.0f}/s,"
        f" at most {told.running_most} at once, memory {before} -> {after} MiB, exit {statuses},"
        f" {len(faults)} broken promises"
    )
    for fault in faults[:50]:
        print(f"  {fault}")
    return 1 if faults or any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
