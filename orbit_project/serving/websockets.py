"""WebSocket connections: Daphne's protocol with what it lacks (design 2, rules).

- A handshake is refused with a real status and the JSON envelope: a `websocket.close` before the accept carries a close
  code, and the table below says which status that is.
- Frames beyond 1 MiB are answered 1009 without being read; there is no compression.
- Pings, silence and slow readers are timed by the monotonic clock.
- `send` waits while the client does not read, and a connection with 4 MiB or 5 s of unsent data is cut.
- Reading stops while the application has not taken the frames that arrived.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol

from orbit_project.serving import doors, refusals
from orbit_project.serving.refusals import Refusal
from tasks_app import limits
from tasks_app.errors import InvalidArgument

if TYPE_CHECKING:
    from orbit_project.serving.daphne_server import OrbitServer

CLOSE_NO_CODE, CLOSE_NOT_TEXT, CLOSE_INTERNAL, CLOSE_SILENT = 1005, 1007, 1011, 4408
INBOX_FRAMES_MAX = limits.INBOUND_FRAMES_IN_FLIGHT_MAX
CLOSE_HANDSHAKE_SECONDS = 2


def handshake_refusal(close_code: int | None, reason: str | None) -> Refusal:
    """What an application means that closes before it accepted."""
    if close_code == 4400:
        return refusals.bad_request(reason or "the handshake is not valid")
    if close_code == 4401:
        return refusals.unauthenticated()
    if close_code == 4404:
        return refusals.not_found(close=True)
    if close_code in (4429, 1012, 1013):
        return refusals.unavailable(reason or "the node takes no connections now", close=True)
    return refusals.permission_denied(reason)


class Inbox(asyncio.Queue[dict[str, Any]]):
    """What arrived for the application; tells when it is empty enough to read on."""

    def __init__(self, protocol: OrbitWebSocket) -> None:
        super().__init__()
        self._protocol = protocol

    def _get(self) -> dict[str, Any]:
        message: dict[str, Any] = super()._get()
        if self.qsize() < INBOX_FRAMES_MAX:
            self._protocol.read_on()
        return message


class OrbitWebSocket(WebSocketProtocol):
    """One WebSocket connection, from the handshake on."""

    server: OrbitServer
    application_queue: Inbox | None = None  # from the end of a valid handshake on

    def __init__(self) -> None:
        super().__init__()
        now = time.monotonic()
        self.last_sign_at = now
        self.last_ping_at = now
        self.is_reading_paused = False
        self._unsent_since: float | None = None
        self._unsent_bytes = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.is_over = False

    # -- Handshake

    def serverReject(self, code: int | None = None, reason: str | None = None) -> None:
        """Refuse the handshake."""
        self._refuse_handshake(handshake_refusal(code, reason))
        self.server.protocol_disconnected(self)

    def sendHttpErrorResponse(self, code: int, reason: str, responseHeaders: Any = None) -> None:
        headers = tuple((str(name), str(value)) for name, value in responseHeaders or ())
        error = InvalidArgument(reason) if code < 500 else refusals.unavailable(reason).error
        self.sendData(Refusal(code if 400 <= code < 600 else 400, error, headers=headers).message)

    def onOpenHandshakeTimeout(self) -> None:
        self.openHandshakeTimeoutCall = None
        if self.state == self.STATE_CONNECTING:
            self._refuse_handshake(refusals.unavailable("the handshake took too long", close=True))

    def _refuse_handshake(self, refusal: Refusal) -> None:
        if self.state != self.STATE_CONNECTING:
            return
        self.server.request_refused(refusal)
        self.wasNotCleanReason = "the handshake was refused"
        self.sendData(refusal.message)
        self.dropConnection(abort=False)

    # -- Life

    def onOpen(self) -> None:
        super().onOpen()
        self.last_sign_at = self.last_ping_at = time.monotonic()
        self.transport.registerProducer(self, True)

    def connectionLost(self, reason: Any = None) -> None:
        self.is_over = True
        self._writable.set()
        super().connectionLost(reason)
        self.server.websocket_closed(self)

    def onClose(self, wasClean: bool, code: int | None, reason: str | None) -> None:
        self.server.protocol_disconnected(self)
        if self.application_queue is not None:
            self.application_queue.put_nowait({"type": "websocket.disconnect", "code": code or CLOSE_NO_CODE})

    def check_timeouts(self) -> None:
        """Daphne's own checks follow the wall clock and are not used; see `check`."""

    def check(self, now: float) -> None:
        """Ping, and cut who is silent or does not read; called by the server's tick with the monotonic clock."""
        if self.state != self.STATE_OPEN:
            return
        if self._unsent_since is not None and now - self._unsent_since > limits.UNSENT_SECONDS_MAX:
            self._cut("unsent data for too long")
        elif not self.is_reading_paused and now - self.last_sign_at > self.server.silence_seconds:
            self.serverClose(CLOSE_SILENT, "no sign of life")
        elif now - self.last_ping_at >= limits.PING_SECONDS:
            self.last_ping_at = now
            self.sendPing()

    # -- Reading

    def onFrameEnd(self) -> Any:
        # Whole frames count, pongs included; a frame that trickles in does not.
        self.last_sign_at = time.monotonic()
        return super().onFrameEnd()

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.application_queue is None or self.state != self.STATE_OPEN:
            return
        if isBinary:
            message: dict[str, Any] = {"type": "websocket.receive", "bytes": payload}
        else:
            try:
                message = {"type": "websocket.receive", "text": payload.decode("utf-8")}
            except UnicodeDecodeError:
                self.serverClose(CLOSE_NOT_TEXT, "a text frame is not UTF-8")
                return
        self.application_queue.put_nowait(message)
        if self.application_queue.qsize() >= INBOX_FRAMES_MAX and not self.is_reading_paused:
            self.is_reading_paused = True
            self.transport.pauseProducing()

    def read_on(self) -> None:
        """The application took frames: read more of them."""
        if self.is_reading_paused and not self.is_over:
            self.is_reading_paused = False
            self.last_sign_at = time.monotonic()
            self.transport.resumeProducing()

    # -- Writing: this object is the transport's producer, which is how it learns that the client does not read

    def pauseProducing(self) -> None:
        if self._unsent_since is None:
            self._unsent_since = time.monotonic()
            self._unsent_bytes = 0
            self._writable.clear()

    def resumeProducing(self) -> None:
        self._unsent_since = None
        self._writable.set()

    def stopProducing(self) -> None:
        self._writable.set()

    async def until_writable(self) -> None:
        """Wait while the client does not read what was sent; ends at once when the connection does."""
        if self._unsent_since is not None:
            await self._writable.wait()

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Straight to the transport: autobahn's own composes a log line for every frame and throws it away."""
        if self._unsent_since is not None:
            self._unsent_bytes += len(data)
            if self._unsent_bytes > limits.UNSENT_BYTES_MAX:
                self._cut("too much unsent data")
                return
        self.transport.write(data)

    def dataReceived(self, data: bytes) -> None:
        self._dataReceived(data)

    def _cut(self, reason: str) -> None:
        """Drop the connection without a closing handshake, for which a client that does not read has no ear."""
        self.wasClean = False
        self.wasNotCleanReason = reason
        self.server.websocket_cut(self, reason)
        self.dropConnection(abort=True)

    # -- What the application says

    def handle_reply(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.close":
            code, reason = message.get("code"), message.get("reason")
            if self.state == self.STATE_CONNECTING:
                self.serverReject(code, reason)
            else:
                self.serverClose(code, reason)
        elif kind == "websocket.send" and self.state != self.STATE_OPEN:
            return  # it was closed while the application wrote
        elif kind == "websocket.accept" and self.state != self.STATE_CONNECTING:
            return  # the handshake timed out or the client left meanwhile
        else:
            super().handle_reply(message)

    def serverClose(self, code: int | None = None, reason: str | None = None) -> None:
        """Start the closing handshake; unlike autobahn's `sendClose`, any code of the protocol may be given."""
        if self.state == self.STATE_CONNECTING:
            self.serverReject(code, reason)
            return
        self.sendCloseFrame(code=code or 1000, reasonUtf8=(reason or "").encode()[:123] or None)

    def handle_exception(self, exception: BaseException) -> None:
        if self.state == self.STATE_CONNECTING:
            self._refuse_handshake(Refusal(500, refusals.unavailable("the handshake failed").error))
        else:
            self.serverClose(CLOSE_INTERNAL, "internal error")


class OrbitWebSocketFactory(WebSocketFactory):
    """Makes `OrbitWebSocket`s with the limits of the protocol."""

    protocol = OrbitWebSocket

    def __init__(self, server: OrbitServer) -> None:
        super().__init__(server, server="")
        self._server = server
        self.setProtocolOptions(
            versions=[13],
            webStatus=False,
            utf8validateIncoming=False,  # decoded once, in onMessage
            maxFramePayloadSize=limits.FRAME_BYTES_MAX,
            maxMessagePayloadSize=limits.FRAME_BYTES_MAX,
            failByDrop=False,  # a close code instead of a bare reset
            openHandshakeTimeout=doors.HANDSHAKE_SECONDS,
            closeHandshakeTimeout=CLOSE_HANDSHAKE_SECONDS,
            autoPingInterval=0,
            autoPingTimeout=0,
            perMessageCompressionAccept=lambda offers: None,
            allowNullOrigin=True,  # origins are judged by the application, which knows the settings
            tcpNoDelay=True,
        )

    def buildProtocol(self, addr: Any) -> OrbitWebSocket:
        protocol: OrbitWebSocket = super().buildProtocol(addr)
        protocol.server = self._server
        return protocol
