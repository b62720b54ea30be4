"""The time line of a task, to scale: pure values in, phases out. Drawn as SVG, and told as rows beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 1000  # units of the drawing
_NARROWEST: Final = 2.0  # a phase of a millisecond can still be seen


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt; `finished_at` None while it runs. Instants are microseconds."""

    started_at: int
    finished_at: int | None
    label: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the line: `x` and `width` in units of the drawing."""

    kind: str
    x: float
    width: float
    label: str
    seconds: float


def phases(*, created_at: int, ended_at: int, runs: Sequence[Run]) -> list[Phase]:
    """Waiting and running, one after the other, from acceptance to the end (or to now, of a task that goes on)."""
    whole = max(1, ended_at - created_at)
    found: list[Phase] = []

    def add(kind: str, start: int, end: int, label: str) -> None:
        width = max(_NARROWEST, (end - start) * WIDTH / whole)
        x = min((start - created_at) * WIDTH / whole, WIDTH - width)
        found.append(Phase(kind, round(x, 2), round(width, 2), label, (end - start) / 1_000_000))

    at = created_at
    for run in runs:
        if run.started_at > at:
            add("waiting", at, run.started_at, "")
        end = ended_at if run.finished_at is None else run.finished_at
        add("running", run.started_at, end, run.label)
        at = max(at, end)
    if ended_at > at:
        add("waiting", at, ended_at, "")
    return found


def places(moments: Sequence[int], *, created_at: int, ended_at: int) -> list[float]:
    """Where moments stand on the same line."""
    whole = max(1, ended_at - created_at)
    return [round(min(WIDTH, max(0, (moment - created_at) * WIDTH / whole)), 2) for moment in moments]
