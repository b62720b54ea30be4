"""The database's clock as a node knows it: a recent reading carried on by the monotonic clock.

It times notices (a deadline passed, a reservation ran out) and never decides anything: the database does, by its own
clock. A reading is older than the moment at which it is noted by the way back, so this clock runs late, never early: a
worker is not told that a deadline has passed before it has.
"""

from __future__ import annotations

import time

from tasks_app.instants import process_now_us

READING_MAX_AGE_SECONDS = 60.0


class DatabaseClock:
    """Starts as the process's clock until the first reading."""

    def __init__(self) -> None:
        self._offset_us = process_now_us() - time.monotonic_ns() // 1000
        self._noted_at = float("-inf")

    def note(self, now_us: int) -> None:
        """A reading of the database's clock, just come back. The least late of recent readings is kept."""
        monotonic_us = time.monotonic_ns() // 1000
        offset = now_us - monotonic_us
        now = time.monotonic()
        if offset > self._offset_us or now - self._noted_at > READING_MAX_AGE_SECONDS or self._noted_at < 0:
            self._offset_us = offset
            self._noted_at = now

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return self._offset_us + time.monotonic_ns() // 1000
