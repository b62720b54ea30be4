"""Long polls: an answer that is to wait is kept back in the event loop, where waiting costs no thread.

A view that wants to wait answers at once with what it has and the header `X-Orbit-Wait`, a JSON object:

    {"kind": "task",   "task_id": "…",      "revision": 3,      "wait_ms": 12000}
    {"kind": "events", "namespace_id": "…", "position": 118,    "wait_ms": 12000}

`revision` or `position` is what the view saw. The node keeps the answer back until something changed, `wait_ms` have
passed since the request arrived, or the node drains, and then runs the request again with the environ key `orbit.wait`:

    {…what the header said, "final": true | false}

With "final" the view answers without the header. The header never reaches a client. Without a node (plain WSGI) no key
is set and nothing waits; a view may look for `orbit.long_polls` in the environ to know.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orbit_project.serving import doors
from tasks_app import limits
from tasks_app.hints import Hint, HintKind

WAIT_HEADER = "x-orbit-wait"
ENVIRON_WAIT = "orbit.wait"
ENVIRON_ENABLED = "orbit.long_polls"
POLL_SECONDS = 0.25
RERUN_SECONDS_MIN = 0.1  # one busy feed must not run the same request over and over

Key = tuple[str, str]  # kind and the id it is about


@dataclass(frozen=True)
class Wait:
    """What one request waits for: `seen` is the revision or position that its view saw."""

    kind: str
    subject: str
    seen: int
    wait_ms: int
    document: Mapping[str, Any]

    @property
    def key(self) -> Key:
        return self.kind, self.subject


def parse_wait(text: str) -> Wait:
    """The content of the header. Raises ValueError: a view that writes something else is at fault."""
    document = json.loads(text)
    kind = document["kind"]
    subject, seen = {"task": ("task_id", "revision"), "events": ("namespace_id", "position")}[kind]
    return Wait(kind, str(document[subject]), int(document[seen]), int(document["wait_ms"]), document)


@dataclass(eq=False)
class _Waiter:
    wait: Wait
    until: float
    not_before: float
    wake: Callable[[bool], None]
    timer: asyncio.TimerHandle | None = None


class LongPolls:
    """The requests that wait on this node, at most `waiters_max`. Belongs to the event loop.

    `look(waits)` tells which of the given (kind, subject, seen) have changed: one cheap query for all of them together,
    asked at most every 250 ms while somebody waits, so that changes made on other nodes are seen too.
    """

    def __init__(
        self,
        *,
        look: Callable[[Sequence[Wait]], Awaitable[set[Key]]],
        waiters_max: int = doors.LONG_POLLS_MAX,
        look_failed: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._look = look
        self._look_failed = look_failed
        self._waiters_max = waiters_max
        self._waiters: dict[Key, set[_Waiter]] = {}
        self._count = 0
        self._poller: asyncio.Task[None] | None = None
        self._is_draining = False

    @property
    def waiting(self) -> int:
        return self._count

    def park(
        self, wait: Wait, *, arrived_at: float, is_rerun: bool, wake: Callable[[bool], None]
    ) -> Callable[[], object] | None:
        """Keep a request back. `wake(final)` is called once, later, to run it again; the result takes it back.

        `arrived_at` is when the request came (monotonic). None if it must not wait: the node drains, too many wait
        already, or its time is up.
        """
        now = time.monotonic()
        until = arrived_at + min(wait.wait_ms, limits.WAIT_MS_MAX) / 1000
        if self._is_draining or self._count >= self._waiters_max or now >= until:
            return None
        waiter = _Waiter(wait, until, now + RERUN_SECONDS_MIN if is_rerun else now, wake)
        self._waiters.setdefault(wait.key, set()).add(waiter)
        self._count += 1
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_at(until, self._wake, waiter, True)
        if self._poller is None:
            self._poller = loop.create_task(self._poll())
        return lambda: self._remove(waiter)

    def hint(self, hint: Hint) -> None:
        """Something changed on this node. (What changed between a view's read and its `park`, the next look sees.)"""
        if self._waiters and hint.kind in (HintKind.TASK_CHANGED, HintKind.WORK_ADDED):
            self._changed(("task", hint.task_id))
            self._changed(("events", hint.namespace_id))

    def drain(self) -> None:
        """Answer everybody now and let nobody wait any more."""
        self._is_draining = True
        for waiters in list(self._waiters.values()):
            for waiter in list(waiters):
                self._wake(waiter, True)

    def _changed(self, key: Key) -> None:
        now = time.monotonic()
        for waiter in list(self._waiters.get(key, ())):
            if waiter.not_before <= now:
                self._wake(waiter, False)
            elif waiter.timer is not None:
                waiter.timer.cancel()
                at = min(waiter.not_before, waiter.until)
                waiter.timer = asyncio.get_running_loop().call_at(at, self._wake, waiter, at >= waiter.until)

    def _wake(self, waiter: _Waiter, final: bool) -> None:
        if self._remove(waiter):
            waiter.wake(final)

    def _remove(self, waiter: _Waiter) -> bool:
        waiters = self._waiters.get(waiter.wait.key)
        if waiters is None or waiter not in waiters:
            return False
        waiters.discard(waiter)
        if not waiters:
            del self._waiters[waiter.wait.key]
        self._count -= 1
        if waiter.timer is not None:
            waiter.timer.cancel()
        return True

    async def _poll(self) -> None:
        try:
            while self._waiters:
                await asyncio.sleep(POLL_SECONDS)
                waits = [waiter.wait for waiters in self._waiters.values() for waiter in waiters]
                if not waits:
                    break
                try:
                    changed = await self._look(waits)
                except Exception as error:
                    # A database that does not answer wakes nobody; every waiter still has its own time.
                    self._look_failed(error)
                    await asyncio.sleep(POLL_SECONDS * 4)
                    continue
                for key in changed:
                    self._changed(key)
        finally:
            self._poller = None
