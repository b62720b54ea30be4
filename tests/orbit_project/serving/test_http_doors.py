"""HTTP as strangers meet it: sizes, slowness, malformed requests, full houses."""

from __future__ import annotations

import threading

import pytest

from tasks_app import limits
from tests.orbit_project.serving.conftest import RawConnection, Reply, TinyNode
from tests.support.waiting import eventually

KIB = 1024


def assert_envelope(reply: Reply, status: int, code: str) -> None:
    assert reply.status == status
    assert reply.header("Content-Type") == "application/json"
    assert reply.json["error"]["code"] == code
    assert len(reply.json["request_id"]) == 32
    assert reply.header("X-Request-Id") == reply.json["request_id"]


def post_head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: tiny", *lines]).encode() + b"\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}".encode() + b"\r\n" + data + b"\r\n"


# -- Size of a body (1.1)


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("/v1/echo", limits.BODY_BYTES_MAX),
        ("/v1/unknown", limits.BODY_BYTES_MAX),
        ("/admin/", limits.BODY_BYTES_MAX),
        ("/v1/tasks:batch", limits.BATCH_BODY_BYTES_MAX),
        ("/v1/tasks%3Abatch", limits.BATCH_BODY_BYTES_MAX),
        ("/v1/tasks:batch?x=1", limits.BATCH_BODY_BYTES_MAX),
    ],
)
def test_body_at_the_limit_passes_and_one_byte_more_is_413(node: TinyNode, path: str, limit: int) -> None:
    assert node.request("POST", path, b"x" * limit).status in (200, 404)
    reply = node.request("POST", path, b"x" * (limit + 1))
    assert_envelope(reply, 413, "PAYLOAD_TOO_LARGE")
    assert reply.header("Connection") == "close"
    assert reply.json["error"]["details"][0]["bytes_max"] == limit


def test_announced_length_is_refused_before_any_body_arrives(node: TinyNode) -> None:
    before = node.state()["calls"]
    connection = node.connect()
    connection.send(post_head("/v1/echo", f"Content-Length: {limits.BODY_BYTES_MAX + 1}"))
    assert_envelope(connection.read_reply(), 413, "PAYLOAD_TOO_LARGE")
    assert connection.read_until_closed() == b""
    assert node.state()["calls"] == before


def test_announced_length_is_refused_without_100_continue(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(post_head("/v1/echo", "Expect: 100-continue", f"Content-Length: {limits.BODY_BYTES_MAX + 1}"))
    assert connection.read_reply().status == 413


def test_body_that_fits_is_asked_for_with_100_continue(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(post_head("/v1/echo", "Expect: 100-continue", "Content-Length: 2"))
    assert connection.read_reply().status == 100
    connection.send(b"{}")
    assert connection.read_reply().json["body_bytes"] == 2


def test_chunked_body_is_refused_when_it_passes_the_limit_and_not_before(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(post_head("/v1/echo", "Transfer-Encoding: chunked"))
    for _ in range(limits.BODY_BYTES_MAX // (64 * KIB)):
        connection.send(chunked(b"x" * 64 * KIB))
    connection.send(chunked(b"x"))
    assert_envelope(connection.read_reply(), 413, "PAYLOAD_TOO_LARGE")


def test_chunked_body_at_the_limit_arrives_whole(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(post_head("/v1/echo", "Transfer-Encoding: chunked"))
    for _ in range(limits.BODY_BYTES_MAX // (64 * KIB)):
        connection.send(chunked(b"x" * 64 * KIB))
    connection.send(b"0\r\n\r\n")
    assert connection.read_reply().json["body_bytes"] == limits.BODY_BYTES_MAX


def test_client_that_goes_on_sending_still_reads_the_413(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(post_head("/v1/echo", f"Content-Length: {1024 * KIB}") + b"x" * 1024 * KIB)
    assert_envelope(connection.read_reply(), 413, "PAYLOAD_TOO_LARGE")


def test_too_large_body_is_refused_before_route_and_method(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(
        f"PURGE /nowhere HTTP/1.1\r\nHost: tiny\r\nContent-Length: {limits.BODY_BYTES_MAX + 1}\r\n\r\n".encode()
    )
    assert connection.read_reply().status == 413


def test_a_refused_upload_is_not_kept_in_memory(node: TinyNode) -> None:
    before = node.state()["rss_kib"]
    for _ in range(20):
        connection = node.connect()
        connection.send(post_head("/v1/echo", "Transfer-Encoding: chunked"))
        for _ in range(9):
            connection.send(chunked(b"x" * 64 * KIB))
        assert connection.read_reply().status == 413
        connection.close()
    assert node.state()["rss_kib"] - before < 8 * KIB


def test_bodies_together_stay_within_the_budget(start_node) -> None:
    node = start_node(UPLOADS_BYTES_MAX=300_000)

    def is_full() -> RawConnection | None:
        """An upload that takes most of the budget; None if the probe came before it had arrived."""
        upload = node.connect()
        upload.send(post_head("/v1/echo", "Content-Length: 250000") + b"x" * 249_999)
        if node.request("POST", "/v1/echo", b"x" * 100_000).status == 503:
            return upload
        upload.close()
        return None

    first = eventually(is_full)
    assert_envelope(node.request("POST", "/v1/echo", b"x" * 100_000), 503, "UNAVAILABLE")
    first.send(b"x")
    assert first.read_reply().status == 200
    assert node.request("POST", "/v1/echo", b"x" * 100_000).status == 200


# -- Malformed requests


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /v1/echo HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nContent-Length: -1\r\n\r\n",
        b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /v1/echo HTTP/1.1\r\nHost: tiny\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nBad Name: x\r\n\r\n",
        b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nX-Bad: a\x0bb\r\n\r\n",
        b"GET /v1/\xc3\xa9 HTTP/1.1\r\nHost: tiny\r\n\r\n",
        b"GET /v1/echo?\xc3\xa9 HTTP/1.1\r\nHost: tiny\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: tiny\r\n\r\n",
        b"GET /v1/echo HTTP/1.1\r\n" + b"X-Many: y\r\n" * 600 + b"\r\n",
        b"GET /v1/echo HTTP/1.1\r\nX-Long: " + b"y" * 17_000 + b"\r\n\r\n",
    ],
)
def test_malformed_request_is_400_in_the_envelope(node: TinyNode, data: bytes) -> None:
    before = node.state()["calls"]
    connection = node.connect()
    connection.send(data)
    assert_envelope(connection.read_reply(), 400, "INVALID_ARGUMENT")
    assert connection.read_until_closed() == b""
    assert node.state()["calls"] == before


# -- Headers and addresses


def test_headers_of_daphne_and_with_underscores_do_not_reach_the_application(node: TinyNode) -> None:
    reply = node.get("/v1/echo", **{"Daphne-Root-Path": "/evil", "X-Good": "1"})
    assert reply.json["script_name"] == ""
    assert reply.json["headers"]["X-Good"] == "1"
    connection = node.connect()
    connection.send(b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nX_Good: 2\r\n\r\n")
    assert "X-Good" not in connection.read_reply().json["headers"]


def test_repeated_headers_are_named(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\nIdempotency-Key: a\r\nIdempotency-Key: b\r\n\r\n")
    reply = connection.read_reply().json
    assert reply["repeated"] == ["idempotency-key"]
    assert reply["headers"]["Idempotency-Key"] == "a,b"


def test_forwarded_address_is_believed_only_from_a_trusted_proxy(start_node) -> None:
    forwarded = {"X-Forwarded-For": "198.51.100.7, 203.0.113.9", "X-Forwarded-Proto": "https"}
    plain = start_node().get("/v1/echo", **forwarded).json
    assert (plain["address"], plain["scheme"]) == ("127.0.0.1", "http")
    trusting = start_node(env={"TINY_PROXIES": "127.0.0.0/8"}).get("/v1/echo", **forwarded).json
    assert trusting["address"] == "203.0.113.9"


# -- Slowness (trap S3: every limit is a total)


def test_head_that_trickles_is_cut_at_the_total_deadline(start_node) -> None:
    node = start_node(HEAD_SECONDS=1, TICK_SECONDS=0.1)
    connection = node.connect()
    connection.send(b"GET /v1/echo HTTP/1.1\r\n")
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.1):
            try:
                connection.send(b"X-Drip: 1\r\n")
            except OSError:
                return

    threading.Thread(target=trickle, daemon=True).start()
    try:
        assert connection.read_reply().status == 408
    finally:
        stop.set()


def test_body_that_trickles_is_cut_at_the_total_deadline(start_node) -> None:
    node = start_node(HEAD_SECONDS=1, REQUEST_SECONDS=2, TICK_SECONDS=0.1)
    connection = node.connect()
    connection.send(post_head("/v1/echo", "Content-Length: 100000"))
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.1):
            try:
                connection.send(b"x")
            except OSError:
                return

    threading.Thread(target=trickle, daemon=True).start()
    try:
        assert_envelope(connection.read_reply(), 408, "INVALID_ARGUMENT")
    finally:
        stop.set()
    assert node.state()["calls"] == 0


def test_connection_that_says_nothing_is_closed_silently(start_node) -> None:
    connection = start_node(HEAD_SECONDS=1, TICK_SECONDS=0.1).connect()
    assert connection.read_until_closed() == b""


def test_idle_connection_is_closed_after_its_time_and_serves_until_then(start_node) -> None:
    connection = start_node(KEEP_ALIVE_SECONDS=1, TICK_SECONDS=0.1).connect()
    for _ in range(2):
        connection.send(b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\n\r\n")
        assert connection.read_reply().status == 200
    assert connection.read_until_closed() == b""


def test_answer_that_nobody_reads_is_dropped_and_its_connection_cut(start_node) -> None:
    node = start_node(UNREAD_RESPONSE_SECONDS=1, TICK_SECONDS=0.1)
    connection = node.connect(receive_buffer=4096)
    connection.send(b"GET /v1/whole?pages=200 HTTP/1.1\r\nHost: tiny\r\n\r\n")
    eventually(lambda: _is_cut(connection))


def _is_cut(connection: RawConnection) -> bool:
    """Whether the node reset the connection, seen without reading what it sent."""
    try:
        connection.send(b"\r\n")
    except OSError:
        return True
    return False


def test_two_hundred_slow_clients_do_not_keep_others_out(node: TinyNode) -> None:
    slow = [node.connect() for _ in range(200)]
    for index, connection in enumerate(slow):
        connection.send(
            b"GET /v1/echo HTTP/1.1\r\n" if index % 2 else post_head("/v1/echo", "Content-Length: 9") + b"x"
        )
    assert node.get("/v1/echo").status == 200
    for connection in slow:
        connection.close()


def test_full_house_gives_up_the_longest_idle_connection_for_a_new_one(start_node) -> None:
    node = start_node(CONNECTIONS_MAX=16)
    idle = [node.connect() for _ in range(16)]
    for connection in idle:
        connection.send(b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\n\r\n")
        connection.read_reply()
    assert node.get("/v1/echo").status == 200
    assert idle[0].read_until_closed() == b""
    idle[15].send(b"GET /v1/echo HTTP/1.1\r\nHost: tiny\r\n\r\n")
    assert idle[15].read_reply().status == 200


# -- The access log


def test_access_log_has_the_path_and_never_the_query_or_a_token(node: TinyNode) -> None:
    node.get("/v1/echo?secret=canary-query", Authorization="Bearer canary-token")
    line = eventually(lambda: next((line for line in node.lines if "path=/v1/echo" in line), None))
    assert "status=200" in line
    assert not any("canary" in line for line in node.lines)
