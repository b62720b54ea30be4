"""The storage nodes that are connected to this process, and what is delivered to them (design 4.5).

One per process. Connections come from TCP and from the Channels consumer; one thread looks twice a second, and whenever
something was committed here, what waits for which of them, whichever process committed it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import close_old_connections

from lifecycle_app import telemetry, wakeups
from lifecycle_app.database_pool import DatabasePool
from lifecycle_app.domain import delivery, storage_nodes
from lifecycle_app.domain.delivery import Command
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.domain.reporting import Reporter
from lifecycle_app.domain.storage_nodes import Connected
from lifecycle_app.limits import DELIVERY_SCAN_SECONDS
from lifecycle_app.messages import TaskReport
from lifecycle_app.node_connection import NodeConnection
from lifecycle_app.node_session import CloseReason
from lifecycle_app.startup import StartOrder, StartOrderViolation
from lifecycle_app.states import AckResult, StorageProtocol

ReportHandler = Callable[[Reporter, TaskReport], AckResult | None]
STANDING_SECONDS = 1.0
POOL_THREADS = 4


@dataclass(frozen=True)
class Resolver:
    """Decides what may be told to a node: assigns rows, finds connections with work, takes commands."""

    assign: Callable[[list[str]], int] = delivery.assign_waiting
    with_work: Callable[[list[Connected]], list[Connected]] = delivery.with_work
    take: Callable[[Connected, StorageProtocol], list[Command]] = delivery.take_commands


class NodeGateway:
    """Start it with `open()`, after recovery was tried; `order` enforces that."""

    def __init__(
        self, owner: Owner, order: StartOrder, *, report_handler: ReportHandler, resolver: Resolver | None = None
    ) -> None:
        self.owner = owner
        self.order = order
        self.report_handler = report_handler
        self._resolver = resolver or Resolver()
        self.pool = DatabasePool(POOL_THREADS)
        self._lock = threading.Lock()
        self._connections: dict[str, NodeConnection] = {}  # by storage node
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        order.bound()

    def open(self) -> None:
        """Connections may come from now on. Raises StartOrderViolation before recovery was tried."""
        self.order.connections_begin()
        self._thread = threading.Thread(target=self._deliver_until_stopped, name="orbit-deliver", daemon=True)
        self._thread.start()

    def require_open(self) -> None:
        """Raises StartOrderViolation where a connection would come too early."""
        if not self.order.may_connect:
            raise StartOrderViolation("storage nodes connect after recovery")

    def close(self) -> None:
        """Ends delivery and every connection."""
        self._stopping.set()
        wakeups.DELIVER.set()
        for connection in self._all():
            connection.close(CloseReason.RESTART, "the node restarts")

    # -- Connections

    def joined(self, connection: NodeConnection) -> None:
        """A connection was authenticated. An older one of the same node in this process ends at once."""
        if connection.connected is None:
            return
        with self._lock:
            older = self._connections.get(connection.connected.reporter.storage_node_id)
            self._connections[connection.connected.reporter.storage_node_id] = connection
        if older is not None:
            older.close(CloseReason.REPLACED, "a newer connection of this node took its place")

    def left(self, connection: NodeConnection) -> None:
        if connection.connected is None:
            return
        with self._lock:
            node_id = connection.connected.reporter.storage_node_id
            if self._connections.get(node_id) is connection:
                del self._connections[node_id]

    def wake_delivery(self) -> None:
        wakeups.DELIVER.set()

    def _all(self) -> list[NodeConnection]:
        with self._lock:
            return list(self._connections.values())

    # -- Delivery

    def _deliver_until_stopped(self) -> None:
        looked_at = 0.0
        while not self._stopping.is_set():
            wakeups.DELIVER.wait(DELIVERY_SCAN_SECONDS)
            wakeups.DELIVER.clear()
            if self._stopping.is_set():
                return
            try:
                close_old_connections()
                if time.monotonic() - looked_at >= STANDING_SECONDS:
                    looked_at = time.monotonic()
                    self.end_what_may_not_go_on()
                self.deliver_once()
            except Exception as error:
                # The database may be away for hours: this loop is still there when it comes back.
                telemetry.loop_failed("deliver", error)
                self._stopping.wait(DELIVERY_SCAN_SECONDS)

    def deliver_once(self) -> int:
        """Sends what waits for the nodes connected here; how many commands. Nothing before recovery succeeded."""
        if not self.order.may_dispatch:
            return 0
        ready = {c.connected: c for c in self._all() if c.takes_commands and c.connected is not None}
        if not ready:
            return 0
        self._resolver.assign(sorted({connected.reporter.namespace_id for connected in ready}))
        sent = 0
        for connected in self._resolver.with_work(list(ready)):
            commands = self._resolver.take(connected, ready[connected].protocol)
            if commands:
                ready[connected].deliver(commands)
                sent += len(commands)
        return sent

    def end_what_may_not_go_on(self) -> None:
        """Connections that a newer one elsewhere replaced, and those whose credential ended."""
        connections = {c.connected: c for c in self._all() if c.connected is not None}
        if not connections:
            return
        standing = storage_nodes.standing_of(list(connections))
        for connected, connection in connections.items():
            if connected.connection_id in standing.replaced:
                connection.close(CloseReason.REPLACED, "a newer connection of this node took its place")
            elif connected.connection_id in standing.credential_ended:
                connection.close(CloseReason.UNAUTHENTICATED, "the credential was revoked or expired")


_current: NodeGateway | None = None


def set_current(gateway: NodeGateway | None) -> None:
    """The gateway that WebSocket connections of this process go to."""
    global _current
    _current = gateway


def current() -> NodeGateway | None:
    return _current
