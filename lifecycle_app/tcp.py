"""The TCP transport of storage nodes (`ORBIT_NODE_ADDR`, `manage.py orbit_node_gateway`)."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from lifecycle_app.gateway import NodeGateway
from lifecycle_app.limits import UNSENT_BYTES_MAX, UNSENT_SECONDS_MAX
from lifecycle_app.node_connection import NodeConnection
from lifecycle_app.node_session import CloseReason

READ_BYTES = 64 * 1024
CONNECTIONS_MAX = 1024
# A node that vanished without a word is noticed within 10 + 3 x 5 s, although the protocol has no heartbeat of its own.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_USER_TIMEOUT_MS = 25_000


class TcpTransport:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        address = writer.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"

    async def send(self, data: bytes) -> None:
        if self._writer.transport.get_write_buffer_size() + len(data) > UNSENT_BYTES_MAX:
            self._writer.transport.abort()
            raise ConnectionAbortedError("too much unsent data")
        self._writer.write(data)
        try:
            async with asyncio.timeout(UNSENT_SECONDS_MAX):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise

    async def close(self, reason: CloseReason | None, detail: str) -> None:
        self._writer.close()


class TcpNodeServer:
    """Listens in the running event loop; each connection is a task of its own."""

    def __init__(self, gateway: NodeGateway) -> None:
        self._gateway = gateway
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """The address it listens on. Raises OSError where it cannot be had, StartOrderViolation before recovery."""
        self._gateway.require_open()
        self._server = await asyncio.start_server(self._accepted, host or None, port, limit=READ_BYTES)
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def close(self) -> None:
        """Takes no new connection; the gateway ends the others."""
        if self._server is not None:
            self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)
        for task in self._tasks:
            task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._tasks) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._tasks.add(task)
        try:
            _watch_over(writer)
            await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = NodeConnection(self._gateway, TcpTransport(writer), principal=None, whole_messages=False)
        reading = asyncio.create_task(_feed(reader, connection))
        try:
            await connection.run()
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await reading
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    await writer.wait_closed()


async def _feed(reader: asyncio.StreamReader, connection: NodeConnection) -> None:
    try:
        while data := await reader.read(READ_BYTES):
            await connection.feed(data)
    except OSError:
        pass  # a reset is an end like any other
    await connection.feed_end()


def _watch_over(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
