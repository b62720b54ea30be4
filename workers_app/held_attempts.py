"""What one connection holds: reservations and running attempts, and the moments at which they need a look.

Pure bookkeeping by the database's clock (microseconds since the epoch); it decides no right to run anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count


class Due(Enum):
    """Why an attempt needs a look."""

    LEASE = "lease"  # its reservation or running lease has run out
    DEADLINE = "deadline"  # the task's deadline has passed while it runs
    TIMEOUT = "timeout"  # it has run for longer than it may


@dataclass(slots=True)
class HeldAttempt:
    """One reservation (`is_running` False) or running attempt. Instants are of the database's clock."""

    attempt_id: str
    task_id: str
    fencing_token: int
    queue_id: str
    priority: int
    is_running: bool
    lease_until: int
    deadline_at: int | None = None
    attempt_timeout_ms: int | None = None
    timeout_at: int | None = None
    order: int = 0  # of its claim: what was claimed last is given back first
    is_delivered: bool = True  # the worker was told of it
    told: frozenset[str] = frozenset()  # reasons for which it was asked to stop


@dataclass(slots=True)
class HeldAttempts:
    """See the module."""

    _attempts: dict[str, HeldAttempt] = field(default_factory=dict)
    _dues: list[tuple[int, int, str, Due]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _by_task: dict[str, str] = field(default_factory=dict)
    running: int = 0
    urgent: int = 0  # those with a priority above 0

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[HeldAttempt]:
        return iter(list(self._attempts.values()))

    def get(self, attempt_id: str) -> HeldAttempt | None:
        return self._attempts.get(attempt_id)

    def of_task(self, task_id: str) -> HeldAttempt | None:
        """The attempt of that task, if it is held here."""
        return self._attempts.get(self._by_task.get(task_id, ""))

    def add(self, attempt: HeldAttempt) -> None:
        """Hold one more; one that is held already is replaced."""
        self.drop(attempt.attempt_id)
        attempt.order = next(self._numbers)
        self._attempts[attempt.attempt_id] = attempt
        if attempt.task_id:
            self._by_task[attempt.task_id] = attempt.attempt_id
        self.running += attempt.is_running
        self.urgent += attempt.priority > 0
        self._watch(attempt.lease_until, attempt, Due.LEASE)
        if attempt.is_running:
            self._watch_limits(attempt)

    def drop(self, attempt_id: str) -> HeldAttempt | None:
        """It is not held any more."""
        attempt = self._attempts.pop(attempt_id, None)
        if attempt is not None:
            self.running -= attempt.is_running
            self.urgent -= attempt.priority > 0
            if self._by_task.get(attempt.task_id) == attempt_id:
                del self._by_task[attempt.task_id]
        return attempt

    def started(self, attempt: HeldAttempt, *, lease_until: int, started_at: int) -> None:
        """It runs. `started_at` may be a little late, never early."""
        self.extended(attempt, lease_until=lease_until)
        if not attempt.is_running:
            attempt.is_running = True
            self.running += attempt.attempt_id in self._attempts
            if attempt.attempt_timeout_ms is not None:
                attempt.timeout_at = started_at + attempt.attempt_timeout_ms * 1000
            self._watch_limits(attempt)

    def extended(self, attempt: HeldAttempt, *, lease_until: int) -> None:
        """Its lease ends at `lease_until` now; the look at the old end finds that and looks again then."""
        if lease_until < attempt.lease_until:
            self._watch(lease_until, attempt, Due.LEASE)
        attempt.lease_until = lease_until

    def unstarted_newest_first(self) -> list[HeldAttempt]:
        unstarted = [attempt for attempt in self._attempts.values() if not attempt.is_running]
        return sorted(unstarted, key=lambda attempt: -attempt.order)

    def due(self, now_us: int) -> list[tuple[HeldAttempt, Due]]:
        """Those whose moment has come, each once."""
        found = []
        while self._dues and self._dues[0][0] <= now_us:
            _, _, attempt_id, due = heapq.heappop(self._dues)
            attempt = self._attempts.get(attempt_id)
            if attempt is None:
                continue
            if due is Due.LEASE and attempt.lease_until > now_us:
                self._watch(attempt.lease_until, attempt, Due.LEASE)
            else:
                found.append((attempt, due))
        return found

    def _watch_limits(self, attempt: HeldAttempt) -> None:
        if attempt.deadline_at is not None:
            self._watch(attempt.deadline_at, attempt, Due.DEADLINE)
        if attempt.timeout_at is not None:
            self._watch(attempt.timeout_at, attempt, Due.TIMEOUT)

    def _watch(self, at: int, attempt: HeldAttempt, due: Due) -> None:
        heapq.heappush(self._dues, (at, next(self._numbers), attempt.attempt_id, due))
