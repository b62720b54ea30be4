"""HTTP/1.1 connections: Twisted's channel and request with limits that hold before anything is authenticated.

Daphne buffers whole bodies before the application runs and waits for slow clients without an end, so what a stranger
may cost is decided here (design 1.1, body limits): the size of a body while it streams in, the total time that a head
and a body may take, the time that an answer may stay unread, and how much memory all bodies together may hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from daphne.utils import INVALID_HEADER_VALUE_BYTES
from twisted.web import http

from orbit_project.serving import doors, refusals
from orbit_project.serving.client_addresses import caller
from orbit_project.serving.exchanges import Access, Answer, Head
from orbit_project.serving.refusals import Refusal

if TYPE_CHECKING:
    from orbit_project.serving.daphne_server import OrbitServer

NO_BODY_STATUSES = frozenset({204, 304})


class OrbitRequest(http.Request):
    """One request; an `Exchange` once it is complete."""

    head: Head
    body: bytes

    def __init__(self, channel: OrbitChannel, *args: Any) -> None:
        super().__init__(channel, *args)
        self.server: OrbitServer = channel.factory.server
        self._started_at = time.monotonic()
        self._body_bytes = 0
        self._body_bytes_max = doors.body_bytes_max(b"")
        self._gone = False
        self._gone_callbacks: list[Callable[[], object]] = []
        self._file: Any = None

    # -- Receiving

    def parseCookies(self) -> None:
        """Cookies are Django's business."""

    def gotLength(self, length: int | None) -> None:
        path = unquote_to_bytes(self.channel.target.split(b"?", 1)[0])
        self._body_bytes_max = doors.body_bytes_max(path)
        self.content = BytesIO()
        if length is not None and length > self._body_bytes_max:
            self.channel.refuse(refusals.body_too_large(self._body_bytes_max))

    def handleContentChunk(self, data: bytes) -> None:
        if self.channel.is_refused:
            return
        self._body_bytes += len(data)
        if self._body_bytes > self._body_bytes_max:
            self.channel.refuse(refusals.body_too_large(self._body_bytes_max))
        elif not self.server.hold_upload(len(data)):
            self._body_bytes -= len(data)
            self.channel.refuse(refusals.unavailable("the node receives too many bodies at once", close=True))
        else:
            self.content.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        if self.channel.is_refused:
            return
        self.method, self.uri, self.clientproto = command, path, version
        self.body = self.content.getvalue()
        self.process()

    def process(self) -> None:
        raw_path, _, query = self.uri.partition(b"?")
        if not (raw_path.isascii() and query.isascii()):
            self.respond_refusal(refusals.bad_request("the path or the query holds bytes that are not ASCII"))
            return
        pairs = []
        for name, values in self.requestHeaders.getAllRawHeaders():
            for value in values:
                if INVALID_HEADER_VALUE_BYTES.intersection(value):
                    self.respond_refusal(refusals.bad_request("a header value holds control characters"))
                    return
                # An underscore could pass for the dash of another header once names are upper-cased (CVE-2015-0219).
                if b"_" not in name:
                    pairs.append((name.decode("latin-1").lower(), value.decode("latin-1")))
        peer, host = self.channel.getPeer(), self.channel.getHost()
        self.head = Head(
            method=self.method.decode("ascii", "replace"),
            path=unquote_to_bytes(raw_path),
            query=query.decode("ascii"),
            http_version=self.clientproto.partition(b"/")[2].decode("ascii", "replace"),
            headers=pairs,
            caller=caller(
                str(getattr(peer, "host", "")),
                dict(pairs),
                scheme="https" if self.isSecure() else "http",
                trusted_proxies=self.server.trusted_proxies,
            ),
            server=(str(getattr(host, "host", "")), int(getattr(host, "port", 0))),
        )
        if (self.head.header("upgrade") or "").strip().lower() == "websocket":
            self.server.upgrade(self)
        else:
            self.server.exchange_begins(self)

    def release_upload(self) -> None:
        """Give the memory of the body back to the node's budget."""
        self.server.release_upload(self._body_bytes)
        self._body_bytes = 0

    # -- The exchange

    @property
    def gone(self) -> bool:
        return self._gone

    def on_gone(self, callback: Callable[[], object]) -> None:
        self._gone_callbacks.append(callback)

    def respond_refusal(self, refusal: Refusal) -> None:
        self.respond(
            Answer(refusal.status, refusal.reason, list(refusal.all_headers), refusal.body, close=refusal.close)
        )

    def respond(self, answer: Answer) -> None:
        if self._gone or self.finished:
            if answer.file is not None:
                answer.file.close()
            return
        self.setResponseCode(answer.status, answer.reason.encode("latin-1", "replace"))
        for name, value in answer.headers:
            self.responseHeaders.addRawHeader(name.encode("latin-1"), value.encode("latin-1"))
        if answer.status not in NO_BODY_STATUSES:
            size = answer.size if answer.file is not None else len(answer.body)
            self.responseHeaders.setRawHeaders(b"Content-Length", [b"%d" % size])
        self.responseHeaders.setRawHeaders(b"Date", [_http_date()])
        if answer.close or self.server.is_draining:
            self.responseHeaders.setRawHeaders(b"Connection", [b"close"])
            self.channel.persistent = 0
        if answer.file is None:
            self.write(answer.body)
            self.finish()
        else:
            self._file = answer.file
            self.write(b"")
            self.send_more()

    def send_more(self) -> None:
        """Go on with a spooled body as far as the client takes it; the channel calls again when it took that."""
        while self._file is not None and not self._gone and not self.channel.is_write_paused:
            chunk = self._file.read(doors.RESPONSE_CHUNK_BYTES)
            if not chunk:
                self._close_file()
                self.finish()
                return
            self.write(chunk)

    def finish(self) -> None:
        super().finish()
        self._ended(client_gone=False)

    def connectionLost(self, reason: Any) -> None:
        self._gone = True
        self._close_file()
        super().connectionLost(reason)
        callbacks, self._gone_callbacks = self._gone_callbacks, []
        for callback in callbacks:
            callback()
        self._ended(client_gone=True)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _ended(self, *, client_gone: bool) -> None:
        self.release_upload()
        self._gone_callbacks = []
        if hasattr(self, "head"):
            self.server.exchange_ended(
                self,
                Access(
                    method=self.head.method,
                    path=self.head.path.decode("utf-8", "backslashreplace"),
                    status=self.code,
                    response_bytes=self.sentLength,
                    seconds=time.monotonic() - self._started_at,
                    address=self.head.caller.address,
                    client_gone=client_gone,
                ),
            )


class OrbitChannel(http.HTTPChannel):
    """One HTTP connection. All its time limits are one deadline, looked at by the server's tick."""

    requestFactory = OrbitRequest
    transport: Any  # None once it was given away

    def __init__(self) -> None:
        super().__init__()
        self.is_refused = False
        self.is_write_paused = False
        self.is_processing = False
        self._opened_at = self.waiting_since = time.monotonic()
        self._head_begun = False
        self._deadline: float | None = self._opened_at + doors.HEAD_SECONDS
        self._request_at = self._opened_at
        self._paused_at = 0.0
        self._lingered_bytes = 0

    @property
    def target(self) -> bytes:
        """The request target of the head that was just read."""
        return self._path

    # -- Life of the connection

    def connectionMade(self) -> None:
        super().connectionMade()
        self.factory.server.channel_opened(self)

    def connectionLost(self, reason: Any) -> None:
        self.factory.server.channel_closed(self)
        if self.is_refused:
            for request in self.requests:
                request.release_upload()
        super().connectionLost(reason)

    def leave_for_websocket(self) -> Any:
        """Give the transport away: nothing of this channel applies to it any more."""
        self.factory.server.channel_closed(self)
        self._deadline = None
        transport, self.transport = self.transport, None
        # The channel is still registered as the transport's producer; while it is, another one is ignored.
        transport.unregisterProducer()
        return transport

    # -- Reading

    def dataReceived(self, data: bytes) -> None:
        if self.is_refused:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > doors.LINGER_BYTES:
                self.transport.abortConnection()
            return
        if not self.is_processing and not self._head_begun:
            self._head_begun = True
            now = time.monotonic()
            self._request_at = now
            self._deadline = now + doors.HEAD_SECONDS
        super().dataReceived(data)

    def lineReceived(self, line: bytes) -> None:
        if not self.is_refused:
            super().lineReceived(line)

    def rawDataReceived(self, data: bytes) -> None:
        if not self.is_refused:
            super().rawDataReceived(data)

    def lineLengthExceeded(self, line: bytes) -> None:
        self.refuse(refusals.bad_request("the head of the request is too large"))

    def allHeadersReceived(self) -> None:
        self._deadline = self._request_at + doors.REQUEST_SECONDS
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        self._deadline = None
        self.is_processing = True
        super().allContentReceived()

    def requestDone(self, request: OrbitRequest) -> None:
        self.is_processing = False
        self._head_begun = False
        self.waiting_since = time.monotonic()
        self._deadline = self.waiting_since + doors.KEEP_ALIVE_SECONDS
        super().requestDone(request)  # goes on with what was pipelined

    # -- Refusing

    def refuse(self, refusal: Refusal) -> None:
        """Answer before the request is complete, read no more of it, close.

        The connection is closed for writing only; what still arrives is dropped for a moment. Closing it at once would
        make the kernel answer the rest of the body with a reset, which destroys the answer before the client reads it.
        """
        if self.is_refused or self.transport is None:
            return
        self.is_refused = True
        self.persistent = 0
        self._deadline = time.monotonic() + doors.LINGER_SECONDS
        self.factory.server.request_refused(refusal)
        self._networkProducer.unregisterProducer()
        self.transport.write(refusal.message)
        self.transport.resumeProducing()
        self.transport.loseWriteConnection()

    def leave(self, refusal: Refusal) -> None:
        """The node goes down: refuse a request that is still being sent, close if there is none."""
        if self.is_refused or self.is_processing or self.transport is None:
            return
        if self._head_begun:
            self.refuse(refusal)
        else:
            self.is_refused = True
            self.loseConnection()

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse(refusals.bad_request("the request is not valid HTTP"))

    def _send100Continue(self) -> None:
        if not self.is_refused:
            super()._send100Continue()

    # -- Time

    def check(self, now: float) -> None:
        """Enforce the deadlines; called by the server's tick with the monotonic clock."""
        if self.transport is None:
            return
        if self.is_write_paused and now - self._paused_at > doors.UNREAD_RESPONSE_SECONDS:
            self.transport.abortConnection()
        elif self._deadline is not None and now > self._deadline:
            if self.is_refused:
                self.transport.abortConnection()
            elif self._head_begun:
                self.refuse(refusals.too_slow(doors.REQUEST_SECONDS))
            else:
                self._deadline = now + doors.LINGER_SECONDS
                self.is_refused = True
                self.loseConnection()

    # -- Writing: the transport tells when the client stops reading

    def pauseProducing(self) -> None:
        if not self.is_write_paused:
            self.is_write_paused = True
            self._paused_at = time.monotonic()
        super().pauseProducing()

    def resumeProducing(self) -> None:
        self.is_write_paused = False
        super().resumeProducing()
        if self.requests:
            self.requests[0].send_more()


_date_cache = (0, b"")


def _http_date() -> bytes:
    """The `Date` header, made once a second."""
    global _date_cache
    second = int(time.time())
    if _date_cache[0] != second:
        _date_cache = (second, format_datetime(datetime.fromtimestamp(second, UTC), usegmt=True).encode())
    return _date_cache[1]
