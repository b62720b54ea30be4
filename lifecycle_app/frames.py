"""The frame of the node protocol: `[type 1 byte][length 4 bytes, big endian][JSON, UTF-8]` (design 4.7). Pure.

A decoder takes bytes as they come, split or glued anywhere, and gives whole frames. It judges a frame by its five
header bytes alone: an unknown type or an oversize length is refused before a byte of the body is kept or room is made.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from lifecycle_app.limits import FRAME_BYTES_MAX, FRAME_HEADER_BYTES

_HEADER = struct.Struct(">BI")


class FrameType(IntEnum):
    """0 to 9 are older than version 2 and frozen: not one field added."""

    IDENTITY = 0
    DOWNLOAD_POST = 1
    DELETE_GALLERY = 2
    GALLERY_STATUS = 3
    LEGACY_4 = 4
    LEGACY_5 = 5
    LEGACY_6 = 6
    LEGACY_7 = 7
    LEGACY_8 = 8
    LEGACY_9 = 9
    PROTOCOL_HELLO = 10
    TASK_COMMAND = 11
    TASK_REPORT = 12
    TASK_REPORT_ACK = 13


class FrameFault(StrEnum):
    """Why the stream cannot be read on."""

    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    OVERSIZE = "OVERSIZE"
    NOT_WHOLE = "NOT_WHOLE"


class FrameRefused(Exception):
    """The stream is over. `detail` names types and lengths only, never a byte of what was sent."""

    def __init__(self, fault: FrameFault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


@dataclass(frozen=True)
class Frame:
    type: FrameType
    body: bytes


LENGTHS_MAX: Mapping[FrameType, int] = dict.fromkeys(FrameType, FRAME_BYTES_MAX)


def encode_frame(frame_type: FrameType, body: bytes) -> bytes:
    """Raises ValueError for a body over the limit: what Orbit itself sends is always shorter."""
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of type {int(frame_type)} may hold {FRAME_BYTES_MAX} bytes, not {len(body)}")
    return _HEADER.pack(frame_type, len(body)) + body


def read_header(data: bytes | bytearray, at: int, lengths_max: Mapping[FrameType, int]) -> tuple[FrameType, int]:
    """Type and length of the frame at `at`. Raises FrameRefused; a type not in `lengths_max` may not come now."""
    code, length = _HEADER.unpack_from(data, at)
    if code > max(FrameType):
        raise FrameRefused(FrameFault.UNKNOWN_TYPE, f"frame type {code} is unknown")
    frame_type = FrameType(code)
    limit = lengths_max.get(frame_type)
    if limit is None:
        raise FrameRefused(FrameFault.UNKNOWN_TYPE, f"frame type {code} is not accepted at this point")
    if length > limit:
        raise FrameRefused(FrameFault.OVERSIZE, f"frame type {code} announces {length} bytes, not at most {limit}")
    return frame_type, length


class FrameDecoder:
    """Bytes in, whole frames out. `lengths_max` says which types may come now and how long each may be."""

    def __init__(self, lengths_max: Mapping[FrameType, int] = LENGTHS_MAX) -> None:
        self.lengths_max = lengths_max
        self._buffer = bytearray()
        self._at = 0  # where the next frame begins

    @property
    def buffered(self) -> int:
        """Bytes taken in that no frame was made of yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """The next whole frame, None while it is not complete. Raises FrameRefused as soon as its header is there."""
        if self.buffered < FRAME_HEADER_BYTES:
            return None
        frame_type, length = read_header(self._buffer, self._at, self.lengths_max)
        start = self._at + FRAME_HEADER_BYTES
        end = start + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[start:end])
        self._at = end
        self._drop_read_bytes()
        return Frame(frame_type, body)

    def _drop_read_bytes(self) -> None:
        # Cut off only what is at least half of the buffer, so that many small frames in one piece cost linear time.
        if self._at * 2 >= len(self._buffer):
            del self._buffer[: self._at]
            self._at = 0


def check_whole(message: bytes) -> None:
    """A WebSocket message holds one or more whole frames. Raises FrameRefused for anything else; looks at headers only.

    Which types may come at this point is not judged here.
    """
    at = 0
    while at < len(message):
        if len(message) - at < FRAME_HEADER_BYTES:
            raise FrameRefused(FrameFault.NOT_WHOLE, "a message ends inside a frame header")
        _, length = read_header(message, at, LENGTHS_MAX)
        at += FRAME_HEADER_BYTES + length
    if at != len(message) or not message:
        raise FrameRefused(FrameFault.NOT_WHOLE, "a message must hold one or more whole frames")
