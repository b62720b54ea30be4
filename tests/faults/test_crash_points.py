"""kill -9 of the node at every commit boundary of accept, claim, start and finish: nothing is lost, nothing is doubled.

Each point is hit at its k-th passing; the node is started again, the client repeats its requests, the worker comes
back with its session, and the auditor joins what both were told with the rows.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.auditor import Database, History, audit
from tests.faults.parties import StubbornWorker, submit_batch_until_known, submit_until_known, task
from tests.support.api import Api
from tests.support.fixtures import Site, make_site
from tests.support.server import ServerProcess

POINTS = [
    f"{verb}.{boundary}"
    for verb in ("accept", "claim", "start", "finish")
    for boundary in ("before_commit", "committed")
]
SETTINGS = {"ORBIT_RESERVATION_MS": "2000", "ORBIT_LEASE_MS": "3000", "ORBIT_FINISH_GRACE_MS": "1000"}
RETRY = {"mode": "SAFE", "max_attempts": 10, "initial_backoff_ms": 0}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One database for the whole sweep: the auditor looks at all of it after every death."""
    with make_site() as made:
        yield made


class Mortal:
    """A node that dies at a crash point and is brought back without it."""

    def __init__(self, site: Site, point: str) -> None:
        self.server = ServerProcess(site.database_url, ORBIT_TEST_FAULT_POINT=point, **SETTINGS)
        self._site = site
        self.deaths = 0
        self.server.start()

    def revive(self) -> None:
        process = self.server.process
        assert process is not None
        if process.poll() is None:
            return
        assert process.returncode == -signal.SIGKILL, self.server.log_tail()
        self.deaths += 1
        self.server = ServerProcess(self._site.database_url, port=self.server.port, **SETTINGS)
        self.server.start()


@pytest.mark.parametrize("passing", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_commit_boundary_loses_nothing_and_doubles_nothing(
    site: Site, tmp_path: Path, point: str, passing: int
) -> None:
    node = Mortal(site, f"{point}:kill:{passing}")
    paths = [tmp_path / "client", tmp_path / "worker"]
    client, worker_history = History(paths[0]), History(paths[1])
    queue_id = _make_queue(node, site, f"{point} {passing}")
    with Api(node.server.url, site.aged.token) as api:
        for number in range(3):
            submit_until_known(
                api, f"{point}-{passing}-one-{number}", task(queue_id, number, retry=RETRY), client, node.revive
            )
        batch = [(f"{point}-{passing}-many-{number}", task(queue_id, number, retry=RETRY)) for number in range(4)]
        submit_batch_until_known(api, batch, client, node.revive)
        worker = StubbornWorker(node.server.websocket_url, site.aged.token, queue_id, worker_history, node.revive)
        database = Database(site.database_url)
        worker.work_until(lambda: _unfinished(database) == 0)
    node.revive()
    assert node.deaths == 1, f"{point} was not passed {passing} times"
    assert node.server.stop() == 0
    faults = audit(database, History.read(paths))
    assert (
        _count(database, f"SELECT COUNT(*) FROM orbit_task WHERE state = 'SUCCEEDED' AND queue_id = '{queue_id}'") == 7
    )
    database.close()
    assert faults == []


def _make_queue(node: Mortal, site: Site, name: str) -> str:
    with Api(node.server.url, site.aged.token) as api:
        return str(api.post("/v1/queues", {"name": name}).expect(201).data["queue"]["queue_id"])


def _unfinished(database: Database) -> int:
    return _count(database, "SELECT COALESCE(SUM(unfinished), 0) FROM orbit_queue")


def _count(database: Database, sql: str) -> int:
    return int(database.rows(sql)[0][0])
