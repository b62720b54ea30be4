"""An attempt as a worker knows it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from orbit_sdk.worker.outcomes import Report


class Phase(enum.Enum):
    """Where an attempt stands for its worker.

    OFFERED ── start sent ► STARTING ── STARTED ► RUNNING ── handler ended ► REPORTING ── committed ► (forgotten)
    """

    OFFERED = "offered"
    STARTING = "starting"
    RUNNING = "running"
    REPORTING = "reporting"


class Attempt:
    """One attempt, or the reservation of one. Only the protocol core moves its phase."""

    __slots__ = (
        "attempt_id",
        "fencing_token",
        "holding",
        "lost",
        "phase",
        "progress",
        "progress_sent",
        "renew_at",
        "report",
        "report_refused",
        "stop_at_start",
        "task",
    )

    def __init__(self, attempt_id: str, fencing_token: str, task: Mapping[str, Any]) -> None:
        self.attempt_id = attempt_id
        self.fencing_token = fencing_token
        self.task = task
        self.phase = Phase.OFFERED
        self.renew_at = 0.0
        self.progress: tuple[int, str | None] | None = None  # the newest one that was not sent yet
        self.progress_sent = False  # one is on its way: the next waits for the answer
        self.report: Report | None = None
        self.report_refused = False  # the server called the report INVALID once
        self.stop_at_start: str | None = None
        self.lost = False  # the lease is gone; what the handler still does will be thrown away
        # The item of `start`, `renew` and `release`.
        self.holding = f'{{"attempt_id":"{attempt_id}","fencing_token":"{fencing_token}"}}'

    @property
    def label(self) -> str:
        return f"{self.task['handler']}@{self.task['handler_version']}"

    def __repr__(self) -> str:
        return f"<Attempt {self.attempt_id} {self.phase.value}>"
