"""Django behind the bounded pool: answers, saturation, clients that leave."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from tests.orbit_project.serving.conftest import TinyNode
from tests.orbit_project.serving.test_http_doors import assert_envelope
from tests.support.waiting import eventually

GET_HOLD = b"GET /v1/hold HTTP/1.1\r\nHost: tiny\r\n\r\n"


def test_requests_of_many_clients_run_in_the_threads_of_the_pool(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(threads=3)
    clients = [threading.Thread(target=lambda: [node.get("/v1/echo") for _ in range(10)]) for _ in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    state = node.state()
    assert state["calls"] == 80
    assert state["threads"] <= 3


def test_pipelined_requests_are_answered_in_order(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(b"".join(b"GET /v1/echo?n=%d HTTP/1.1\r\nHost: tiny\r\n\r\n" % n for n in range(5)))
    assert [connection.read_reply().json["query"] for _ in range(5)] == [f"n={n}" for n in range(5)]


def test_answer_carries_length_and_date_and_no_server_name(node: TinyNode) -> None:
    reply = node.get("/v1/echo")
    assert reply.header("Content-Length") == str(len(reply.body))
    assert reply.header("Date")
    assert reply.header("Server") is None


def test_head_answers_like_get_without_a_body(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(b"HEAD /v1/whole?pages=1 HTTP/1.1\r\nHost: tiny\r\n\r\n")
    head = connection.read_reply(head_only=True)
    assert (head.status, head.header("Content-Length")) == (200, "65536")
    connection.send(b"GET /v1/empty?status=204 HTTP/1.1\r\nHost: tiny\r\n\r\n")
    assert connection.read_reply().status == 204  # nothing of a body stood before it


def test_status_without_body_has_no_length(node: TinyNode) -> None:
    assert node.get("/v1/empty?status=204").header("Content-Length") is None


def test_long_answer_arrives_whole_and_in_little_memory(node: TinyNode) -> None:
    before = node.state()["rss_kib"]
    assert len(node.get("/v1/long?pages=800").body) == 800 * 65536  # 50 MiB, spooled
    assert node.state()["rss_kib"] - before < 20_000


def test_slow_reader_of_a_long_answer_holds_no_thread(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(threads=1)
    reader = node.connect(receive_buffer=4096)
    reader.send(b"GET /v1/long?pages=100 HTTP/1.1\r\nHost: tiny\r\n\r\n")
    reader.read_reply(head_only=True)
    assert node.get("/v1/echo").status == 200


def test_busy_pool_with_a_full_queue_answers_503_with_retry_after(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(threads=1, API_WAITING_PER_THREAD=2)
    held = [node.connect() for _ in range(3)]
    for connection in held:
        connection.send(GET_HOLD)
    eventually(lambda: node.get("/v1/echo").status == 503)
    reply = node.get("/v1/echo")
    assert_envelope(reply, 503, "UNAVAILABLE")
    assert reply.header("Retry-After") == "1"
    assert node.get("/healthz").status == 200  # the process is up, however busy its threads are


def test_client_that_leaves_before_its_turn_is_never_run(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(threads=1, API_WAITING_PER_THREAD=2)
    holder, leaver, waiter = node.connect(), node.connect(), node.connect()
    holder.send(GET_HOLD)
    leaver.send(GET_HOLD)
    waiter.send(GET_HOLD)
    eventually(lambda: node.get("/v1/echo").status == 503)  # all three are taken
    leaver.close()
    eventually(lambda: any("client_gone=True" in line for line in node.lines))
    node.process.send_signal(signal.SIGUSR1)  # lets go of what is held
    assert holder.read_reply().status == 200
    assert waiter.read_reply().status == 200
    assert node.state()["calls"] == 2


def test_room_of_a_client_that_left_is_given_to_the_next(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(threads=1, API_WAITING_PER_THREAD=1)
    holder, leaver = node.connect(), node.connect()
    holder.send(GET_HOLD)
    leaver.send(GET_HOLD)
    eventually(lambda: node.get("/v1/echo").status == 503)
    leaver.close()
    newcomer = node.connect()

    def is_let_in() -> bool:
        newcomer.send(b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\n\r\n")
        newcomer.socket.settimeout(0.2)
        try:
            return newcomer.read_reply().status != 503
        except TimeoutError:
            return True  # it waits for the thread
        finally:
            newcomer.socket.settimeout(20)

    eventually(is_let_in)
    node.process.send_signal(signal.SIGUSR1)
    assert newcomer.read_reply().status == 200


def test_failing_view_is_500_and_the_next_request_works(node: TinyNode) -> None:
    assert node.get("/v1/boom").status == 500
    assert node.get("/v1/echo").status == 200


def test_roles_decide_which_paths_are_served(start_node: Callable[..., TinyNode]) -> None:
    api = start_node(env={"TINY_ROLES": "api"})
    assert api.get("/v1/echo").status == 200
    assert_envelope(api.get("/admin/"), 404, "NOT_FOUND")
    admin = start_node(env={"TINY_ROLES": "admin"})
    assert admin.get("/admin/").status == 200
    assert_envelope(admin.get("/v1/echo"), 404, "NOT_FOUND")
    assert admin.get("/healthz").status == 200
