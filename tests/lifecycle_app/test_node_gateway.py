"""Storage nodes over real sockets: negotiation, reports, commands, and everything hostile (design 4.5, 4.7; F23)."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from django.db import DatabaseError

from lifecycle_app import node_session
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.models import RecoveryRun, StorageNode
from lifecycle_app.startup import StartOrder, StartOrderViolation
from lifecycle_app.states import Decision
from lifecycle_app.tcp import TcpNodeServer, TcpTransport
from tasks_app import ids, readiness
from tasks_app.domain import tenancy
from tasks_app.domain.audit import SYSTEM
from tasks_app.instants import process_now_us
from tasks_app.transactions import unit
from tests.lifecycle_app.running import RunningPart, is_ack, is_closed, is_command, protocol_of
from tests.lifecycle_app.site import Site, rows_of
from tests.support.waiting import eventually

GID = 7


@pytest.fixture
def running(site: Site) -> Iterator[RunningPart]:
    owner = Owner(site.owner.node_id, ids.new_id(process_now_us()))
    object.__setattr__(site, "owner", owner)
    with RunningPart(owner) as part:
        yield part


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two time-outs of 5 s, in a hurry."""
    monkeypatch.setattr(node_session, "HELLO_SECONDS", 0.3)
    monkeypatch.setattr(node_session, "IDENTITY_SECONDS", 0.3)


def frame(code: int, body: object) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return struct.pack(">BI", code, len(data)) + data


class TestNegotiation:
    def test_the_site_says_who_it_is_then_hello(self, site: Site, running: RunningPart):
        with socket.create_connection(("127.0.0.1", running.port), timeout=5) as peer:
            data = b""
            while data.count(b"}") < 2:
                data += peer.recv(4096)
        assert data == frame_compact(0, {"name": site.owner.node_id, "token": ""}) + frame_compact(
            10, {"protocolVersion": 2, "features": ["reliable-task-v2"]}
        )

    def test_a_node_that_answers_the_hello_speaks_v2(self, site: Site, running: RunningPart):
        running.negotiated(site.tenant.token)
        row = StorageNode.objects.get()
        assert (row.name, row.protocol, row.orbit_node_id) == ("node-1", "V2", site.owner.node_id)

    def test_a_node_that_does_not_is_legacy_and_shown_as_such(self, site: Site, running: RunningPart, hasty):
        node = running.negotiated(site.tenant.token, speaks_v2=False)
        site.submitted(GID)
        event = node.wait_for(is_command(GID))
        assert event == {"event": "command", "type": 1, "gid": GID, "name": "gallery 7"}
        node.legacy_status(GID, 1)
        eventually(lambda: site.shown(GID) == "DOWNLOADING")
        assert site.intent(GID).legacy is True
        site.delete(GID)
        assert node.wait_for(is_command(GID, "DELETE")) == {"event": "command", "type": 2, "gid": GID}
        assert not any(event["event"] == "ack" for event in node.events)
        site.reconcile(GID, Decision.DELETED)

    def test_leaving_is_written_down(self, site: Site, running: RunningPart):
        node = running.negotiated(site.tenant.token)
        node.disconnect()
        eventually(lambda: StorageNode.objects.get().connection_id is None)
        assert StorageNode.objects.get().disconnected_at is not None
        eventually(lambda: running.connected == 0)


def frame_compact(code: int, body: object) -> bytes:
    return frame(code, json.dumps(body, separators=(",", ":")).encode())


class TestReports:
    def given(self, site: Site, running: RunningPart):
        node = running.negotiated(site.tenant.token)
        intent = site.submitted(GID)
        assert node.wait_for(is_command(GID))["operationId"] == intent.operation_id
        return node

    def test_a_command_leaves_within_two_seconds_and_the_first_report_settles_it(self, site: Site, running):
        node = running.negotiated(site.tenant.token)
        started = time.monotonic()
        site.submitted(GID)
        node.wait_for(is_command(GID), seconds=2)
        assert time.monotonic() - started < 3
        report_id = node.report({"gid": GID, "status": 1, "progress": 10})
        assert node.wait_for(is_ack(report_id))["result"] == "APPLIED"
        node.disconnect()
        again = running.negotiated(site.tenant.token)
        ignored = again.report({"gid": 99, "status": 1})
        again.wait_for(is_ack(ignored))
        assert not any(event["event"] == "command" for event in again.events)

    def test_a_lost_ack_is_answered_again_and_told_once(self, site: Site, running: RunningPart):
        node = self.given(site, running)
        node.lose_acks(1)
        report_id = node.report({"gid": GID, "status": 1, "progress": 10})
        assert node.wait_for(lambda event: event["event"] == "ack_lost")["result"] == "APPLIED"
        node.disconnect()
        node.connect()  # sends its snapshot again
        assert node.wait_for(is_ack(report_id))["result"] == "DUPLICATE"
        assert site.told_people(GID) == ["SUBMITTED", "DOWNLOADING"]
        assert site.intent(GID).last_revision == 1

    def test_reports_out_of_order_end_at_the_newest(self, site: Site, running: RunningPart):
        node = self.given(site, running)
        ids_ = [
            node.report({"gid": GID, "status": status, "progress": percent}, hold=True)
            for status, percent in ((1, 10), (2, 100), (3, 100), (4, 100))
        ]
        node.send_held(backwards=True)
        results = [node.wait_for(is_ack(report_id))["result"] for report_id in ids_]
        assert results == ["IGNORED", "IGNORED", "IGNORED", "APPLIED"]
        assert site.shown(GID) == "COMPLETE"

    def test_reports_of_an_old_generation_are_ignored_and_acknowledged(self, site: Site, running: RunningPart):
        node = self.given(site, running)
        old = site.intent(GID).operation_id
        delete_id = site.delete(GID).delete_operation_id
        node.wait_for(is_command(GID, "DELETE"))
        node.wait_for(is_ack(node.report({"gid": GID, "deleted": True})))
        new = site.submitted(GID)
        late = node.report({"gid": GID, "status": 4}, operation_ids={str(GID): old})
        assert node.wait_for(is_ack(late))["result"] == "IGNORED"
        gone = node.report({"gid": GID, "deleted": True}, operation_ids={str(GID): str(delete_id)})
        assert node.wait_for(is_ack(gone))["result"] == "IGNORED"
        assert (site.state(GID), site.intent(GID).operation_id) == ("SUBMITTED", new.operation_id)

    def test_a_whole_life_by_itself(self, site: Site, running: RunningPart):
        node = running.negotiated(site.tenant.token, auto=True)
        node.fail_deletes(1)
        site.submitted(GID)
        eventually(lambda: site.shown(GID) == "COMPLETE")
        site.delete(GID)
        eventually(lambda: site.shown(GID) == "DELETE_FAILED")
        site.delete(GID)
        eventually(lambda: site.state(GID) == "DELETED")

    def test_what_the_database_could_not_take_is_not_acknowledged_and_the_connection_stays(
        self, site: Site, running: RunningPart, points
    ):
        node = self.given(site, running)

        def fail() -> None:
            raise DatabaseError("the disk is full")

        points.once("lifecycle.report.before_commit", fail)
        report_id = node.report({"gid": GID, "status": 1, "progress": 10})
        other = node.report({"gid": 99, "status": 1})  # behind it on the same connection
        node.wait_for(is_ack(other))
        assert not any(is_ack(report_id)(event) for event in node.events)
        assert count_receipts() == 1
        node.resend_unacknowledged()
        assert node.wait_for(is_ack(report_id))["result"] == "APPLIED"

    def test_many_frames_in_one_piece_and_one_frame_in_many_pieces(self, site: Site, running: RunningPart):
        node = self.given(site, running)
        names = [f"r{number}" for number in range(20)]
        entry = {"gid": 99, "status": 1}
        data = b"".join(
            frame(12, {"reportId": name, "revision": 1, "galleryTasks": [entry], "operationIds": {}}) for name in names
        )
        node.send_raw(data)
        for name in names:
            node.wait_for(is_ack(name))
        last = frame(12, {"reportId": "split", "revision": 1, "galleryTasks": [entry]})
        for at in range(len(last)):
            node.send_raw(last[at : at + 1])
        node.wait_for(is_ack("split"))


def count_receipts() -> int:
    return len(rows_of("orbit_report_receipt"))


class TestIdentity:
    def test_a_newer_connection_of_the_same_name_replaces_the_older(self, site: Site, running: RunningPart):
        first = running.negotiated(site.tenant.token)
        second = running.node(site.tenant.token)
        second.connect()
        second.wait_for(lambda event: event["event"] == "hello")
        first.wait_for(is_closed)
        second.wait_for(is_ack(second.report({"gid": 99, "status": 1})))
        eventually(lambda: running.connected == 1)
        assert StorageNode.objects.get().connection_id is not None

    def test_a_newer_connection_on_another_node_replaces_it_too(self, site: Site, running: RunningPart):
        first = running.negotiated(site.tenant.token)
        site.connect("node-1")  # as another process would
        first.wait_for(is_closed, seconds=5)
        assert StorageNode.objects.get().connection_id is not None

    def test_a_revoked_credential_closes_within_five_seconds(self, site: Site, running: RunningPart):
        node = running.negotiated(site.tenant.token)
        unit(lambda tx: tenancy.revoke_credential(tx, site.tenant.credential_id, actor=SYSTEM))
        node.wait_for(is_closed, seconds=5)
        late = running.node(site.tenant.token)
        late.connect()
        late.wait_for(is_closed)

    @pytest.mark.parametrize("token", ["", "orbit_wrong"])
    def test_a_bad_token_closes_and_makes_no_node(self, site: Site, running: RunningPart, token):
        node = running.node(token)
        node.connect()
        node.wait_for(is_closed)
        assert StorageNode.objects.count() == 0

    def test_nothing_said_for_five_seconds_closes(self, site: Site, running: RunningPart, hasty):
        with socket.create_connection(("127.0.0.1", running.port), timeout=5) as peer:
            peer.sendall(frame(0, {"name": "n", "token": "t"})[:-2])
            assert read_to_end(peer) >= 0

    def test_the_end_of_this_node_closes_its_connections(self, site: Site):
        owner = Owner(site.owner.node_id, ids.new_id(process_now_us()))
        with RunningPart(owner) as part:
            node = part.negotiated(site.tenant.token)
        node.wait_for(is_closed)
        assert StorageNode.objects.get().connection_id is None


def read_to_end(peer: socket.socket) -> int:
    """How many bytes came until the other side closed; a reset is an end too."""
    count = 0
    try:
        while data := peer.recv(65536):
            count += len(data)
    except ConnectionResetError:
        return count
    return count


REPORT = {"reportId": "r1", "revision": 1, "galleryTasks": [{"gid": GID, "status": 1}]}
SECRET = "the-payload-must-not-reach-a-log"

HOSTILE = {
    "unknown type": struct.pack(">BI", 14, 2) + b"{}",
    "length 0": struct.pack(">BI", 12, 0),
    "length 1": struct.pack(">BI", 12, 1) + b"{",
    "limit + 1": struct.pack(">BI", 12, 1024 * 1024 + 1),
    "2^31": struct.pack(">BI", 12, 2**31),
    "2^32 - 1": struct.pack(">BI", 12, 2**32 - 1),
    "limit of blanks": frame(12, b" " * 1024 * 1024),
    "shorter than sent": struct.pack(">BI", 12, 2) + b"{}" + SECRET.encode(),
    "scalar": frame(12, b"1"),
    "array": frame(12, [SECRET]),
    "invalid UTF-8": frame(12, b'{"reportId": "\xff' + SECRET.encode()),
    "duplicate key": frame(12, b'{"%s": 1, "%s": 2}' % (SECRET.encode(), SECRET.encode())),
    "deep": frame(12, b"[" * 100_000),
    "a hello again": frame(10, {"protocolVersion": 2, "features": []}),
    "an identity again": frame(0, {"name": SECRET, "token": SECRET}),
    "a command from a node": frame(11, {"operationId": SECRET}),
    "an ack from a node": frame(13, {"reportId": SECRET, "result": "APPLIED"}),
    "an old status after v2": frame(3, {"galleryTasks": []}),
}


class TestMaliciousFrames:
    @pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
    def test_it_closes_with_one_line_that_quotes_nothing_and_the_others_go_on(
        self, site: Site, running: RunningPart, caplog: pytest.LogCaptureFixture, data
    ):
        good = running.negotiated(site.tenant.token, "good")
        bad = running.negotiated(site.tenant.token, "bad")
        with caplog.at_level(logging.INFO, logger="orbit.lifecycle"):
            bad.send_raw(data)
            bad.wait_for(is_closed)
            eventually(lambda: protocol_of("bad") is None)
        lines = [record for record in caplog.records if "ended" in record.message]
        assert len(lines) == 1
        assert SECRET not in str(lines[0].__dict__)
        good.wait_for(is_ack(good.report({"gid": 99, "status": 1})))

    @pytest.mark.parametrize("code", range(1, 14))
    def test_before_the_identity_nothing_else_is_taken(self, site: Site, running: RunningPart, code):
        with socket.create_connection(("127.0.0.1", running.port), timeout=5) as peer:
            peer.sendall(frame(code, REPORT))
            read_to_end(peer)
        assert count_receipts() == 0

    def test_a_stranger_cannot_make_room_for_a_megabyte(self, site: Site, running: RunningPart):
        with socket.create_connection(("127.0.0.1", running.port), timeout=5) as peer:
            peer.sendall(struct.pack(">BI", 0, 5000))
            read_to_end(peer)

    def test_reserved_messages_are_passed_over(self, site: Site, running: RunningPart):
        node = running.negotiated(site.tenant.token)
        for code in range(4, 10):
            node.send_raw(frame(code, SECRET.encode()))
        node.wait_for(is_ack(node.report({"gid": 99, "status": 1})))

    def test_a_thousand_hostile_connections_leave_nothing_behind(self, site: Site, running: RunningPart):
        """In short: 150 connections by 3 senders, each with noise or a lying header, half of them reset."""
        seed = 20261130
        before = threading.active_count()

        def attack(number: int) -> None:
            dice = random.Random(seed + number)
            for _ in range(50):
                with socket.create_connection(("127.0.0.1", running.port), timeout=5) as peer:
                    noise = dice.choice(
                        [
                            dice.randbytes(dice.randrange(1, 200)),
                            struct.pack(">BI", dice.randrange(256), dice.randrange(2**32)),
                            frame(0, {"name": "n", "token": "t" * dice.randrange(600)}),
                            frame(0, {"name": "n", "token": site.tenant.token}) + dice.randbytes(50),
                        ]
                    )
                    try:
                        for at in range(0, len(noise), 7):
                            peer.sendall(noise[at : at + 7])
                        if dice.random() < 0.5:
                            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    except OSError:
                        continue

        senders = [threading.Thread(target=attack, args=(number,)) for number in range(3)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(60)
        eventually(lambda: running.connected == 0)
        assert threading.active_count() <= before
        node = running.negotiated(site.tenant.token, "after")
        node.wait_for(is_ack(node.report({"gid": 99, "status": 1})))


class TestSlowReader:
    async def test_a_node_that_does_not_read_is_cut(self, monkeypatch: pytest.MonkeyPatch):
        from lifecycle_app import tcp

        monkeypatch.setattr(tcp, "UNSENT_SECONDS_MAX", 0.2)
        outcome: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            transport = TcpTransport(writer)
            try:
                for _ in range(100):
                    await transport.send(b"x" * 1_000_000)
            except OSError as error:
                outcome.set_result(error)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()):
            error = await asyncio.wait_for(outcome, 20)
        server.close()
        assert isinstance(error, TimeoutError | ConnectionAbortedError)


class TestStart:
    """不变量 10: over sockets."""

    def test_a_listener_before_recovery_is_refused(self, site: Site):
        from lifecycle_app.domain import reporting
        from lifecycle_app.gateway import NodeGateway

        gateway = NodeGateway(site.owner, StartOrder(), report_handler=reporting.apply_report)
        with pytest.raises(StartOrderViolation):
            gateway.open()
        with pytest.raises(StartOrderViolation):
            asyncio.run(TcpNodeServer(gateway).listen("127.0.0.1", 0))
        gateway.pool.close()

    def test_when_recovery_fails_nodes_connect_and_nothing_is_dispatched_until_it_succeeds(self, site: Site, points):
        """恢复失败时只保持连接,禁止自动派发."""
        allowed = threading.Event()

        def fail() -> None:
            if not allowed.is_set():
                raise DatabaseError("recovery is broken")

        points["lifecycle.recovery.done"] = fail
        site.submitted(GID)
        owner = Owner(site.owner.node_id, ids.new_id(process_now_us()))
        with RunningPart(owner) as part:
            node = part.negotiated(site.tenant.token)
            assert part.part.order.may_connect and not part.part.order.may_dispatch
            assert "recovery" in str(part.part.order.problem())
            found = {finding.name: finding.problem for finding in readiness.findings()}
            assert found["lifecycle recovery"] is not None
            assert "recovery is broken" in str(RecoveryRun.objects.get(orbit_node_id=owner.node_id).error)
            node.wait_for(is_ack(node.report({"gid": 99, "status": 1})))  # reports are taken
            assert part.gateway.deliver_once() == 0
            assert not any(event["event"] == "command" for event in node.events)
            allowed.set()
            node.wait_for(is_command(GID), seconds=10)
            assert part.part.order.problem() is None
            assert RecoveryRun.objects.get(orbit_node_id=owner.node_id).error is None

    def test_what_an_earlier_process_left_is_recovered_before_anybody_may_connect(self, site: Site, points):
        site.submitted(GID)
        seen = []
        points["lifecycle.recovery.done"] = lambda: seen.append("recovered")
        owner = Owner(site.owner.node_id, ids.new_id(process_now_us()))
        with RunningPart(owner) as part:
            assert seen == ["recovered"]
            part.negotiated(site.tenant.token)
