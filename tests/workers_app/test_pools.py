"""Bounded pools: threads, queue, saturation, taking back, closing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.support.waiting import eventually
from workers_app.pools import BoundedPool, PoolSaturated

pytestmark = pytest.mark.usefixtures("no_database")


@pytest.fixture
def no_database(django_db_blocker) -> Iterator[None]:  # type: ignore[no-untyped-def]
    """Pools close connections of their threads; there are none here, and that is allowed."""
    with django_db_blocker.unblock():
        yield


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Work that waits for it ends when it is set, at the latest with the test."""
    opened = threading.Event()
    yield opened
    opened.set()


def test_unit_runs_in_a_thread_and_gives_its_result() -> None:
    pool = BoundedPool("p", threads=2, waiting_max=1)
    names = [pool.submit(lambda: threading.current_thread().name).result(5) for _ in range(3)]
    assert set(names) <= {"p-0", "p-1"}


def test_error_of_the_unit_reaches_whoever_waits_and_the_thread_goes_on() -> None:
    pool = BoundedPool("p", threads=1, waiting_max=1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(5)
    assert pool.submit(lambda: "still here").result(5) == "still here"


def test_no_more_units_run_at_once_than_there_are_threads(gate: threading.Event) -> None:
    pool = BoundedPool("p", threads=2, waiting_max=10)
    running: list[int] = []
    for number in range(6):
        pool.submit(lambda number=number: (running.append(number), gate.wait(10)))  # type: ignore[misc]
    eventually(lambda: len(running) == 2)
    assert pool.figures().running == 2
    assert pool.figures().waiting == 4
    assert pool.idle_threads == 0


def test_full_queue_refuses_instead_of_growing(gate: threading.Event) -> None:
    pool = BoundedPool("p", threads=1, waiting_max=2)
    for _ in range(3):
        pool.submit(lambda: gate.wait(10))
    with pytest.raises(PoolSaturated):
        pool.submit(lambda: None)
    eventually(lambda: pool.figures().saturation == 2.0)


def test_saturation_grows_from_0_over_1_to_2(gate: threading.Event) -> None:
    pool = BoundedPool("p", threads=2, waiting_max=2)
    assert pool.figures().saturation == 0
    seen = []
    for _ in range(4):
        pool.submit(lambda: gate.wait(10))
        eventually(lambda: pool.figures().waiting == max(0, pool.figures().running + pool.figures().waiting - 2))
        seen.append(pool.figures().saturation)
    assert seen == [0.5, 1.0, 1.5, 2.0]


def test_cancelled_unit_that_waits_gives_its_place_to_another(gate: threading.Event) -> None:
    pool = BoundedPool("p", threads=1, waiting_max=1)
    pool.submit(lambda: gate.wait(10))
    ran: list[str] = []
    waiting = pool.submit(lambda: ran.append("first"))
    assert waiting.cancel()
    second = pool.submit(lambda: ran.append("second"))
    gate.set()
    second.result(5)
    assert ran == ["second"]


async def test_cancelled_await_does_not_interrupt_a_unit_that_runs(gate: threading.Event) -> None:
    """Trap C23: a unit that runs ends whole; only its result is dropped."""
    pool = BoundedPool("p", threads=1, waiting_max=1)
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        gate.wait(10)
        ended.set()

    task = asyncio.create_task(pool.run(work))
    await asyncio.to_thread(began.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert await asyncio.to_thread(ended.wait, 10)


def test_closed_pool_ends_what_it_took_and_takes_nothing_more(gate: threading.Event) -> None:
    pool = BoundedPool("p", threads=1, waiting_max=5)
    results = [pool.submit(lambda: gate.wait(10)), pool.submit(lambda: True)]
    gate.set()
    assert pool.close(wait_seconds=10)
    assert [result.result(1) for result in results] == [True, True]
    with pytest.raises(PoolSaturated):
        pool.submit(lambda: None)


def test_closing_does_not_wait_for_a_unit_that_hangs(gate: threading.Event) -> None:
    pool = BoundedPool("p", threads=1, waiting_max=5)
    pool.submit(lambda: gate.wait(30))
    assert not pool.close(wait_seconds=0.05)
