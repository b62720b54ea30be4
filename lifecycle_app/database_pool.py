"""A few threads for the database work of storage node connections.

Not Channels' own thread, which is one for all sockets of a process; not the standard executor, whose threads hold the
process up at exit. Each connection of a node has at most one unit here at a time, so the queue is bounded by them.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from django.db import close_old_connections, connections

T = TypeVar("T")


class DatabasePool:
    """Daemon threads, one database connection each."""

    def __init__(self, threads: int) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"orbit-nodes-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        """Awaits `work` done by one of the threads, and raises what it raised."""
        future: Future[T] = Future()
        self._work.put((work, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Takes nothing more; what runs may end."""
        for _ in self._threads:
            self._work.put(None)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            work, future = item
            if not future.set_running_or_notify_cancel():
                continue
            # Whatever the work raises belongs to whoever awaits it; the thread must outlive it.
            try:
                close_old_connections()
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
                close_old_connections()
            del item, work, future
        connections.close_all()
