"""The order in which a process begins, enforced (design 4.6, invariant 10).

    bind report handler and resolver -> recovery -> accept node connections -> automatic redelivery

If recovery fails, nodes may connect, but nothing is dispatched until it succeeds; `/readyz` says so.
"""

from __future__ import annotations

import threading
from enum import IntEnum


class StartOrderViolation(Exception):
    """A step was taken before the one that must come first: a fault of the composing code."""


class Step(IntEnum):
    NEW = 0
    BOUND = 1
    RECOVERY_TRIED = 2
    CONNECTING = 3


class StartOrder:
    """Where one process stands. Every step asks this object, so that none can be taken early."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._step = Step.NEW
        self._recovered = False
        self._recovery_error: str | None = None

    def bound(self) -> None:
        """The report handler and the decision resolver are there."""
        self._advance(Step.NEW, Step.BOUND)

    def recovery_ended(self, error: str | None) -> None:
        """Recovery was run; `error` says why it is not done. Later runs may still succeed."""
        with self._lock:
            if self._step < Step.BOUND:
                raise StartOrderViolation("recovery comes after the report handler and the resolver are bound")
            self._step = max(self._step, Step.RECOVERY_TRIED)
            self._recovered = self._recovered or error is None
            self._recovery_error = None if self._recovered else error

    def connections_begin(self) -> None:
        """Storage nodes may connect from now on, whether recovery succeeded or not."""
        self._advance(Step.RECOVERY_TRIED, Step.CONNECTING)

    @property
    def may_connect(self) -> bool:
        return self._step is Step.CONNECTING

    @property
    def may_dispatch(self) -> bool:
        """Only what was recovered is dispatched from."""
        return self._step is Step.CONNECTING and self._recovered

    @property
    def is_recovered(self) -> bool:
        return self._recovered

    def problem(self) -> str | None:
        """For `/readyz`: what is not as it should be, in one sentence."""
        if self._recovery_error is not None:
            return f"the recovery of operation intents failed ({self._recovery_error}); nothing is dispatched"
        if not self._recovered:
            return "the recovery of operation intents is not done yet"
        return None

    def _advance(self, before: Step, after: Step) -> None:
        with self._lock:
            if self._step is not before:
                raise StartOrderViolation(f"{after.name} comes after {before.name}, not after {self._step.name}")
            self._step = after
