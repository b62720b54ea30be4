"""Background loops of a process: something small, again and again, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from django.db import close_old_connections, connections

from lifecycle_app import telemetry


class Loop:
    """Calls `work` every so many seconds, and at once when `wake` is set. An error is logged and the loop goes on:
    the database may be away, and the loop must be there when it comes back."""

    def __init__(
        self, name: str, work: Callable[[], None], *, every_seconds: float, wake: threading.Event | None = None
    ) -> None:
        self._name = name
        self._work = work
        self._every_seconds = every_seconds
        self._wake = wake or threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"orbit-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, wait_seconds: float = 1.0) -> None:
        self._stopping.set()
        self._wake.set()
        self._thread.join(wait_seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                close_old_connections()
                self._work()
            except Exception as error:
                telemetry.loop_failed(self._name, error)
                close_old_connections()
            self._wake.wait(self._every_seconds)
            self._wake.clear()
        connections.close_all()
