"""Answers that the node gives itself, before any view runs: the JSON envelope of chapter 1.1, built by hand."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from http import HTTPStatus

from tasks_app.errors import (
    Internal,
    InvalidArgument,
    NotFound,
    OrbitError,
    PayloadTooLarge,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)


@dataclass(frozen=True)
class Refusal:
    """A status and the error that stands in its envelope. `close`: the connection is not used again."""

    status: int
    error: OrbitError
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = True
    request_id: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def reason(self) -> str:
        return HTTPStatus(self.status).phrase

    @property
    def body(self) -> bytes:
        envelope = {"request_id": self.request_id, "error": self.error.as_json()}
        return json.dumps(envelope, separators=(",", ":")).encode()

    @property
    def all_headers(self) -> list[tuple[str, str]]:
        """Every header of the answer but `Date`."""
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self.body))),
            ("X-Request-Id", self.request_id),
            ("Cache-Control", "no-store"),
            *self.headers,
        ]
        if self.error.retry_after_ms is not None:
            headers.append(("Retry-After", str(-(-self.error.retry_after_ms // 1000))))
        if self.close:
            headers.append(("Connection", "close"))
        return headers

    @property
    def message(self) -> bytes:
        """The whole HTTP/1.1 answer, for a connection that has no request object yet."""
        head = "".join(f"{name}: {value}\r\n" for name, value in self.all_headers)
        return f"HTTP/1.1 {self.status} {self.reason}\r\n{head}\r\n".encode("latin-1") + self.body


def bad_request(reason: str) -> Refusal:
    return Refusal(400, InvalidArgument(reason))


def body_too_large(bytes_max: int) -> Refusal:
    details = [{"field": "", "reason": "the body is larger than the limit", "bytes_max": bytes_max}]
    return Refusal(413, PayloadTooLarge(f"the body is larger than {bytes_max} bytes", details=details))


def too_slow(seconds: int) -> Refusal:
    details = [{"field": "", "reason": "the request did not arrive in time", "seconds_max": seconds}]
    return Refusal(408, InvalidArgument(f"the request did not arrive within {seconds} s", details=details))


def unavailable(reason: str, *, close: bool = False) -> Refusal:
    return Refusal(503, Unavailable(reason), close=close)


def draining() -> Refusal:
    return unavailable("the node is going down; repeat the same request elsewhere", close=True)


def saturated() -> Refusal:
    return unavailable("the node is busy; repeat the same request")


def not_found(*, close: bool = False) -> Refusal:
    return Refusal(404, NotFound("no such path on this node"), close=close)


def unauthenticated() -> Refusal:
    return Refusal(401, Unauthenticated(), headers=(("WWW-Authenticate", 'Bearer error="invalid_token"'),))


def permission_denied(reason: str | None = None) -> Refusal:
    return Refusal(403, PermissionDenied(reason))


def internal() -> Refusal:
    return Refusal(500, Internal(), close=False)
