"""Gathering: requests that arrive while a unit is in the database share the next one.

Ten connections that start one task each cost ten commits when served one by one and one or two when gathered, without
any artificial delay: an idle lane serves a request at once, a busy lane serves together whatever queued meanwhile.
A unit that takes longer than `patience_seconds` (a row lock, a slow disk) no longer holds the others back: the next one
starts beside it. A unit that fails is taken apart, so that one poisoned request cannot fail its neighbours.

The state belongs to one event loop; the units run in pools.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from workers_app.pools import BoundedPool, PoolSaturated

Item = TypeVar("Item")
Answer = TypeVar("Answer")

PATIENCE_SECONDS = 0.025


class _Request(Generic[Item, Answer]):
    __slots__ = ("answers", "items")

    def __init__(self, items: Sequence[Item], answers: asyncio.Future[Sequence[Answer]]) -> None:
        self.items = items
        self.answers = answers


class Gatherer(Generic[Item, Answer]):
    """One lane of requests. `unit(items)` runs in a pool thread and gives one answer per item, in order.

    `pools` are tried in order: a unit takes the first that has an idle thread, so a lane can own one thread and borrow
    more. At most `requests_max` requests wait. `splits(error)` says whether a unit that failed with `error` may be
    tried again in smaller parts; by default it never is.
    """

    def __init__(
        self,
        unit: Callable[[Sequence[Item]], Sequence[Answer]],
        *,
        pools: Sequence[BoundedPool],
        items_max: int,
        requests_max: int,
        splits: Callable[[BaseException], bool] = lambda error: False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._unit = unit
        self._pools = tuple(pools)
        self._items_max = items_max
        self._requests_max = requests_max
        self._splits = splits
        self._patience_seconds = patience_seconds
        self._waiting: deque[_Request[Item, Answer]] = deque()
        self._active = 0
        self._last_unit_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, items: Sequence[Item]) -> Sequence[Answer]:
        """The answers to `items`, after the commit. Raises PoolSaturated, or what the unit raised."""
        if len(self._waiting) >= self._requests_max:
            raise PoolSaturated("too many requests wait")
        loop = asyncio.get_running_loop()
        request: _Request[Item, Answer] = _Request(items, loop.create_future())
        self._waiting.append(request)
        self._pump()
        return await request.answers

    def _pump(self) -> None:
        while self._waiting:
            if self._active:
                remaining = self._patience_seconds - (time.monotonic() - self._last_unit_at)
                if remaining > 0:
                    self._pump_after(remaining)
                    return
            pool = next((pool for pool in self._pools if pool.idle_threads), None)
            if pool is None:
                if self._active:
                    self._pump_after(self._patience_seconds)
                    return
                pool = self._pools[-1]  # others hold all threads: wait in that pool's queue
            batch = self._take()
            if batch:
                self._start(batch, pool)

    def _pump_after(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _take(self) -> list[_Request[Item, Answer]]:
        """The oldest requests whose items fit one unit; whoever stopped waiting is left out."""
        batch: list[_Request[Item, Answer]] = []
        count = 0
        while self._waiting:
            request = self._waiting[0]
            if request.answers.done():
                self._waiting.popleft()
                continue
            if batch and count + len(request.items) > self._items_max:
                break
            batch.append(self._waiting.popleft())
            count += len(request.items)
        return batch

    def _start(self, batch: list[_Request[Item, Answer]], pool: BoundedPool) -> None:
        self._active += 1
        self._last_unit_at = time.monotonic()
        task = asyncio.get_running_loop().create_task(self._perform(batch, pool))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._active -= 1
        if not task.cancelled():
            task.result()  # a fault of this module must be heard, not dropped
        self._pump()

    async def _perform(self, batch: list[_Request[Item, Answer]], pool: BoundedPool) -> None:
        items = [item for request in batch for item in request.items]
        try:
            answers = await pool.run(lambda: self._unit(items))
        except Exception as error:
            # Delivered to everyone who waits for it, which is where it is judged.
            if len(batch) > 1 and self._splits(error):
                middle = len(batch) // 2
                await self._perform(batch[:middle], pool)
                await self._perform(batch[middle:], pool)
                return
            for request in batch:
                if not request.answers.done():
                    request.answers.set_exception(error)
            return
        position = 0
        for request in batch:
            part = answers[position : position + len(request.items)]
            position += len(request.items)
            if not request.answers.done():
                request.answers.set_result(part)
