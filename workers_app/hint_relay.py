"""Hints from threads into the event loop: one wake-up for many hints, in order, without a lock in the publisher."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tasks_app import hints
from tasks_app.hints import Hint

PENDING_MAX = 100_000  # past that the oldest are dropped: a lost hint costs at most a scan cycle


class HintRelay:
    """Listens to `tasks_app.hints` from `start` to `stop` and calls its subscribers in the loop."""

    def __init__(self) -> None:
        self._pending: deque[Hint] = deque(maxlen=PENDING_MAX)
        self._subscribers: list[Callable[[Hint], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._undo: Callable[[], None] = lambda: None
        self._is_waking = False

    def subscribe(self, subscriber: Callable[[Hint], None]) -> None:
        """`subscriber` runs in the loop and must not wait."""
        self._subscribers.append(subscriber)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._undo = hints.subscribe(self._take)

    def stop(self) -> None:
        self._undo()
        self._undo = lambda: None
        self._loop = None

    def tell(self, hint: Hint, *, but: Callable[[Hint], None] | None = None) -> None:
        """Tell the subscribers; `but` names the one that tells it, of something that another node committed."""
        for subscriber in self._subscribers:
            if subscriber != but:
                subscriber(hint)

    def _take(self, hint: Hint) -> None:
        """In the publishing thread."""
        loop = self._loop
        self._pending.append(hint)
        if loop is not None and not self._is_waking and not loop.is_closed():
            # Two threads may both see False here: then the loop is woken twice, which is harmless.
            self._is_waking = True
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_waking = False
        while self._pending:
            self.tell(self._pending.popleft())
