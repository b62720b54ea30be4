"""Resource keys (design 3.5): limits, the order inside a key, and no waiter that is ever forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from tasks_app.domain import claims, resources, sweeps
from tasks_app.domain.claims import Offer
from tasks_app.domain.resources import NoPermit
from tasks_app.endings import Report
from tasks_app.states import Lane, TaskState
from tasks_app.transactions import Tx, unit
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import await_lock_wait, beside, together
from tests.tasks_app.conftest import Points
from tests.tasks_app.factories import Tenant, make_tenant

S = TaskState
SERVER = pytest.mark.mariadb_only("SQLite admits one writer: nobody can come in between")


def waiting(tenant: Tenant, count: int, **fields: Any) -> list[str]:
    return [f.submit(tenant, resource_key="k", **fields) for _ in range(count)]


def lane(task_id: str) -> Lane:
    return Lane(f.row(task_id).lane)


# -- one permit


def test_a_key_is_held_by_one_task_at_a_time(tenant: Tenant):
    first, second = waiting(tenant, 2)
    assert f.claim_ids(tenant, limit=5) == [first]
    assert f.claim_ids(tenant, limit=5) == []
    assert (f.key_row(tenant).held, lane(second)) == (1, Lane.HELD)


def reserve_then(act: Callable[[Tenant, Offer], None]) -> Callable[[Tenant], None]:
    return lambda tenant: act(tenant, f.claim_one(tenant))


def run_then(act: Callable[[Tenant, Offer], None]) -> Callable[[Tenant], None]:
    return lambda tenant: act(tenant, f.run_one(tenant))


def expire_reservation(tenant: Tenant, offer: Offer) -> None:
    f.expire_lease(offer.task.task_id)
    f.sweep()


def refuse_start(tenant: Tenant, offer: Offer) -> None:
    f.change_queue(tenant, max_running=0)
    f.start(tenant, offer)
    f.change_queue(tenant, max_running=None)


def cancel_running(tenant: Tenant, offer: Offer) -> None:
    f.cancel(tenant, offer.task.task_id)
    f.finish(offer, Report.CANCELED)


# Every way to give a permit back, and whether the giver still stands in line for it.
GIVE_BACKS: dict[str, tuple[Callable[[Tenant], None], bool]] = {
    "succeeded": (run_then(lambda t, o: f.finish(o)), False),
    "failed": (run_then(lambda t, o: f.finish(o, Report.FAILED, retryable=False)), False),
    "backs off": (run_then(lambda t, o: f.finish(o, Report.FAILED, retry_after_ms=3_600_000)), False),
    "retries at once": (run_then(lambda t, o: f.finish(o, Report.FAILED, retry_after_ms=0)), False),
    "lost": (run_then(lambda t, o: f.lose(o)), False),
    "canceled while running": (run_then(cancel_running), False),
    "released": (reserve_then(lambda t, o: f.release(o)), True),
    "reservation ran out": (reserve_then(expire_reservation), True),
    "start refused": (reserve_then(refuse_start), True),
    "canceled while reserved": (reserve_then(lambda t, o: f.cancel(t, o.task.task_id)), False),
    "expired while reserved": (reserve_then(lambda t, o: (f.pass_deadline(o.task.task_id), f.sweep())), False),
}


@pytest.mark.parametrize("way", GIVE_BACKS)
def test_every_way_to_give_a_permit_back_opens_the_first_waiter(tenant: Tenant, way: str):
    """Its own place in line counts too: a released task that stood first stands first again."""
    giver, waiter = waiting(tenant, 2, retry=f.SAFE)
    give_back, stays_first = GIVE_BACKS[way]
    give_back(tenant)
    assert f.key_row(tenant).held == 0
    expected = giver if stays_first else waiter
    assert f.claim_ids(tenant, limit=5) == [expected]
    assert f.key_row(tenant).held == 1


@pytest.mark.parametrize(
    "leave",
    [
        lambda tenant, task_id: f.cancel(tenant, task_id),
        lambda tenant, task_id: (f.pass_deadline(task_id), f.sweep()),
        lambda tenant, task_id: (f.pass_deadline(task_id), f.claim(tenant)),
    ],
    ids=["canceled", "expired by a sweep", "expired by a claim"],
)
def test_when_the_open_waiter_leaves_the_line_the_next_one_opens(tenant: Tenant, leave: Any):
    first, second = waiting(tenant, 2)
    assert (lane(first), lane(second)) == (Lane.KEYED, Lane.HELD)
    leave(tenant, first)
    assert lane(second) in (Lane.KEYED, Lane.OPEN)
    assert second in {*f.claim_ids(tenant), *(row.task_id for row in f.rows_of("orbit_task", "state = 'RESERVED'"))}


# -- the order inside a key


def test_the_freed_permit_goes_to_the_task_that_the_order_puts_first(database: None):
    """Solid Queue 237: 40 bulk tasks wait for four permits, then one urgent task comes."""
    tenant = make_tenant(resource_limit=4)
    waiting(tenant, 40)
    running = f.claim(tenant, limit=4).offers
    f.start_all(tenant, running)
    (urgent,) = waiting(tenant, 1, priority=9)
    assert f.claim_ids(tenant, limit=32) == []
    f.finish(running[0])
    assert f.claim_ids(tenant, limit=32) == [urgent]


def test_a_better_waiter_takes_the_place_of_the_open_one(tenant: Tenant):
    (plain,) = waiting(tenant, 1)
    (urgent,) = waiting(tenant, 1, priority=9)
    assert (lane(plain), lane(urgent)) == (Lane.HELD, Lane.KEYED)
    assert f.claim_ids(tenant, limit=5) == [urgent]


def test_a_waiter_that_is_no_better_stays_behind(tenant: Tenant):
    first, second = waiting(tenant, 2)
    assert (lane(first), lane(second)) == (Lane.KEYED, Lane.HELD)


def test_waiters_are_taken_one_after_the_other_in_order(strict_tenant: Tenant):
    tasks = {priority: waiting(strict_tenant, 1, priority=priority)[0] for priority in (0, 5, -9, 9, 1)}
    taken = []
    while offers := f.claim(strict_tenant, limit=5).offers:
        (offer,) = offers
        f.start(strict_tenant, offer)
        f.finish(offer)
        taken.append(offer.task.task_id)
    assert taken == [tasks[priority] for priority in (9, 5, 1, 0, -9)]


def test_held_tasks_do_not_hide_what_stands_behind_them(tenant: Tenant):
    waiting(tenant, 5)
    behind = f.submit(tenant)
    f.run_one(tenant)
    assert f.claim_ids(tenant, limit=3) == [behind]


# -- more permits, several lines


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_no_more_tasks_hold_a_key_than_the_namespace_allows(database: None, limit: int):
    tenant = make_tenant(resource_limit=limit)
    ids = waiting(tenant, 6)
    assert f.claim_ids(tenant, limit=10) == ids[:limit]
    assert f.key_row(tenant).held == min(limit, 6)


def test_queues_and_handlers_share_the_permits_of_a_key(database: None):
    tenant = make_tenant(resource_limit=2)
    other = tenant.queue()
    lines = [
        f.submit(tenant, resource_key="k", queue_id=queue_id, handler=handler)
        for queue_id in (tenant.queue_id, other)
        for handler in ("a", "b")
    ]
    assert {lane(task_id) for task_id in lines} == {Lane.KEYED}, "the first of every line is open to claims"
    taken = f.claim_ids(tenant, limit=4, handlers=("a", "b"))
    assert taken == lines[:2]
    assert f.claim_ids(tenant, limit=4, queue_ids=[other], handlers=("a", "b")) == []
    assert {lane(task_id) for task_id in lines[2:]} == {Lane.HELD}


def test_a_freed_permit_is_open_to_every_line_that_waits_and_one_of_them_gets_it(tenant: Tenant):
    other = tenant.queue()
    holder = f.submit(tenant, resource_key="k")
    here = f.submit(tenant, resource_key="k", handler="b")
    there = f.submit(tenant, resource_key="k", queue_id=other)
    offer = f.run_one(tenant)
    assert offer.task.task_id == holder
    f.finish(offer)
    assert f.claim_ids(tenant, queue_ids=[other]) == [there]
    assert f.claim_ids(tenant, handlers=("h", "b")) == []
    assert lane(here) == Lane.HELD


def test_one_claim_serves_several_keys(tenant: Tenant):
    ids = [f.submit(tenant, resource_key=f"k{number}") for number in range(4)]
    again = [f.submit(tenant, resource_key=f"k{number}") for number in range(4)]
    assert f.claim_ids(tenant, limit=8) == ids
    assert {lane(task_id) for task_id in again} == {Lane.HELD}


def test_the_same_key_of_another_namespace_is_another_key(tenant: Tenant):
    other = make_tenant()
    waiting(tenant, 1), waiting(other, 1)
    assert len(f.claim_ids(tenant)) == len(f.claim_ids(other)) == 1


def test_keys_compare_byte_for_byte(tenant: Tenant):
    for key in ("k", "K", "\u00e9", "e\u0301"):
        f.submit(tenant, resource_key=key)
    assert len(f.claim_ids(tenant, limit=8)) == 4


def test_a_scheduled_task_holds_and_opens_nothing_until_it_is_due(tenant: Tenant):
    (later,) = waiting(tenant, 1, delay_ms=60_000, priority=9)
    (plain,) = waiting(tenant, 1)
    assert (lane(later), lane(plain)) == (Lane.OPEN, Lane.KEYED)
    f.due(later, seconds_ago=0)
    f.sweep()
    assert (lane(later), lane(plain)) == (Lane.KEYED, Lane.HELD)


def test_too_few_permits_refuse_the_unit(tenant: Tenant):
    waiting(tenant, 1)
    ref = f.key_row(tenant).resource_ref
    with pytest.raises(NoPermit):
        unit(lambda tx: resources.settle_one(tx, ref, held=2, groups=[]))
    assert f.key_row(tenant).held == 0


# -- nobody is forgotten


@SERVER
def test_a_waiter_that_commits_just_after_a_releaser_looked_is_not_forgotten(tenant: Tenant, points: Points):
    """The finish has looked at the waiters and not committed; the submit comes, waits for the key's row, and looks."""
    waiting(tenant, 1)
    offer = f.run_one(tenant)
    late: list[Any] = []

    def submit_beside() -> None:
        late.append(beside(lambda: waiting(tenant, 1)))
        await_lock_wait()

    points.once("finish.before_commit", submit_beside)
    f.finish(offer)
    (task_id,) = late[0].result()
    assert lane(task_id) == Lane.KEYED
    assert f.claim_ids(tenant) == [task_id]


@SERVER
def test_a_releaser_that_comes_while_a_waiter_is_being_written_waits_for_it(tenant: Tenant, points: Points):
    waiting(tenant, 1)
    offer = f.run_one(tenant)
    done: list[Any] = []

    def finish_beside() -> None:
        done.append(beside(lambda: f.finish(offer)))
        await_lock_wait()

    points.once("accept.before_commit", finish_beside)
    (task_id,) = waiting(tenant, 1)
    done[0].result()
    assert lane(task_id) == Lane.KEYED


@SERVER
def test_a_waiter_that_somebody_holds_is_passed_over_and_looked_at_again(tenant: Tenant):
    first, second = waiting(tenant, 2)
    offer = f.run_one(tenant)
    assert offer.task.task_id == first

    def hold(tx: Tx) -> None:
        tx.row("SELECT task_id FROM orbit_task WHERE task_id = %s FOR UPDATE", [second])
        beside(lambda: f.finish(offer)).result()

    unit(hold)
    assert (lane(second), f.key_row(tenant).recheck_at is not None) == (Lane.HELD, True)
    assert sweeps.recheck_resource_keys() == 1
    assert (lane(second), f.key_row(tenant).recheck_at) == (Lane.KEYED, None)


@SERVER
def test_a_claim_that_meets_a_key_which_became_busy_puts_the_task_out_of_sight(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    """Two queues have an open waiter each for one permit; both claims have locked theirs, one gets the permit."""
    other = tenant.queue()
    (here,) = waiting(tenant, 1)
    (there,) = waiting(tenant, 1, queue_id=other)
    real = claims._lock
    order = f.order(tenant, queue_ids=[other])
    raced: list[Any] = []

    def lock(*args: Any) -> Any:
        locked = real(*args)
        if not raced:
            raced.append(None)
            raced[0] = beside(lambda: claims.claim(order)).result()
        return locked

    monkeypatch.setattr(claims, "_lock", lock)
    assert f.claim_ids(tenant) == []
    assert [offer.task.task_id for offer in raced[0].offers] == [there]
    assert (lane(here), f.state(here)) == (Lane.HELD, S.READY)
    (offer,) = raced[0].offers
    f.start(tenant, offer)
    f.finish(offer)
    assert f.claim_ids(tenant) == [here]


@SERVER
def test_a_claim_waits_for_no_key_out_of_their_order(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    """Its second look needs a smaller key than it has locked; who holds that one would wait for it in turn."""
    small = f.submit(tenant, resource_key="small")
    (offer,) = f.claim(tenant).offers
    large = f.submit(tenant, resource_key="large", expires_in_ms=60_000)
    also_large = f.submit(tenant, resource_key="large")
    f.release(offer)
    # First in line is a task of the large key that has expired: the claim locks that key and looks again.
    f.due(large, seconds_ago=20)
    f.due(also_large, seconds_ago=5)
    f.due(small, seconds_ago=10)
    f.pass_deadline(large)
    small_ref = f.key_row(tenant, "small").resource_ref
    assert small_ref < f.key_row(tenant, "large").resource_ref

    def hold(tx: Tx) -> list[str]:
        tx.row("SELECT held FROM orbit_resource_key WHERE resource_ref = %s FOR UPDATE", [small_ref])
        return beside(lambda: f.claim_ids(tenant)).result()

    assert unit(hold) == []
    assert f.state(large) is S.EXPIRED
    assert f.claim_ids(tenant, limit=5) == [small, also_large]


def test_a_limit_that_was_raised_opens_waiters_at_the_next_look(tenant: Tenant):
    ids = waiting(tenant, 4)
    f.run_one(tenant)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_namespace SET resource_limit = 3")
        cursor.execute("UPDATE orbit_resource_key SET recheck_at = 1")
    sweeps.recheck_resource_keys()
    assert [lane(task_id) for task_id in ids[1:]] == [Lane.KEYED, Lane.KEYED, Lane.HELD]
    assert f.claim_ids(tenant, limit=5) == ids[1:3]


def test_a_limit_that_was_lowered_takes_nothing_away_and_lets_nobody_in(database: None):
    tenant = make_tenant(resource_limit=2)
    waiting(tenant, 3)
    offers = f.claim(tenant, limit=2).offers
    f.start_all(tenant, offers)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_namespace SET resource_limit = 1")
    assert f.claim_ids(tenant) == []
    f.finish(offers[0])
    assert f.claim_ids(tenant) == [], "one still holds the only permit"
    f.finish(offers[1])
    assert len(f.claim_ids(tenant)) == 1


# -- many at once


def test_permits_never_pass_their_limit_and_every_task_is_done(database: None):
    """Complaint 16, N9: claimers, finishers, losers and submitters at once; somebody counts at every commit."""
    tenant = make_tenant(resource_limit=2)
    other = tenant.queue()
    keys = ("k0", "k1", "k2")
    for number in range(36):
        f.submit(
            tenant, resource_key=keys[number % 3], queue_id=(tenant.queue_id, other)[number % 2], retry=f.SAFE_AT_ONCE
        )
    order = f.order(tenant, limit=3)
    orders = [order, replace(order, queue_ids=(other,))]
    over: list[Any] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            over.extend(
                f.rows_of(
                    "(SELECT resource_ref, COUNT(*) AS holders FROM orbit_task"
                    " WHERE state IN ('RESERVED', 'RUNNING', 'UNKNOWN') AND resource_ref IS NOT NULL"
                    " GROUP BY resource_ref) held",
                    "holders > 2",
                )
            )

    def work(number: int) -> int:
        done = 0
        for step in range(60):
            offers = claims.claim(orders[(number + step) % 2]).offers
            for place, offer in enumerate(offers):
                if (number + step + place) % 7 == 0:
                    f.release(offer)
                else:
                    f.start(tenant, offer)
                    f.finish(offer)
                    done += 1
            sweeps.recheck_resource_keys()
            if not offers and f.queue_row(tenant.queue_id).unfinished + f.queue_row(other).unfinished == 0:
                break
        return done

    watcher = beside(watch)
    done = together([lambda n=n: work(n) for n in range(4)])
    stop.set()
    watcher.result()
    assert over == []
    assert sum(done) == 36  # type: ignore[arg-type]
