"""One connection with a storage node, from the site's side: bytes in, events and bytes out (design 4.7). Pure.

    OPEN --Identity--> IDENTIFYING --accept()--> NEGOTIATING --hello--> V2
                            |                        `--5 s without one--> LEGACY
                            `--refuse()--> CLOSED      (any fault closes, once, with one Closed event)

Both transports share it. The caller feeds what arrives, acts on the events, sends `take_output()`, and calls `tick`
when `deadline` has passed. While it asks the database who a node is, frames that came along are held unread. After a
Closed event nothing that still arrives has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from lifecycle_app import messages
from lifecycle_app.frames import Frame, FrameDecoder, FrameFault, FrameRefused, FrameType, check_whole
from lifecycle_app.limits import (
    FRAME_BYTES_MAX,
    HELLO_SECONDS,
    IDENTITY_SECONDS,
    PAUSED_BYTES_MAX,
    UNAUTHENTICATED_FRAME_BYTES_MAX,
)
from lifecycle_app.messages import MessageRefused, TaskReport
from lifecycle_app.states import AckResult, CommandAction, StorageProtocol


class SessionState(Enum):
    OPEN = auto()
    IDENTIFYING = auto()
    NEGOTIATING = auto()
    V2 = auto()
    LEGACY = auto()
    CLOSED = auto()


class CloseReason(Enum):
    """Why a connection ends, with its one WebSocket close code; TCP just closes."""

    PROTOCOL = 4400
    UNAUTHENTICATED = 4401
    FORBIDDEN = 4403
    TIMEOUT = 4408
    REPLACED = 4409
    OVERSIZE = 1009
    RESTART = 1012
    TRY_LATER = 1013


@dataclass(frozen=True)
class Identified:
    """Ask who this is, then call `accept` or `refuse`. The token is not part of its repr."""

    identity: messages.Identity


@dataclass(frozen=True)
class Negotiated:
    protocol: StorageProtocol


@dataclass(frozen=True)
class Reported:
    """Apply it; then, for a report with an id, `acknowledge` it, and only after the commit."""

    report: TaskReport


@dataclass(frozen=True)
class PassedOver:
    """A reserved legacy message: worth a log line, nothing else."""

    frame_type: FrameType


@dataclass(frozen=True)
class Closed:
    """The last event. `detail` is for the one log line: rules, types and lengths, nothing that was sent."""

    reason: CloseReason
    detail: str


Event = Identified | Negotiated | Reported | PassedOver | Closed

_LEGACY_RESERVED = frozenset(frame_type for frame_type in FrameType if FrameType.GALLERY_STATUS < frame_type < 10)


def _allow(types: frozenset[FrameType] | set[FrameType], length_max: int = FRAME_BYTES_MAX) -> Mapping[FrameType, int]:
    return dict.fromkeys(types, length_max)


# What a node may send in each state, and how long it may be. Everything else is refused on its header.
_ALLOWED: Mapping[SessionState, Mapping[FrameType, int]] = {
    SessionState.OPEN: _allow({FrameType.IDENTITY}, UNAUTHENTICATED_FRAME_BYTES_MAX),
    SessionState.NEGOTIATING: _allow(_LEGACY_RESERVED | {FrameType.PROTOCOL_HELLO, FrameType.GALLERY_STATUS}),
    SessionState.V2: _allow(_LEGACY_RESERVED | {FrameType.TASK_REPORT}),
    SessionState.LEGACY: _allow(_LEGACY_RESERVED | {FrameType.GALLERY_STATUS}),
}
_READING = frozenset(_ALLOWED)


class NodeSession:
    """`now` is a monotonic clock in seconds, given by the caller and read nowhere else."""

    def __init__(self, *, site_name: str, now: float, whole_messages: bool = False) -> None:
        """`whole_messages`: each `receive` is one WebSocket message, which must hold whole frames."""
        self._decoder = FrameDecoder(_ALLOWED[SessionState.OPEN])
        self._whole_messages = whole_messages
        self._output = bytearray(messages.build_identity(site_name) + messages.build_hello())
        self.state = SessionState.OPEN
        self.deadline: float | None = now + IDENTITY_SECONDS

    def receive(self, data: bytes) -> list[Event]:
        """Takes bytes in. The events are in the order of the frames; a fault ends them with Closed."""
        if self.state is SessionState.CLOSED:
            return []
        if self._whole_messages:
            try:
                check_whole(data)
            except FrameRefused as refused:
                return [self._closed_by(refused)]
        if self.state is SessionState.IDENTIFYING and self._decoder.buffered + len(data) > PAUSED_BYTES_MAX:
            return [self.close(CloseReason.PROTOCOL, "too many bytes before the identity was settled")]
        self._decoder.feed(data)
        return self._read()

    def accept(self, *, now: float) -> list[Event]:
        """The node is who it says: reads on, frames that were held first."""
        if self.state is not SessionState.IDENTIFYING:
            return []
        self._enter(SessionState.NEGOTIATING, deadline=now + HELLO_SECONDS)
        return self._read()

    def refuse(self, reason: CloseReason, detail: str) -> list[Event]:
        """The node is not who it says, or nobody could say."""
        return [] if self.state is SessionState.CLOSED else [self.close(reason, detail)]

    def tick(self, *, now: float) -> list[Event]:
        """Acts when `deadline` has passed; harmless at any other time."""
        if self.deadline is None or now < self.deadline:
            return []
        if self.state is SessionState.NEGOTIATING:
            self._enter(SessionState.LEGACY, deadline=None)
            return [Negotiated(StorageProtocol.LEGACY)]
        return [self.close(CloseReason.TIMEOUT, f"no identity within {IDENTITY_SECONDS} s")]

    def command(self, *, operation_id: str, action: CommandAction, gid: int, name: str) -> None:
        """Puts a command out, as type 11 or, for a legacy node, as the old message without an operation id.

        Only after the negotiation: until then nobody knows which of the two the node understands.
        """
        if self.state is SessionState.V2:
            self._output += messages.build_command(operation_id=operation_id, action=action, gid=gid, name=name)
        elif self.state is SessionState.LEGACY and action is CommandAction.DOWNLOAD:
            self._output += messages.build_legacy_download(gid=gid, name=name)
        elif self.state is SessionState.LEGACY:
            self._output += messages.build_legacy_delete(gid=gid)
        elif self.state is not SessionState.CLOSED:
            raise ValueError(f"no command may be sent in state {self.state.name}")

    def acknowledge(self, *, report_id: str, result: AckResult) -> None:
        """Puts an acknowledgement out. The caller has committed."""
        if self.state is SessionState.V2:
            self._output += messages.build_ack(report_id=report_id, result=result)

    def close(self, reason: CloseReason, detail: str) -> Closed:
        """Ends the session from this side. Output that was not taken yet is still to be sent."""
        self._enter(SessionState.CLOSED, deadline=None)
        return Closed(reason, detail)

    def take_output(self) -> bytes:
        """The bytes to send since the last call."""
        output, self._output = bytes(self._output), bytearray()
        return output

    @property
    def protocol(self) -> StorageProtocol:
        if self.state is SessionState.V2:
            return StorageProtocol.V2
        return StorageProtocol.LEGACY if self.state is SessionState.LEGACY else StorageProtocol.NEGOTIATING

    def _enter(self, state: SessionState, *, deadline: float | None) -> None:
        self.state = state
        self.deadline = deadline
        if state in _READING:
            self._decoder.lengths_max = _ALLOWED[state]
        elif state is SessionState.CLOSED:
            self._decoder = FrameDecoder({})  # lets go of what a stranger made us hold

    def _read(self) -> list[Event]:
        """Frames one at a time, because each may change what the next is allowed to be."""
        events: list[Event] = []
        try:
            while self.state in _READING and (frame := self._decoder.next_frame()) is not None:
                events.append(self._event_of(frame))
        except FrameRefused as refused:
            events.append(self._closed_by(refused))
        except MessageRefused as refused:
            events.append(self.close(CloseReason.PROTOCOL, refused.detail))
        return events

    def _event_of(self, frame: Frame) -> Event:
        if frame.type is FrameType.IDENTITY:
            identity = messages.parse_identity(frame)
            self._enter(SessionState.IDENTIFYING, deadline=None)
            return Identified(identity)
        if frame.type is FrameType.PROTOCOL_HELLO:
            speaks_v2 = messages.parse_hello(frame).speaks_v2
            self._enter(SessionState.V2 if speaks_v2 else SessionState.LEGACY, deadline=None)
            return Negotiated(self.protocol)
        if frame.type is FrameType.TASK_REPORT:
            return Reported(messages.parse_report(frame))
        if frame.type is FrameType.GALLERY_STATUS:
            return Reported(messages.parse_legacy_status(frame))
        return PassedOver(frame.type)

    def _closed_by(self, refused: FrameRefused) -> Closed:
        oversize = refused.fault is FrameFault.OVERSIZE
        return self.close(CloseReason.OVERSIZE if oversize else CloseReason.PROTOCOL, refused.detail)
