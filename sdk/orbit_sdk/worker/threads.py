"""Long-lived threads that run handlers one after the other.

A queue in C and no future per attempt: for tasks of microseconds the hand-over is what costs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

Job = Callable[[], None]


class ThreadPool:
    """At most `size` daemon threads, made when they are first needed. Jobs must not raise."""

    def __init__(self, size: int, *, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, job: Job, *, busy: int) -> None:
        """Run `job` in a thread; `busy` jobs, this one included, are not done yet. Called by one thread only."""
        if busy > len(self._threads) and len(self._threads) < self._size:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def stop(self, *, timeout: float) -> None:
        """Let idle threads end. Those that are in a handler are waited for at most `timeout` seconds and then left."""
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
