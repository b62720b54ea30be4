"""How a node goes down (design 5.2; traps C25 and S6)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.orbit_project.serving.conftest import ROOT, TinyNode
from tests.orbit_project.serving.test_http_doors import assert_envelope
from tests.support.waiting import eventually

HOLD = b"GET /v1/hold HTTP/1.1\r\nHost: tiny\r\n\r\n"


@pytest.fixture
def node(start_node: Callable[..., TinyNode]) -> TinyNode:
    """A node of its own for each test, which ends it."""
    return start_node()


def test_idle_node_exits_with_0_and_stops_its_parts(node: TinyNode) -> None:
    node.terminate()
    assert node.process.wait(20) == 0
    eventually(lambda: "stopped" in node.lines)
    assert [line for line in node.lines if line in ("started", "draining", "stopped")] == [
        "started",
        "draining",
        "stopped",
    ]


def test_while_draining_new_requests_are_503_and_open_ones_end(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(env={"TINY_DRAIN_SECONDS": "30"}, drain=30)
    held = node.connect()
    held.send(HOLD)
    eventually(lambda: node.state()["calls"] == 1)
    node.terminate()
    eventually(lambda: node.get("/readyz").status == 503)
    refused = node.get("/v1/echo")
    assert_envelope(refused, 503, "UNAVAILABLE")
    assert refused.header("Retry-After") == "1"
    assert refused.header("Connection") == "close"
    assert_envelope(node.get("/admin/"), 503, "UNAVAILABLE")
    assert node.get("/healthz").status == 200
    assert node.process.poll() is None
    node.process.kill()


def test_request_in_flight_is_finished_before_the_exit(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(drain=20)
    held, release = node.connect(), node.connect()
    release.send(b"GET /state HTTP/1.1\r\nHost: tiny\r\n\r\n")
    release.read_reply()
    held.send(HOLD)
    eventually(lambda: node.state()["calls"] == 1)
    release.send(b"GET /release HTTP/1.1\r\nHost: tiny\r\n\r\n")
    node.terminate()
    assert held.read_reply().status == 200
    assert node.process.wait(20) == 0


def test_client_stuck_in_the_middle_of_an_upload_does_not_stop_the_exit(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(drain=20)
    uploader, silent = node.connect(), node.connect()
    uploader.send(b"POST /v1/echo HTTP/1.1\r\nHost: tiny\r\nContent-Length: 1000\r\n\r\nabc")
    node.get("/state")
    node.terminate()
    assert_envelope(uploader.read_reply(), 503, "UNAVAILABLE")
    assert silent.read_until_closed() == b""
    assert node.process.wait(20) == 0


def test_request_that_outlasts_the_time_out_is_cut_and_the_exit_is_0(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(drain=1)
    held = node.connect()
    held.send(HOLD)
    eventually(lambda: node.state()["calls"] == 1)
    node.terminate()
    assert node.process.wait(20) == 0
    assert any("drain ended" in line and "requests_open=1" in line for line in node.lines)


def test_open_websocket_is_closed_with_1012(node: TinyNode) -> None:
    with connect(f"{node.ws_url}/v1/echo") as socket:
        socket.send("x")
        socket.recv()
        node.terminate()
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
    assert node.process.wait(20) == 0


def test_part_that_is_not_drained_holds_the_exit_up_to_the_time_out(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(env={"TINY_DRAIN_SECONDS": "60"}, drain=1)
    node.terminate()
    assert node.process.wait(20) == 0
    assert any("drain ended" in line for line in node.lines)


def test_second_signal_ends_the_wait(start_node: Callable[..., TinyNode]) -> None:
    node = start_node(env={"TINY_DRAIN_SECONDS": "600"}, drain=600)
    node.terminate()
    eventually(lambda: node.get("/readyz").status == 503)
    node.process.send_signal(signal.SIGINT)
    assert node.process.wait(20) == 0


def test_address_in_use_is_an_error_and_not_a_silent_end(node: TinyNode) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "tests.orbit_project.serving.tiny_node", f"port={node.port}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode != 0
    assert "in use" in second.stderr
