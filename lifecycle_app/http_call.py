"""One HTTP request, made exactly once, with a deadline over the whole of it.

Written on httpcore2, the layer below httpx2, because the time-outs of a client are per read: a peer that sends one byte
every few seconds keeps it waiting for ever. Here each operation on the socket gets what is left of one deadline. The
connection is made for this request and closed after it, so no pool can send anything again; there are no retries, no
redirects, no proxies from the environment, no cookies and no decompression.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import httpcore2


class CallFault(StrEnum):
    """Why there is no whole answer. Only NOT_CONNECTED is certain to have reached nobody."""

    NOT_CONNECTED = "NOT_CONNECTED"
    TIMED_OUT = "TIMED_OUT"
    CONNECTION_BROKEN = "CONNECTION_BROKEN"
    NOT_HTTP = "NOT_HTTP"
    ANSWER_TOO_LONG = "ANSWER_TOO_LONG"


@dataclass(frozen=True)
class Answer:
    """What came back, as far as it was read. `status` is None when no status line arrived."""

    status: int | None
    body: bytes
    fault: CallFault | None
    elapsed_ms: int


def call_once(
    method: str,
    url: str,
    *,
    timeout_ms: int,
    body_bytes_max: int,
    token: str | None = None,
    content: bytes | None = None,
) -> Answer:
    """Never raises for what the peer or the network does; never sends twice."""
    started = time.monotonic()
    backend = _DeadlineBackend(started + timeout_ms / 1000)
    status: int | None = None
    body = bytearray()
    fault: CallFault | None = None
    headers = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("Connection", "close")]
    if token is not None:
        headers.append(("Authorization", f"Bearer {token}"))
    if content is not None:
        headers.append(("Content-Type", "application/json"))
    try:
        with (
            httpcore2.ConnectionPool(
                ssl_context=_trusted(), max_connections=1, max_keepalive_connections=0, network_backend=backend
            ) as connection,
            connection.stream(method, url, headers=headers, content=content) as response,
        ):
            status = response.status
            for piece in response.iter_stream():
                if len(body) + len(piece) > body_bytes_max:
                    body += piece[: body_bytes_max - len(body)]
                    fault = CallFault.ANSWER_TOO_LONG
                    break
                body += piece
    except httpcore2.TimeoutException:
        fault = CallFault.TIMED_OUT
    except httpcore2.ConnectError:
        fault = CallFault.NOT_CONNECTED
    except httpcore2.NetworkError:
        fault = CallFault.CONNECTION_BROKEN
    except httpcore2.ProtocolError:
        fault = CallFault.NOT_HTTP
    if fault is CallFault.TIMED_OUT and not backend.connected:
        fault = CallFault.NOT_CONNECTED
    return Answer(status, bytes(body), fault, elapsed_ms=round((time.monotonic() - started) * 1000))


@cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


class _DeadlineBackend(httpcore2.NetworkBackend):
    def __init__(self, deadline: float) -> None:
        self._inner = httpcore2.SyncBackend()
        self._deadline = deadline
        self.connected = False

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        remaining = _remaining(self._deadline, httpcore2.ConnectTimeout)
        stream = self._inner.connect_tcp(host, port, remaining, local_address, socket_options)
        return _DeadlineStream(stream, self._deadline, self)


class _DeadlineStream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, deadline: float, backend: _DeadlineBackend) -> None:
        self._inner, self._deadline, self._backend = inner, deadline, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _remaining(self._deadline, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # From the first byte on, nobody but the peer knows what was done with the request.
        self._backend.connected = True
        self._inner.write(buffer, _remaining(self._deadline, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        remaining = _remaining(self._deadline, httpcore2.ConnectTimeout)
        return _DeadlineStream(
            self._inner.start_tls(ssl_context, server_hostname, remaining), self._deadline, self._backend
        )

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _remaining(deadline: float, error: type[httpcore2.TimeoutException]) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise error("the deadline of the call has passed")
    return remaining
