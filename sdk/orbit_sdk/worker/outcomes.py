"""How a handler ends, and how its end is reported.

A handler returns (SUCCEEDED), or raises: `Retry` and any unforeseen exception (FAILED, may be tried again if the task's
policy says so), `Fail` (FAILED for good), `Cancelled` after it was asked to stop (CANCELED).
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from orbit_sdk.errors import ConfigError
from orbit_sdk.jsoncodec import InvalidJson, encode_text
from orbit_sdk.limits import (
    ERROR_CODE_LENGTH_MAX,
    ERROR_DETAILS_BYTES_MAX,
    ERROR_MESSAGE_LENGTH_MAX,
    HORIZON_MS_MAX,
    RESULT_BYTES_MAX,
)
from orbit_sdk.names import checked_name

# `finish` is {"items": [{"result": …}]} and {"items": [{"error": {"details": …}}]}: levels that the document spends
# already.
_RESULT_LEVEL = 4
_DETAILS_LEVEL = 5
_TRACEBACK_BYTES_MAX = 16 * 1024


class HandlerExit(Exception):
    """Base of what a handler raises to say how it ended."""


class Retry(HandlerExit):
    """Try again later, if the task's retry policy allows.

    `after` is in seconds (or a timedelta); None: the task's back-off.
    """

    def __init__(self, message: str = "", *, after: float | timedelta | None = None, code: str = "RETRY") -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        if seconds is not None and not 0 <= seconds * 1000 <= HORIZON_MS_MAX:
            raise ConfigError(f"Retry: after must be 0 to {HORIZON_MS_MAX // 1000} seconds")
        self.after_ms = None if seconds is None else round(seconds * 1000)
        self.code = checked_code(code)
        self.message = message or "the handler asked to be run again"
        super().__init__(self.message)


class Fail(HandlerExit):
    """Failed for good: no retry, whatever the policy (unless `retryable`). `details` is any JSON value up to 64 KiB."""

    def __init__(self, code: str, message: str = "", *, details: Any = None, retryable: bool = False) -> None:
        self.code = checked_code(code)
        self.message = message
        self.details = details
        self.retryable = retryable
        super().__init__(f"{code}: {message}" if message else code)


class Cancelled(HandlerExit):
    """The attempt was asked to stop and did. Raised by `ctx.raise_if_cancelled()`."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


def checked_code(code: str) -> str:
    """A code that Orbit takes: 1 to 128 printable characters, no blank at either end. Raises ConfigError."""
    return checked_name(code, "an error code", length_max=ERROR_CODE_LENGTH_MAX)


@dataclass(frozen=True, slots=True)
class Report:
    """What `finish` will say of an attempt. `result` and `details` are JSON text."""

    outcome: str
    result: str | None = None
    code: str | None = None
    message: str = ""
    details: str | None = None
    retryable: bool = True
    retry_after_ms: int | None = None

    def item(self, attempt_id: str, fencing_token: str) -> str:
        """The item of a `finish` message, as JSON text."""
        text = f'{{"attempt_id":"{attempt_id}","fencing_token":"{fencing_token}","outcome":"{self.outcome}"'
        if self.result is not None:
            text += f',"result":{self.result}'
        if self.code is not None:
            error = f'{{"code":{encode_text(self.code)},"message":{encode_text(self.message)}'
            if self.details is not None:
                error += f',"details":{self.details}'
            text += f',"error":{error}}}'
        if self.outcome == "FAILED":
            text += f',"retryable":{"true" if self.retryable else "false"}'
            if self.retry_after_ms is not None:
                text += f',"retry_after_ms":{self.retry_after_ms}'
        return text + "}"


_SUCCEEDED_WITHOUT_RESULT = Report("SUCCEEDED")


def report_of_result(result: Any) -> Report:
    """SUCCEEDED with `result`; FAILED, not retryable, if the result cannot be sent (the work itself is done)."""
    if result is None:
        return _SUCCEEDED_WITHOUT_RESULT
    try:
        text = encode_text(result, level=_RESULT_LEVEL)
    except InvalidJson as error:
        return Report("FAILED", code="INVALID_RESULT", message=f"the result {error}", retryable=False)
    size = len(text) if text.isascii() else len(text.encode())
    if size > RESULT_BYTES_MAX:
        message = f"the result has {size} bytes; at most {RESULT_BYTES_MAX} are allowed"
        return Report("FAILED", code="RESULT_TOO_LARGE", message=message, retryable=False)
    return Report("SUCCEEDED", result=text)


def report_of_exception(error: BaseException, *, asked_to_stop: bool, with_traceback: bool) -> Report:
    """What to say of an attempt whose handler raised. `asked_to_stop`: Orbit had asked for it, so CANCELED is true."""
    if isinstance(error, Cancelled):
        if asked_to_stop:
            return Report("CANCELED")
        message = "the handler raised Cancelled although nobody had asked it to stop"
        return Report("FAILED", code="NOT_CANCELED", message=message, retryable=False)
    if isinstance(error, Retry):
        return Report("FAILED", code=error.code, message=clean_message(error.message), retry_after_ms=error.after_ms)
    if isinstance(error, Fail):
        return Report(
            "FAILED",
            code=error.code,
            message=clean_message(error.message),
            details=_details(error.details),
            retryable=error.retryable,
        )
    details = {"traceback": cut_traceback(error)} if with_traceback else None
    return Report(
        "FAILED",
        code=type(error).__name__[:ERROR_CODE_LENGTH_MAX],
        message=clean_message(str(error)),
        details=_details(details),
    )


def _details(details: Any) -> str | None:
    if details is None:
        return None
    try:
        text = encode_text(details, level=_DETAILS_LEVEL)
    except InvalidJson as error:
        return encode_text({"left_out": f"the details {error}"})
    size = len(text) if text.isascii() else len(text.encode())
    if size > ERROR_DETAILS_BYTES_MAX:
        return encode_text({"left_out": f"the details have {size} bytes"})
    return text


def clean_message(message: str) -> str:
    """`message` as Orbit takes it: at most 4096 characters, no U+0000, no lone surrogates."""
    text = message.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= ERROR_MESSAGE_LENGTH_MAX else text[: ERROR_MESSAGE_LENGTH_MAX - 1] + "…"


def cut_traceback(error: BaseException) -> str:
    """The traceback, without the SDK's own frames at its start, at most 16 KiB: the end is what tells most."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    text = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    data = text.encode()
    if len(data) <= _TRACEBACK_BYTES_MAX:
        return text
    return "[…]\n" + data[-_TRACEBACK_BYTES_MAX:].decode("utf-8", "ignore")


def _is_ours(filename: str) -> bool:
    return filename.startswith(__file__.rpartition("outcomes")[0])
