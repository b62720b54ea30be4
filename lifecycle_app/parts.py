"""What the lifecycle brings to a node: heartbeat and recovery everywhere, storage nodes and notifications by role.

`LifecyclePart` starts in the order of design 4.6. It fits the node's way of starting, draining and stopping its parts
without knowing it: everything is called in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from lifecycle_app import gateway as gateways
from lifecycle_app import telemetry, wakeups
from lifecycle_app.domain import notifications, ownership, recovery, reporting
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.gateway import NodeGateway
from lifecycle_app.limits import HEARTBEAT_SECONDS, RECOVERY_SWEEP_SECONDS
from lifecycle_app.loops import Loop
from lifecycle_app.startup import StartOrder
from lifecycle_app.tcp import TcpNodeServer
from tasks_app import readiness
from tasks_app.models import NodeState
from tasks_app.transactions import CommitOutcomeUnknown

NOTIFY_SECONDS = 1.0
NODES, MAINTENANCE = "nodes", "maintenance"


class LifecyclePart:
    """`node_address` is where storage nodes connect over TCP (host, port); None: over WebSocket only."""

    name = "lifecycle"

    def __init__(
        self,
        *,
        owner: Owner,
        roles: Collection[str],
        node_address: tuple[str, int] | None = None,
        keeps_heartbeat: bool = True,
    ) -> None:
        self.owner = owner
        self.order = StartOrder()
        self.address: tuple[str, int] | None = None  # where TCP listens, once it does
        self._roles = roles
        self._node_address = node_address
        self._keeps_heartbeat = keeps_heartbeat
        self._gateway: NodeGateway | None = None
        self._tcp: TcpNodeServer | None = None
        self._loops: list[Loop] = []

    async def start(self) -> None:
        """Bind, recover, accept connections, deliver. Raises OSError if the address cannot be had."""
        ownership.register(self.owner)
        if NODES in self._roles:
            self._gateway = NodeGateway(self.owner, self.order, report_handler=reporting.apply_report)
        else:
            self.order.bound()
        readiness.register("lifecycle recovery", self.order.problem)
        await asyncio.to_thread(self._recover_first)
        if self._gateway is not None:
            self._gateway.open()
            gateways.set_current(self._gateway)
            if self._node_address is not None:
                self._tcp = TcpNodeServer(self._gateway)
                self.address = await self._tcp.listen(*self._node_address)
        self._begin_loops()

    def begin_drain(self) -> None:
        """Storage nodes stay until the end: their reports are worth having, and they reconnect elsewhere."""

    @property
    def is_drained(self) -> bool:
        return True

    @property
    def attempts_running(self) -> int:
        return 0

    async def stop(self) -> None:
        gateways.set_current(None)
        if self._gateway is not None:
            self._gateway.close()
        if self._tcp is not None:
            await self._tcp.close()
        await asyncio.to_thread(self._end_loops)
        if self._gateway is not None:
            self._gateway.pool.close()

    # -- Recovery and heartbeat

    def _recover_first(self) -> None:
        self._beat(NodeState.STARTING, take_name=True)
        self._recover()

    def _recover(self) -> None:
        """Recovery until it has succeeded once, then its sweeps. A failure is shown, and tried again by the loop."""
        try:
            if self.order.is_recovered:
                recovered = recovery.sweep(self.owner)
            else:
                recovered = recovery.recover_at_start(self.owner)
                recovery.record_run(self.owner, None)
        except (DatabaseError, InterfaceError, CommitOutcomeUnknown) as error:
            self._recovery_failed(error)
            return
        telemetry.intents_recovered(unknown=recovered.unknown, released=recovered.released)
        if not self.order.is_recovered:
            self.order.recovery_ended(None)
            wakeups.DELIVER.set()

    def _recovery_failed(self, error: Exception) -> None:
        telemetry.recovery_failed(str(error))
        if self.order.is_recovered:
            return
        # The class says enough for a page that is open to all; the log has the driver's words.
        self.order.recovery_ended(type(error).__name__)
        try:
            recovery.record_run(self.owner, str(error))
        except (DatabaseError, InterfaceError, CommitOutcomeUnknown) as again:
            telemetry.loop_failed("recovery", again)

    def _beat(self, state: NodeState = NodeState.SERVING, *, take_name: bool = False) -> None:
        if not self._keeps_heartbeat:
            return
        try:
            roles = " ".join(sorted(self._roles))
            if not ownership.beat(self.owner, roles=roles, state=state, take_name=take_name):
                telemetry.fenced(self.owner.node_id)
        except (DatabaseError, InterfaceError, CommitOutcomeUnknown) as error:
            telemetry.loop_failed("heartbeat", error)

    # -- Loops

    def _begin_loops(self) -> None:
        self._loops = [
            Loop("heartbeat", self._beat, every_seconds=HEARTBEAT_SECONDS),
            Loop("recovery", self._recover, every_seconds=RECOVERY_SWEEP_SECONDS),
        ]
        if settings.ORBIT.notify_url is not None and {NODES, MAINTENANCE} & set(self._roles):
            self._loops.append(Loop("notify", notify_due, every_seconds=NOTIFY_SECONDS, wake=wakeups.NOTIFY))
        for loop in self._loops:
            loop.start()

    def _end_loops(self) -> None:
        for loop in self._loops:
            loop.stop()


def notify_due() -> None:
    """Sends every notification whose time has come."""
    url = settings.ORBIT.notify_url
    while url is not None and (due := notifications.take_due()):
        for notification in due:
            telemetry.notification_sent(received=notifications.send(notification, url))
