"""How `make` talks: each step is named before it is done, then what came of it and how long it took."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "var" / "log"
LOG_TAIL_LINES = 15


class StepFailed(Exception):
    """One step could not be done: `cause` in one sentence, the command to type next, and the log if there is one."""

    def __init__(self, cause: str, *, next_command: str, log: Path | None = None) -> None:
        self.cause = cause
        self.next_command = next_command
        self.log = log
        self.step = ""
        super().__init__(cause)


def relative(path: Path) -> str:
    """A path as a person in the project's folder would type it."""
    try:
        return str(path.relative_to(ROOT))
    except ValueError:
        return str(path)


class Step:
    """One step under way; `result` is what its line says when it is done."""

    def __init__(self) -> None:
        self.result = ""
        self.note = ""


class Steps:
    """Numbered steps on the terminal."""

    def __init__(self, title: str, total: int) -> None:
        sys.stdout.reconfigure(errors="replace", line_buffering=True)  # type: ignore[union-attr]
        print(title)
        self._total = total
        self._number = 0
        self.started = time.monotonic()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Print the step's name, do it, print its result and time. A StepFailed gets the step's name."""
        self._number += 1
        print(f" {self._number}/{self._total} {name:<13} ", end="", flush=True)
        began = time.monotonic()
        step = Step()
        try:
            yield step
        except StepFailed as failure:
            failure.step = name
            print("FAILED")
            raise
        except BaseException:
            print("stopped")
            raise
        first, *more = step.result.splitlines() or [""]
        note = f"   ({step.note})" if step.note else ""
        print(f"{first:<58} {time.monotonic() - began:6.1f} s{note}")
        for line in more:
            print(f"{'':<19}{line}")

    def seconds(self) -> float:
        """How long it has been since the first line."""
        return time.monotonic() - self.started


def explain(failure: StepFailed) -> None:
    """Say what went wrong, where to look and what to type next, on stderr."""
    sys.stdout.flush()
    print(f"\n{failure.step or 'it'} failed: {failure.cause}", file=sys.stderr)
    if failure.log is not None and failure.log.exists():
        tail = failure.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        print(f"  log:  {relative(failure.log)}, which ends with", file=sys.stderr)
        for line in tail:
            print(f"        {line}", file=sys.stderr)
    print(f"  next: {failure.next_command}", file=sys.stderr)
