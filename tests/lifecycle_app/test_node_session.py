"""The session of a storage node, fed as the sockets would feed it."""

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lifecycle_app.frames import FrameType
from lifecycle_app.node_session import (
    Closed,
    CloseReason,
    Identified,
    Negotiated,
    NodeSession,
    PassedOver,
    Reported,
    SessionState,
)
from lifecycle_app.states import AckResult, CommandAction, StorageProtocol

T0 = 1000.0
OPERATION_ID = "0" * 31 + "a"
HELLO = {"protocolVersion": 2, "features": ["reliable-task-v2"]}
REPORT = {"reportId": "r1", "revision": 1, "galleryTasks": [{"gid": 5, "status": 1}]}
STATUS = {"galleryTasks": [{"gid": 5, "status": 1}]}


def frame(code: int, body: object) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return struct.pack(">BI", code, len(data)) + data


def sent(data: bytes) -> list[tuple[int, dict]]:
    found = []
    while data:
        code, length = struct.unpack(">BI", data[:5])
        found.append((code, json.loads(data[5 : 5 + length])))
        data = data[5 + length :]
    return found


def opened(**options) -> NodeSession:
    return NodeSession(site_name="orbit-1", now=T0, **options)


def identified(**options) -> NodeSession:
    session = opened(**options)
    session.take_output()
    session.receive(frame(0, {"name": "node-1", "token": "t"}))
    return session


def negotiating(**options) -> NodeSession:
    session = identified(**options)
    session.accept(now=T0 + 1)
    return session


def v2(**options) -> NodeSession:
    session = negotiating(**options)
    session.receive(frame(10, HELLO))
    return session


def legacy(**options) -> NodeSession:
    session = negotiating(**options)
    session.tick(now=T0 + 6)
    return session


def assert_closed(events, reason: CloseReason) -> Closed:
    (closed,) = [event for event in events if isinstance(event, Closed)]
    assert events[-1] is closed
    assert closed.reason is reason
    return closed


class TestOpening:
    def test_the_site_speaks_first_with_identity_then_hello(self):
        assert sent(opened().take_output()) == [(0, {"name": "orbit-1", "token": ""}), (10, HELLO)]

    def test_an_identity_asks_who_this_is(self):
        session = opened()
        (event,) = session.receive(frame(0, {"name": "node-1", "token": "t"}))
        assert isinstance(event, Identified)
        assert (event.identity.name, event.identity.token) == ("node-1", "t")
        assert session.state is SessionState.IDENTIFYING

    @pytest.mark.parametrize("code", range(1, 14))
    def test_nothing_else_is_accepted_before_it(self, code):
        assert_closed(opened().receive(frame(code, {})), CloseReason.PROTOCOL)

    def test_a_stranger_may_announce_no_more_than_an_identity_needs(self):
        assert_closed(opened().receive(struct.pack(">BI", 0, 4097)), CloseReason.OVERSIZE)

    def test_no_identity_within_five_seconds_closes(self):
        session = opened()
        assert session.deadline == T0 + 5
        assert session.tick(now=T0 + 4.9) == []
        assert_closed(session.tick(now=T0 + 5), CloseReason.TIMEOUT)

    def test_half_an_identity_does_not_stop_the_clock(self):
        session = opened()
        session.receive(frame(0, {"name": "node-1", "token": "t"})[:-1])
        assert_closed(session.tick(now=T0 + 5), CloseReason.TIMEOUT)

    def test_a_refused_identity_closes(self):
        assert_closed(
            identified().refuse(CloseReason.UNAUTHENTICATED, "no such credential"), CloseReason.UNAUTHENTICATED
        )

    def test_frames_that_came_with_the_identity_are_read_after_it_was_accepted(self):
        session = opened()
        glued = frame(0, {"name": "n", "token": "t"}) + frame(10, HELLO) + frame(12, REPORT)
        assert [type(event) for event in session.receive(glued)] == [Identified]
        assert [type(event) for event in session.accept(now=T0)] == [Negotiated, Reported]

    def test_frames_that_came_with_a_refused_identity_are_never_read(self):
        session = opened()
        session.receive(frame(0, {"name": "n", "token": "t"}) + frame(10, HELLO) + frame(12, REPORT))
        assert_closed(session.refuse(CloseReason.FORBIDDEN, "no"), CloseReason.FORBIDDEN)
        assert session.accept(now=T0) == []

    def test_what_is_held_while_asking_is_bounded(self):
        session = identified()
        piece = frame(10, b" " * 1_000_000)
        assert session.receive(piece) == []
        assert session.receive(piece) == []
        assert_closed(session.receive(piece), CloseReason.PROTOCOL)

    def test_the_identity_deadline_does_not_run_while_asking(self):
        assert identified().tick(now=T0 + 60) == []


class TestNegotiation:
    def test_a_hello_makes_it_version_2(self):
        session = negotiating()
        assert session.receive(frame(10, HELLO)) == [Negotiated(StorageProtocol.V2)]
        assert session.protocol is StorageProtocol.V2
        assert session.tick(now=T0 + 100) == []

    def test_no_hello_within_five_seconds_makes_it_legacy(self):
        session = negotiating()
        assert session.deadline == T0 + 6
        assert session.tick(now=T0 + 5.9) == []
        assert session.tick(now=T0 + 6) == [Negotiated(StorageProtocol.LEGACY)]

    def test_a_hello_without_the_feature_makes_it_legacy(self):
        session = negotiating()
        assert session.receive(frame(10, {"protocolVersion": 2, "features": []})) == [
            Negotiated(StorageProtocol.LEGACY)
        ]

    def test_an_old_node_may_report_before_the_five_seconds_are_over(self):
        session = negotiating()
        (event,) = session.receive(frame(3, STATUS))
        assert isinstance(event, Reported)
        assert session.state is SessionState.NEGOTIATING

    def test_no_command_is_sent_before_it_is_known_which_kind(self):
        with pytest.raises(ValueError, match="NEGOTIATING"):
            negotiating().command(operation_id=OPERATION_ID, action=CommandAction.DOWNLOAD, gid=5, name="n")

    @pytest.mark.parametrize("code", [0, 1, 2, 11, 12, 13])
    def test_other_types_close(self, code):
        assert_closed(negotiating().receive(frame(code, REPORT)), CloseReason.PROTOCOL)


class TestVersion2:
    def test_reports_arrive_and_are_acknowledged(self):
        session = v2()
        (event,) = session.receive(frame(12, REPORT))
        assert isinstance(event, Reported) and event.report.report_id == "r1"
        assert session.take_output() == b""  # not by itself: the caller commits first
        session.acknowledge(report_id="r1", result=AckResult.APPLIED)
        assert sent(session.take_output()) == [(13, {"reportId": "r1", "result": "APPLIED"})]

    def test_commands_carry_the_operation_id(self):
        session = v2()
        for action in CommandAction:
            session.command(operation_id=OPERATION_ID, action=action, gid=5, name="n")
        assert sent(session.take_output()) == [
            (11, {"operationId": OPERATION_ID, "action": action.value, "gid": 5, "name": "n"})
            for action in CommandAction
        ]

    @pytest.mark.parametrize("code", [0, 1, 2, 3, 10, 11, 13])
    def test_only_reports_may_come(self, code):
        assert_closed(v2().receive(frame(code, STATUS)), CloseReason.PROTOCOL)


class TestLegacy:
    def test_commands_are_the_old_messages_without_operation_id(self):
        session = legacy()
        session.command(operation_id=OPERATION_ID, action=CommandAction.DOWNLOAD, gid=5, name="n")
        session.command(operation_id=OPERATION_ID, action=CommandAction.DELETE, gid=5, name="n")
        assert sent(session.take_output()) == [(1, {"gid": 5, "name": "n"}), (2, {"gid": 5})]

    def test_statuses_arrive_and_nothing_is_acknowledged(self):
        session = legacy()
        (event,) = session.receive(frame(3, STATUS))
        assert isinstance(event, Reported) and event.report.report_id is None
        session.acknowledge(report_id="r1", result=AckResult.APPLIED)
        assert session.take_output() == b""

    @pytest.mark.parametrize("code", [0, 1, 2, 10, 11, 12, 13])
    def test_new_messages_close(self, code):
        assert_closed(legacy().receive(frame(code, REPORT)), CloseReason.PROTOCOL)


@pytest.mark.parametrize("make", [negotiating, v2, legacy])
@pytest.mark.parametrize("code", range(4, 10))
def test_reserved_legacy_messages_are_passed_over_unread(make, code):
    session = make()
    assert session.receive(frame(code, b"not even JSON")) == [PassedOver(FrameType(code))]
    assert session.state is not SessionState.CLOSED


F23 = {
    "unknown type": (struct.pack(">BI", 14, 2) + b"{}", CloseReason.PROTOCOL),
    "highest type": (struct.pack(">BI", 255, 2) + b"{}", CloseReason.PROTOCOL),
    "length 0": (struct.pack(">BI", 12, 0), CloseReason.PROTOCOL),
    "length 1": (struct.pack(">BI", 12, 1) + b"{", CloseReason.PROTOCOL),
    "length limit + 1": (struct.pack(">BI", 12, 1024 * 1024 + 1), CloseReason.OVERSIZE),
    "length 2^31": (struct.pack(">BI", 12, 2**31), CloseReason.OVERSIZE),
    "length 2^32 - 1": (struct.pack(">BI", 12, 2**32 - 1), CloseReason.OVERSIZE),
    "shorter than the bytes sent": (struct.pack(">BI", 12, 3) + json.dumps(REPORT).encode(), CloseReason.PROTOCOL),
    "scalar": (frame(12, b"1"), CloseReason.PROTOCOL),
    "array": (frame(12, b"[]"), CloseReason.PROTOCOL),
    "invalid UTF-8": (frame(12, b'{"reportId": "\xff"}'), CloseReason.PROTOCOL),
    "duplicate key": (frame(12, b'{"revision": 1, "revision": 1}'), CloseReason.PROTOCOL),
    "deep": (frame(12, b"[" * 500_000), CloseReason.PROTOCOL),
    "limit, all blanks": (frame(12, b" " * (1024 * 1024)), CloseReason.PROTOCOL),
}


@pytest.mark.parametrize(("data", "reason"), F23.values(), ids=F23.keys())
@pytest.mark.parametrize("split", [False, True])
def test_a_malicious_frame_closes_once_with_its_code_and_quotes_nothing(data, reason, split):
    session = v2()
    pieces = [data[at : at + 1] for at in range(min(len(data), 64))] + [data[64:]] if split else [data]
    events = [event for piece in pieces for event in session.receive(piece)]
    closed = assert_closed(events, reason)
    assert len(events) == 1
    assert len(closed.detail) < 120
    assert "r1" not in closed.detail
    assert session.receive(frame(12, REPORT)) == []
    assert session.tick(now=T0 + 1000) == []
    assert session._decoder.buffered == 0


def test_a_report_before_the_fault_still_counts():
    events = v2().receive(frame(12, REPORT) + struct.pack(">BI", 99, 0))
    assert [type(event) for event in events] == [Reported, Closed]


class TestWholeMessages:
    """Over WebSocket: one or more whole frames per message."""

    def test_several_frames_in_one_message_are_read(self):
        events = v2(whole_messages=True).receive(frame(12, REPORT) * 3)
        assert [type(event) for event in events] == [Reported] * 3

    @pytest.mark.parametrize("cut", [1, 4, 5, 6, -1])
    def test_a_frame_over_two_messages_is_refused(self, cut):
        assert_closed(v2(whole_messages=True).receive(frame(12, REPORT)[:cut]), CloseReason.PROTOCOL)

    def test_trailing_bytes_are_refused_before_anything_of_the_message_is_applied(self):
        assert_closed(v2(whole_messages=True).receive(frame(12, REPORT) + b"\x0c"), CloseReason.PROTOCOL)

    def test_an_empty_message_is_refused(self):
        assert_closed(v2(whole_messages=True).receive(b""), CloseReason.PROTOCOL)


conversation = st.lists(
    st.one_of(
        st.just(frame(0, {"name": "n", "token": "t"})),
        st.just(frame(10, HELLO)),
        st.just(frame(12, REPORT)),
        st.just(frame(3, STATUS)),
        st.just(frame(7, b"?")),
        st.binary(max_size=12),
    ),
    max_size=6,
)


def played(pieces: list[bytes]) -> list[object]:
    session = opened()
    events: list[object] = []
    for piece in pieces:
        batch = session.receive(piece)
        while batch:
            events += batch
            batch = session.accept(now=T0) if isinstance(batch[-1], Identified) else []
    return events


@settings(max_examples=200)
@given(conversation, st.lists(st.integers(0, 400), max_size=10))
def test_what_is_understood_does_not_depend_on_how_the_bytes_were_cut(parts, places):
    data = b"".join(parts)
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    pieces = [data[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]
    whole = played([data])
    assert played(pieces) == whole
    assert sum(isinstance(event, Closed) for event in whole) <= 1


class SessionModel(RuleBasedStateMachine):
    """Anything at any time: a session closes at most once, and never sends what was not negotiated."""

    @initialize(whole=st.booleans())
    def open(self, whole):
        self.now = T0
        self.session = NodeSession(site_name="s", now=self.now, whole_messages=whole)
        self.output = b""
        self.closed = 0

    def saw(self, events):
        self.closed += sum(isinstance(event, Closed) for event in events)

    @rule(data=st.sampled_from([frame(c, b) for c in (0, 3, 5, 10, 12, 14) for b in (HELLO, REPORT, STATUS, b"x")]))
    def feed(self, data):
        self.saw(self.session.receive(data))

    @rule(data=st.sampled_from([frame(0, {"name": "n", "token": "t"}), frame(10, HELLO), frame(12, REPORT)]))
    def feed_good(self, data):
        self.saw(self.session.receive(data))

    @rule(data=st.binary(max_size=8))
    def feed_noise(self, data):
        self.saw(self.session.receive(data))

    @rule()
    def accept(self):
        self.saw(self.session.accept(now=self.now))

    @rule()
    def refuse(self):
        self.saw(self.session.refuse(CloseReason.UNAUTHENTICATED, "no"))

    @rule(seconds=st.sampled_from([0.5, 3, 6]))
    def wait(self, seconds):
        self.now += seconds
        self.saw(self.session.tick(now=self.now))

    @precondition(lambda self: self.session.state in (SessionState.V2, SessionState.LEGACY, SessionState.CLOSED))
    @rule(action=st.sampled_from(CommandAction))
    def command(self, action):
        self.session.command(operation_id=OPERATION_ID, action=action, gid=5, name="n")

    @rule()
    def acknowledge(self):
        self.session.acknowledge(report_id="r", result=AckResult.IGNORED)

    @rule()
    def take(self):
        self.output += self.session.take_output()

    @invariant()
    def closes_at_most_once(self):
        if hasattr(self, "session"):
            assert self.closed <= 1
            assert (self.closed == 1) == (self.session.state is SessionState.CLOSED)

    def teardown(self):
        if hasattr(self, "session"):
            codes = {code for code, _ in sent(self.output + self.session.take_output())}
            assert not ({1, 2} & codes and {11, 13} & codes)


TestSessionModel = SessionModel.TestCase
TestSessionModel.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
