"""An event loop of its own for coroutine handlers, so that one that blocks delays no renewal of a lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class CoroutineLoop:
    """A daemon thread with an event loop, started with the first coroutine."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[str, asyncio.Task[None] | None] = {}  # None: made, but not begun
        self._kept: set[asyncio.Task[None]] = set()
        self._cancelled: set[str] = set()  # asked to stop before they began

    def submit(self, key: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine`, which must not raise, under `key`."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True).start()
        self._loop.call_soon_threadsafe(self._start, key, coroutine)

    def cancel(self, key: str) -> None:
        """Raise CancelledError in the coroutine, if it still runs."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, key)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()

    def _start(self, key: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks[key] = None
        task = asyncio.get_running_loop().create_task(self._see_through(key, coroutine))
        self._kept.add(task)  # the loop itself holds tasks only weakly
        task.add_done_callback(self._kept.discard)

    async def _see_through(self, key: str, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.current_task()
        self._tasks[key] = task
        if key in self._cancelled and task is not None:
            # A task that is cancelled before its first step never takes it, and nobody would report the attempt. This
            # way the handler begins and is cancelled where it first waits.
            self._cancelled.discard(key)
            task.cancel()
        try:
            await coroutine
        finally:
            del self._tasks[key]

    def _cancel(self, key: str) -> None:
        if key not in self._tasks:
            return
        task = self._tasks[key]
        if task is None:
            self._cancelled.add(key)
        else:
            task.cancel()

    def stop(self) -> None:
        """End the loop; coroutines that still run are left where they are."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
