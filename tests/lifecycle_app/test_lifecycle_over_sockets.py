"""The lifecycle through real processes: Orbit nodes, an upstream, storage nodes over TCP and WebSocket."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
import time
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.lifecycle_app.running import is_ack, is_command
from tests.lifecycle_app.world import World, create, operation, reconcile
from tests.support.api import Api
from tests.support.fixtures import RunningOrbit
from tests.support.server import ROOT, free_port, manage, orbit_environ
from tests.support.waiting import eventually


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
def test_the_whole_story_over_sockets(world: World, transport: str):
    """create, progress, a lost ack, an outcome that is lost, reconcile, delete, tombstone, a new generation."""
    orbit = world.start()
    arguments = ("--url", f"{orbit.websocket_url}/v1/nodes/connect") if transport == "websocket" else ()
    node = world.storage_node("node-1", *arguments)
    api = world.api()
    first = create(api, 1)
    assert node.wait_for(is_command(1))["operationId"] == first["operation_id"]

    node.tell(do="lose_acks", count=1)
    node.tell(do="report", tasks=[{"gid": 1, "status": 1, "progress": 40}], report_id="r-1")
    assert node.wait_for(lambda event: event["event"] == "ack_lost")["result"] == "APPLIED"
    node.tell(do="disconnect")
    node.wait_for(lambda event: event["event"] == "closed")
    node.connect()
    assert node.wait_for(is_ack("r-1"))["result"] == "DUPLICATE"
    assert operation(api, 1) | {"progress": 40, "status": "DOWNLOADING", "last_revision": 1} == operation(api, 1)

    world.upstream.script("submit", 2, "drop_after_effect")
    unknown = create(api, 2, 202)
    assert unknown["state"] == "UNKNOWN"
    assert api.post("/v1/operations", {"gid": 2, "name": "n", "requester": "ana"}).expect(409).code == "ALREADY_EXISTS"
    assert not any(is_command(2)(event) for event in node.events)
    assert reconcile(api, 2, "LOOKUP")["lookup"]["found"] is True
    assert reconcile(api, 2, "SUBMITTED")["operation"]["state"] == "SUBMITTED"
    assert node.wait_for(is_command(2))["operationId"] == unknown["operation_id"]

    deleting = api.call("DELETE", "/v1/operations/1").expect(202).data["operation"]
    command = node.wait_for(is_command(1, "DELETE"))
    assert command["operationId"] == deleting["delete_operation_id"]
    node.tell(do="report", tasks=[{"gid": 1, "deleted": True}], report_id="gone")
    node.wait_for(is_ack("gone"))
    assert operation(api, 1)["state"] == "DELETED"
    after = len(node.events)
    again = create(api, 1)
    assert again["operation_id"] != first["operation_id"]
    assert node.wait_for(is_command(1), after=after)["operationId"] == again["operation_id"]
    world.assert_sound()


@pytest.mark.slow
def test_a_command_leaves_within_two_seconds_whichever_process_holds_the_connection(world: World):
    elsewhere = free_port()
    world.start(node_port=0, arguments=("--roles", "api"), ORBIT_NODE_ID="api")
    api = world.api()
    world.start(node_port=elsewhere, arguments=("--roles", "nodes"), ORBIT_NODE_ID="nodes")
    node = world.storage_node("node-1", port=elsewhere)
    for gid in range(1, 4):
        started = time.monotonic()
        made = create(api, gid)
        assert node.wait_for(is_command(gid))["operationId"] == made["operation_id"]
        assert time.monotonic() - started < 3  # 2 s and what a loaded machine adds


@pytest.mark.slow
def test_a_node_gateway_alone_serves_storage_nodes(world: World):
    world.start(node_port=0, arguments=("--roles", "api"), ORBIT_NODE_ID="api")
    process = subprocess.Popen(
        [sys.executable, "manage.py", "orbit_node_gateway", "--bind", f"127.0.0.1:{world.node_port}"],
        env=orbit_environ(world.database_url),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert "storage nodes connect to" in process.stdout.readline()
        world.storage_node("node-1", "--auto")
        create(world.api(), 1)
        eventually(lambda: operation(world.api(), 1)["status"] == "COMPLETE")
        world.assert_sound()
    finally:
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.slow
def test_a_restart_recovers_what_was_interrupted_at_once_and_sends_nothing(world: World):
    """重启恢复."""
    orbit = world.start(ORBIT_NODE_ID="the-node")
    world.upstream.script("submit", 1, "slow:2500")
    client = world.api()
    with pytest.raises(Exception, match="(?i)disconnect|closed|reset|read"):

        def kill_during_the_call() -> None:
            eventually(lambda: world.upstream.effects(1))
            orbit.kill()

        killer = threading.Thread(target=kill_during_the_call)
        killer.start()
        create(client, 1)
    killer.join()
    outside = world.outside
    assert outside.states() == {1: "SUBMITTING"}
    world.start(ORBIT_NODE_ID="the-node")
    assert outside.states() == {1: "UNKNOWN"}
    assert outside.shown() == {1: "SUBMIT_UNKNOWN"}
    node = world.storage_node()
    assert reconcile(world.api(), 1, "SUBMITTED")["operation"]["state"] == "SUBMITTED"
    node.wait_for(is_command(1))
    world.assert_sound()


@pytest.mark.slow
def test_an_orphan_is_unknown_within_35_seconds_of_its_owners_death(world: World):
    first = world.start(ORBIT_NODE_ID="first")
    world.upstream.script("submit", 1, "slow:2500")
    client = world.api()
    world.start(node_port=free_port(), ORBIT_NODE_ID="second")
    killed_at: list[float] = []

    def kill_during_the_call() -> None:
        eventually(lambda: world.upstream.effects(1))
        first.kill()
        killed_at.append(time.monotonic())

    killer = threading.Thread(target=kill_during_the_call)
    killer.start()
    with pytest.raises(Exception, match="(?i)disconnect|closed|reset|read"):
        create(client, 1)
    killer.join()
    outside = world.outside
    eventually(lambda: outside.states() == {1: "UNKNOWN"}, 40)
    assert time.monotonic() - killed_at[0] < 36
    world.assert_sound()


@pytest.mark.slow
def test_maintenance_alone_recovers_what_a_gone_node_left(world: World):
    orbit = world.start(ORBIT_NODE_ID="gone", ORBIT_TEST_FAULT_POINT="lifecycle.create.submitting:kill:1")
    with pytest.raises(httpx2.HTTPError):
        create(world.api(), 1)
    assert orbit.process is not None
    orbit.process.wait(20)
    assert world.outside.states() == {1: "SUBMITTING"}
    world.outside.execute("UPDATE orbit_node SET heartbeat_at = heartbeat_at - 31000000")
    process = subprocess.Popen(
        [sys.executable, "manage.py", "orbit_maintain"],
        env=orbit_environ(world.database_url),
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        eventually(lambda: world.outside.states() == {1: "UNKNOWN"})
    finally:
        process.terminate()
        assert process.wait(20) == 0
    world.assert_sound()


@pytest.mark.slow
def test_readiness_names_the_recovery(world: World):
    orbit = world.start()
    with Api(orbit.url, None) as api:
        checks = api.get("/readyz?verbose").expect(200).json["checks"]
    assert checks["lifecycle recovery"] == "ok"


# -- The WebSocket door


IDENTITY = {"name": "ws-node", "token": ""}
HELLO = {"protocolVersion": 2, "features": ["reliable-task-v2"]}


def frame(code: int, body: Any) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return struct.pack(">BI", code, len(data)) + data


def socket_to(orbit: RunningOrbit, token: str | None, **headers: str) -> ClientConnection:
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return connect(
        f"{orbit.websocket_url}/v1/nodes/connect", additional_headers=headers, compression=None, max_size=2**21
    )


def close_code(peer: ClientConnection) -> int | None:
    try:
        while True:
            peer.recv(timeout=10)
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd else None


class TestWebSocketDoor:
    def test_without_a_credential_401_without_the_action_403_before_any_upgrade(self, orbit_server: RunningOrbit):
        path = orbit_server.aged.path.with_name("no-nodes.json")
        manage(
            orbit_server.site.database_url,
            *("orbit_credential", "issue", "--application", "tests", "--namespace", "aged"),
            *("--actions", "tasks:read,workers:connect", "--output", str(path)),
        )
        without = json.loads(path.read_text())["token"]
        for token, status in ((None, 401), ("orbit_nonsense", 401), (without, 403)):
            with pytest.raises(InvalidStatus) as refused:
                socket_to(orbit_server, token)
            assert refused.value.response.status_code == status

    def test_a_browser_is_refused(self, orbit_server: RunningOrbit):
        for origin in ("https://evil.example", "null"):
            with pytest.raises(InvalidStatus) as refused:
                socket_to(orbit_server, orbit_server.aged.token, Origin=origin)
            assert refused.value.response.status_code == 403

    def test_several_frames_in_one_message_are_read(self, orbit_server: RunningOrbit):
        report = {"reportId": "r1", "revision": 1, "galleryTasks": [{"gid": 99, "status": 1}]}
        with socket_to(orbit_server, orbit_server.aged.token) as peer:
            peer.send(frame(0, IDENTITY) + frame(10, HELLO) + frame(12, report))
            received = b""
            while b"IGNORED" not in received:
                received += bytes(peer.recv(timeout=10))  # type: ignore[arg-type]
        assert received.endswith(frame(13, b'{"reportId":"r1","result":"IGNORED"}'))

    @pytest.mark.parametrize(
        ("message", "code"),
        [
            ("text", 4400),
            (b"", 4400),
            (frame(0, IDENTITY)[:-1], 4400),
            (frame(0, IDENTITY) + b"\x0c", 4400),
            (frame(14, {}), 4400),
            (frame(12, {}), 4400),
            (struct.pack(">BI", 0, 2**32 - 1), 1009),
            (frame(0, b"[" * 1000), 4400),
            (frame(0, {"name": "n", "token": "orbit_wrong"}), 4401),
        ],
        ids=["text", "empty", "half a frame", "trailing byte", "unknown type", "before identity", "oversize", "deep",
             "wrong token"],
    )  # fmt: skip
    def test_one_close_code_per_class(self, orbit_server: RunningOrbit, message, code):
        with socket_to(orbit_server, orbit_server.aged.token) as peer:
            peer.send(message)
            assert close_code(peer) == code

    def test_a_token_of_another_namespace_inside_is_forbidden(self, orbit_server: RunningOrbit):
        with socket_to(orbit_server, orbit_server.aged.token) as peer:
            peer.send(frame(0, {"name": "n", "token": orbit_server.foreign.token}))
            assert close_code(peer) == 4403

    def test_a_newer_connection_replaces_the_older(self, orbit_server: RunningOrbit):
        with socket_to(orbit_server, orbit_server.aged.token) as older:
            older.send(frame(0, IDENTITY) + frame(10, HELLO))
            with socket_to(orbit_server, orbit_server.aged.token) as newer:
                newer.send(frame(0, IDENTITY) + frame(10, HELLO))
                assert close_code(older) == 4409

    def test_no_identity_is_a_time_out(self, orbit_server: RunningOrbit):
        with socket_to(orbit_server, orbit_server.aged.token) as peer:
            assert close_code(peer) == 4408
