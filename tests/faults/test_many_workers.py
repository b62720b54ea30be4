"""The short form of `tests.faults.load`: many connections on one node, and two and three nodes on one MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.faults.auditor import Database, audit
from tests.faults.load import Told, submit, work
from tests.support.api import Api
from tests.support.fixtures import RunningOrbit

TASKS = 1_000


def _serve_all(nodes: list[RunningOrbit], *, workers: int, **queue: int) -> tuple[Told, list[str]]:
    site = nodes[0].site
    with Api(nodes[0].url, site.aged.token) as api:
        queues = [str(api.make_queue(**queue)["queue_id"]) for _ in range(4)]
        submit(api, queues, TASKS, name="short")
    urls = [node.websocket_url for node in nodes]
    told = asyncio.run(work(urls, site.aged.token, queues, workers=workers, capacity=4, count=TASKS))
    database = Database(site.database_url)
    faults = audit(database, [])
    database.close()
    return told, faults


def _assert_each_once(told: Told, faults: list[str]) -> None:
    assert told.errors == []
    assert faults == []
    assert set(told.started.values()) == {1}
    assert len(told.committed) == TASKS


def test_128_workers_on_one_node_run_every_task_exactly_once(start_orbit_server: Callable[..., RunningOrbit]) -> None:
    told, faults = _serve_all([start_orbit_server()], workers=128)
    _assert_each_once(told, faults)


@pytest.mark.mariadb_only("several nodes share one server database")
@pytest.mark.parametrize("count", [2, 3])
def test_no_task_is_started_twice_by_several_nodes_and_permits_are_exact(
    start_orbit_server: Callable[..., RunningOrbit], count: int
) -> None:
    nodes = [start_orbit_server(ORBIT_NODE_ID=f"node-{number}") for number in range(count)]
    told, faults = _serve_all(nodes, workers=24, max_running=5)
    _assert_each_once(told, faults)
    assert told.running_most <= 4 * 5  # four queues with five permits each, whoever asks
