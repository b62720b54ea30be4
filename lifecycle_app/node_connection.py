"""One connection of a storage node: feeds the session, acts on its events, sends what it puts out.

Both transports use it. Everything of one connection happens one after the other in one task: the next frame is not
looked at before the last report was committed and acknowledged. Only commands come in from elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from django.db import DatabaseError, InterfaceError

from lifecycle_app import telemetry
from lifecycle_app.domain import storage_nodes
from lifecycle_app.domain.delivery import Command
from lifecycle_app.domain.storage_nodes import Connected
from lifecycle_app.limits import DELIVERY_BATCH
from lifecycle_app.node_session import (
    Closed,
    CloseReason,
    Event,
    Identified,
    Negotiated,
    NodeSession,
    PassedOver,
    Reported,
    SessionState,
)
from lifecycle_app.states import StorageProtocol
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import PermissionDenied, Unauthenticated
from tasks_app.transactions import CommitOutcomeUnknown

if TYPE_CHECKING:
    from lifecycle_app.gateway import NodeGateway

_INBOX_MAX = 16  # pieces waiting to be read; beyond it the transport waits


class Transport(Protocol):
    """What TCP and WebSocket have in common. Everything is called in the event loop of the connection."""

    peer: str

    async def send(self, data: bytes) -> None:
        """Raises OSError when the other side does not take it in time, or is gone."""

    async def close(self, reason: CloseReason | None, detail: str) -> None:
        """Repeatable."""


class NodeConnection:
    """`principal` is what the transport was authenticated with; None: the identity alone says who it is."""

    def __init__(
        self, gateway: NodeGateway, transport: Transport, *, principal: Principal | None, whole_messages: bool
    ) -> None:
        self._gateway = gateway
        self._transport = transport
        self._principal = principal
        self._session = NodeSession(
            site_name=gateway.owner.node_id, now=time.monotonic(), whole_messages=whole_messages
        )
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue(_INBOX_MAX)
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._unsent_commands = False
        self._closed: Closed | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connected: Connected | None = None

    # -- From the transport

    async def feed(self, data: bytes) -> None:
        """Bytes arrived. Waits while earlier ones are not read yet."""
        await self._inbox.put(data)

    async def feed_end(self) -> None:
        """The other side is gone."""
        await self._inbox.put(None)

    # -- From other threads

    @property
    def takes_commands(self) -> bool:
        """Negotiated, and what was given before has left."""
        return (
            self._session.state in (SessionState.V2, SessionState.LEGACY)
            and self.connected is not None
            and not self._unsent_commands
        )

    @property
    def protocol(self) -> StorageProtocol:
        return self._session.protocol

    def deliver(self, commands: Sequence[Command]) -> None:
        """Sends commands that were marked as sent on this very connection. Any thread may call it."""
        self._unsent_commands = True
        self._soon(lambda: self._send_commands(commands))

    def close(self, reason: CloseReason, detail: str) -> None:
        """Ends the connection from this side. Any thread may call it."""
        self._soon(lambda: self._end(reason, detail))

    def _soon(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            self._loop.call_soon_threadsafe(lambda: self._begin(act()))
        except RuntimeError:
            return  # the loop is closed: the connection went with it

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself keeps no reference that would hold it
        task.add_done_callback(self._tasks.discard)

    # -- The connection's own task

    async def run(self) -> None:
        """Until the connection ends, from whichever side."""
        try:
            await self._flush()
            while self._session.state is not SessionState.CLOSED:
                events = await self._next_events()
                if events is None:
                    break
                await self._act_on(events)
        except OSError:
            self._closed = self._closed or Closed(CloseReason.TIMEOUT, "the node does not take what is sent")
        except Exception as error:
            # A fault of ours: nothing of it was committed or acknowledged, and the node may come again.
            telemetry.loop_failed("connection", error)
            self._closed = Closed(CloseReason.TRY_LATER, "internal error")
        finally:
            await self._finish()

    async def _next_events(self) -> list[Event] | None:
        """What the next bytes, or the passing of a deadline, mean; None when the other side is gone."""
        deadline = self._session.deadline
        try:
            async with asyncio.timeout_at(None if deadline is None else self._loop_time(deadline)):
                data = await self._inbox.get()
        except TimeoutError:
            return self._session.tick(now=time.monotonic())
        return None if data is None else self._session.receive(data)

    def _loop_time(self, deadline: float) -> float:
        return self._loop.time() + (deadline - time.monotonic())

    async def _act_on(self, events: list[Event]) -> None:
        waiting = deque(events)
        while waiting:
            waiting.extendleft(reversed(await self._act(waiting.popleft())))
            await self._flush()

    async def _act(self, event: Event) -> list[Event]:
        """Does what an event asks for; more events may come of it."""
        if isinstance(event, Identified):
            return await self._identify(event)
        if isinstance(event, Negotiated):
            return await self._negotiated(event)
        if isinstance(event, Reported):
            await self._reported(event)
        elif isinstance(event, PassedOver):
            telemetry.legacy_message_passed_over(self._name, int(event.frame_type))
        else:
            self._closed = event
        return []

    async def _identify(self, event: Identified) -> list[Event]:
        owner, identity, principal = self._gateway.owner, event.identity, self._principal

        def ask() -> Connected:
            if principal is None:
                return storage_nodes.connect_by_token(identity.name, token=identity.token, owner=owner)
            return storage_nodes.connect(principal, identity.name, token=identity.token, owner=owner)

        try:
            connected = await self._gateway.pool.run(ask)
        except Unauthenticated:
            return self._session.refuse(CloseReason.UNAUTHENTICATED, "the credential is not valid")
        except PermissionDenied:
            return self._session.refuse(CloseReason.FORBIDDEN, "the credential may not connect as this node")
        except (DatabaseError, InterfaceError, CommitOutcomeUnknown):
            return self._session.refuse(CloseReason.TRY_LATER, "the database does not answer")
        self.connected = connected
        telemetry.node_identified(connected.reporter.name, self._transport.peer)
        self._gateway.joined(self)
        return self._session.accept(now=time.monotonic())

    async def _negotiated(self, event: Negotiated) -> list[Event]:
        connected = self.connected
        if connected is None:
            return []
        try:
            current = await self._gateway.pool.run(lambda: storage_nodes.negotiated(connected, event.protocol))
        except (DatabaseError, InterfaceError, CommitOutcomeUnknown):
            return self._session.refuse(CloseReason.TRY_LATER, "the database does not answer")
        if not current:
            return self._session.refuse(CloseReason.REPLACED, "a newer connection of this node took its place")
        telemetry.node_negotiated(connected.reporter.name, event.protocol)
        self._gateway.wake_delivery()
        return []

    async def _reported(self, event: Reported) -> None:
        """Applied, and only then acknowledged; what was not committed is not answered, and the node sends it again."""
        connected, report = self.connected, event.report
        if connected is None:
            return
        handler = self._gateway.report_handler
        result = await self._gateway.pool.run(lambda: handler(connected.reporter, report))
        telemetry.report_applied(result)
        if result is not None and report.report_id is not None:
            self._session.acknowledge(report_id=report.report_id, result=result)

    async def _send_commands(self, commands: Sequence[Command]) -> None:
        if self._session.state in (SessionState.V2, SessionState.LEGACY):
            for command in commands:
                self._session.command(
                    operation_id=command.operation_id, action=command.action, gid=command.gid, name=command.name
                )
                telemetry.command_sent(command.action)
            try:
                await self._flush()
            except OSError:
                await self._end(CloseReason.TIMEOUT, "the node does not take what is sent")
        self._unsent_commands = False
        if len(commands) >= DELIVERY_BATCH:
            self._gateway.wake_delivery()  # there may be more

    async def _end(self, reason: CloseReason, detail: str) -> None:
        if self._session.state is not SessionState.CLOSED:
            self._closed = self._session.close(reason, detail)
        await self._transport.close(reason, detail)
        if self._inbox.empty():
            self._inbox.put_nowait(None)  # whoever waits for bytes need not wait any more

    async def _flush(self) -> None:
        async with self._sending:
            data = self._session.take_output()
            if data:
                await self._transport.send(data)

    async def _finish(self) -> None:
        closed = self._closed
        if closed is None and self._session.state is not SessionState.CLOSED:
            self._session.close(CloseReason.PROTOCOL, "the node left")
        reason, detail = (None, "the node left") if closed is None else (closed.reason, closed.detail)
        await self._transport.close(reason, detail)
        telemetry.node_closed(self._name, self._transport.peer, reason, detail)
        connected = self.connected
        if connected is not None:
            self._gateway.left(self)
            try:
                await self._gateway.pool.run(lambda: storage_nodes.disconnected(connected))
            except (DatabaseError, InterfaceError, CommitOutcomeUnknown) as error:
                # The node's next connection, or the death of this process, says the same.
                telemetry.loop_failed("disconnect", error)

    @property
    def _name(self) -> str | None:
        return None if self.connected is None else self.connected.reporter.name
