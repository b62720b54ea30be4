"""WebSockets at the door: handshakes, frames, silence, slow readers."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tasks_app import limits
from tests.orbit_project.serving.conftest import RawConnection, TinyNode
from tests.support.waiting import eventually


def handshake(path: str, *lines: str) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    head = [
        f"GET {path} HTTP/1.1",
        "Host: tiny",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        *lines,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


def frame(payload: bytes, opcode: int = 1, *, final: bool = True, length: int | None = None) -> bytes:
    """A masked frame (with a mask of zeros); `length` lets its header lie."""
    announced = len(payload) if length is None else length
    first = (0x80 if final else 0) | opcode
    if announced < 126:
        head = struct.pack("!BB", first, 0x80 | announced)
    elif announced < 65536:
        head = struct.pack("!BBH", first, 0x80 | 126, announced)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, announced)
    return head + b"\0\0\0\0" + payload


def opened(node: TinyNode, path: str, **options: int) -> RawConnection:
    connection = node.connect(**options)
    connection.send(handshake(path))
    assert connection.read_reply().status == 101
    return connection


def read_close(connection: RawConnection) -> tuple[int, str]:
    """The code and reason of the close frame, past whatever was sent before it."""
    data = connection.read_until_closed()
    while data:
        opcode, length, start = data[0] & 15, data[1] & 127, 2
        if length == 126:
            length, start = struct.unpack("!H", data[2:4])[0], 4
        elif length == 127:
            length, start = struct.unpack("!Q", data[2:10])[0], 10
        body, data = data[start : start + length], data[start + length :]
        if opcode == 8:
            return struct.unpack("!H", body[:2])[0], body[2:].decode()
    raise AssertionError("the connection ended without a close frame")


# -- Handshakes (design 2: HTTP statuses before any upgrade)


@pytest.mark.parametrize(
    ("close_code", "status", "code"),
    [
        (4400, 400, "INVALID_ARGUMENT"),
        (4401, 401, "UNAUTHENTICATED"),
        (4403, 403, "PERMISSION_DENIED"),
        (4404, 404, "NOT_FOUND"),
        (4429, 503, "UNAVAILABLE"),
        (1012, 503, "UNAVAILABLE"),
        (4000, 403, "PERMISSION_DENIED"),
    ],
)
def test_close_before_accept_is_a_status_with_the_envelope(
    node: TinyNode, close_code: int, status: int, code: str
) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        connect(f"{node.ws_url}/v1/deny/{close_code}")
    response = refusal.value.response
    assert response.status_code == status
    assert json.loads(response.body)["error"]["code"] == code
    assert response.headers["Content-Type"] == "application/json"
    if status == 401:
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
    if status == 503:
        assert response.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (handshake("/v1/echo").replace(b"Version: 13", b"Version: 12"), 400),
        (handshake("/v1/echo").replace(b"Connection: Upgrade\r\n", b""), 400),
        (handshake("/v1/echo").replace(b"GET", b"POST"), 405),
        (handshake("/v1/echo", "Origin: nonsense"), 400),
        (handshake("/v1/echo").replace(b"Sec-WebSocket-Key: ", b"Sec-WebSocket-Key: x"), 400),
    ],
)
def test_handshake_that_is_not_valid_is_refused_with_the_envelope(node: TinyNode, data: bytes, status: int) -> None:
    connection = node.connect()
    connection.send(data)
    reply = connection.read_reply()
    assert reply.status == status
    assert reply.json["error"]["code"] == "INVALID_ARGUMENT"


def test_application_that_does_not_decide_is_503_after_the_handshake_time(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(HANDSHAKE_SECONDS=1)
    connection = node.connect()
    connection.send(handshake("/v1/stuck"))
    assert connection.read_reply().status == 503


def test_application_that_fails_in_the_handshake_is_500(node: TinyNode) -> None:
    connection = node.connect()
    connection.send(handshake("/v1/fail"))
    assert connection.read_reply().status == 500


def test_subprotocol_is_agreed_on_and_compression_is_not(node: TinyNode) -> None:
    with connect(f"{node.ws_url}/v1/echo", subprotocols=["orbit.worker.v1"], compression="deflate") as websocket:  # type: ignore[list-item]
        assert websocket.subprotocol == "orbit.worker.v1"
        assert websocket.protocol.extensions == []
        websocket.send("hello")
        assert websocket.recv() == "hello"


def test_daphne_header_does_not_reach_the_application(node: TinyNode) -> None:
    with connect(f"{node.ws_url}/v1/echo", additional_headers={"Daphne-Root-Path": "/x", "X-Good": "1"}) as websocket:
        websocket.send("address?")
        answer = json.loads(websocket.recv())
    assert "x-good" in answer["headers"]
    assert "daphne-root-path" not in answer["headers"]


# -- Frames


def test_message_at_the_limit_passes(node: TinyNode) -> None:
    with connect(f"{node.ws_url}/v1/echo", max_size=None) as websocket:
        websocket.send("x" * limits.FRAME_BYTES_MAX)
        assert len(websocket.recv()) == limits.FRAME_BYTES_MAX


def test_frame_beyond_the_limit_is_1009_before_it_arrives(node: TinyNode) -> None:
    connection = opened(node, "/v1/echo")
    connection.send(frame(b"x", length=limits.FRAME_BYTES_MAX + 1))
    assert read_close(connection)[0] == 1009


def test_message_beyond_the_limit_in_fragments_is_1009(node: TinyNode) -> None:
    connection = opened(node, "/v1/echo")
    connection.send(frame(b"x" * 1024, final=False))
    for _ in range(1023):
        connection.send(frame(b"x" * 1024, opcode=0, final=False))
    connection.send(frame(b"x", opcode=0, final=True))
    assert read_close(connection)[0] == 1009


def test_text_that_is_not_utf8_is_1007(node: TinyNode) -> None:
    connection = opened(node, "/v1/echo")
    connection.send(frame(b"\xff\xfe"))
    assert read_close(connection)[0] == 1007


def test_unmasked_frame_is_a_protocol_error(node: TinyNode) -> None:
    connection = opened(node, "/v1/echo")
    connection.send(b"\x81\x01x")
    assert read_close(connection)[0] == 1002


@pytest.mark.parametrize("code", [1000, 1012, 4400, 4409, 4429])
def test_application_closes_with_any_code_and_reason(node: TinyNode, code: int) -> None:
    connection = opened(node, f"/v1/close/{code}")
    connection.send(frame(b"go"))
    assert read_close(connection) == (code, "asked")


# -- Silence and pings (monotonic, by whole frames)


def test_silent_connection_is_closed_with_4408(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(silence=1, TICK_SECONDS=0.1)
    connection = opened(node, "/v1/echo")
    assert read_close(connection)[0] == 4408


def test_frame_that_trickles_in_is_no_sign_of_life(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(silence=1, TICK_SECONDS=0.1)
    connection = opened(node, "/v1/echo")
    connection.send(frame(b"x", length=100_000))
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.1):
            try:
                connection.send(b"x")
            except OSError:
                return

    threading.Thread(target=trickle, daemon=True).start()
    try:
        assert read_close(connection)[0] == 4408
    finally:
        stop.set()


def test_pongs_alone_keep_a_connection_open(start_node: Callable[..., TinyNode]) -> None:
    """The client library answers pings by itself; nothing else is sent for three silences."""
    node = start_node(silence=1, PING_SECONDS=0.3, TICK_SECONDS=0.1)
    with connect(f"{node.ws_url}/v1/echo") as websocket:
        with pytest.raises(TimeoutError):
            websocket.recv(timeout=3)
        websocket.send("still here")
        assert websocket.recv() == "still here"


# -- Slow readers (4 MiB or 5 s unsent)


def test_sender_waits_for_a_slow_reader_and_memory_stays_flat(node: TinyNode) -> None:
    before = node.state()["rss_kib"]
    connection = opened(node, "/v1/flood/1000", receive_buffer=4096)  # 64 MiB
    eventually(lambda: node.state()["rss_kib"] > 0)
    assert node.state()["rss_kib"] - before < 10_000
    connection.close()


def test_reader_that_stops_is_cut_after_the_time_for_unsent_data(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(UNSENT_SECONDS_MAX=1, TICK_SECONDS=0.1)
    connection = opened(node, "/v1/flood/1000", receive_buffer=4096)
    begin = time.monotonic()
    eventually(lambda: any("unsent data for too long" in line for line in node.lines))
    assert time.monotonic() - begin < 10
    data = connection.read_until_closed()
    assert len(data) < 64 * 1024 * 1024


def test_reader_that_stops_is_cut_at_the_limit_of_unsent_bytes(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(UNSENT_SECONDS_MAX=600)
    connection = opened(node, "/v1/pour/200", receive_buffer=4096)  # 12.5 MiB from senders that do not wait
    eventually(lambda: any("too much unsent data" in line for line in node.lines))
    connection.close()


def test_steady_reader_gets_everything_however_much_it_is(node: TinyNode) -> None:
    with connect(f"{node.ws_url}/v1/flood/300", max_size=None) as websocket:
        assert sum(len(websocket.recv()) for _ in range(300)) == 300 * 65536


def test_flood_of_frames_to_an_application_that_does_not_read_stays_bounded(node: TinyNode) -> None:
    """Trap S1: the queue to the application has no bound of its own; reading stops instead."""
    before = node.state()["rss_kib"]
    connection = opened(node, "/v1/lazy/30")
    connection.socket.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        for _ in range(1000):
            connection.send(frame(b"x" * 65536))
            sent += 1
    assert sent < 300
    assert node.state()["rss_kib"] - before < 20_000
    connection.close()


def test_reading_goes_on_when_the_application_has_caught_up(node: TinyNode) -> None:
    with connect(f"{node.ws_url}/v1/lazy/0.5", max_size=None) as websocket:
        for number in range(500):
            websocket.send(str(number))
        assert [websocket.recv() for _ in range(500)] == [str(number) for number in range(500)]


def test_closed_socket_ends_its_application_quietly(node: TinyNode) -> None:
    before = len(node.lines)
    connection = opened(node, "/v1/flood/1000", receive_buffer=4096)
    connection.close()
    assert node.get("/v1/echo").status == 200
    assert not any("failed" in line for line in node.lines[before:])


def test_peer_that_vanishes_while_written_to_does_not_fail_the_application(node: TinyNode) -> None:
    before = len(node.lines)
    connection = opened(node, "/v1/echo")
    for _ in range(50):
        connection.send(frame(b"x" * 60_000))
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no goodbye
    connection.close()
    assert node.get("/v1/echo").status == 200
    assert not any("failed" in line for line in node.lines[before:])
