"""The workloads. Each returns one `Figure` a line of the report; Orbit and the raw SQL take turns, round by round."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench import backlog
from bench.place import ROOT, Place
from bench.raw import PAYLOAD, RawTasks
from tests.support.waiting import eventually

SEED = 20261130


@dataclass
class Figure:
    """One line: what Orbit did, what the raw SQL of the same rows did in the same run, and their ratio (medians)."""

    name: str
    unit: str
    orbit: list[float]
    raw: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if not self.raw:
            return None
        return statistics.median(mine / theirs for mine, theirs in zip(self.orbit, self.raw, strict=True))


@dataclass(frozen=True)
class Scale:
    """How much of everything: the quick look and the run whose figures are published."""

    rounds: int
    accepts: int
    drain: int
    pickups: int
    claim_samples: int
    backlogs: tuple[int, ...]
    clients: tuple[int, ...]


QUICK = Scale(rounds=3, accepts=320, drain=2_000, pickups=60, claim_samples=100, backlogs=(10_000,), clients=(1, 8))
FULL = Scale(
    rounds=5,
    accepts=1_600,
    drain=10_000,
    pickups=200,
    claim_samples=300,
    backlogs=(10_000, 1_000_000),
    clients=(1, 8, 32),
)


class Tenant:
    """One application with one queue, over HTTP and by hand."""

    def __init__(self, place: Place, name: str, *, url: str | None = None) -> None:
        self.place, self.name, self.url = place, name, url
        self.credentials = place.credentials(name, ["work"])
        self.queue_id = self.credentials["queues"]["work"]
        self.connection = place.connect()
        cursor = self.connection.cursor()
        cursor.execute(
            "INSERT INTO orbit_handler (namespace_id, handler, handler_version) VALUES (%s, 'bench.noop', 'v1')",
            (self.credentials["namespace_id"],),
        )
        self.handler_ref = int(cursor.lastrowid)
        self.raw = RawTasks(self.connection, self.credentials, self.queue_id, self.handler_ref)

    def task(self, payload: Any) -> dict[str, Any]:
        return {"queue_id": self.queue_id, "handler": "bench.noop", "handler_version": "v1", "payload_version": "v1",
                "payload": payload}  # fmt: skip

    def client(self) -> Client:
        assert self.url is not None
        return Client(self.url, self.credentials["token"])

    def unfinished(self) -> int:
        cursor = self.connection.cursor()
        cursor.execute("SELECT unfinished FROM orbit_queue WHERE queue_id = %s", (self.queue_id,))
        return int(cursor.fetchone()[0])


class Client:
    """One keep-alive connection; as little Python as possible, because it shares the cores with the server."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def post(self, path: str, body: bytes, *, key: str | None = None, expect: int) -> bytes:
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != expect:
            raise RuntimeError(f"{path}: {response.status} {answer[:300]!r}")
        return answer


def accept(place: Place, url: str, scale: Scale, *, batch: int) -> Iterator[Figure]:
    """Tasks accepted a second, one a request or `batch` a request, by 1 … n clients at once."""
    for clients in scale.clients:
        tenant = Tenant(place, f"accept-{batch}-{clients}", url=url)
        figure = Figure(f"accept, {batch} a request, {clients} client{'s' * (clients > 1)}", "tasks/s", [])
        for round_number in range(-1, scale.rounds):  # the round -1 warms up
            mine = scale.accepts / _seconds(_senders(tenant, scale.accepts, clients, batch, round_number))
            theirs = scale.accepts / _seconds([partial(_raw_accepts, tenant, scale.accepts, round_number)])
            if round_number >= 0:
                figure.orbit.append(mine)
                figure.raw.append(theirs)
        figure.note = "raw: one connection, a transaction a task"
        yield figure


def _senders(tenant: Tenant, count: int, clients: int, batch: int, round_number: int) -> list[Callable[[], None]]:
    payload = json.loads(PAYLOAD)
    task = tenant.task(payload)

    def send(number: int) -> None:
        client = tenant.client()
        for first in range(number * batch, count, clients * batch):
            keys = [f"{round_number}-{index}" for index in range(first, min(first + batch, count))]
            if batch == 1:
                client.post("/v1/tasks", json.dumps(task).encode(), key=keys[0], expect=201)
            else:
                items = [{"idempotency_key": key, "task": task} for key in keys]
                answer = client.post("/v1/tasks:batch", json.dumps({"items": items}).encode(), expect=200)
                assert json.loads(answer)["data"]["summary"]["accepted"] == len(keys)

    return [partial(send, number) for number in range(clients)]


def _raw_accepts(tenant: Tenant, count: int, round_number: int) -> None:
    for index in range(count):
        tenant.raw.accept(f"raw-{round_number}-{index}")


def _seconds(jobs: list[Callable[[], None]]) -> float:
    """From the start of all jobs, each in a thread, to the end of the last."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - begin
    if errors:
        raise errors[0]
    return elapsed


@contextmanager
def _worker(tenant: Tenant, record: Path, *, concurrency: int, prefetch: int) -> Iterator[subprocess.Popen[bytes]]:
    environ = tenant.place.environ(ORBIT_URL=str(tenant.url), ORBIT_CREDENTIALS_FILE=tenant.credentials["path"])
    environ = {name: value for name, value in environ.items() if name not in ("ORBIT_DATABASE_URL", "ORBIT_SECRET_KEY")}
    with (tenant.place.directory / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.worker", "work", str(concurrency), str(record), str(prefetch)],
            cwd=ROOT, env={**environ, "PYTHONPATH": str(ROOT / "sdk")}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def drain(place: Place, url: str, scale: Scale, *, prefetch: int) -> Figure:
    """No-op tasks a second by one SDK worker at concurrency 10: start of the first to start of the last."""
    figure = Figure(f"drain, 1 worker, concurrency 10, prefetch {prefetch}", "tasks/s", [])
    figure.note = "raw: one connection, 32 a transaction"
    for round_number in range(scale.rounds):
        tenant = Tenant(place, f"drain-{prefetch}-{round_number}", url=url)
        client = tenant.client()
        for first in range(0, scale.drain, 32):
            items = [
                {"idempotency_key": str(index), "task": tenant.task({"sent": 0})}
                for index in range(first, min(first + 32, scale.drain))
            ]
            client.post("/v1/tasks:batch", json.dumps({"items": items}).encode(), expect=200)
        record = place.directory / f"drain-{prefetch}-{round_number}"
        with _worker(tenant, record, concurrency=10, prefetch=prefetch):
            eventually(lambda: tenant.unfinished() == 0, timeout=300)  # noqa: B023
        starts = sorted(int(line.split()[1]) for line in record.read_text().splitlines())
        assert len(starts) == scale.drain, f"{len(starts)} starts of {scale.drain} tasks"
        figure.orbit.append((len(starts) - 1) / ((starts[-1] - starts[0]) / 1e9))
        by_hand = Tenant(place, f"drain-raw-{prefetch}-{round_number}")
        backlog.fill(by_hand.connection, by_hand.credentials, by_hand.queue_id, by_hand.handler_ref, scale.drain)
        begin, done = time.perf_counter(), 0
        while count := by_hand.raw.execute(32):
            done += count
        figure.raw.append(done / (time.perf_counter() - begin))
    return figure


def pick_up(place: Place, url: str, scale: Scale) -> Iterator[Figure]:
    """From just before a submit to the start of its task, on an idle node; beside the raw statements alone."""
    tenant = Tenant(place, "pickup", url=url)
    record = place.directory / "pickup"
    random_gap = random.Random(SEED)
    client = tenant.client()
    latencies: list[float] = []
    with _worker(tenant, record, concurrency=10, prefetch=10):
        for number in range(scale.pickups + 10):
            sent = time.monotonic_ns()
            client.post("/v1/tasks", json.dumps(tenant.task({"sent": sent})).encode(), key=f"p{number}", expect=201)
            eventually(lambda: record.exists() and len(record.read_text().splitlines()) > number, timeout=30)  # noqa: B023
            begun = int(record.read_text().splitlines()[number].split()[1])
            if number >= 10:  # connecting and warming up
                latencies.append((begun - sent) / 1e6)
            time.sleep(random_gap.uniform(0.02, 0.12))
    by_hand = Tenant(place, "pickup-raw")
    raw: list[float] = []
    for number in range(scale.pickups):
        begin = time.perf_counter()
        by_hand.raw.accept(f"r{number}")
        by_hand.raw.execute(1)
        raw.append((time.perf_counter() - begin) * 1000)
    latencies.sort()
    raw.sort()
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        mine, theirs = latencies[int(len(latencies) * share)], raw[int(len(raw) * share)]
        yield Figure(
            f"pick-up on an idle node, {name}", "ms", [mine], [theirs], "raw: accept, claim, start and finish of one"
        )


def claim(place: Place, scale: Scale) -> Iterator[Figure]:
    """Time of one claim of 8, at growing backlogs; beside the bare read of the same ids from the index."""
    for ready in scale.backlogs:
        tenant = Tenant(place, f"claim-{ready}")
        backlog.fill(tenant.connection, tenant.credentials, tenant.queue_id, tenant.handler_ref, ready)
        yield from _claim_figures(tenant, scale, f"{ready:,} ready")
        if ready == scale.backlogs[-1]:
            backlog.fill(
                tenant.connection, tenant.credentials, tenant.queue_id, tenant.handler_ref, ready,
                state="SCHEDULED", priority="9",
            )  # fmt: skip
            yield from _claim_figures(tenant, scale, f"{ready:,} ready + {ready:,} not due, priority 9")
            held = Tenant(place, f"claim-held-{ready}")
            _fill_held(held, ready // 10)
            yield from _claim_figures(held, scale, f"1,000 ready behind {ready // 10:,} of a busy key")
            foreign = Tenant(place, f"claim-foreign-{ready}")
            backlog.fill(
                foreign.connection, foreign.credentials, foreign.queue_id, foreign.handler_ref + 1_000_000, ready // 10
            )
            backlog.fill(foreign.connection, foreign.credentials, foreign.queue_id, foreign.handler_ref, 1_000)
            yield from _claim_figures(foreign, scale, f"1,000 ready beside {ready // 10:,} of a foreign handler")


def _fill_held(tenant: Tenant, count: int) -> None:
    cursor = tenant.connection.cursor()
    cursor.execute(
        "INSERT INTO orbit_resource_key (namespace_id, resource_key, held) VALUES (%s, 'busy', 1)",
        (tenant.credentials["namespace_id"],),
    )
    resource_ref = int(cursor.lastrowid)
    arguments = (tenant.connection, tenant.credentials, tenant.queue_id, tenant.handler_ref)
    backlog.fill(*arguments, count, lane=2, resource_ref=resource_ref)
    backlog.fill(*arguments, 1_000)


def _claim_figures(tenant: Tenant, scale: Scale, what: str) -> Iterator[Figure]:
    raw: list[float] = []
    for _ in range(scale.claim_samples):
        begin = time.perf_counter()
        tenant.raw.claim_ids(8)
        raw.append((time.perf_counter() - begin) * 1000)
    order = {
        "application_id": tenant.credentials["application_id"],
        "namespace_id": tenant.credentials["namespace_id"],
        "queue_id": tenant.queue_id,
        "handler_refs": [tenant.handler_ref],
        "samples": scale.claim_samples,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.claims", json.dumps(order)],
        cwd=ROOT, env=tenant.place.environ(), check=True, capture_output=True, text=True,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["claimed"] == 8 * scale.claim_samples, answer["claimed"]
    mine = sorted(answer["ms"])
    raw.sort()
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield Figure(
            f"claim of 8, {what}, {name}", "ms", [mine[int(len(mine) * share)]], [raw[int(len(raw) * share)]],
            "raw: the index read alone",
        )  # fmt: skip


def memory(place: Place, pid: int) -> Figure:
    """Resident memory of the node's process after all that."""
    text = Path(f"/proc/{pid}/status").read_text()
    kib = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    return Figure("memory of the node (resident)", "MiB", [kib / 1024])


def cores() -> int:
    return len(os.sched_getaffinity(0))
