"""The messages of the node protocol v2: what each frame type carries (design 4.7). Pure.

Types 0 to 9 are frozen: old nodes refuse an unknown field, so the builders of 0, 1 and 2 never gain one. Of what nodes
send, members that are not known are passed over, because nodes of other makes put more of their own state in an entry;
but a known name in another spelling (`operationIDs`) is refused: passing over it would acknowledge a report that was
not understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lifecycle_app.frames import Frame, FrameType, encode_frame
from lifecycle_app.limits import (
    FRAME_JSON_DEPTH_MAX,
    GID_MAX,
    GID_MIN,
    NODE_ERROR_LENGTH_MAX,
    REPORT_ID_LENGTH_MAX,
    REPORT_TASKS_MAX,
    REVISION_MAX,
    STORAGE_NODE_NAME_LENGTH_MAX,
)
from lifecycle_app.states import AckResult, CommandAction
from lifecycle_app.statuses import NodeStatus
from tasks_app.errors import InvalidArgument
from tasks_app.printable import printable_fault
from tasks_app.strict_json import Node, parse_document

PROTOCOL_VERSION = 2
RELIABLE_TASK_FEATURE = "reliable-task-v2"

_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,18})", re.ASCII)
_DECIMAL_GID = re.compile(r"[1-9]\d{0,18}", re.ASCII)
_TOKEN_LENGTH_MAX = 512
_OPERATION_ID_LENGTH_MAX = 128  # what is not 32 hex digits names no generation of ours, but it is not broken either
_FEATURES_MAX = 64


class MessageRefused(Exception):
    """A frame whose JSON is broken or not the message of its type. `detail` never holds a byte of what was sent."""

    def __init__(self, frame_type: FrameType, rule: str) -> None:
        self.detail = f"frame type {int(frame_type)}: {rule}"
        super().__init__(self.detail)


@dataclass(frozen=True)
class Identity:
    name: str
    token: str

    def __repr__(self) -> str:
        return f"Identity(name={self.name!r}, token=…)"  # a token must not reach a log by way of a traceback


@dataclass(frozen=True)
class ProtocolHello:
    protocol_version: int
    features: tuple[str, ...]

    @property
    def speaks_v2(self) -> bool:
        return self.protocol_version >= PROTOCOL_VERSION and RELIABLE_TASK_FEATURE in self.features


@dataclass(frozen=True)
class ReportedTask:
    """One entry of a report: what a node says about one gid. `operation_id` is None where it named none."""

    gid: int
    status: NodeStatus | None = None
    progress: int | None = None  # percent
    deleted: bool = False
    error: str | None = None
    operation_id: str | None = None


@dataclass(frozen=True)
class TaskReport:
    """Type 12; or type 3 of a legacy node, which has neither `report_id` nor `revision` and is not acknowledged."""

    report_id: str | None
    revision: int | None
    tasks: tuple[ReportedTask, ...]


# -- What nodes send


def parse_identity(frame: Frame) -> Identity:
    members = _object(frame, known=("name", "token"))
    name = _text(frame, members, "name", STORAGE_NODE_NAME_LENGTH_MAX)
    if printable_fault(name, length_max=STORAGE_NODE_NAME_LENGTH_MAX):
        raise MessageRefused(frame.type, "name is not a printable name")
    token = _text(frame, members, "token", _TOKEN_LENGTH_MAX) if _given(members, "token") else ""
    return Identity(name=name, token=token)


def parse_hello(frame: Frame) -> ProtocolHello:
    members = _object(frame, known=("protocolVersion", "features"))
    version = _integer(frame, members, "protocolVersion", 0, REVISION_MAX)
    features = members.get("features")
    if features is None or features.kind != "array" or features.size > _FEATURES_MAX:
        raise MessageRefused(frame.type, f"features must be an array of at most {_FEATURES_MAX} strings")
    nodes = features.elements()
    if any(node.kind != "string" for node in nodes):
        raise MessageRefused(frame.type, "features must be strings")
    return ProtocolHello(protocol_version=version, features=tuple(node.text for node in nodes))


def parse_report(frame: Frame) -> TaskReport:
    """Type 12."""
    members = _object(frame, known=("reportId", "revision", "galleryTasks", "operationIds"))
    report_id = _text(frame, members, "reportId", REPORT_ID_LENGTH_MAX)
    if not report_id or not report_id.isprintable():
        raise MessageRefused(frame.type, "reportId must be 1 to 128 characters, none of them a control character")
    revision = _integer(frame, members, "revision", 1, REVISION_MAX)
    operation_ids = _operation_ids(frame, members)
    tasks = tuple(_reported_task(frame, node, operation_ids) for node in _gallery_tasks(frame, members))
    return TaskReport(report_id=report_id, revision=revision, tasks=tasks)


def parse_legacy_status(frame: Frame) -> TaskReport:
    """Type 3: gid and status only, whatever else an old node may put beside them."""
    members = _object(frame, known=("galleryTasks",))
    tasks = []
    for node in _gallery_tasks(frame, members):
        entry = _entry(frame, node)
        if not _given(entry, "status"):
            raise MessageRefused(frame.type, "an entry of galleryTasks has no status")
        tasks.append(ReportedTask(gid=_gid(frame, entry), status=_status(frame, entry)))
    return TaskReport(report_id=None, revision=None, tasks=tuple(tasks))


# -- What the site sends


def build_identity(site_name: str) -> bytes:
    return _frame(FrameType.IDENTITY, {"name": site_name, "token": ""})


def build_hello() -> bytes:
    return _frame(FrameType.PROTOCOL_HELLO, {"protocolVersion": PROTOCOL_VERSION, "features": [RELIABLE_TASK_FEATURE]})


def build_command(*, operation_id: str, action: CommandAction, gid: int, name: str) -> bytes:
    return _frame(
        FrameType.TASK_COMMAND, {"operationId": operation_id, "action": action.value, "gid": gid, "name": name}
    )


def build_ack(*, report_id: str, result: AckResult) -> bytes:
    return _frame(FrameType.TASK_REPORT_ACK, {"reportId": report_id, "result": result.value})


def build_legacy_download(*, gid: int, name: str) -> bytes:
    return _frame(FrameType.DOWNLOAD_POST, {"gid": gid, "name": name})


def build_legacy_delete(*, gid: int) -> bytes:
    return _frame(FrameType.DELETE_GALLERY, {"gid": gid})


def _frame(frame_type: FrameType, members: dict[str, Any]) -> bytes:
    return encode_frame(frame_type, json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode())


# -- Typed members


def _object(frame: Frame, *, known: Iterable[str]) -> dict[str, Node]:
    try:
        document = parse_document(frame.body, depth_max=FRAME_JSON_DEPTH_MAX)
    except InvalidArgument:
        # The reader's sentence may quote a key, and nothing that was sent goes into a log.
        raise MessageRefused(frame.type, "is not strict JSON") from None
    if document.kind != "object":
        raise MessageRefused(frame.type, "is not a JSON object")
    return _checked(frame, document.members(), known)


def _checked(frame: Frame, members: dict[str, Node], known: Iterable[str]) -> dict[str, Node]:
    names = set(known)
    spellings = {_spelling(name) for name in names}
    for key in members:
        if key not in names and _spelling(key) in spellings:
            raise MessageRefused(frame.type, "has a member whose name is a known one in another spelling")
    return members


def _spelling(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _given(members: dict[str, Node], key: str) -> bool:
    """Serialisers of other languages write optional members that are not set as null."""
    return key in members and members[key].kind != "null"


def _text(frame: Frame, members: dict[str, Node], key: str, length_max: int) -> str:
    node = members.get(key)
    if node is None or node.kind != "string" or len(node.text) > length_max:
        raise MessageRefused(frame.type, f"{key} must be a string of at most {length_max} characters")
    return node.text


def _integer(frame: Frame, members: dict[str, Node], key: str, minimum: int, maximum: int) -> int:
    node = members.get(key)
    if node is None or node.kind != "number" or _INTEGER.fullmatch(node.raw) is None:
        raise MessageRefused(frame.type, f"{key} must be an integer")
    value = int(node.raw)
    if not minimum <= value <= maximum:
        raise MessageRefused(frame.type, f"{key} must lie between {minimum} and {maximum}")
    return value


def _operation_ids(frame: Frame, members: dict[str, Node]) -> dict[int, str]:
    if not _given(members, "operationIds"):
        return {}
    node = members["operationIds"]
    if node.kind != "object" or node.size > REPORT_TASKS_MAX:
        raise MessageRefused(frame.type, f"operationIds must be an object of at most {REPORT_TASKS_MAX} members")
    operation_ids: dict[int, str] = {}
    for key, value in node.members().items():
        if _DECIMAL_GID.fullmatch(key) is None or int(key) > GID_MAX:
            raise MessageRefused(frame.type, "a key of operationIds is not a gid in decimal")
        if value.kind != "string" or len(value.text) > _OPERATION_ID_LENGTH_MAX:
            raise MessageRefused(frame.type, "a value of operationIds is not an operation id")
        operation_ids[int(key)] = value.text
    return operation_ids


def _gallery_tasks(frame: Frame, members: dict[str, Node]) -> list[Node]:
    node = members.get("galleryTasks")
    if node is None or node.kind != "array" or node.size > REPORT_TASKS_MAX:
        raise MessageRefused(frame.type, f"galleryTasks must be an array of at most {REPORT_TASKS_MAX} entries")
    return node.elements()


def _entry(frame: Frame, node: Node) -> dict[str, Node]:
    if node.kind != "object":
        raise MessageRefused(frame.type, "an entry of galleryTasks is not an object")
    return _checked(frame, node.members(), ("gid", "status", "progress", "deleted", "error"))


def _reported_task(frame: Frame, node: Node, operation_ids: dict[int, str]) -> ReportedTask:
    entry = _entry(frame, node)
    gid = _gid(frame, entry)
    return ReportedTask(
        gid=gid,
        status=_status(frame, entry) if _given(entry, "status") else None,
        progress=_integer(frame, entry, "progress", 0, 100) if _given(entry, "progress") else None,
        deleted=_given(entry, "deleted") and _truth(frame, entry, "deleted"),
        error=_error(frame, entry) if _given(entry, "error") else None,
        operation_id=operation_ids.get(gid),
    )


def _gid(frame: Frame, entry: dict[str, Node]) -> int:
    return _integer(frame, entry, "gid", GID_MIN, GID_MAX)


def _status(frame: Frame, entry: dict[str, Node]) -> NodeStatus:
    return NodeStatus(_integer(frame, entry, "status", min(NodeStatus), max(NodeStatus)))


def _truth(frame: Frame, entry: dict[str, Node], key: str) -> bool:
    if entry[key].kind != "boolean":
        raise MessageRefused(frame.type, f"{key} must be a boolean")
    return entry[key].truth


def _error(frame: Frame, entry: dict[str, Node]) -> str:
    if entry["error"].kind != "string":
        raise MessageRefused(frame.type, "error must be a string")
    return entry["error"].text.replace("\x00", "�")[:NODE_ERROR_LENGTH_MAX]
