"""Hello, resume, takeover, silence, full nodes (design, chapter 2, Session)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.api import Api
from tests.support.fixtures import RunningOrbit
from tests.support.server import Credentials
from tests.support.waiting import eventually
from tests.support.worker_sockets import WorkerSocket
from tests.workers_app.conftest import Node

HELLO: dict[str, Any] = {
    "protocol": 1,
    "worker_name": "w",
    "capacity": 1,
    "handlers": [{"handler": "echo", "handler_version": "v1"}],
}


def assert_closed(socket: WorkerSocket, close_code: int, error_code: str) -> dict[str, Any]:
    """The server said why and closed; the error message."""
    assert socket.closed() == close_code
    errors = [message for message in socket.inbox if message["type"] == "error"]
    assert [error["code"] for error in errors] == [error_code]
    return errors[0]


# -- hello


def test_welcome_tells_the_session_and_the_times(connect_worker: Callable[..., WorkerSocket], queue_id: str) -> None:
    welcome = connect_worker().hello([queue_id])
    assert welcome == {
        "type": "welcome",
        "session_id": welcome["session_id"],
        "node_id": welcome["node_id"],
        "server_time": welcome["server_time"],
        "scan_cycle_ms": 1000,
        "reservation_ms": 10_000,
        "lease_ms": 30_000,
        "max_message_bytes": 1024 * 1024,
        "namespace_policy": "AGED",
        "resumed": False,
        "held": [],
    }
    assert len(welcome["session_id"]) == 32
    assert welcome["server_time"].endswith("Z")


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": 2},
        {"capacity": 0},
        {"capacity": 1001},
        {"handlers": []},
        {"worker_name": ""},
        {"unknown": 1},
        {"normal_reserved_slots": 1},  # AGED knows none
    ],
)
def test_hello_that_does_not_validate_is_4400(
    connect_worker: Callable[..., WorkerSocket], queue_id: str, changes: dict[str, Any]
) -> None:
    socket = connect_worker()
    socket.send("hello", **{**HELLO, "queues": [queue_id], **changes})
    assert_closed(socket, 4400, "INVALID_ARGUMENT")


def test_anything_before_hello_is_4400_and_names_its_seq(connect_worker: Callable[..., WorkerSocket]) -> None:
    socket = connect_worker()
    socket.send("heartbeat", seq=7)
    assert assert_closed(socket, 4400, "INVALID_ARGUMENT")["re"] == 7


def test_second_hello_is_4400(worker: WorkerSocket, queue_id: str) -> None:
    worker.send("hello", **HELLO, queues=[queue_id])
    assert_closed(worker, 4400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("frame", [b"{}", "not json", "[]", '{"type":"nonsense","seq":1}', '{"type":"heartbeat"}'])
def test_frame_that_is_no_message_is_4400(worker: WorkerSocket, frame: bytes | str) -> None:
    worker.connection.send(frame)
    assert_closed(worker, 4400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("kind", ["unknown", "foreign"])
def test_unknown_and_foreign_queue_are_4403_with_the_same_words(
    connect_worker: Callable[..., WorkerSocket], foreign_api: Api, kind: str
) -> None:
    queue_id = "0" * 32 if kind == "unknown" else str(foreign_api.make_queue()["queue_id"])
    socket = connect_worker()
    socket.send("hello", **HELLO, queues=[queue_id])
    error = assert_closed(socket, 4403, "PERMISSION_DENIED")
    assert error["message"] == "no such queue"


def test_queue_out_of_scope_is_4403(
    orbit_server: RunningOrbit,
    api: Api,
    connect_worker: Callable[..., WorkerSocket],
    issue_credential: Callable[..., Credentials],
) -> None:
    mine, other = api.make_queue(), api.make_queue()
    credentials = issue_credential(orbit_server, actions="workers:connect,workers:consume", queues=(mine["name"],))
    socket = connect_worker(token=credentials.token)
    socket.send("hello", **HELLO, queues=[other["queue_id"]])
    assert_closed(socket, 4403, "PERMISSION_DENIED")
    allowed = connect_worker(token=credentials.token)
    assert allowed.hello([mine["queue_id"]])["type"] == "welcome"


def test_credential_without_workers_consume_is_4403(
    orbit_server: RunningOrbit,
    queue_id: str,
    connect_worker: Callable[..., WorkerSocket],
    issue_credential: Callable[..., Credentials],
) -> None:
    credentials = issue_credential(orbit_server, actions="workers:connect")
    socket = connect_worker(token=credentials.token)
    socket.send("hello", **HELLO, queues=[queue_id])
    assert_closed(socket, 4403, "PERMISSION_DENIED")


def test_no_hello_in_time_is_4408(start_node: Callable[..., Node]) -> None:
    socket = start_node(ORBIT_HELLO_TIMEOUT_MS="500").socket()
    assert_closed(socket, 4408, "TIMED_OUT")


def test_node_that_is_full_says_so_with_4429_and_takes_the_next_when_one_leaves(
    start_node: Callable[..., Node],
) -> None:
    node = start_node(ORBIT_MAX_CONNECTIONS="2")
    first, _second = node.worker(), node.worker()
    assert_closed(node.socket(), 4429, "NODE_FULL")
    first.close()

    def is_let_in() -> bool:
        socket = node.socket()
        try:
            socket.send("hello", **HELLO, queues=[node.queue_id])
            return socket.expect("welcome", timeout=5)["type"] == "welcome"
        except (AssertionError, ConnectionClosed):
            return False

    eventually(is_let_in)


# -- heartbeat and resize


def test_heartbeat_is_acknowledged_with_the_servers_time(worker: WorkerSocket) -> None:
    answer = worker.request("heartbeat")
    assert answer["type"] == "heartbeat_ack"
    assert answer["server_time"].endswith("Z")


def test_every_message_gets_exactly_one_answer_whatever_its_seq(worker: WorkerSocket) -> None:
    for seq in (9, 3, 2**62, 1):
        worker.send("heartbeat", seq=seq)
    answers = [worker.expect("heartbeat_ack") for _ in range(4)]
    assert sorted(answer["re"] for answer in answers) == [1, 3, 9, 2**62]
    assert [message for message in worker.receive_for(0.3) if message["type"] != "offer"] == []


def test_resize_to_0_stops_offers_and_back_resumes_them(api: Api, worker: WorkerSocket, queue_id: str) -> None:
    assert worker.request("resize", capacity=0)["capacity"] == 0
    api.submit(queue_id).expect(201)
    assert worker.receive_for(1.5) == []
    assert worker.request("resize", capacity=1) == {"type": "resized", "re": 2, "capacity": 1}
    assert worker.expect("offer")["task"]["queue_id"] == queue_id


def test_resize_revokes_unstarted_reservations_beyond_it_newest_first(
    api: Api, worker: WorkerSocket, claim_one: Callable[..., dict[str, Any]]
) -> None:
    offers = [claim_one() for _ in range(4)]
    assert worker.start(offers[0])[0]["status"] == "STARTED"
    assert worker.request("resize", capacity=2)["capacity"] == 2
    revoked = [worker.expect("revoke") for _ in range(2)]
    assert {message["reason"] for message in revoked} == {"CAPACITY"}
    assert [message["attempt_id"] for message in revoked] == [offers[3]["attempt_id"], offers[2]["attempt_id"]]
    assert api.task(offers[3]["task"]["task_id"])["state"] == "READY"
    assert worker.start(offers[1])[0]["status"] == "STARTED"
    assert worker.start(offers[2])[0] == {
        "attempt_id": offers[2]["attempt_id"],
        "status": "REFUSED",
        "code": "LEASE_LOST",
    }


def test_resize_never_takes_what_has_started(worker: WorkerSocket, start_one: Callable[..., dict[str, Any]]) -> None:
    offers = [start_one(), start_one()]
    assert worker.request("resize", capacity=0)["capacity"] == 0
    assert [item["status"] for item in worker.renew(*offers)] == ["RENEWED", "RENEWED"]


# -- resume and takeover


def test_session_is_resumed_with_what_it_holds(here: Node) -> None:
    node = here
    worker = node.worker(capacity=3)
    node.submit()
    running = worker.expect("offer")
    worker.start(running)
    worker.close()
    eventually(lambda: _is_disconnected(node, worker))
    again = node.socket()
    welcome = again.hello([node.queue_id], capacity=3, session_id=worker.welcome["session_id"])
    assert welcome["resumed"] is True
    assert welcome["session_id"] == worker.welcome["session_id"]
    (held,) = welcome["held"]
    assert held == {
        "attempt_id": running["attempt_id"],
        "fencing_token": running["fencing_token"],
        "task_id": running["task"]["task_id"],
        "state": "RUNNING",
        "lease_until": held["lease_until"],
    }
    assert again.finish(running)["status"] == "COMMITTED"


def test_held_attempts_count_against_the_capacity_of_a_resumed_session(here: Node) -> None:
    node = here
    worker = node.worker(capacity=1)
    node.submit()
    running = worker.expect("offer")
    worker.start(running)
    worker.close()
    again = node.socket()
    again.hello([node.queue_id], capacity=1, session_id=worker.welcome["session_id"])
    node.submit()
    assert again.receive_for(1.3) == []
    assert again.finish(running)["status"] == "COMMITTED"
    assert again.expect("offer")


def test_session_is_resumed_on_another_node(here: Node, there: Node) -> None:
    worker = here.worker(capacity=2)
    here.submit()
    running = worker.expect("offer")
    worker.start(running)
    worker.close()
    again = there.socket()
    welcome = again.hello([there.queue_id], session_id=worker.welcome["session_id"])
    assert welcome["resumed"] is True
    assert [held["attempt_id"] for held in welcome["held"]] == [running["attempt_id"]]


@pytest.mark.parametrize("where", ["same node", "another node"])
def test_open_connection_of_a_resumed_session_is_closed_with_4409(here: Node, there: Node, where: str) -> None:
    there = here if where == "same node" else there
    old = here.worker(capacity=2)
    here.submit()
    here.submit()
    running, reserved = old.offers(2)
    old.start(running)
    new = there.socket()
    welcome = new.hello([here.queue_id], capacity=2, session_id=old.welcome["session_id"])
    assert welcome["resumed"] is True
    # Reservations go over with the session: the old connection's end gives nothing back.
    assert {held["attempt_id"]: held["state"] for held in welcome["held"]} == {
        running["attempt_id"]: "RUNNING",
        reserved["attempt_id"]: "RESERVED",
    }
    assert_closed(old, 4409, "SESSION_TAKEN_OVER")
    assert new.start(reserved)[0]["status"] == "STARTED"
    assert new.finish(running)["status"] == "COMMITTED"


def test_session_of_another_credential_is_not_resumed(
    orbit_server: RunningOrbit,
    queue_id: str,
    worker: WorkerSocket,
    connect_worker: Callable[..., WorkerSocket],
    issue_credential: Callable[..., Credentials],
) -> None:
    credentials = issue_credential(orbit_server, actions="workers:connect,workers:consume")
    other = connect_worker(token=credentials.token)
    welcome = other.hello([queue_id], session_id=worker.welcome["session_id"])
    assert welcome["resumed"] is False
    assert welcome["session_id"] != worker.welcome["session_id"]
    assert worker.request("heartbeat")["type"] == "heartbeat_ack"


def test_unknown_session_makes_a_new_one(connect_worker: Callable[..., WorkerSocket], queue_id: str) -> None:
    welcome = connect_worker().hello([queue_id], session_id="0" * 32)
    assert welcome["resumed"] is False
    assert welcome["session_id"] != "0" * 32


def test_restarted_worker_of_the_same_name_owns_nothing_of_the_old(
    api: Api, queue_id: str, worker: WorkerSocket, connect_worker: Callable[..., WorkerSocket]
) -> None:
    namesake = connect_worker()
    welcome = namesake.hello([queue_id], worker_name="the-same")
    second = connect_worker()
    again = second.hello([queue_id], worker_name="the-same")
    assert again["resumed"] is False
    assert again["session_id"] != welcome["session_id"]
    assert again["held"] == []


def test_new_hello_replaces_queues_and_handlers(here: Node) -> None:
    node = here
    worker = node.worker()
    worker.close()
    other = str(node.api.make_queue()["queue_id"])
    again = node.socket()
    again.hello([other], handlers=[("other", "v2")], session_id=worker.welcome["session_id"])
    node.submit()
    node.api.submit(other, handler="other", handler_version="v2").expect(201)
    assert again.expect("offer")["task"]["queue_id"] == other
    assert again.receive_for(0.5) == []


def _is_disconnected(node: Node, worker: WorkerSocket) -> bool:
    """The node's log says that it saw the close."""
    session_id = worker.welcome["session_id"]
    lines = node.running.server.log.read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return any(event["event"] == "connection lost" and event["session_id"] == session_id for event in events)
