"""`orbit worker`: run a worker from the command line, with a restart on every change for development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from orbit_sdk.app import App
from orbit_sdk.cli.loading import load_worker_target
from orbit_sdk.cli.session import ExitCode, fail, session_of

LOOK_SECONDS = 0.3
RELOADED = "_ORBIT_WORKER_RELOADED"  # set for the child of --reload
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def worker(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="An App or a Worker of yours.")],
    queue: Annotated[list[str] | None, typer.Option(help="Only these queues (of an App).")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, max=1000, help="Handlers at once (of an App).")] = None,
    prefetch: Annotated[int | None, typer.Option(min=1, max=1000, help="Attempts held at once (of an App).")] = None,
    normal_reserved_slots: Annotated[int, typer.Option(min=0, help="Slots kept free of urgent tasks (of an App).")] = 0,
    name: Annotated[str | None, typer.Option(help="Shown to operators (of an App).")] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when a Python file here changes.")] = False,
) -> None:
    """Run a worker until SIGTERM or Ctrl-C; then it drains. 1 if attempts had to be left to their leases."""
    session = session_of(context)
    if reload and RELOADED not in os.environ:
        raise typer.Exit(Reloader(sys.argv[1:], Path.cwd()).run())
    found = load_worker_target(target)
    if isinstance(found, App):
        left = found.run_worker(
            queues=queue,
            concurrency=concurrency,
            prefetch=prefetch,
            normal_reserved_slots=normal_reserved_slots,
            name=name,
            json=session.json,
        )
    else:
        if queue or concurrency or prefetch or normal_reserved_slots or name:
            raise fail(f"{target} is a Worker: what it does stands in its own code")
        left = found.run(json=session.json)
    raise typer.Exit(ExitCode.REFUSED if left else ExitCode.OK)


class Reloader:
    """Runs the same command in a child, and runs it anew whenever a Python file changes."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._command = [sys.executable, "-m", "orbit_sdk.cli", *arguments]
        self._folder = folder
        self._signals = 0  # a second one is passed on too: the child then leaves at once

    def run(self) -> int:
        """Until a signal; the last child's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        code = 0
        while not self._signals:
            seen = fingerprint(self._folder)
            child = subprocess.Popen(  # noqa: S603 (this very command)
                self._command, env={**os.environ, RELOADED: "1"}, start_new_session=True
            )
            code = self._wait(child, seen)
        return code

    def _wait(self, child: subprocess.Popen[bytes], seen: int) -> int:
        """Until the child has ended and there is a reason to go on: a signal, or a change of a file.

        A child that ended by itself (an error in the code) is not started again before the code changes.
        """
        passed_on = 0
        changed = False
        while True:
            time.sleep(LOOK_SECONDS)
            newly_changed = not changed and fingerprint(self._folder) != seen
            changed = changed or newly_changed
            code = child.poll()
            if code is not None and (changed or self._signals):
                return code
            if code is None and (newly_changed or passed_on < self._signals):
                passed_on = self._signals
                child.terminate()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1


def fingerprint(folder: Path) -> int:
    """Changes whenever a Python file below `folder` is written, made or removed."""
    stamps = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                try:
                    stamps.append((path, os.stat(path).st_mtime_ns))
                except FileNotFoundError:
                    continue  # removed while we looked
    return hash(tuple(sorted(stamps)))
