"""W3C Trace Context (level 1): a valid `traceparent` is continued, an invalid one is ignored (design 1.1)."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_NO_TRACE, _NO_SPAN, _INVALID_VERSION, _VERSION = "0" * 32, "0" * 16, "ff", "00"


@dataclass(frozen=True)
class TraceContext:
    """This request's own span in its caller's trace."""

    trace_id: str
    span_id: str
    flags: str

    @property
    def traceparent(self) -> str:
        """The header for answers and for what is stored with a task: 55 characters of version 00."""
        return f"{_VERSION}-{self.trace_id}-{self.span_id}-{self.flags}"


def continued(traceparent: str | None) -> TraceContext | None:
    """A new span in the trace that the header names; None if there is none or it is not valid."""
    match = _TRACEPARENT.fullmatch(traceparent.strip(" \t")) if traceparent else None
    if match is None:
        return None
    version, trace_id, parent_id, flags, rest = match.groups()
    if version == _INVALID_VERSION or trace_id == _NO_TRACE or parent_id == _NO_SPAN:
        return None
    if version == _VERSION and rest is not None:
        return None  # only a later version may have more behind its flags
    return TraceContext(trace_id, secrets.token_hex(8), flags)
