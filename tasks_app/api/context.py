"""What every request has, whatever becomes of it: its id, its place in a trace, its caller's address."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest

from tasks_app.api.trace_context import TraceContext, continued

# The node names the headers that came more than once; WSGI joins their values with commas (PEP 3333).
REPEATED_HEADERS: Final = "orbit.repeated_headers"
CLIENT_GONE: Final = "orbit.client_gone"  # of a node, too: a function that says whether the client has left
_ATTRIBUTE: Final = "orbit_context"
_CLIENT_ID_LENGTH_MAX: Final = 128


@dataclass(frozen=True)
class RequestContext:
    """`client_request_id` is what the caller sent as its own id: it is logged beside ours and never adopted."""

    request_id: str
    trace: TraceContext | None
    client_request_id: str | None
    address: str

    @property
    def traceparent(self) -> str | None:
        return None if self.trace is None else self.trace.traceparent


def context_of(request: HttpRequest) -> RequestContext:
    """The context of this request, made at the first call."""
    known: RequestContext | None = getattr(request, _ATTRIBUTE, None)
    if known is None:
        known = RequestContext(
            request_id=secrets.token_hex(16),
            trace=continued(header_once(request, "traceparent")),
            client_request_id=_loggable(header_once(request, "x-request-id")),
            address=request.META.get("REMOTE_ADDR", ""),
        )
        setattr(request, _ATTRIBUTE, known)
    return known


def has_left(request: HttpRequest) -> bool:
    """The client is gone: nobody will read the answer. Known on a node only."""
    is_gone: Callable[[], bool] | None = request.META.get(CLIENT_GONE)
    return is_gone is not None and is_gone()


def header_values(request: HttpRequest, name: str) -> list[str]:
    """The values of a header (lower-case name): none, one, or, where it came more than once, two that stand for all."""
    value: str | None = request.META.get("HTTP_" + name.upper().replace("-", "_"))
    if value is None:
        return []
    return [value, value] if name in request.META.get(REPEATED_HEADERS, ()) else [value]


def header_once(request: HttpRequest, name: str) -> str | None:
    """The value of a header that came exactly once, else None."""
    values = header_values(request, name)
    return values[0] if len(values) == 1 else None


def _loggable(text: str | None) -> str | None:
    return text if text and text.isascii() and text.isprintable() and len(text) <= _CLIENT_ID_LENGTH_MAX else None
