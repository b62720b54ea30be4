"""Gathering: what queued while a unit ran shares the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from workers_app.gathering import Gatherer
from workers_app.pools import BoundedPool, PoolSaturated

pytestmark = pytest.mark.usefixtures("no_database")


@pytest.fixture
def no_database(django_db_blocker) -> Iterator[None]:  # type: ignore[no-untyped-def]
    with django_db_blocker.unblock():
        yield


class Unit:
    """Answers each item with its double; notes what was asked together; can be held up, or fail on an item."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.held = threading.Semaphore(0)
        self.poison: int | None = None

    def __call__(self, items: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(items))
        self.held.release()
        self.gate.wait(10)
        if self.poison in items:
            raise ValueError("poisoned")
        return [item * 2 for item in items]


@pytest.fixture
def unit() -> Iterator[Unit]:
    made = Unit()
    yield made
    made.gate.set()


def gatherer(unit: Unit, *, threads: int = 2, **options: object) -> Gatherer[int, int]:
    pool = BoundedPool("g", threads=threads, waiting_max=100)
    settings: dict = {"items_max": 10, "requests_max": 100, "patience_seconds": 60.0, **options}
    return Gatherer(unit, pools=[pool], **settings)


async def test_idle_lane_serves_a_request_at_once_and_alone(unit: Unit) -> None:
    lane = gatherer(unit)
    assert await lane.run([1, 2]) == [2, 4]
    assert await lane.run([3]) == [6]
    assert unit.batches == [[1, 2], [3]]


async def test_what_queues_while_a_unit_runs_is_served_together(unit: Unit) -> None:
    lane = gatherer(unit)
    unit.gate.clear()
    first = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    others = [asyncio.create_task(lane.run([number, number + 1])) for number in (10, 20, 30)]
    await asyncio.sleep(0)
    unit.gate.set()
    assert await first == [2]
    assert await asyncio.gather(*others) == [[20, 22], [40, 42], [60, 62]]
    assert unit.batches == [[1], [10, 11, 20, 21, 30, 31]]


async def test_unit_takes_whole_requests_up_to_its_size(unit: Unit) -> None:
    lane = gatherer(unit, items_max=4)
    unit.gate.clear()
    first = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    others = [asyncio.create_task(lane.run([number] * 3)) for number in (2, 3)]
    others.append(asyncio.create_task(lane.run([4] * 6)))  # more than a unit alone: still one
    await asyncio.sleep(0)
    unit.gate.set()
    await asyncio.gather(first, *others)
    assert unit.batches == [[1], [2, 2, 2], [3, 3, 3], [4] * 6]


async def test_slow_unit_does_not_hold_the_others_back_past_its_patience(unit: Unit) -> None:
    lane = gatherer(unit, patience_seconds=0.02)
    unit.gate.clear()
    stuck = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    second = asyncio.create_task(lane.run([2]))
    await asyncio.to_thread(unit.held.acquire)  # a second unit began beside the stuck one
    assert unit.batches == [[1], [2]]
    unit.gate.set()
    assert [await stuck, await second] == [[2], [4]]


async def test_lane_borrows_from_its_second_pool_when_its_own_thread_is_stuck(unit: Unit) -> None:
    own, others = BoundedPool("own", threads=1, waiting_max=10), BoundedPool("others", threads=1, waiting_max=10)
    lane: Gatherer[int, int] = Gatherer(unit, pools=[own, others], items_max=10, requests_max=10, patience_seconds=0.02)
    unit.gate.clear()
    stuck = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    second = asyncio.create_task(lane.run([2]))
    await asyncio.to_thread(unit.held.acquire)
    assert (own.figures().running, others.figures().running) == (1, 1)
    unit.gate.set()
    await asyncio.gather(stuck, second)


async def test_failed_unit_is_taken_apart_so_that_one_request_fails_alone(unit: Unit) -> None:
    lane = gatherer(unit, splits=lambda error: isinstance(error, ValueError))
    unit.gate.clear()
    first = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    others = [asyncio.create_task(lane.run([number])) for number in (2, 3, 4, 5)]
    await asyncio.sleep(0)
    unit.poison = 4
    unit.gate.set()
    await first
    results = await asyncio.gather(*others, return_exceptions=True)
    assert results[:2] == [[4], [6]]
    assert isinstance(results[2], ValueError)
    assert results[3] == [10]


async def test_error_that_concerns_everybody_is_told_to_everybody_at_once(unit: Unit) -> None:
    lane = gatherer(unit)
    unit.gate.clear()
    first = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    others = [asyncio.create_task(lane.run([number])) for number in (2, 3)]
    await asyncio.sleep(0)
    unit.poison = 2
    unit.gate.set()
    await first
    results = await asyncio.gather(*others, return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError]
    assert unit.batches == [[1], [2, 3]]


async def test_more_waiting_requests_than_allowed_are_refused(unit: Unit) -> None:
    lane = gatherer(unit, requests_max=2)
    unit.gate.clear()
    first = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    others = [asyncio.create_task(lane.run([number])) for number in (2, 3)]
    await asyncio.sleep(0)
    with pytest.raises(PoolSaturated):
        await lane.run([4])
    unit.gate.set()
    await asyncio.gather(first, *others)


async def test_request_whose_caller_left_is_not_served(unit: Unit) -> None:
    lane = gatherer(unit)
    unit.gate.clear()
    first = asyncio.create_task(lane.run([1]))
    await asyncio.to_thread(unit.held.acquire)
    left, stays = asyncio.create_task(lane.run([2])), asyncio.create_task(lane.run([3]))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    unit.gate.set()
    await asyncio.gather(first, stays)
    assert unit.batches == [[1], [3]]
