"""The worker protocol's socket: handshake, frames, close. What they mean is `connection.py`'s business."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from channels.consumer import AsyncConsumer, get_handler_name
from channels.exceptions import StopConsumer
from django.conf import settings
from django.db import DatabaseError

from tasks_app.domain.tenancy import Principal
from tasks_app.errors import Unauthenticated
from tasks_app.states import Action
from workers_app.connection import WorkerConnection
from workers_app.hub import WorkersHub
from workers_app.pools import PoolSaturated
from workers_app.protocol.messages import SUBPROTOCOL, CloseCode

# Before the accept a close code becomes a status: 400, 401, 403, 503 (`orbit_project.serving.websockets`).
REFUSED_REQUEST, REFUSED_TOKEN, REFUSED_ACTION, REFUSED_NOW = 4400, 4401, 4403, 1013


class _Refused(Exception):
    """The handshake is refused with this close code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class WorkerConsumer(AsyncConsumer):
    """`/v1/workers/connect`. `hub` is the node's."""

    def __init__(self, hub: WorkersHub) -> None:
        self._hub = hub
        self._connection: WorkerConnection | None = None

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Frames in, one after the other. There is no channel layer here, and no thread per message: Channels' own loop
        would close database connections in a shared thread before each of them."""
        self.scope = scope
        self.base_send = send
        try:
            while True:
                message = await receive()
                await getattr(self, get_handler_name(message))(message)
        except StopConsumer:
            return
        finally:
            # Also when a handler raised: reservations must not wait for their leases.
            if self._connection is not None:
                await self._connection.lost()

    async def websocket_connect(self, message: Mapping[str, Any]) -> None:
        try:
            principal = await self._admit()
        except _Refused as refused:
            await self.close(refused.code, refused.reason)
            raise StopConsumer from None
        await self.base_send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL})
        address = (self.scope.get("client") or ("", 0))[0]
        is_full = self._hub.is_full
        self._connection = self._hub.connect(principal=principal, address=address, outlet=self)
        if is_full:
            self._connection.end(
                CloseCode.NODE_FULL, f"the node has {self._hub.connections_max} connections; try another one"
            )
        else:
            self._connection.opened()

    async def websocket_receive(self, message: Mapping[str, Any]) -> None:
        if self._connection is not None:
            await self._connection.received(message.get("text"))

    async def websocket_disconnect(self, message: Mapping[str, Any]) -> None:
        raise StopConsumer

    # -- The outlet of the connection

    async def send(self, text: str) -> None:
        await self.base_send({"type": "websocket.send", "text": text})

    async def close(self, code: int, reason: str) -> None:
        await self.base_send({"type": "websocket.close", "code": int(code), "reason": reason})

    # -- The handshake, in the order of refusals of chapter 1.1

    async def _admit(self) -> Principal:
        headers = self._headers()
        origins = headers.get("origin", [])
        if any(origin not in settings.ORBIT.ws_origins for origin in origins):
            raise _Refused(REFUSED_ACTION, "this origin may not open sockets here")
        principal = await self._principal(headers.get("authorization", []))
        if not principal.may(Action.WORKERS_CONNECT):
            raise _Refused(REFUSED_ACTION, f"the credential lacks the action {Action.WORKERS_CONNECT.value}")
        if SUBPROTOCOL not in self.scope.get("subprotocols", ()):
            raise _Refused(REFUSED_REQUEST, f"the subprotocol {SUBPROTOCOL} is required")
        if self._hub.is_draining:
            raise _Refused(REFUSED_NOW, "the node is going down; connect elsewhere")
        return principal

    async def _principal(self, authorization: list[str]) -> Principal:
        scheme, _, token = (authorization[0] if len(authorization) == 1 else "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _Refused(REFUSED_TOKEN, "a bearer token is required")
        try:
            return await self._hub.authenticate(token.strip())
        except Unauthenticated:
            raise _Refused(REFUSED_TOKEN, "the token is not valid") from None
        except (DatabaseError, PoolSaturated):
            raise _Refused(REFUSED_NOW, "the credential could not be looked at; try again") from None

    def _headers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self.scope["headers"]:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        return found
