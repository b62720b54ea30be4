"""The dispatcher: claims in the pool, offers to connections, hints, shutting down. The scheduler is the real one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from tasks_app.domain.claims import ClaimOrder, ClaimOutcome, EmptyReason
from tasks_app.hints import Hint, HintKind
from tasks_app.states import Policy
from workers_app.dispatcher import Claimer, Dispatcher
from workers_app.pools import BoundedPool
from workers_app.scheduler import ClaimScheduler, SchedulerLimits

pytestmark = pytest.mark.usefixtures("no_database")


@pytest.fixture
def no_database(django_db_blocker) -> Iterator[None]:  # type: ignore[no-untyped-def]
    with django_db_blocker.unblock():
        yield


class Database:
    """Claims are answered from here: `tasks` waiting, a limit that may be closed, a gate that may hold them up."""

    def __init__(self) -> None:
        self.tasks = 0
        self.free: int | None = None
        self.orders: list[ClaimOrder] = []
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.lock = threading.Lock()
        self.at_once = self.at_once_max = 0

    def claim(self, order: ClaimOrder) -> ClaimOutcome:
        with self.lock:
            self.orders.append(order)
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        self.gate.wait(10)
        with self.lock:
            self.at_once -= 1
            if self.error is not None:
                raise self.error
            count = min(order.limit, self.tasks)
            if self.free is not None:
                if self.free == 0:
                    return ClaimOutcome((), EmptyReason.QUEUE_LIMIT)
                count = min(count, self.free)
                self.free -= count
            self.tasks -= count
        if not count:
            return ClaimOutcome((), EmptyReason.NO_WORK)
        return ClaimOutcome(tuple(SimpleNamespace(order=order) for _ in range(count)))  # type: ignore[arg-type]


class Connection:
    def __init__(self, connection_id: str) -> None:
        self.connection_id = connection_id
        self.offers: list[Any] = []
        self.came = asyncio.Event()

    def offered(self, offers: Sequence[Any]) -> None:
        self.offers += offers
        self.came.set()


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.gate.set()


@pytest.fixture
def dispatcher(database: Database) -> Dispatcher:
    limits = SchedulerLimits(cycle_seconds=30.0)  # no test waits for a cycle: what comes, comes by an event
    return Dispatcher(ClaimScheduler(limits), pool=BoundedPool("claim", threads=4, waiting_max=4), claim=database.claim)


def connect(dispatcher: Dispatcher, name: str = "c1", *, application: str = "a", queue: str = "q") -> Connection:
    connection = Connection(name)
    dispatcher.register(
        Claimer(
            connection=connection,
            session_id=f"session-{name}",
            application_id=application,
            namespace_id=f"namespace-{application}",
            policy=Policy.AGED,
            queue_ids=(queue,),
            handler_refs=(7,),
            resource_keys=False,
        )
    )
    return connection


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - what is waited for ends in a thread
            await asyncio.sleep(0.005)


def hint(kind: HintKind, **fields: Any) -> Hint:
    return Hint(kind, namespace_id="namespace-a", queue_id="q", **fields)


async def test_claims_carry_what_the_connection_announced_and_offers_reach_it(
    dispatcher: Dispatcher, database: Database
) -> None:
    database.tasks = 3
    connection = connect(dispatcher)
    dispatcher.want("c1", 3)
    await connection.came.wait()
    assert len(connection.offers) == 3
    (order,) = database.orders
    assert (order.session_id, order.handler_refs, order.queue_ids, order.limit) == ("session-c1", (7,), ("q",), 3)


async def test_connection_that_wants_nothing_makes_no_claim(dispatcher: Dispatcher, database: Database) -> None:
    connect(dispatcher)
    await asyncio.sleep(0.05)
    assert database.orders == []


async def test_hint_of_work_wakes_a_line_that_came_back_empty(dispatcher: Dispatcher, database: Database) -> None:
    connection = connect(dispatcher)
    dispatcher.want("c1", 1)
    await until(lambda: len(database.orders) == 1)
    database.tasks = 1
    dispatcher.hint(hint(HintKind.WORK_ADDED, handler_ref=8))  # a handler that the worker does not have
    await asyncio.sleep(0.05)
    assert len(database.orders) == 1
    dispatcher.hint(hint(HintKind.WORK_ADDED, handler_ref=7))
    await connection.came.wait()
    assert len(connection.offers) == 1


async def test_freed_permit_wakes_a_line_that_a_limit_closed(dispatcher: Dispatcher, database: Database) -> None:
    database.tasks, database.free = 5, 0
    connection = connect(dispatcher)
    dispatcher.want("c1", 1)
    await until(lambda: len(database.orders) == 1)
    database.free = 1
    dispatcher.hint(hint(HintKind.PERMIT_FREED))
    await connection.came.wait()


async def test_freed_permit_wakes_a_line_that_got_less_than_it_asked_for(
    dispatcher: Dispatcher, database: Database
) -> None:
    """A limit may have cut the claim short: one running slot must not wait for the end of the cycle each time."""
    database.tasks, database.free = 5, 1
    connection = connect(dispatcher)
    dispatcher.want("c1", 3)
    await connection.came.wait()
    connection.came.clear()
    database.free = 1
    dispatcher.hint(hint(HintKind.PERMIT_FREED))
    await connection.came.wait()
    assert len(connection.offers) == 2


async def test_freed_permit_does_not_wake_a_line_without_work(dispatcher: Dispatcher, database: Database) -> None:
    connect(dispatcher)
    dispatcher.want("c1", 1)
    await until(lambda: len(database.orders) == 1)
    dispatcher.hint(hint(HintKind.PERMIT_FREED))
    await asyncio.sleep(0.05)
    assert len(database.orders) == 1


async def test_one_claim_of_an_application_at_once_and_four_of_a_node(
    dispatcher: Dispatcher, database: Database
) -> None:
    database.gate.clear()
    for application in "abcdef":
        for number in range(3):
            connect(dispatcher, f"{application}{number}", application=application, queue=f"q-{application}")
            dispatcher.want(f"{application}{number}", 1)
    await until(lambda: database.at_once == 4)
    assert len({order.application_id for order in database.orders}) == 4
    database.gate.set()
    await until(lambda: {order.application_id for order in database.orders} == set("abcdef"))
    assert database.at_once_max == 4


async def test_claim_that_failed_is_tried_again_in_the_next_cycle_and_not_before(database: Database) -> None:
    dispatcher = Dispatcher(
        ClaimScheduler(SchedulerLimits(cycle_seconds=0.3)),
        pool=BoundedPool("claim", threads=4, waiting_max=4),
        claim=database.claim,
    )
    database.error, database.tasks = OperationalError(2013, "lost"), 1
    connection = connect(dispatcher)
    dispatcher.want("c1", 1)
    await until(lambda: len(database.orders) == 1)
    database.error = None
    await connection.came.wait()
    assert len(database.orders) == 2


async def test_fault_of_a_claim_does_not_take_the_place_of_the_scheduler(
    dispatcher: Dispatcher, database: Database
) -> None:
    database.error = RuntimeError("a fault of ours")
    connect(dispatcher)
    dispatcher.want("c1", 1)
    await until(lambda: len(database.orders) == 1)
    database.error, database.tasks = None, 1
    other = connect(dispatcher, "c2")
    dispatcher.want("c2", 1)
    await other.came.wait()


async def test_offers_of_a_connection_that_left_are_handed_to_it_to_be_given_back(
    dispatcher: Dispatcher, database: Database
) -> None:
    database.gate.clear()
    database.tasks = 1
    connection = connect(dispatcher)
    dispatcher.want("c1", 1)
    await until(lambda: database.at_once == 1)
    dispatcher.unregister("c1")
    database.gate.set()
    await connection.came.wait()
    assert len(connection.offers) == 1


async def test_shutting_down_awaits_running_claims_and_starts_none(dispatcher: Dispatcher, database: Database) -> None:
    database.gate.clear()
    database.tasks = 10
    first = connect(dispatcher)
    second = connect(dispatcher, "c2")
    dispatcher.want("c1", 1)
    dispatcher.want("c2", 1)
    await until(lambda: database.at_once == 1)
    dispatcher.shut_down()
    database.gate.set()
    await first.came.wait()
    await until(lambda: dispatcher.claims_running == 0)
    assert len(database.orders) == 1
    assert second.offers == []
