"""The messages on the wire, locked: frame heads, field names, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lifecycle_app import messages
from lifecycle_app.frames import Frame, FrameType
from lifecycle_app.limits import GID_MAX
from lifecycle_app.messages import MessageRefused, ReportedTask
from lifecycle_app.states import AckResult, CommandAction
from lifecycle_app.statuses import NodeStatus

OPERATION_ID = "0" * 31 + "a"


def opened(frame: bytes) -> tuple[int, dict]:
    assert int.from_bytes(frame[1:5], "big") == len(frame) - 5
    return frame[0], json.loads(frame[5:])


def report(**members) -> Frame:
    body = {"reportId": "r1", "revision": 1, "galleryTasks": [], "operationIds": {}} | members
    return Frame(FrameType.TASK_REPORT, json.dumps({k: v for k, v in body.items() if v is not ...}).encode())


class TestTaskProtocolV2Codec:
    """TaskProtocolV2CodecTest 锁定类型 10..13 的帧头与字段名,并断言旧 DownloadPostMessage 没有混入新字段."""

    def test_type_10_hello(self):
        assert opened(messages.build_hello()) == (10, {"protocolVersion": 2, "features": ["reliable-task-v2"]})

    def test_type_11_command(self):
        frame = messages.build_command(
            operation_id=OPERATION_ID, action=CommandAction.DELETE, gid=GID_MAX, name="图库 1"
        )
        assert opened(frame) == (
            11,
            {"operationId": OPERATION_ID, "action": "DELETE", "gid": GID_MAX, "name": "图库 1"},
        )

    def test_type_12_report(self):
        parsed = messages.parse_report(
            report(
                revision=7,
                galleryTasks=[{"gid": 5, "status": 1, "progress": 40}, {"gid": 6, "deleted": True}],
                operationIds={"5": OPERATION_ID},
            )
        )
        assert (parsed.report_id, parsed.revision) == ("r1", 7)
        assert parsed.tasks == (
            ReportedTask(5, NodeStatus.DOWNLOADING, 40, operation_id=OPERATION_ID),
            ReportedTask(6, deleted=True),
        )

    def test_type_13_ack(self):
        for result in AckResult:
            frame = messages.build_ack(report_id="r1", result=result)
            assert opened(frame) == (13, {"reportId": "r1", "result": result.value})

    def test_old_messages_gained_no_field(self):
        assert opened(messages.build_identity("site")) == (0, {"name": "site", "token": ""})
        assert opened(messages.build_legacy_download(gid=5, name="n")) == (1, {"gid": 5, "name": "n"})
        assert opened(messages.build_legacy_delete(gid=5)) == (2, {"gid": 5})


def test_identity_is_read_and_its_token_is_hidden():
    identity = messages.parse_identity(Frame(FrameType.IDENTITY, b'{"name": "node-1", "token": "secret"}'))
    assert (identity.name, identity.token) == ("node-1", "secret")
    assert "secret" not in repr(identity)


@pytest.mark.parametrize("body", [b'{"name": "n"}', b'{"name": "n", "token": null}', b'{"name": "n", "token": ""}'])
def test_a_missing_token_is_an_empty_one(body):
    assert messages.parse_identity(Frame(FrameType.IDENTITY, body)).token == ""


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"token": "t"}',
        b'{"name": "", "token": "t"}',
        b'{"name": " n", "token": "t"}',
        b'{"name": "a\\u0000b", "token": "t"}',
        b'{"name": 1, "token": "t"}',
        b'{"name": "n", "token": 1}',
        b'{"name": "' + b"n" * 129 + b'", "token": "t"}',
        b'{"name": "n", "token": "' + b"t" * 513 + b'"}',
    ],
)
def test_an_identity_that_is_none_is_refused(body):
    with pytest.raises(MessageRefused):
        messages.parse_identity(Frame(FrameType.IDENTITY, body))


@pytest.mark.parametrize(
    ("body", "speaks_v2"),
    [
        ({"protocolVersion": 2, "features": ["reliable-task-v2"]}, True),
        ({"protocolVersion": 3, "features": ["x", "reliable-task-v2"]}, True),
        ({"protocolVersion": 2, "features": []}, False),
        ({"protocolVersion": 1, "features": ["reliable-task-v2"]}, False),
    ],
)
def test_a_hello_speaks_version_2_or_not(body, speaks_v2):
    frame = Frame(FrameType.PROTOCOL_HELLO, json.dumps(body).encode())
    assert messages.parse_hello(frame).speaks_v2 is speaks_v2


@pytest.mark.parametrize(
    "body", [{}, {"protocolVersion": "2", "features": []}, {"protocolVersion": 2, "features": [1]}, {"features": []}]
)
def test_a_broken_hello_is_refused(body):
    with pytest.raises(MessageRefused):
        messages.parse_hello(Frame(FrameType.PROTOCOL_HELLO, json.dumps(body).encode()))


BROKEN_JSON = {
    "empty": b"",
    "scalar": b"7",
    "string": b'"{}"',
    "null": b"null",
    "array": b"[]",
    "cut": b'{"reportId": "r1"',
    "trailing bytes": b'{"reportId": "r", "revision": 1, "galleryTasks": []} x',
    "two documents": b"{}{}",
    "invalid UTF-8": b'{"reportId": "\xff"}',
    "overlong UTF-8": b'{"reportId": "\xc0\xaf"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "lone surrogate": b'{"reportId": "\\ud800", "revision": 1, "galleryTasks": []}',
    "duplicate key": b'{"reportId": "r", "reportId": "r", "revision": 1, "galleryTasks": []}',
    "duplicate key deep": b'{"reportId": "r", "revision": 1, "galleryTasks": [{"gid": 1, "gid": 2}]}',
    "NaN": b'{"reportId": "r", "revision": NaN, "galleryTasks": []}',
    "deep": b'{"galleryTasks": ' + b"[" * 60_000 + b"]" * 60_000 + b"}",
    "single quotes": b"{'reportId': 1}",
}


@pytest.mark.parametrize("body", BROKEN_JSON.values(), ids=BROKEN_JSON.keys())
@pytest.mark.parametrize(
    ("frame_type", "parse"),
    [
        (FrameType.IDENTITY, messages.parse_identity),
        (FrameType.PROTOCOL_HELLO, messages.parse_hello),
        (FrameType.TASK_REPORT, messages.parse_report),
        (FrameType.GALLERY_STATUS, messages.parse_legacy_status),
    ],
)
def test_broken_json_is_refused_and_never_quoted(frame_type, parse, body):
    with pytest.raises(MessageRefused) as refused:
        parse(Frame(frame_type, body))
    assert refused.value.detail.startswith(f"frame type {int(frame_type)}: ")
    assert len(refused.value.detail) < 120


@pytest.mark.parametrize(
    "members",
    [
        {"reportId": ...},
        {"reportId": ""},
        {"reportId": "r" * 129},
        {"reportId": "a\x00b"},
        {"reportId": "a\nb"},
        {"reportId": 1},
        {"reportId": None},
        {"revision": ...},
        {"revision": 0},
        {"revision": -1},
        {"revision": 2**63},
        {"revision": 1.0},
        {"revision": "1"},
        {"revision": True},
        {"galleryTasks": ...},
        {"galleryTasks": {}},
        {"galleryTasks": None},
        {"galleryTasks": [1]},
        {"galleryTasks": [{}]},
        {"galleryTasks": [{"gid": 0}]},
        {"galleryTasks": [{"gid": -5}]},
        {"galleryTasks": [{"gid": 2**63}]},
        {"galleryTasks": [{"gid": "5"}]},
        {"galleryTasks": [{"gid": 5, "status": 0}]},
        {"galleryTasks": [{"gid": 5, "status": 5}]},
        {"galleryTasks": [{"gid": 5, "progress": -1}]},
        {"galleryTasks": [{"gid": 5, "progress": 101}]},
        {"galleryTasks": [{"gid": 5, "progress": 1.5}]},
        {"galleryTasks": [{"gid": 5, "deleted": 1}]},
        {"galleryTasks": [{"gid": 5, "error": {}}]},
        {"galleryTasks": [{"gid": 1}] * 10_001},
        {"operationIds": []},
        {"operationIds": {"x": OPERATION_ID}},
        {"operationIds": {"05": OPERATION_ID}},
        {"operationIds": {"5": 5}},
        {"operationIds": {"5": "a" * 129}},
        {"operationIds": {str(2**63): OPERATION_ID}},
    ],
    ids=lambda members: json.dumps({k: ("missing" if v is ... else v) for k, v in members.items()})[:60],
)
def test_a_report_that_is_not_one_is_refused(members):
    with pytest.raises(MessageRefused):
        messages.parse_report(report(**members))


@pytest.mark.parametrize("member", ["operationIDs", "operation_ids", "ReportId", "gallerytasks"])
def test_a_known_name_in_another_spelling_is_refused(member):
    """Passed over, it would acknowledge a report whose operation ids were not read."""
    with pytest.raises(MessageRefused, match="another spelling"):
        messages.parse_report(report(**{member: {}}))


def test_members_of_the_nodes_own_are_passed_over():
    parsed = messages.parse_report(report(galleryTasks=[{"gid": 5, "status": 2, "pages": 40}], nodeVersion="1.4"))
    assert parsed.tasks == (ReportedTask(5, NodeStatus.WAITING_COMPRESSION),)


def test_optional_members_may_be_written_as_null():
    entry = {"gid": 5, "status": None, "progress": None, "deleted": None, "error": None}
    assert messages.parse_report(report(galleryTasks=[entry], operationIds=None)).tasks == (ReportedTask(5),)


def test_an_error_is_kept_as_far_as_its_limit():
    parsed = messages.parse_report(report(galleryTasks=[{"gid": 5, "error": "x" * 5000}]))
    assert parsed.tasks[0].error == "x" * 1000


def test_a_legacy_status_has_no_report_id_and_no_revision():
    frame = Frame(FrameType.GALLERY_STATUS, b'{"galleryTasks": [{"gid": 5, "status": 4}]}')
    parsed = messages.parse_legacy_status(frame)
    assert (parsed.report_id, parsed.revision) == (None, None)
    assert parsed.tasks == (ReportedTask(5, NodeStatus.COMPLETE),)


def test_a_legacy_status_needs_a_status():
    with pytest.raises(MessageRefused):
        messages.parse_legacy_status(Frame(FrameType.GALLERY_STATUS, b'{"galleryTasks": [{"gid": 5}]}'))


scalars = st.sampled_from([None, True, False, 0, 1, -1, 2**63, 1.5, "", "r", "\u0000", OPERATION_ID])
names = st.sampled_from(["reportId", "revision", "galleryTasks", "operationIds", "gid", "status", "5", "x"])
entries = st.dictionaries(names, scalars, max_size=4)


@given(st.dictionaries(names, scalars | entries | st.lists(scalars | entries, max_size=3), max_size=6))
def test_any_json_is_a_message_or_refused(document):
    body = json.dumps(document).encode()
    for frame_type, parse in (
        (FrameType.IDENTITY, messages.parse_identity),
        (FrameType.PROTOCOL_HELLO, messages.parse_hello),
        (FrameType.TASK_REPORT, messages.parse_report),
        (FrameType.GALLERY_STATUS, messages.parse_legacy_status),
    ):
        try:
            parse(Frame(frame_type, body))
        except MessageRefused:
            pass


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(body):
    try:
        messages.parse_report(Frame(FrameType.TASK_REPORT, body))
    except MessageRefused:
        pass
