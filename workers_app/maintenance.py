"""Maintenance: the loops that every node of the role runs (design 3.6). What time does to tasks shows within 2 s.

Each loop has a thread and a database connection of its own, so that a long retention never delays a sweep. A loop that
fails says so once, tries again with a growing pause, and says when it works again: an outage of the database is one
line and not one per second. Which loop does what stands in `LOOPS`; the verbs decide by the rows' own stored policies.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import close_old_connections, connections

from tasks_app.domain import plan_firing, sweeps
from tasks_app.domain.retention import Retention
from workers_app import sessions, telemetry

JITTER_RATIO = 0.2
BATCHES_MAX = 50  # of one loop in one go; then others get their turn at the database
PAUSE_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Loop:
    """Something to be done every `seconds`. `batch` does a small part and says whether there is more to do at once."""

    name: str
    seconds: float
    batch: Callable[[], bool]


def _sweep() -> bool:
    return sweeps.sweep_due().more


def _recheck_resource_keys() -> bool:
    return sweeps.recheck_resource_keys() >= sweeps.RECHECK_BATCH


def _fire_plans() -> bool:
    return plan_firing.fire_due() >= plan_firing.PLANS_PER_PASS


def _prune_sessions() -> bool:
    return sessions.prune() >= sessions.PRUNE_BATCH


LOOPS: tuple[Loop, ...] = (
    Loop("sweep", 1.0, _sweep),
    Loop("resource keys", 1.0, _recheck_resource_keys),
    Loop("plans", 1.0, _fire_plans),
    Loop("sessions", 60.0, _prune_sessions),
    Loop("retention", 60.0, Retention().step),
)


class Maintenance:
    """Runs loops from `start()` to `stop()`, in threads."""

    def __init__(self, loops: Sequence[Loop] = LOOPS) -> None:
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=f"orbit-{loop.name}", daemon=True) for loop in loops
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ask_to_stop(self) -> None:
        """No further batch begins."""
        self._stopping.set()

    def stop(self, *, wait_seconds: float) -> None:
        """Wait for the batches that are under way; one that hangs is left behind, as in a crash."""
        self.ask_to_stop()
        for thread in self._threads:
            thread.join(wait_seconds)

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, loop: Loop) -> None:
        failures = 0
        while not self._stopping.wait(_pause(loop, failures)):
            try:
                close_old_connections()
                self._work(loop)
            except Exception as error:  # whatever it is, the next try may work; the loop must not end
                failures += 1
                telemetry.SWEEP_ERRORS.labels(loop=loop.name).inc()
                if failures == 1:
                    telemetry.loop_failing(loop.name, error)
                close_old_connections()
            else:
                if failures:
                    telemetry.loop_recovered(loop.name)
                failures = 0
        connections.close_all()

    def _work(self, loop: Loop) -> None:
        for _ in range(BATCHES_MAX):
            if not loop.batch() or self._stopping.is_set():
                return


def _pause(loop: Loop, failures: int) -> float:
    """The loop's own pace with jitter, so that nodes do not sweep in step; longer with every failure."""
    seconds = loop.seconds if not failures else min(max(loop.seconds, 0.5) * 2**failures, PAUSE_SECONDS_MAX)
    return seconds * random.uniform(1 - JITTER_RATIO, 1 + JITTER_RATIO)  # noqa: S311 - jitter
