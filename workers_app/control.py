"""The control lanes of one node: start, renew, finish and release, gathered over all connections, apart from claims.

Each lane serves what queued while its last unit ran as one transaction. Renewals own a thread of their own and may
borrow the others', so that neither a claim nor a stuck finish can stop the renewals of everybody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from django.db import DatabaseError

from tasks_app.domain import attempts
from tasks_app.domain.attempts import FinishItem, Held, RenewItem, Result, StartItem
from tasks_app.transactions import CommitOutcomeUnknown, is_lost
from workers_app.gathering import Gatherer
from workers_app.pools import BoundedPool, PoolFigures
from workers_app.reads import read_again_if_lost

T = TypeVar("T")

UNIT_ITEMS_MAX = 128
REQUESTS_MAX = 8192
WAITING_MAX = 1024
UNKNOWN_TASK = ""  # an attempt that the connection does not hold: found by its id, if it has started


@dataclass(frozen=True, slots=True)
class ReleaseItem:
    """A reservation to be handed back."""

    held: Held


class ControlLanes:
    """`threads` database threads for control work, and one more that only renewals use."""

    def __init__(self, *, threads: int) -> None:
        self.pool = BoundedPool("orbit-control", threads=threads, waiting_max=WAITING_MAX)
        self.renewal_pool = BoundedPool("orbit-renewal", threads=1, waiting_max=WAITING_MAX)
        self.start: Gatherer[StartItem, Result] = self._lane(_located(attempts.start), [self.pool])
        self.renew: Gatherer[RenewItem, Result] = self._lane(_located(attempts.renew), [self.renewal_pool, self.pool])
        self.finish: Gatherer[FinishItem, Result] = self._lane(_located(attempts.finish), [self.pool])
        self.release: Gatherer[ReleaseItem, Result] = self._lane(_release, [self.pool])

    @staticmethod
    def _lane(unit: Callable[[Sequence[T]], Sequence[Result]], pools: Sequence[BoundedPool]) -> Gatherer[T, Result]:
        return Gatherer(
            unit, pools=pools, items_max=UNIT_ITEMS_MAX, requests_max=REQUESTS_MAX, splits=_is_about_one_request
        )

    def figures(self) -> list[PoolFigures]:
        return [self.pool.figures(), self.renewal_pool.figures()]

    def close(self, *, wait_seconds: float) -> None:
        self.pool.close(wait_seconds=wait_seconds)
        self.renewal_pool.close(wait_seconds=wait_seconds)


def is_unavailable(error: BaseException) -> bool:
    """The database could not answer: the worker is told UNAVAILABLE and repeats the same message."""
    return isinstance(error, DatabaseError | CommitOutcomeUnknown)


def _is_about_one_request(error: BaseException) -> bool:
    """A unit that failed may be tried in parts, unless the database is gone, which concerns every part."""
    return not isinstance(error, CommitOutcomeUnknown) and not (isinstance(error, DatabaseError) and is_lost(error))


Item = TypeVar("Item", StartItem, RenewItem, FinishItem)


def _located(verb: Callable[[Sequence[Item]], list[Result]]) -> Callable[[Sequence[Item]], Sequence[Result]]:
    """`verb`, after the tasks of attempts that a connection does not hold were looked up."""

    def unit(items: Sequence[Item]) -> Sequence[Result]:
        unknown: dict[str, list[str]] = defaultdict(list)
        for item in items:
            if item.held.task_id == UNKNOWN_TASK:
                unknown[item.held.namespace_id].append(item.held.attempt_id)
        if not unknown:
            return verb(items)
        tasks = {
            attempt_id: task_id
            for namespace_id, attempt_ids in unknown.items()
            for attempt_id, task_id in read_again_if_lost(partial(attempts.locate, namespace_id, attempt_ids)).items()
        }
        return verb([_with_task(item, tasks) for item in items])

    return unit


def _with_task(item: Item, tasks: dict[str, str]) -> Item:
    if item.held.task_id != UNKNOWN_TASK:
        return item
    # Still unknown: no task has the empty id, and the verb answers what it answers to a stranger.
    return replace(item, held=replace(item.held, task_id=tasks.get(item.held.attempt_id, UNKNOWN_TASK)))


def _release(items: Sequence[ReleaseItem]) -> Sequence[Result]:
    return attempts.release([item.held for item in items])
