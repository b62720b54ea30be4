"""Handlers in processes of their own, for work that crashes, leaks or never lets go of the interpreter.

A thread of the worker looks after each running child: it passes progress on, tells it to stop, and knows when it dies.
What a dead child did before it died is not known, so nothing is reported: the attempt is left to its lease.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from orbit_sdk.credentials import Credentials
from orbit_sdk.worker.context import Context, OfferedTask
from orbit_sdk.worker.execution import execute
from orbit_sdk.worker.handlers import Handler
from orbit_sdk.worker.outcomes import Report, clean_message
from orbit_sdk.worker.publishing import ChildPublisher

_LOOK_SECONDS = 0.05
KILL_SECONDS = 5.0  # a child that lost its lease and does not stop: what it does has no authority any more


@dataclass(frozen=True)
class _Job:
    handler: Handler
    attempt_id: str
    fencing_token: str
    task: dict[str, Any]
    with_traceback: bool


class _Child:
    def __init__(self, credentials: Credentials | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, credentials), daemon=True)
        self.process.start()
        theirs.close()

    def end(self) -> None:
        self.pipe.close()
        self.process.join(1.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class ProcessHandlers:
    """Children that are used again and again; at most as many as handlers run at once."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._idle: list[_Child] = []
        self._lock = threading.Lock()

    def execute(
        self, handler: Handler, context: Context, task: dict[str, Any], *, with_traceback: bool
    ) -> Report | None:
        """Run a handler in a child and wait for it. None if the child died: nobody knows what became of the work."""
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or _Child(self._credentials)
        job = _Job(handler, context.attempt_id, context.fencing_token, task, with_traceback)
        try:
            child.pipe.send(job)
            report = _look_after(child, context)
        except (EOFError, OSError):
            child.end()
            return None
        with self._lock:
            self._idle.append(child)
        return report

    def stop(self) -> None:
        with self._lock:
            children, self._idle = self._idle, []
        for child in children:
            child.end()


def _look_after(child: _Child, context: Context) -> Report:
    """Raises EOFError or OSError when the child is gone."""
    told: str | None = None
    kill_at: float | None = None
    while True:
        if context.cancel_reason != told:
            told = context.cancel_reason
            child.pipe.send(told)
            kill_at = time.monotonic() + KILL_SECONDS if told == "LEASE_LOST" else kill_at
        if kill_at is not None and time.monotonic() >= kill_at:
            child.process.kill()
            raise EOFError("it did not stop after its lease was lost")
        if not child.pipe.poll(_LOOK_SECONDS):
            continue
        said = child.pipe.recv()
        if isinstance(said, Report):
            return said
        percent, message = said
        context.progress(percent, message)


class _ChildContext(Context):
    """The context inside the child: progress goes up the pipe."""

    def __init__(self, pipe: Connection, lock: threading.Lock, **members: Any) -> None:
        super().__init__(**members)
        self._pipe = pipe
        self._pipe_lock = lock

    def _report_progress(self, percent: int, message: str | None) -> None:
        with self._pipe_lock:
            self._pipe.send((percent, message))


def _serve(pipe: Connection, credentials: Credentials | None) -> None:
    """The child: run jobs until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker decides; a Ctrl-C reaches the whole group
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    publisher = None if credentials is None else ChildPublisher(credentials)
    lock = threading.Lock()
    jobs: queue.SimpleQueue[tuple[_Job, _ChildContext]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, lock, publisher, jobs), daemon=True).start()
    while True:
        job, context = jobs.get()
        report = execute(job.handler, context, with_traceback=job.with_traceback)
        with lock:
            pipe.send(report)


def _listen(
    pipe: Connection,
    lock: threading.Lock,
    publisher: ChildPublisher | None,
    jobs: queue.SimpleQueue[tuple[_Job, _ChildContext]],
) -> None:
    """Take jobs in, and tell the context of the newest one when it should stop, also before it has begun."""
    context: _ChildContext | None = None
    while True:
        try:
            said = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # the worker is gone or done with this child; whatever still runs has nobody to report to
        except Exception as error:  # the handler's module cannot be imported here
            message = clean_message(f"the handler cannot be loaded in its process: {error}")
            with lock:
                pipe.send(Report("FAILED", code="HANDLER_NOT_LOADED", message=message))
            continue
        if isinstance(said, _Job):
            context = _ChildContext(
                pipe,
                lock,
                attempt_id=said.attempt_id,
                fencing_token=said.fencing_token,
                task=OfferedTask(said.task),
                publisher=publisher,
            )
            jobs.put((said, context))
        elif context is not None:
            context._cancel(said)
