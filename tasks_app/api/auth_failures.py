"""Failed authentications per address: past so many a minute, further *failing* requests hear RATE_LIMITED (design 1.1).

A valid credential is never blocked: the credential is looked at first, and only its failure is counted. Kept in memory,
per node: tokens have 256 random bits, so that this spares the log and tells a misconfigured client; it guards no
secret.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

ADDRESSES_MAX: Final = 10_000
_MINUTE_SECONDS: Final = 60.0


class AuthFailures:
    """A bucket of `per_minute` failures for each address, refilled evenly; the longest unused of 10 000 is
    forgotten."""

    def __init__(self, *, per_minute: int, clock: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address: (failures left, when)

    def count(self, address: str) -> int | None:
        """Counts one failure. None while the address may fail, else the milliseconds until it may again."""
        now = self._clock()
        per_second = self._per_minute / _MINUTE_SECONDS
        with self._lock:
            left, at = self._buckets.pop(address, (float(self._per_minute), now))
            left = min(float(self._per_minute), left + (now - at) * per_second)
            allowed = left >= 1.0
            self._buckets[address] = (left - 1.0 if allowed else left, now)
            if len(self._buckets) > ADDRESSES_MAX:
                self._buckets.popitem(last=False)
        return None if allowed else int((1.0 - left) / per_second * 1000) + 1
