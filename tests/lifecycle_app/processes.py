"""The parties that Orbit does not own, as processes of their own, and the outside look at the database."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from tests.support import databases, engine
from tests.support.server import ROOT

Event = dict[str, Any]
WAIT_SECONDS = 20.0


class LineProcess:
    """A process that takes JSON orders by line and tells JSON events by line."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.events: list[Event] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()

    def tell(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def wait_for(self, test: Callable[[Event], bool], *, seconds: float = WAIT_SECONDS, after: int = 0) -> Event:
        """The first event from position `after` on that passes."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                for event in self.events[after:]:
                    if test(event):
                        return event
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"no such event within {seconds} s; saw {self.events[after:]}")
                self._changed.wait(left)

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class UpstreamProcess(LineProcess):
    """The scripted upstream; its journal is what really happened there."""

    def __init__(self, journal: Path) -> None:
        super().__init__("lifecycle_app.fakes.upstream", "--journal", str(journal))
        self.url = self.wait_for(lambda event: event["event"] == "listening")["url"]
        self._client = httpx2.Client(base_url=self.url, trust_env=False, timeout=10)

    def script(self, step: str, gid: int, *words: str) -> None:
        self._client.post("/control", json={step: {str(gid): list(words)}}).raise_for_status()

    def control(self) -> dict[str, Any]:
        return dict(self._client.get("/control").json())

    def submits(self) -> Counter[str]:
        """How often each generation was submitted, whatever came of it."""
        return Counter(entry["operation_id"] for entry in self.control()["journal"] if entry["step"] == "submit")

    def effects(self, gid: int) -> list[str]:
        return list(self.control()["submissions"].get(str(gid), []))

    def stop(self) -> None:
        self._client.close()
        super().stop()


class NodeProcess(LineProcess):
    """A storage node."""

    def __init__(self, name: str, token: str, *arguments: str) -> None:
        super().__init__("lifecycle_app.fakes.storage_node", "--name", name, "--token", token, *arguments)

    def connect(self) -> None:
        after = len(self.events)
        self.tell(do="connect")
        self.wait_for(lambda event: event["event"] == "hello", after=after)

    def acknowledged(self) -> set[str]:
        return {event["reportId"] for event in self.events if event["event"] == "ack"}


_LIFECYCLE_TABLES = (
    "orbit_operation_intent", "orbit_lifecycle_task", "orbit_usage_entry", "orbit_weekly_usage", "orbit_favorite",
    "orbit_report_receipt", "orbit_notification", "orbit_recovery_run", "orbit_storage_node", "orbit_node",
)  # fmt: skip


def forget_lifecycle(database_url: str) -> None:
    """Empties what the lifecycle wrote: cheaper than a database for each test."""
    with contextlib.closing(databases.connect(database_url)) as connection:
        cursor = connection.cursor()
        for table in _LIFECYCLE_TABLES:
            cursor.execute(f"DELETE FROM {table}")


@contextlib.contextmanager
def upstream_process(name: str) -> Iterator[UpstreamProcess]:
    upstream = UpstreamProcess(engine.directory() / f"upstream-{name}.jsonl")
    try:
        yield upstream
    finally:
        upstream.stop()


class Outside:
    """The database as an auditor sees it: plain SQL, no Orbit."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(databases.connect(self._url)) as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def execute(self, sql: str) -> None:
        with contextlib.closing(databases.connect(self._url)) as connection:
            connection.cursor().execute(sql)

    def states(self) -> dict[int, str]:
        return dict(self.rows("SELECT gid, state FROM orbit_operation_intent"))

    def shown(self) -> dict[int, str]:
        return dict(self.rows("SELECT gid, status FROM orbit_lifecycle_task"))

    def assert_sound(self, upstream: UpstreamProcess, *nodes: NodeProcess) -> None:
        """What must hold whatever was killed when (N14 to N16)."""
        again = {operation: times for operation, times in upstream.submits().items() if times > 1}
        assert not again, f"submitted more than once: {again}"
        metered = Counter(row[0] for row in self.rows("SELECT operation_id FROM orbit_usage_entry"))
        assert all(times == 1 for times in metered.values())
        effects = {operation for done in upstream.control()["submissions"].values() for operation in done}
        intents = self.rows("SELECT gid, state, operation_id, task_id FROM orbit_operation_intent")
        for gid, state, operation_id, task_id in intents:
            assert (task_id is None) == (state == "DELETED"), (gid, state)
            if state in ("SUBMITTED", "DELETE_PENDING", "DELETED"):
                assert operation_id in metered, f"gid {gid} is {state} and not metered"
                assert operation_id in effects, f"gid {gid} is {state} and the upstream knows nothing of it"
            else:
                assert operation_id not in metered, f"gid {gid} is {state} and metered"
        rows = {row[0] for row in self.rows("SELECT task_id FROM orbit_lifecycle_task")}
        assert rows == {task_id for *_, task_id in intents if task_id is not None}
        receipts = {row[0] for row in self.rows("SELECT report_id FROM orbit_report_receipt")}
        for node in nodes:
            early = node.acknowledged() - receipts
            assert not early, f"acknowledged before the commit: {early}"
        sums = self.rows(
            "SELECT w.quantity, COALESCE(SUM(u.quantity), 0) FROM orbit_weekly_usage w LEFT JOIN orbit_usage_entry u"
            " ON u.namespace_id = w.namespace_id AND u.requester = w.requester AND u.week = w.week"
            " GROUP BY w.usage_id, w.quantity"
        )
        assert all(total == counted for total, counted in sums)
