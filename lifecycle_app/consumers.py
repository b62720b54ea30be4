"""The WebSocket transport of storage nodes: binary messages at `/v1/nodes/connect`, whole frames in each."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from lifecycle_app import gateway
from lifecycle_app.domain import storage_nodes
from lifecycle_app.node_connection import NodeConnection
from lifecycle_app.node_session import CloseReason
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import PermissionDenied, Unauthenticated

CLOSE_LEFT = 1000
_REASON_BYTES_MAX = 123


class WebSocketTransport:
    def __init__(self, consumer: NodeConsumer, peer: str) -> None:
        self._consumer = consumer
        self._closed = False
        self.peer = peer

    def gone(self) -> None:
        """The socket is closed already; there is nobody to tell."""
        self._closed = True

    async def send(self, data: bytes) -> None:
        # A peer that does not read is cut by the server's own limits (4 MiB or 5 s unsent).
        await self._consumer.send(bytes_data=data)

    async def close(self, reason: CloseReason | None, detail: str) -> None:
        if not self._closed:
            self._closed = True
            code = CLOSE_LEFT if reason is None else reason.value
            await self._consumer.close(code=code, reason=detail[:_REASON_BYTES_MAX])


class NodeConsumer(AsyncWebsocketConsumer):
    """Sockets only: the handshake's credential, bytes in, bytes out."""

    _connection: NodeConnection | None = None
    _running: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Refuses before the upgrade: 401 without a valid credential, 403 without `nodes:connect` or from a browser."""
        here = gateway.current()
        if here is None or not here.order.may_connect:
            await self.close(code=CloseReason.TRY_LATER.value)
            return
        if not _origin_allowed(self.scope):
            await self.close(code=CloseReason.FORBIDDEN.value, reason="browsers may not connect here")
            return
        token = _bearer_token(self.scope)
        try:
            if token is None:
                raise Unauthenticated()
            principal: Principal = await here.pool.run(lambda: storage_nodes.authenticate_node(token))
        except Unauthenticated:
            await self.close(code=CloseReason.UNAUTHENTICATED.value)
            return
        except PermissionDenied:
            await self.close(code=CloseReason.FORBIDDEN.value, reason="the credential lacks the action nodes:connect")
            return
        except (DatabaseError, InterfaceError):
            await self.close(code=CloseReason.TRY_LATER.value)
            return
        await self.accept()
        self._transport = WebSocketTransport(self, _peer(self.scope))
        self._connection = NodeConnection(here, self._transport, principal=principal, whole_messages=True)
        self._running = asyncio.create_task(self._connection.run())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._connection is None:
            return
        if bytes_data is None:
            self._connection.close(CloseReason.PROTOCOL, "a text message where frames are binary")
        else:
            await self._connection.feed(bytes_data)

    async def disconnect(self, code: int) -> None:
        if self._connection is None or self._running is None:
            return
        self._transport.gone()
        await self._connection.feed_end()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running


def _bearer_token(scope: dict[str, Any]) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, token = values[0].decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def _origin_allowed(scope: dict[str, Any]) -> bool:
    """Storage nodes send no Origin; a browser always does, and is refused unless the settings list it."""
    origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
    return all(origin in settings.ORBIT.ws_origins for origin in origins)


def _peer(scope: dict[str, Any]) -> str:
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client else "?"
