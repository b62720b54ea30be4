"""The embedded server: Daphne's `Server` with its connections under our limits.

What is ours and why: HTTP does not go through ASGI at all but to `http_front.py`; time is monotonic; the number of
connections has a bound; stopping does not trip over a client that is still uploading; a port that cannot be had is an
error and not a silent end; nothing that a client sends is taken for Daphne's own headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from daphne.server import Server  # installs the asyncio reactor: before anything else of Twisted
from twisted.internet import reactor
from twisted.logger import globalLogBeginner
from twisted.web import http

from orbit_project.serving import doors, refusals, telemetry
from orbit_project.serving.client_addresses import Network
from orbit_project.serving.exchanges import Access, Exchange
from orbit_project.serving.http_channel import OrbitChannel, OrbitRequest
from orbit_project.serving.refusals import Refusal
from orbit_project.serving.websockets import Inbox, OrbitWebSocket, OrbitWebSocketFactory

LISTEN_BACKLOG = 1024
APPLICATION_CLOSE_SECONDS = 10  # what an application may still do after its connection is gone
CLOSE_RESTART = 1012
DAPHNE_HEADER = b"daphne-root-path"

AsgiApplication = Callable[[dict[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Any]


class OrbitFactory(http.HTTPFactory):
    """Makes channels; refuses connections beyond the limit."""

    protocol = OrbitChannel

    def __init__(self, server: OrbitServer) -> None:
        super().__init__(timeout=None)
        self.server = server

    def buildProtocol(self, addr: Any) -> OrbitChannel | None:
        return super().buildProtocol(addr) if self.server.has_room() else None

    def log(self, request: http.Request) -> None:
        """The access log is written from `Access` records."""


class OrbitServer(Server):
    """HTTP and WebSockets on one event loop.

    `front(exchange)` gets every complete HTTP request; `websocket_application` is the ASGI application of WebSockets.
    Everything here runs in the thread of the event loop, which is the one that calls `serve`.
    """

    def __init__(
        self,
        *,
        websocket_application: AsgiApplication,
        silence_seconds: float,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        super().__init__(websocket_application, endpoints=["unused"], signal_handlers=False, server_name="")
        self.silence_seconds = silence_seconds
        self.trusted_proxies = trusted_proxies
        self.is_draining = False
        self.front: Callable[[Exchange], None] = lambda exchange: exchange.respond_refusal(
            refusals.unavailable("starting")
        )
        self.channels: set[OrbitChannel] = set()
        self.websockets: set[OrbitWebSocket] = set()
        self.exchanges: set[OrbitRequest] = set()
        self.connections_max = _connections_max()
        self._uploads_bytes = 0
        self._applications: dict[OrbitWebSocket, asyncio.Task[None]] = {}
        self._ports: list[Any] = []
        self.ws_factory = OrbitWebSocketFactory(self)

    # -- Start and stop

    def listen(self, listener: socket.socket) -> str:
        """Open the door on a bound socket, which is taken over; the URL. Only inside the running loop."""
        listener.setblocking(False)  # the flag is shared with the reactor's descriptor
        listener.listen(LISTEN_BACKLOG)
        self._ports.append(reactor.adoptStreamPort(listener.fileno(), listener.family, OrbitFactory(self)))
        host, port = listener.getsockname()[:2]
        listener.close()  # the reactor works on a descriptor of its own
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def serve(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run the event loop until `main()` is done; what it raised is raised here."""
        loop = reactor._asyncioEventloop
        asyncio.set_event_loop(loop)
        globalLogBeginner.beginLoggingTo([_log_twisted_failure], redirectStandardIO=False, discardBuffer=True)
        outcome: list[BaseException] = []

        async def run() -> None:
            ticker = loop.create_task(self._tick())
            try:
                await main()
            except BaseException as error:  # raised again below, in the caller's frame
                outcome.append(error)
            finally:
                ticker.cancel()
                for port in self._ports:
                    with contextlib.suppress(Exception):
                        await port.stopListening().asFuture(loop)
                self.drop_everything()
                await asyncio.sleep(0)
                reactor.stop()

        reactor.callWhenRunning(lambda: loop.create_task(run()))
        reactor.run(installSignalHandlers=False)
        if outcome:
            raise outcome[0]

    def drop_everything(self) -> None:
        """Cut what is still open, half-sent requests included."""
        for channel in list(self.channels):
            if channel.transport is not None:
                channel.transport.abortConnection()
        for websocket in list(self.websockets):
            if websocket.transport is not None:
                websocket.transport.abortConnection()
        for task in list(self._applications.values()):
            task.cancel()

    def refuse_the_unfinished(self) -> None:
        """Tell everybody who is still sending a request, and close who sends nothing."""
        for channel in list(self.channels):
            channel.leave(refusals.draining())
        for websocket in list(self.websockets):
            websocket.serverClose(CLOSE_RESTART, "the node goes down")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(doors.TICK_SECONDS)
            now = time.monotonic()
            for channel in list(self.channels):
                channel.check(now)
            for websocket in list(self.websockets):
                websocket.check(now)

    # -- Connections

    def has_room(self) -> bool:
        """Whether one more connection may come; the one that is idle for longest gives way."""
        if len(self.channels) + len(self.websockets) < self.connections_max:
            return True
        idle = min(
            (channel for channel in self.channels if not channel.is_processing),
            key=lambda channel: channel.waiting_since,
            default=None,
        )
        if idle is None or idle.transport is None:
            return False
        idle.transport.abortConnection()
        return True

    def channel_opened(self, channel: OrbitChannel) -> None:
        self.channels.add(channel)

    def channel_closed(self, channel: OrbitChannel) -> None:
        self.channels.discard(channel)

    def hold_upload(self, count: int) -> bool:
        """Take `count` bytes of the memory for bodies; False if there are none left."""
        if self._uploads_bytes + count > doors.UPLOADS_BYTES_MAX:
            return False
        self._uploads_bytes += count
        return True

    def release_upload(self, count: int) -> None:
        self._uploads_bytes -= count

    # -- HTTP

    def exchange_begins(self, request: OrbitRequest) -> None:
        self.exchanges.add(request)
        try:
            self.front(request)
        except Exception as error:  # whatever it was, the client gets an answer and the loop goes on
            telemetry.front_failed(error)
            request.respond_refusal(refusals.internal())

    def exchange_ended(self, request: OrbitRequest, access: Access) -> None:
        if request in self.exchanges:
            self.exchanges.discard(request)
            telemetry.access(access)

    def request_refused(self, refusal: Refusal) -> None:
        """A request or a handshake was answered before it was complete."""
        telemetry.refused(refusal)

    # -- WebSockets

    def upgrade(self, request: OrbitRequest) -> None:
        """Hand the connection of `request` over to a WebSocket protocol, which reads the handshake again."""
        channel: OrbitChannel = request.channel
        protocol = self.ws_factory.buildProtocol(channel.getPeer())
        protocol.caller = request.head.caller
        protocol._raw_query_string = request.head.query.encode("ascii")
        lines = [request.method + b" " + request.uri + b" HTTP/1.1"]
        for name, values in request.requestHeaders.getAllRawHeaders():
            if name.lower() != DAPHNE_HEADER:
                lines.append(name + b": " + b",".join(values))
        handshake = b"\r\n".join(lines) + b"\r\n\r\n"
        request.release_upload()
        transport = channel.leave_for_websocket()
        self.websockets.add(protocol)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        protocol.dataReceived(handshake)
        transport.resumeProducing()

    def protocol_connected(self, protocol: OrbitWebSocket) -> None:
        """Daphne's hook at the beginning of a handshake; nothing to note."""

    def protocol_disconnected(self, protocol: OrbitWebSocket) -> None:
        """Give the application a moment to leave."""
        task = self._applications.get(protocol)
        if task is not None and not task.done():
            asyncio.get_running_loop().call_later(APPLICATION_CLOSE_SECONDS, task.cancel)

    def websocket_closed(self, protocol: OrbitWebSocket) -> None:
        self.websockets.discard(protocol)

    def websocket_cut(self, protocol: OrbitWebSocket, reason: str) -> None:
        telemetry.websocket_cut(protocol.caller.address, reason)

    def create_application(self, protocol: OrbitWebSocket, scope: dict[str, Any]) -> Inbox:
        """Start the application of one WebSocket; its inbox."""
        inbox = Inbox(protocol)
        scope = {
            **scope,
            "asgi": {"version": "3.0"},
            "root_path": "",
            "scheme": "wss" if protocol.caller.scheme == "https" else "ws",
            "client": [protocol.caller.address, 0],
        }
        application = self.application(scope, inbox.get, partial(self.handle_reply, protocol))
        task = asyncio.get_running_loop().create_task(application)
        self._applications[protocol] = task
        task.add_done_callback(partial(self._application_ended, protocol))
        return inbox

    async def handle_reply(self, protocol: OrbitWebSocket, message: dict[str, Any]) -> None:
        """The application's `send`: waits while the client does not read."""
        if message["type"] == "websocket.send":
            await protocol.until_writable()
        if not protocol.is_over:
            protocol.handle_reply(message)

    def _application_ended(self, protocol: OrbitWebSocket, task: asyncio.Task[None]) -> None:
        self._applications.pop(protocol, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            telemetry.websocket_failed(error)
            if not protocol.is_over:
                protocol.handle_exception(error)


def _connections_max() -> int:
    """As many connections as file descriptors allow; the soft limit is raised to the hard one first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = doors.CONNECTIONS_MAX + doors.DESCRIPTORS_RESERVED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return doors.CONNECTIONS_MAX
    return max(16, min(doors.CONNECTIONS_MAX, soft - doors.DESCRIPTORS_RESERVED))


def _log_twisted_failure(event: dict[str, Any]) -> None:
    """Twisted's own log: only its failures are news."""
    if failure := event.get("log_failure"):
        telemetry.twisted_failed(failure.getTraceback())
