"""Long polls wait in the event loop, hear of changes, and never hold a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from tests.orbit_project.serving.conftest import TinyNode, seconds_of
from tests.support.waiting import eventually


@pytest.fixture
def node(start_node: Callable[..., TinyNode]) -> TinyNode:
    """A node of its own for each test, at revision 1."""
    return start_node()


def wait_request(wait_ms: int, revision: int = 1) -> bytes:
    return f"GET /v1/wait?wait_ms={wait_ms}&revision={revision} HTTP/1.1\r\nHost: tiny\r\n\r\n".encode()


def test_newer_state_is_answered_at_once(node: TinyNode) -> None:
    assert seconds_of(lambda: node.get("/v1/wait?wait_ms=20000&revision=0")) < 5


def test_wait_ends_with_its_time_and_the_current_state(node: TinyNode) -> None:
    begin = time.monotonic()
    reply = node.get("/v1/wait?wait_ms=600&revision=1")
    assert time.monotonic() - begin >= 0.6
    assert reply.json == {"revision": 1, "final": True}
    assert reply.header("X-Orbit-Wait") is None


def test_hint_of_this_node_ends_the_wait(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(wait_request(20_000))
    eventually(lambda: node.state()["calls"] == 1)
    node.get("/change?hint=1")
    reply = connection.read_reply()
    assert reply.json == {"revision": 2, "final": False}
    assert reply.header("X-Orbit-Wait") is None


def test_change_on_another_node_is_seen_without_a_hint(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(wait_request(20_000))
    eventually(lambda: node.state()["calls"] == 1)
    node.get("/change")
    assert connection.read_reply().json["revision"] == 2


def test_a_hundred_waiters_hold_no_thread(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(threads=2, API_WAITING_PER_THREAD=100)
    waiters = [node.connect() for _ in range(100)]
    for waiter in waiters:
        waiter.send(wait_request(25_000))
    eventually(lambda: node.state()["calls"] == 100)
    assert node.get("/v1/echo").status == 200
    node.get("/change?hint=1")
    assert {waiter.read_reply().json["revision"] for waiter in waiters} == {2}


def test_past_the_bound_a_wait_is_answered_at_once(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(LONG_POLLS_MAX=1)
    first = node.connect()
    first.send(wait_request(20_000))
    eventually(lambda: node.state()["calls"] == 1)
    assert seconds_of(lambda: node.get("/v1/wait?wait_ms=20000&revision=1")) < 5


def test_client_that_leaves_is_forgotten(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(LONG_POLLS_MAX=1)
    first = node.connect()
    first.send(wait_request(20_000))
    eventually(lambda: node.state()["calls"] == 1)
    first.close()
    second = node.connect()

    def waits() -> bool:
        second.send(wait_request(20_000))
        second.socket.settimeout(0.3)
        try:
            second.read_reply()
        except TimeoutError:
            return True
        return False

    eventually(waits)


def test_drain_answers_the_waiters_at_once(node: TinyNode) -> None:
    waiters = [node.connect() for _ in range(5)]
    for waiter in waiters:
        waiter.send(wait_request(25_000))
    eventually(lambda: node.state()["calls"] == 5)
    node.terminate()
    for waiter in waiters:
        reply = waiter.read_reply()
        assert reply.json == {"revision": 1, "final": True}
        assert reply.header("Connection") == "close"
    assert node.process.wait(20) == 0


def test_busy_subject_does_not_run_the_request_for_every_change(node: TinyNode) -> None:
    """A waiter whose view sees nothing new is run again at most every tenth of a second."""
    connection = node.connect()
    connection.send(wait_request(1500, revision=10_000))
    eventually(lambda: node.state()["calls"] == 1)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            node.get("/change?hint=1")

    changer = threading.Thread(target=change)
    changer.start()
    connection.read_reply()
    stop.set()
    changer.join()
    state = node.state()
    assert state["calls"] <= 20 < state["revision"]
