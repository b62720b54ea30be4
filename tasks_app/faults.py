"""Crash points for tests: `point(name)` stands at every commit boundary.

Nothing happens unless ORBIT_TEST_FAULT_POINT names a point before this module is imported, as
`name:mode:k`: at the k-th passing (1 is the first) the process is killed (`kill`), stops itself (`stop`), sleeps
(`sleep`, 2 s) or raises (`raise`). Without the variable `point` is an empty function.
"""

from __future__ import annotations

import os
import signal
import threading
import time

_SLEEP_SECONDS = 2.0


class FaultInjected(Exception):
    """Raised by an armed point in mode `raise`."""


class _Armed:
    def __init__(self, text: str) -> None:
        self._name, self._mode, count = text.split(":")
        self._left = int(count)
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        if name != self._name:
            return
        with self._lock:
            self._left -= 1
            hit = self._left == 0
        if not hit:
            return
        if self._mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._mode == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._mode == "sleep":
            time.sleep(_SLEEP_SECONDS)
        else:
            raise FaultInjected(name)


def _absent(name: str) -> None:
    """Production: nothing is here."""


_order = os.environ.get("ORBIT_TEST_FAULT_POINT")
point = _Armed(_order) if _order else _absent
