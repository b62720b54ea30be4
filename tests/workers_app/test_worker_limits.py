"""Bounds of a connection: messages in flight, frames, slow readers, stuck queries (design, chapter 2, Rules)."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.databases import connect as connect_to_database
from tests.support.fixtures import RunningOrbit
from tests.support.waiting import eventually
from tests.support.worker_sockets import WorkerSocket, held
from tests.workers_app.conftest import Node

Offers = Callable[..., dict[str, Any]]


def test_a_thousand_messages_at_once_are_all_answered(worker: WorkerSocket) -> None:
    for seq in range(1, 1001):
        worker.send("heartbeat", seq=seq)
    assert sorted(worker.expect("heartbeat_ack")["re"] for _ in range(1000)) == list(range(1, 1001))


def test_frame_over_the_limit_is_1009(worker: WorkerSocket) -> None:
    with contextlib.suppress(Exception):
        worker.connection.send("x" * (1024 * 1024 + 1))
    assert worker.closed() == 1009


def test_slow_reader_is_cut_and_its_reservations_return(
    here: Node, connect_worker: Callable[..., WorkerSocket]
) -> None:
    slow = here.socket()
    slow.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.hello([here.queue_id], capacity=200)
    slow.connection.close_timeout = 1
    payload = "p" * 200_000
    with nobody_reads(slow):
        tasks = [here.submit(payload=payload)["task_id"] for _ in range(60)]
        eventually(lambda: "websocket cut" in here.running.server.log.read_text(), timeout=30)
    other = here.worker(capacity=100)
    offered: set[str] = set()

    def have_come() -> bool:
        for message in other.receive_for(0.2):
            if message["type"] == "offer":
                offered.add(message["task"]["task_id"])
        return offered == set(tasks)

    eventually(have_come, timeout=30, describe=lambda: len(offered))


@contextlib.contextmanager
def nobody_reads(worker: WorkerSocket) -> Iterator[None]:
    """Nothing is taken out of the socket."""
    worker.connection.recv_flow_control.acquire()
    try:
        yield
    finally:
        worker.connection.recv_flow_control.release()


def test_half_sent_upload_and_slow_reader_do_not_delay_renewals(
    here: Node, worker: WorkerSocket, start_one: Offers
) -> None:
    offer = start_one()
    with socket.create_connection(("127.0.0.1", here.running.server.port)) as upload:
        upload.sendall(b"POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n{")
        begin = time.monotonic()
        assert worker.renew(offer)[0]["status"] == "RENEWED"
        assert time.monotonic() - begin < 5


@contextlib.contextmanager
def row_locked(running: RunningOrbit, task_id: str) -> Iterator[None]:
    """A foreign transaction holds the row of a task."""
    connection = connect_to_database(running.site.database_url)
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    cursor.execute("SELECT task_id FROM orbit_task WHERE task_id = %s FOR UPDATE", [task_id])
    try:
        yield
    finally:
        cursor.execute("ROLLBACK")
        connection.close()


@pytest.mark.mariadb_only("row locks: SQLite has one writer at a time")
@pytest.mark.parametrize("verb", ["finish", "renew", "start"])
def test_stuck_statement_of_one_attempt_does_not_stop_the_renewals_of_others(
    here: Node, connect_worker: Callable[..., WorkerSocket], verb: str
) -> None:
    """Trap C1: everybody's renewals once ran behind one stuck query."""
    stuck, others = here.worker(capacity=1), [here.worker(capacity=1) for _ in range(5)]
    for _ in range(6):
        here.submit()
    offers = [one.expect("offer") for one in [stuck, *others]]
    for one, offer in zip(others, offers[1:], strict=True):
        one.start(offer)
    if verb != "start":
        stuck.start(offers[0])
    item = held(offers[0]) | ({"outcome": "SUCCEEDED"} if verb == "finish" else {})
    with row_locked(here.running, offers[0]["task"]["task_id"]):
        stuck.send(verb, seq=77, items=[item])
        for _ in range(3):
            for one, offer in zip(others, offers[1:], strict=True):
                begin = time.monotonic()
                assert one.renew(offer)[0]["status"] == "RENEWED"
                assert time.monotonic() - begin < 5
    answer = stuck.expect({"finish": "finished", "renew": "renewed", "start": "started"}[verb], timeout=30)
    assert answer["re"] == 77


def test_claims_that_hang_do_not_delay_the_control_loop(
    here: Node, worker: WorkerSocket, start_one: Offers, api: Api
) -> None:
    """Many workers that look for work in vain keep the claim pool busy; renewals go on."""
    offer = start_one()
    idle = [here.worker(capacity=1000, handlers=[(f"none-{n}", "v1")]) for n in range(10)]
    stop = threading.Event()

    def submit() -> None:
        with Api(here.running.url, here.running.aged.token) as caller:
            while not stop.is_set():
                caller.submit(here.queue_id, handler="nobody")

    submitter = threading.Thread(target=submit)
    submitter.start()
    try:
        for _ in range(20):
            begin = time.monotonic()
            assert worker.renew(offer)[0]["status"] == "RENEWED"
            assert time.monotonic() - begin < 5
    finally:
        stop.set()
        submitter.join()
    assert all(one.request("heartbeat")["type"] == "heartbeat_ack" for one in idle)


def test_metrics_show_the_pools_and_the_connections(here: Node, worker: WorkerSocket, api: Api) -> None:
    text = api.get("/metrics").body.decode()
    for name in ("orbit_pool_saturation", "orbit_worker_connections", "orbit_claim_requests", "orbit_node_attempts"):
        assert name in text
    assert 'pool="orbit-renewal"' in text
    assert json.dumps(worker.welcome["session_id"]) not in text
