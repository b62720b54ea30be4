"""Bounded pools of threads for database work: one connection per thread, a bounded queue, a saturation figure.

Why our own (design 2, last rules): Channels runs the database work of all sockets of a process in one thread, so one
stuck query would stop everybody's renewals; the standard executor queues without a bound and is joined at exit, so one
stuck query would also stop the process from leaving. The threads here are daemons: what they held when the process
leaves is a broken connection for the database, which rolls it back, exactly as in a crash.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import close_old_connections, connections

T = TypeVar("T")


class PoolSaturated(Exception):
    """The queue of the pool is full, or the pool is closed: nothing was done, ask again later."""


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """What one pool is doing. `saturation`: 0 idle, 1 every thread busy, 2 the queue full too."""

    name: str
    threads: int
    running: int
    waiting: int
    waiting_max: int

    @property
    def saturation(self) -> float:
        queued = self.waiting / self.waiting_max if self.waiting_max else 0.0
        return self.running / self.threads + min(queued, 1.0)


class _Unit(Generic[T]):
    __slots__ = ("future", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.future: Future[T] = Future()


class BoundedPool:
    """`threads` daemon threads that do database work; at most `waiting_max` units wait for one of them.

    Every unit begins with `close_old_connections()`, so that a connection which the server dropped while the thread was
    idle is replaced before it is used, and ends with it when the unit raised, so that a broken one is not kept.
    """

    def __init__(self, name: str, *, threads: int, waiting_max: int) -> None:
        if threads < 1 or waiting_max < 0:
            raise ValueError("a pool needs at least one thread and no negative queue")
        self.name = name
        self.threads = threads
        self.waiting_max = waiting_max
        self._condition = threading.Condition()
        self._waiting: deque[_Unit[Any]] = deque()
        self._workers: list[threading.Thread] = []
        self._running = 0
        self._closed = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have one thread do `work`. Raises PoolSaturated instead of queueing without a bound.

        Cancelling the future takes a waiting unit back and gives its place to another.
        """
        unit: _Unit[T] = _Unit(work)
        with self._condition:
            if self._closed or self._running + len(self._waiting) >= self.threads + self.waiting_max:
                raise PoolSaturated(self.name)
            self._waiting.append(unit)
            if len(self._workers) < min(self.threads, self._running + len(self._waiting)):
                worker = threading.Thread(target=self._serve, name=f"{self.name}-{len(self._workers)}", daemon=True)
                self._workers.append(worker)
                worker.start()
            else:
                self._condition.notify()
        unit.future.add_done_callback(lambda future: self._take_back(unit) if future.cancelled() else None)
        return unit.future

    async def run(self, work: Callable[[], T]) -> T:
        """Await `work` done by one thread. Raises PoolSaturated, or what `work` raised.

        Cancelling the await takes back a unit that waits; one that runs is not interrupted, it ends whole and its
        result is dropped.
        """
        return await asyncio.wrap_future(self.submit(work))

    @property
    def idle_threads(self) -> int:
        """How many threads would take a unit at once."""
        return max(0, self.threads - self._running - len(self._waiting))

    def figures(self) -> PoolFigures:
        with self._condition:
            return PoolFigures(self.name, self.threads, self._running, len(self._waiting), self.waiting_max)

    def close(self, *, wait_seconds: float) -> bool:
        """Take nothing more; let what was taken end. True if every thread left within `wait_seconds`."""
        with self._condition:
            self._closed = True
            workers = list(self._workers)
            self._condition.notify_all()
        end = time.monotonic() + wait_seconds
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()))
        return not any(worker.is_alive() for worker in workers)

    def _take_back(self, unit: _Unit[Any]) -> None:
        with self._condition:
            if unit in self._waiting:
                self._waiting.remove(unit)

    def _serve(self) -> None:
        while (unit := self._next()) is not None:
            if unit.future.set_running_or_notify_cancel():
                _perform(unit)
            del unit  # a thread that waits must not keep the last result alive
            with self._condition:
                self._running -= 1
        connections.close_all()

    def _next(self) -> _Unit[Any] | None:
        """The next unit, counted as running; None once the pool is closed and empty."""
        with self._condition:
            while not self._waiting:
                if self._closed:
                    return None
                self._condition.wait()
            self._running += 1
            return self._waiting.popleft()


def _perform(unit: _Unit[Any]) -> None:
    # Whatever the work raises belongs to whoever awaits the future; the thread itself must outlive it.
    try:
        close_old_connections()
        result = unit.work()
    except BaseException as error:
        unit.future.set_exception(error)
        close_old_connections()
    else:
        unit.future.set_result(result)
