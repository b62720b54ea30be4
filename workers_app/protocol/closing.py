"""Why a worker connection ends: close codes, and the fault that closes one (design, chapter 2)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class CloseCode(IntEnum):
    """The close codes of `orbit.worker.v1`."""

    NORMAL = 1000  # after `drained`
    TOO_LARGE = 1009  # a frame over the limit, where it was not read
    NODE_RESTARTS = 1012
    PROTOCOL = 4400  # a message that does not parse or validate
    CREDENTIAL = 4401  # revoked or expired
    FORBIDDEN = 4403  # a queue is unknown, foreign or out of scope, or `workers:consume` is missing
    SILENT = 4408  # no hello, or silent for too long
    TAKEN_OVER = 4409  # the session goes on on another connection
    NODE_FULL = 4429


# The `code` of the `error` message that goes before a close. 4403 has two: a foreign queue does not exist.
ERROR_CODES: Final[dict[CloseCode, str]] = {
    CloseCode.TOO_LARGE: "PAYLOAD_TOO_LARGE",
    CloseCode.NODE_RESTARTS: "NODE_RESTARTS",
    CloseCode.PROTOCOL: "INVALID_ARGUMENT",
    CloseCode.CREDENTIAL: "UNAUTHENTICATED",
    CloseCode.FORBIDDEN: "PERMISSION_DENIED",
    CloseCode.SILENT: "TIMED_OUT",
    CloseCode.TAKEN_OVER: "SESSION_TAKEN_OVER",
    CloseCode.NODE_FULL: "NODE_FULL",
}

# Errors of the domain that end a connection; any other leaves it open.
CLOSE_CODES: Final[dict[str, CloseCode]] = {
    "INVALID_ARGUMENT": CloseCode.PROTOCOL,
    "UNAUTHENTICATED": CloseCode.CREDENTIAL,
    "PERMISSION_DENIED": CloseCode.FORBIDDEN,
    "NOT_FOUND": CloseCode.FORBIDDEN,
}


class ProtocolError(Exception):
    """A message that ends its connection. `seq` is the message's, where it could be read: the answer's `re`."""

    def __init__(self, message: str, *, seq: int | None = None, close_code: CloseCode = CloseCode.PROTOCOL) -> None:
        super().__init__(message)
        self.close_code = close_code
        self.message = message
        self.seq = seq

    @property
    def code(self) -> str:
        return ERROR_CODES[self.close_code]
