"""The loops of the lifecycle: heartbeat, recovery, notifications (design 4.4, 4.6).

Heartbeat and recovery belong to every process that may own an intent; notifications to those that tend the database.
"""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from lifecycle_app import telemetry, wakeups
from lifecycle_app.domain import notifications, ownership, recovery
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.limits import HEARTBEAT_SECONDS, RECOVERY_SWEEP_SECONDS
from lifecycle_app.loops import Loop
from lifecycle_app.startup import StartOrder
from tasks_app.models import NodeState
from tasks_app.transactions import CommitOutcomeUnknown

NODES, MAINTENANCE = "nodes", "maintenance"
NOTIFY_SECONDS = 1.0
_AWAY = (DatabaseError, InterfaceError, CommitOutcomeUnknown)


class LifecycleMaintenance:
    """`recover_first()` once, then `start()`; `order` hears how recovery went."""

    def __init__(self, owner: Owner, order: StartOrder, *, roles: Collection[str]) -> None:
        self._owner = owner
        self._order = order
        self._roles = roles
        self._loops = [
            Loop("heartbeat", self._beat, every_seconds=HEARTBEAT_SECONDS),
            Loop("recovery", self._recover, every_seconds=RECOVERY_SWEEP_SECONDS),
        ]
        if settings.ORBIT.notify_url is not None and {NODES, MAINTENANCE} & set(roles):
            self._loops.append(Loop("notify", notify_due, every_seconds=NOTIFY_SECONDS, wake=wakeups.NOTIFY))

    def recover_first(self) -> None:
        """The first heartbeat and the recovery of a start; a failure is told to `order` and tried again by the loop."""
        self._beat(NodeState.STARTING, take_name=True)
        self._recover()

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        for loop in self._loops:
            loop.stop()
        self._beat(NodeState.STOPPED)

    def _recover(self) -> None:
        """Recovery until it has succeeded once, then its sweeps."""
        try:
            if self._order.is_recovered:
                recovered = recovery.sweep(self._owner)
            else:
                recovered = recovery.recover_at_start(self._owner)
                recovery.record_run(self._owner, None)
        except _AWAY as error:
            self._recovery_failed(error)
            return
        telemetry.intents_recovered(unknown=recovered.unknown, released=recovered.released)
        if not self._order.is_recovered:
            self._order.recovery_ended(None)
            wakeups.DELIVER.set()

    def _recovery_failed(self, error: Exception) -> None:
        telemetry.recovery_failed(str(error))
        if self._order.is_recovered:
            return
        # The class says enough for a page that is open to all; the log has the driver's words.
        self._order.recovery_ended(type(error).__name__)
        try:
            recovery.record_run(self._owner, str(error))
        except _AWAY as again:
            telemetry.loop_failed("recovery", again)

    def _beat(self, state: NodeState = NodeState.SERVING, *, take_name: bool = False) -> None:
        try:
            roles = " ".join(sorted(self._roles))
            if not ownership.beat(self._owner, roles=roles, state=state, take_name=take_name):
                telemetry.fenced(self._owner.node_id)
        except _AWAY as error:
            telemetry.loop_failed("heartbeat", error)


def notify_due() -> None:
    """Sends every notification whose time has come."""
    url = settings.ORBIT.notify_url
    while url is not None and (due := notifications.take_due()):
        for notification in due:
            telemetry.notification_sent(received=notifications.send(notification, url))
