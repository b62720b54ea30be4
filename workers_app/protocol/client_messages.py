"""What a worker says: the messages of `orbit.worker.v1` from worker to server, read and validated (design, chapter 2).

Two kinds of fault are kept apart:

- What does not parse or validate (unknown type, field or enum word, wrong JSON type, missing field, a count or number
  outside its range where no item could answer for it) raises `ProtocolError`: the connection ends with 4400.
- What validates is judged item by item. An item with a fault says so itself (`lost`, `fault`, `progress_fault`), the
  others of its message are served as if it were not there.

`result` and `error.details` are kept as the JSON text that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from tasks_app.errors import InvalidArgument, OrbitError, PayloadTooLarge
from tasks_app.ids import is_id
from tasks_app.json_fields import Fields, read_array, read_object, read_string
from tasks_app.limits import (
    CAPACITY_MAX,
    CAPACITY_MIN,
    ERROR_CODE_LENGTH_MAX,
    ERROR_DETAILS_BYTES_MAX,
    ERROR_MESSAGE_LENGTH_MAX,
    HELLO_HANDLERS_MAX,
    HELLO_QUEUES_MAX,
    HORIZON_MS_MAX,
    MESSAGE_ITEMS_MAX,
    NAME_LENGTH_MAX,
    PROGRESS_MESSAGE_LENGTH_MAX,
    RESULT_BYTES_MAX,
    SDK_NAME_LENGTH_MAX,
)
from tasks_app.printable import printable_fault
from tasks_app.states import Policy
from tasks_app.strict_json import Node, parse_document
from workers_app.protocol.closing import ProtocolError

PROTOCOL_VERSION: Final = 1
SEQ_MAX: Final = 2**63 - 1
_FENCING_TOKEN = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_FENCING_TOKEN_MAX: Final = 2**63 - 1
_USUAL_TOKEN = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)  # surely within 63 bits
_HELD_MEMBERS: Final = frozenset({"attempt_id", "fencing_token"})
_FINISH_MEMBERS: Final = _HELD_MEMBERS | {"outcome"}
_ECHO_LENGTH_MAX: Final = 64  # of an `attempt_id` that is none: the answer names it, and stays small


_Item = TypeVar("_Item", bound="HeldItem")


class Outcome(StrEnum):
    """What a worker can report of an attempt."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True)
class Capability:
    """A handler in one version: what a worker can run, and what a task asks for. Compared byte for byte."""

    handler: str
    handler_version: str


@dataclass(frozen=True, slots=True)
class Hello:
    worker_name: str
    capacity: int
    queue_ids: tuple[str, ...]
    handlers: tuple[Capability, ...]
    resource_keys: bool
    normal_reserved_slots: int
    session_id: str | None
    sdk: str | None

    def check_policy(self, policy: Policy) -> None:
        """Raises ProtocolError if `normal_reserved_slots` does not fit the namespace's policy."""
        if policy == Policy.STRICT:
            if self.normal_reserved_slots >= self.capacity:
                raise ProtocolError("normal_reserved_slots: must be less than capacity")
        elif self.normal_reserved_slots:
            raise ProtocolError("normal_reserved_slots: must be 0 in an AGED namespace")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    seq: int


@dataclass(frozen=True, slots=True)
class Resize:
    seq: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Drain:
    seq: int


@dataclass(frozen=True, slots=True)
class HeldItem:
    """An attempt as its holder names it. `fencing_token` None: no id or token that Orbit could have issued, so LOST."""

    attempt_id: str
    fencing_token: int | None

    @property
    def lost(self) -> bool:
        return self.fencing_token is None


@dataclass(frozen=True, slots=True)
class Start:
    seq: int
    items: tuple[HeldItem, ...]


@dataclass(frozen=True, slots=True)
class Release:
    seq: int
    items: tuple[HeldItem, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    percent: int
    message: str | None


@dataclass(frozen=True, slots=True)
class RenewItem(HeldItem):
    """`progress_fault` says why a progress was not taken. The lease is renewed all the same."""

    progress: Progress | None
    progress_fault: str | None


@dataclass(frozen=True, slots=True)
class Renew:
    seq: int
    items: tuple[RenewItem, ...]


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """Why an attempt did not succeed. `details` is JSON text as sent."""

    code: str
    message: str
    details: str | None


@dataclass(frozen=True, slots=True)
class FinishItem(HeldItem):
    """`result` is JSON text, `null` by default where there can be one. With a `fault`: INVALID, the attempt goes on."""

    outcome: Outcome
    result: str | None
    error: ErrorReport | None
    retryable: bool
    retry_after_ms: int | None
    fault: OrbitError | None


@dataclass(frozen=True, slots=True)
class Finish:
    seq: int
    items: tuple[FinishItem, ...]


SequencedMessage = Heartbeat | Resize | Drain | Start | Renew | Finish | Release
ClientMessage = Hello | SequencedMessage


def parse_client_message(text: str) -> ClientMessage:
    """The message that a text frame is. Raises ProtocolError; a binary frame is refused by whoever received it."""
    seq: int | None = None
    try:
        node = parse_document(text)
        if node.kind != "object":
            raise InvalidArgument.field("", "must be an object")
        # Read before the rest is judged, so that a refusal can say what it answers.
        seq = _readable_seq(node)
        kind = _type_of(node)
        if kind == "hello":
            return _hello(node)
        read = _READERS.get(kind)
        if read is None:
            raise InvalidArgument.field("type", "is not a message of this protocol")
        return read(node, _seq_of(node))
    except InvalidArgument as fault:
        raise ProtocolError(fault.message, seq=seq) from None


def _type_of(node: Node) -> str:
    member = node.members().get("type")
    if member is None:
        raise InvalidArgument.field("type", "is required")
    return read_string(member)


def _readable_seq(node: Node) -> int | None:
    try:
        return _seq_of(node)
    except InvalidArgument:
        return None


def _seq_of(node: Node) -> int:
    member = node.members().get("seq")
    if member is None:
        raise InvalidArgument.field("seq", "is required")
    return _integer(Fields(node, node.members()), "seq", minimum=1, maximum=SEQ_MAX)


def _hello(node: Node) -> Hello:
    fields = read_object(
        node,
        required=("type", "protocol", "worker_name", "capacity", "queues", "handlers"),
        optional=("resource_keys", "normal_reserved_slots", "session_id", "sdk"),
    )
    if fields.required_integer("protocol") != PROTOCOL_VERSION:
        raise InvalidArgument.field("protocol", f"must be {PROTOCOL_VERSION}")
    queues = [read_string(queue) for queue in fields.required_elements("queues", at_least=1, at_most=HELLO_QUEUES_MAX)]
    for index, queue_id in enumerate(queues):
        if not is_id(queue_id):
            raise InvalidArgument.field(f"queues[{index}]", "must be an id: 32 lower-case hex digits")
    handlers = [
        _capability(handler) for handler in fields.required_elements("handlers", at_least=1, at_most=HELLO_HANDLERS_MAX)
    ]
    if len(set(queues)) != len(queues):
        raise InvalidArgument.field("queues", "must not name a queue twice")
    if len(set(handlers)) != len(handlers):
        raise InvalidArgument.field("handlers", "must not name a handler twice in one version")
    reserved = 0
    if "normal_reserved_slots" in fields:
        reserved = _integer(fields, "normal_reserved_slots", minimum=0, maximum=CAPACITY_MAX)
    return Hello(
        worker_name=_printable(fields, "worker_name", NAME_LENGTH_MAX),
        capacity=_integer(fields, "capacity", minimum=CAPACITY_MIN, maximum=CAPACITY_MAX),
        queue_ids=tuple(queues),
        handlers=tuple(handlers),
        resource_keys=fields.boolean("resource_keys") or False,
        normal_reserved_slots=reserved,
        session_id=fields.identity("session_id"),
        sdk=_printable(fields, "sdk", SDK_NAME_LENGTH_MAX) if fields.string("sdk") else None,
    )


def _capability(node: Node) -> Capability:
    fields = read_object(node, required=("handler", "handler_version"))
    return Capability(
        handler=_printable(fields, "handler", NAME_LENGTH_MAX),
        handler_version=_printable(fields, "handler_version", NAME_LENGTH_MAX),
    )


def _heartbeat(node: Node, seq: int) -> Heartbeat:
    read_object(node, required=("type", "seq"))
    return Heartbeat(seq=seq)


def _resize(node: Node, seq: int) -> Resize:
    fields = read_object(node, required=("type", "seq", "capacity"))
    return Resize(seq=seq, capacity=_integer(fields, "capacity", minimum=0, maximum=CAPACITY_MAX))


def _drain(node: Node, seq: int) -> Drain:
    read_object(node, required=("type", "seq"))
    return Drain(seq=seq)


def _start(node: Node, seq: int) -> Start:
    return Start(seq=seq, items=_items(node, _usual_held_item, _held_item))


def _release(node: Node, seq: int) -> Release:
    return Release(seq=seq, items=_items(node, _usual_held_item, _held_item))


def _renew(node: Node, seq: int) -> Renew:
    return Renew(seq=seq, items=_items(node, _usual_renew_item, _renew_item))


def _finish(node: Node, seq: int) -> Finish:
    return Finish(seq=seq, items=_items(node, _usual_finish_item, _finish_item))


def _items(node: Node, usual: Callable[[Any], _Item | None], general: Callable[[Node], _Item]) -> tuple[_Item, ...]:
    """The items of a message. Nearly all are of one usual, faultless form, which is told from the plain value at a
    fifth of the cost; `general` reads the others, and finds every fault."""
    member = read_object(node, required=("type", "seq", "items")).required_node("items")
    if member.kind == "array" and 1 <= member.size <= MESSAGE_ITEMS_MAX:
        items = [usual(value) for value in member.plain]
        if None not in items:
            return tuple(item for item in items if item is not None)
    elements = read_array(member, at_least=1, at_most=MESSAGE_ITEMS_MAX)
    return tuple(usual(element.plain) or general(element) for element in elements)


def _usual_holding(value: dict[str, Any]) -> tuple[str, int] | None:
    attempt_id, token = value["attempt_id"], value["fencing_token"]
    if not is_id(attempt_id) or type(token) is not str or _USUAL_TOKEN.fullmatch(token) is None:
        return None
    return attempt_id, int(token)


def _usual_held_item(value: Any) -> HeldItem | None:
    if type(value) is not dict or value.keys() != _HELD_MEMBERS:
        return None
    holding = _usual_holding(value)
    return None if holding is None else HeldItem(*holding)


def _usual_renew_item(value: Any) -> RenewItem | None:
    if type(value) is not dict or value.keys() != _HELD_MEMBERS:
        return None
    holding = _usual_holding(value)
    return None if holding is None else RenewItem(*holding, progress=None, progress_fault=None)


def _usual_finish_item(value: Any) -> FinishItem | None:
    """SUCCEEDED without a result."""
    if type(value) is not dict or value.keys() - {"result"} != _FINISH_MEMBERS:
        return None
    holding = _usual_holding(value)
    if holding is None or value["outcome"] != Outcome.SUCCEEDED or value.get("result") is not None:
        return None
    return FinishItem(*holding, Outcome.SUCCEEDED, "null", error=None, retryable=True, retry_after_ms=None, fault=None)


def _held_item(node: Node) -> HeldItem:
    attempt_id, token = _holding(read_object(node, required=("attempt_id", "fencing_token")))
    return HeldItem(attempt_id=attempt_id, fencing_token=token)


def _holding(fields: Fields) -> tuple[str, int | None]:
    attempt_id = _text(fields.required_node("attempt_id"))
    token = _text(fields.required_node("fencing_token"))
    if not is_id(attempt_id):
        return attempt_id[:_ECHO_LENGTH_MAX], None
    if _FENCING_TOKEN.fullmatch(token) is None or int(token) > _FENCING_TOKEN_MAX:
        return attempt_id, None
    return attempt_id, int(token)


def _renew_item(node: Node) -> RenewItem:
    fields = read_object(node, required=("attempt_id", "fencing_token"), optional=("progress",))
    attempt_id, token = _holding(fields)
    report = fields.object("progress", required=("percent",), optional=("message",))
    progress, fault = (None, None) if report is None else _progress(report)
    return RenewItem(attempt_id=attempt_id, fencing_token=token, progress=progress, progress_fault=fault)


def _progress(fields: Fields) -> tuple[Progress | None, str | None]:
    percent = fields.required_integer("percent")
    message_node = fields.node_of("message")
    message = None if message_node is None else _text(message_node)
    if not 0 <= percent <= 100:
        return None, "progress.percent must be 0 to 100"
    if message is not None and (reason := _text_fault(message, PROGRESS_MESSAGE_LENGTH_MAX)):
        return None, f"progress.message {reason}"
    return Progress(percent=percent, message=message), None


def _finish_item(node: Node) -> FinishItem:
    fields = read_object(
        node,
        required=("attempt_id", "fencing_token", "outcome"),
        optional=("result", "error", "retryable", "retry_after_ms"),
    )
    attempt_id, token = _holding(fields)
    word = fields.required_string("outcome")
    if word not in Outcome.__members__:
        raise InvalidArgument.field(fields.path("outcome"), f"must be one of {', '.join(Outcome)}")
    outcome = Outcome(word)
    error_fields = fields.object("error", required=("code", "message"), optional=("details",))
    error = None if error_fields is None else _error_report(error_fields)
    retryable = fields.boolean("retryable")
    retry_after_ms = fields.integer("retry_after_ms")
    result_node = fields.node_of("result")
    result = None if result_node is None else result_node.raw
    fault = (
        _combination_fault(outcome, fields.names())
        or (None if result is None else _size_fault("result", result, RESULT_BYTES_MAX))
        or (None if error is None else _error_fault(error))
    )
    if fault is None and retry_after_ms is not None and not 0 <= retry_after_ms <= HORIZON_MS_MAX:
        fault = InvalidArgument.field("retry_after_ms", f"must be 0 to {HORIZON_MS_MAX}", maximum=HORIZON_MS_MAX)
    if outcome == Outcome.SUCCEEDED and result is None:
        result = "null"
    return FinishItem(
        attempt_id=attempt_id,
        fencing_token=token,
        outcome=outcome,
        result=result,
        error=error,
        retryable=True if retryable is None else retryable,
        retry_after_ms=retry_after_ms,
        fault=fault,
    )


# What may stand beside an outcome. FAILED without `error` is refused on its own.
_MEMBERS_BY_OUTCOME: Final[dict[Outcome, frozenset[str]]] = {
    Outcome.SUCCEEDED: frozenset({"result"}),
    Outcome.FAILED: frozenset({"error", "retryable", "retry_after_ms"}),
    Outcome.CANCELED: frozenset({"error"}),
}
_REPORT_MEMBERS: Final = ("result", "error", "retryable", "retry_after_ms")


def _combination_fault(outcome: Outcome, names: frozenset[str]) -> OrbitError | None:
    for name in _REPORT_MEMBERS:
        if name in names and name not in _MEMBERS_BY_OUTCOME[outcome]:
            return InvalidArgument.field(name, f"does not go with outcome {outcome}")
    if outcome == Outcome.FAILED and "error" not in names:
        return InvalidArgument.field("error", "is required with outcome FAILED")
    return None


def _error_report(fields: Fields) -> ErrorReport:
    details = fields.node_of("details")
    return ErrorReport(
        code=_text(fields.required_node("code")),
        message=_text(fields.required_node("message")),
        details=None if details is None else details.raw,
    )


def _error_fault(error: ErrorReport) -> OrbitError | None:
    if reason := printable_fault(error.code, length_max=ERROR_CODE_LENGTH_MAX):
        return InvalidArgument.field("error.code", reason)
    if reason := _text_fault(error.message, ERROR_MESSAGE_LENGTH_MAX):
        return InvalidArgument.field("error.message", reason)
    return None if error.details is None else _size_fault("error.details", error.details, ERROR_DETAILS_BYTES_MAX)


def _size_fault(field: str, raw: str, bytes_max: int) -> OrbitError | None:
    size = len(raw) if raw.isascii() else len(raw.encode())
    if size <= bytes_max:
        return None
    reason = f"must be at most {bytes_max} bytes"
    return PayloadTooLarge(f"{field}: {reason}", details=[{"field": field, "reason": reason, "maximum": bytes_max}])


def _text(node: Node) -> str:
    """A string whose characters and length the item answers for, U+0000 included: a traceback may hold one, and that
    must not end a connection."""
    if node.kind != "string":
        return read_string(node)  # refuses it
    return node.text


def _text_fault(text: str, length_max: int) -> str | None:
    if len(text) > length_max:
        return f"must be at most {length_max} characters long"
    return "must not contain U+0000" if "\0" in text else None


def _integer(fields: Fields, name: str, *, minimum: int, maximum: int) -> int:
    value = fields.required_integer(name)
    if not minimum <= value <= maximum:
        raise InvalidArgument.field(
            fields.path(name), f"must be {minimum} to {maximum}", minimum=minimum, maximum=maximum
        )
    return value


def _printable(fields: Fields, name: str, length_max: int) -> str:
    text = fields.required_string(name)
    if reason := printable_fault(text, length_max=length_max):
        raise InvalidArgument.field(fields.path(name), reason)
    return text


_READERS: Final[dict[str, Callable[[Node, int], SequencedMessage]]] = {
    "heartbeat": _heartbeat,
    "resize": _resize,
    "drain": _drain,
    "start": _start,
    "renew": _renew,
    "finish": _finish,
    "release": _release,
}
