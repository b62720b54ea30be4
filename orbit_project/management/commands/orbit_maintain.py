"""`manage.py orbit_maintain`: the maintenance role alone, without a port (design 5.2)."""

from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from lifecycle_app.domain.ownership import new_process_owner
from lifecycle_app.maintenance import MAINTENANCE, LifecycleMaintenance
from lifecycle_app.startup import StartOrder
from workers_app.maintenance import Maintenance

STOP_SECONDS = 10.0


class Command(BaseCommand):
    help = "Runs the maintenance loops until SIGTERM or SIGINT. Any number of these may run beside nodes."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        maintenance = Maintenance()
        maintenance.start()
        lifecycle = self._lifecycle()
        self.stdout.write("orbit maintenance runs")
        self.stdout.flush()
        stopping.wait()
        maintenance.stop(wait_seconds=STOP_SECONDS)
        lifecycle.stop()

    def _lifecycle(self) -> LifecycleMaintenance:
        """Recovery and notifications, under a name of its own: a node on this machine must not be taken for an older
        process."""
        order = StartOrder()
        order.bound()
        lifecycle = LifecycleMaintenance(new_process_owner(), order, roles=[MAINTENANCE])
        lifecycle.recover_first()
        lifecycle.start()
        return lifecycle
