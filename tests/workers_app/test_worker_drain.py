"""Drain, of a worker and of a node (design, chapter 2 and 5.2)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from tests.support.api import Api
from tests.support.waiting import eventually
from tests.support.worker_sockets import WorkerSocket
from tests.workers_app.conftest import Node

Offers = Callable[..., dict[str, Any]]


# -- The worker drains


def test_drain_gives_unstarted_back_and_ends_when_the_last_attempt_has_ended(
    worker: WorkerSocket, claim_one: Offers, api: Api, queue_id: str
) -> None:
    first, second, reserved = claim_one(), claim_one(), claim_one()
    worker.start(first, second)
    assert worker.request("drain") == {"type": "draining", "re": 2, "running": 2}
    assert api.task(reserved["task"]["task_id"])["state"] == "READY"
    api.submit(queue_id).expect(201)
    assert worker.receive_for(1.2) == []  # no more offers
    assert worker.finish(first)["status"] == "COMMITTED"
    assert worker.receive_for(0.3) == []
    assert worker.finish(second)["status"] == "COMMITTED"
    assert worker.expect("drained") == {"type": "drained"}
    assert worker.closed() == 1000


def test_drain_of_an_idle_worker_ends_at_once(worker: WorkerSocket) -> None:
    assert worker.request("drain")["running"] == 0
    assert worker.expect("drained")
    assert worker.closed() == 1000


def test_drain_ends_when_the_last_attempt_is_lost(start_node: Callable[..., Node]) -> None:
    node = start_node(ORBIT_LEASE_MS="1500", ORBIT_RESERVATION_MS="1200", ORBIT_FINISH_GRACE_MS="100")
    worker = node.worker()
    node.submit()
    worker.start(worker.expect("offer"))
    assert worker.request("drain")["running"] == 1
    assert worker.expect("drained", timeout=8)
    assert worker.closed() == 1000


# -- The node drains


def test_node_that_goes_down_tells_its_workers_and_lets_them_finish(start_node: Callable[..., Node]) -> None:
    node = start_node()
    worker = node.worker(capacity=2)
    for _ in range(2):
        node.submit()
    running, reserved = worker.offers(2)
    worker.start(running)
    node.running.server.signal(signal.SIGTERM)
    assert worker.expect("drain") == {"type": "drain"}
    assert worker.start(reserved)[0]["status"] == "STARTED"  # finish or let go
    assert worker.renew(running)[0]["status"] == "RENEWED"
    assert worker.finish(running)["status"] == "COMMITTED"
    assert worker.finish(reserved)["status"] == "COMMITTED"
    assert worker.closed() == 1012
    assert node.running.server.stop() == 0


def test_draining_node_offers_nothing_and_takes_no_connection(start_node: Callable[..., Node], here: Node) -> None:
    node = start_node()
    worker = node.worker(capacity=3)
    node.submit()
    running = worker.expect("offer")
    worker.start(running)
    node.running.server.signal(signal.SIGTERM)
    worker.expect("drain")
    other = here.socket()
    other.hello([node.queue_id])
    here.api.submit(node.queue_id).expect(201)
    assert other.expect("offer")
    assert worker.receive_for(0.5) == []
    assert node.running.server.readiness() == 503
    worker.finish(running)
    assert node.running.server.stop() == 0


def test_time_out_ends_the_drain_with_status_0_and_the_lease_covers_what_runs(
    start_node: Callable[..., Node], here: Node
) -> None:
    node = start_node(arguments=("--drain-timeout", "1"))
    worker = node.worker(capacity=2)
    for _ in range(2):
        node.submit()
    running, reserved = worker.offers(2)
    worker.start(running)
    assert node.running.server.stop() == 0
    assert worker.closed() == 1012
    log = node.running.server.log.read_text()
    assert '"attempts_running": 1' in log
    again = here.socket()
    welcome = again.hello([node.queue_id], session_id=worker.welcome["session_id"])
    assert [held["attempt_id"] for held in welcome["held"]] == [running["attempt_id"]]
    assert again.finish(running)["status"] == "COMMITTED"
    assert eventually(lambda: here.state(reserved["task"]["task_id"]) in ("READY", "RESERVED"))
