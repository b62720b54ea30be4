"""What the lifecycle brings to a node: its loops everywhere, storage nodes by role.

`LifecyclePart` starts in the order of design 4.6. It fits the node's way of starting, draining and stopping its parts
without knowing it: everything is called in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from lifecycle_app import gateway as gateways
from lifecycle_app.domain import ownership, reporting
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.gateway import NodeGateway
from lifecycle_app.maintenance import NODES, LifecycleMaintenance
from lifecycle_app.startup import StartOrder
from lifecycle_app.tcp import TcpNodeServer
from tasks_app import readiness


class LifecyclePart:
    """`node_address` is where storage nodes connect over TCP (host, port); None: over WebSocket only."""

    name = "lifecycle"
    is_drained = True
    attempts_running = 0

    def __init__(self, *, owner: Owner, roles: Collection[str], node_address: tuple[str, int] | None = None) -> None:
        self.owner = owner
        self.order = StartOrder()
        self.address: tuple[str, int] | None = None  # where TCP listens, once it does
        self._roles = roles
        self._node_address = node_address
        self._maintenance = LifecycleMaintenance(owner, self.order, roles=roles)
        self._gateway: NodeGateway | None = None
        self._tcp: TcpNodeServer | None = None

    async def start(self) -> None:
        """Bind, recover, accept connections, deliver. Raises OSError if the address cannot be had."""
        ownership.register(self.owner)
        if NODES in self._roles:
            self._gateway = NodeGateway(self.owner, self.order, report_handler=reporting.apply_report)
        else:
            self.order.bound()
        readiness.register("lifecycle recovery", self.order.problem)
        await asyncio.to_thread(self._maintenance.recover_first)
        if self._gateway is not None:
            self._gateway.open()
            gateways.set_current(self._gateway)
            if self._node_address is not None:
                self._tcp = TcpNodeServer(self._gateway)
                self.address = await self._tcp.listen(*self._node_address)
        self._maintenance.start()

    def begin_drain(self) -> None:
        """Storage nodes stay until the end: their reports are worth having, and they reconnect elsewhere."""

    async def stop(self) -> None:
        gateways.set_current(None)
        if self._gateway is not None:
            self._gateway.close()
        if self._tcp is not None:
            await self._tcp.close()
        await asyncio.to_thread(self._maintenance.stop)
        if self._gateway is not None:
            self._gateway.pool.close()
