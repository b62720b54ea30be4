"""Claims (design 3.2 to 3.5): the order of the line, the gates in their order, disjointness, exact permits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from tasks_app.domain import claims
from tasks_app.domain.claims import EmptyReason
from tasks_app.endings import Report
from tasks_app.states import TaskState
from tasks_app.transactions import Tx, unit
from tests.support.mysql_proxy import Loss, MysqlProxy, When
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import beside, together
from tests.tasks_app.conftest import Points
from tests.tasks_app.factories import SECOND, Tenant, make_tenant

S = TaskState
SERVER = pytest.mark.mariadb_only("row locks and lost answers are a server's")

# -- the order of an AGED namespace, row by row (design 3.2)


def aged_pair(tenant: Tenant, a: tuple[int, float], b: tuple[int, float]) -> tuple[str, str]:
    """Tasks A and B with (priority, due so many seconds ago), at one moment for both."""
    task_a, task_b = f.submit(tenant, priority=a[0]), f.submit(tenant, priority=b[0])
    now = f.now()
    f.due(task_a, seconds_ago=a[1], at=now)
    f.due(task_b, seconds_ago=b[1], at=now)
    return task_a, task_b


@pytest.mark.parametrize(
    ("a", "b", "first"),
    [
        ((0, 5), (9, 0), "B"),
        ((0, 271), (9, 0), "A"),
        ((0, 270), (9, 0), "A"),  # equal dispatch_at: the earlier available_at
        ((0, 269.999999), (9, 0), "B"),
        ((3, 10), (3, 5), "A"),
        ((3, 5), (3, 10), "B"),
        ((4, 7), (4, 7), "A"),  # equal in everything: the smaller id
        ((1, 0), (0, 29.999999), "A"),
        ((1, 0), (0, 30), "B"),
    ],
)
def test_two_ready_tasks_are_taken_in_the_order_of_the_table(
    tenant: Tenant, a: tuple[int, float], b: tuple[int, float], first: str
):
    task_a, task_b = aged_pair(tenant, a, b)
    expected = [task_a, task_b] if first == "A" else [task_b, task_a]
    assert f.claim_ids(tenant, limit=2) == expected


def test_the_same_table_decides_one_by_one(tenant: Tenant):
    task_a, task_b = aged_pair(tenant, (0, 5), (9, 0))
    assert [f.claim_ids(tenant), f.claim_ids(tenant), f.claim_ids(tenant)] == [[task_b], [task_a], []]


def test_what_is_not_due_is_no_candidate_however_urgent(tenant: Tenant):
    urgent = f.submit(tenant, priority=9, delay_ms=3_600_000)
    plain = f.submit(tenant)
    assert f.claim_ids(tenant, limit=2) == [plain]
    assert f.state(urgent) is S.SCHEDULED


def test_equal_times_and_priorities_go_by_id(tenant: Tenant):
    ids = [f.submit(tenant) for _ in range(5)]
    at = f.now()
    for task_id in ids:
        f.due(task_id, seconds_ago=1, at=at)
    assert f.claim_ids(tenant, limit=5) == sorted(ids)


@pytest.mark.parametrize("policy", ["AGED", "STRICT"])
def test_any_line_is_taken_in_the_documented_order(database: None, policy: str):
    """Recomputed by hand from the rows: nothing but stored columns decides."""
    tenant = make_tenant(policy=policy)
    choose = random.Random(7)
    low = 0 if policy == "AGED" else -9
    handlers = ("h", "i", "j")
    for _ in range(30):
        task_id = f.submit(tenant, priority=choose.randint(low, 9), handler=choose.choice(handlers))
        f.due(task_id, seconds_ago=choose.choice([0, 30, 60, 90, 300]))
    rows = f.rows_of("orbit_task")
    if policy == "AGED":
        by_hand = sorted(rows, key=lambda t: (t.available_at - t.priority * 30 * SECOND, t.available_at, t.task_id))
    else:
        by_hand = sorted(rows, key=lambda t: (-t.priority, t.available_at, t.task_id))
    taken = [task_id for _ in range(4) for task_id in f.claim_ids(tenant, limit=8, handlers=handlers)]
    assert taken == [task.task_id for task in by_hand]


def test_a_released_task_keeps_its_place(tenant: Tenant):
    first, second = f.submit(tenant), f.submit(tenant)
    f.release(f.claim_one(tenant))
    assert f.claim_ids(tenant, limit=2) == [first, second]


def test_what_is_reserved_or_runs_is_never_taken_away_in_an_aged_namespace(tenant: Tenant):
    low = f.submit(tenant)
    offer = f.claim_one(tenant)
    f.submit(tenant, priority=9)
    f.claim(tenant, limit=5)
    assert f.start(tenant, offer).answer.name == "STARTED"
    assert f.state(low) is S.RUNNING


# -- what a reservation is


def test_a_claim_reserves_for_ten_seconds_under_a_new_token(tenant: Tenant):
    task_id = f.submit(tenant, payload='{"n": 1.10}', resource_key="k", priority=2)
    before = f.now()
    offer = f.claim_one(tenant)
    task = f.row(task_id)
    assert (task.state, task.session_id, task.fencing_token) == (S.RESERVED, tenant.session_id, 1)
    assert before + 10 * SECOND <= task.lease_until <= f.now() + 10 * SECOND
    assert settings.ORBIT.reservation_ms == 10_000
    assert (offer.task.attempt_id, offer.task.lease_until) == (task.attempt_id, task.lease_until)
    assert (offer.payload, offer.payload_version, offer.resource_key, offer.task.priority) == (
        '{"n": 1.10}', "1", "k", 2
    )  # fmt: skip
    assert f.events_of(task_id) == ["ACCEPTED"], "being claimed has no event"


def test_a_claim_takes_no_more_than_its_limit(tenant: Tenant):
    for _ in range(5):
        f.submit(tenant)
    assert [len(f.claim_ids(tenant, limit=3)), len(f.claim_ids(tenant, limit=3))] == [3, 2]


@pytest.mark.parametrize(
    "nothing", [{"limit": 0}, {"handlers": ()}, {"handlers": ("never submitted",)}], ids=lambda value: str(value)
)
def test_a_claim_that_asks_for_nothing_gets_nothing(tenant: Tenant, nothing: dict[str, Any]):
    f.submit(tenant)
    assert f.claim(tenant, **nothing).offers == ()


# -- who may have what


def test_only_announced_handlers_are_offered(tenant: Tenant):
    mine, foreign = f.submit(tenant, handler="mine"), f.submit(tenant, handler="foreign", priority=9)
    assert f.claim_ids(tenant, limit=5, handlers=("mine",)) == [mine]
    assert f.state(foreign) is S.READY


def test_many_handlers_share_one_line(tenant: Tenant):
    """More (queue, lane, handler) than are looked at directly: the empty ones are found out first."""
    names = [f"h{number}" for number in range(20)]
    ids = [f.submit(tenant, handler=name) for name in reversed(names)]
    assert f.claim_ids(tenant, limit=32, handlers=names) == ids
    assert f.claim_ids(tenant, limit=32, handlers=names) == []


def test_tasks_with_a_resource_key_are_for_workers_that_support_keys(tenant: Tenant):
    keyed, plain = f.submit(tenant, resource_key="k"), f.submit(tenant)
    assert f.claim_ids(tenant, limit=5, resource_keys=False) == [plain]
    assert f.claim_ids(tenant, limit=5) == [keyed]


def test_there_is_no_comparison_across_queues(tenant: Tenant):
    other = tenant.queue()
    plain, urgent = f.submit(tenant), f.submit(tenant, queue_id=other, priority=9)
    assert f.claim_ids(tenant, limit=5) == [plain]
    assert f.claim_ids(tenant, limit=5, queue_ids=[other]) == [urgent]


def test_a_claim_of_a_foreign_queue_brings_nothing(tenant: Tenant):
    other = make_tenant()
    task_id = f.submit(other)
    f.submit(tenant)
    ref = f.row(task_id).handler_ref
    order = replace(f.order(tenant, queue_ids=[other.queue_id]), handler_refs=(ref,))
    assert claims.claim(order).offers == ()
    assert f.state(task_id) is S.READY


# -- the gates, in the order of 3.5


def close_application(tenant: Tenant) -> None:
    f.set_quotas(tenant, max_running=0)


def close_queue_limit(tenant: Tenant) -> None:
    f.change_queue(tenant, max_running=0)


def close_application_budget(tenant: Tenant) -> None:
    f.set_quotas(tenant, start_rate=(1, 60_000))
    empty_budget("orbit_application")


def close_queue_budget(tenant: Tenant) -> None:
    f.change_queue(tenant, start_rate=(1, 60_000))
    empty_budget("orbit_queue")


def empty_budget(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET start_level = 0, start_level_at = %s", [f.now()])


GATES: list[tuple[Callable[[Tenant], None], EmptyReason]] = [
    (f.pause, EmptyReason.QUEUE_PAUSED),
    (close_application, EmptyReason.APPLICATION_LIMIT),
    (close_queue_limit, EmptyReason.QUEUE_LIMIT),
    (close_application_budget, EmptyReason.START_RATE),
    (close_queue_budget, EmptyReason.START_RATE),
]


@pytest.mark.parametrize(("close", "reason"), GATES, ids=lambda value: getattr(value, "__name__", None))
def test_a_closed_gate_claims_nothing_and_says_which_it_is(tenant: Tenant, close: Any, reason: EmptyReason):
    f.submit(tenant, resource_key="k")
    close(tenant)
    seen = f.snapshot()
    assert f.claim(tenant).reason is reason
    assert f.snapshot() == seen, "nothing is claimed only to be put back"


@pytest.mark.parametrize("place", range(len(GATES) - 1), ids=lambda place: GATES[place][0].__name__)
def test_of_two_closed_gates_the_earlier_one_answers(tenant: Tenant, place: int):
    f.submit(tenant)
    for close, _ in reversed(GATES[place : place + 2]):
        close(tenant)
    assert f.claim(tenant).reason is GATES[place][1]


def test_an_open_gate_lets_pass_as_many_as_it_has_room_for(tenant: Tenant):
    for _ in range(5):
        f.submit(tenant)
    f.set_quotas(tenant, max_running=4)
    f.change_queue(tenant, max_running=3)
    assert len(f.claim_ids(tenant, limit=5)) == 3
    assert f.claim(tenant).reason is EmptyReason.QUEUE_LIMIT


def test_the_limit_of_an_application_counts_what_runs_in_its_other_queues(tenant: Tenant):
    other = tenant.queue()
    f.set_quotas(tenant, max_running=1)
    f.submit(tenant, queue_id=other)
    f.submit(tenant)
    f.run_one(tenant, queue_ids=[other])
    assert f.claim(tenant).reason is EmptyReason.APPLICATION_LIMIT


def test_reserved_and_running_both_hold_permits_and_every_end_gives_them_back(tenant: Tenant):
    f.change_queue(tenant, max_running=1)
    for _ in range(3):
        f.submit(tenant)
    offer = f.claim_one(tenant)
    assert f.claim(tenant).reason is EmptyReason.QUEUE_LIMIT
    f.start(tenant, offer)
    assert f.claim(tenant).reason is EmptyReason.QUEUE_LIMIT
    f.finish(offer)
    f.release(f.claim_one(tenant))
    f.lose(f.run_one(tenant))
    f.cancel(tenant, f.claim_one(tenant).task.task_id)
    assert f.queue_row(tenant.queue_id).running == 0


def test_no_more_is_claimed_than_could_start_now(tenant: Tenant):
    """What is reserved already will want a start too: nothing is claimed only to be put back."""
    f.change_queue(tenant, start_rate=(3, 3_600_000))
    for _ in range(6):
        f.submit(tenant)
    assert len(f.claim_ids(tenant, limit=2)) == 2
    offers = list(f.claim(tenant, limit=5).offers)
    assert len(offers) == 1
    outcome = f.claim(tenant)
    assert (outcome.reason, outcome.retry_at) == (EmptyReason.START_RATE, None), "time alone frees nothing"
    f.release(offers[0])
    assert len(f.claim_ids(tenant, limit=5)) == 1


def test_the_budget_of_an_application_counts_the_reservations_of_all_its_queues(tenant: Tenant):
    other = tenant.queue()
    f.set_quotas(tenant, start_rate=(3, 3_600_000))
    for _ in range(4):
        f.submit(tenant)
        f.submit(tenant, queue_id=other)
    f.run_one(tenant)
    assert len(f.claim_ids(tenant, limit=1, queue_ids=[other])) == 1
    assert len(f.claim_ids(tenant, limit=4)) == 1
    assert f.claim(tenant, queue_ids=[other]).reason is EmptyReason.START_RATE


def test_an_empty_budget_tells_when_it_frees(tenant: Tenant):
    f.change_queue(tenant, start_rate=(2, 60_000))
    for _ in range(3):
        f.submit(tenant)
    f.run_one(tenant), f.run_one(tenant)
    retry_at = f.claim(tenant).retry_at
    assert retry_at is not None
    assert 0 < retry_at - f.now() <= 30 * SECOND


def test_a_task_that_waits_for_a_budget_holds_no_permit_and_goes_on_when_it_refills(tenant: Tenant):
    """Hatchet PR 4804."""
    f.change_queue(tenant, start_rate=(1, 60_000))
    first = f.submit(tenant, resource_key="k", retry=f.SAFE_AT_ONCE)
    f.finish(f.run_one(tenant), Report.FAILED)
    assert f.claim(tenant).reason is EmptyReason.START_RATE
    assert (f.key_row(tenant).held, f.queue_row(tenant.queue_id).running) == (0, 0)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_queue SET start_level_at = start_level_at - 60000000")
    assert f.claim_ids(tenant) == [first]


@pytest.mark.parametrize("closed", ["paused", "limited", "spent"])
def test_a_strict_claim_goes_on_with_the_queues_that_are_open(strict_tenant: Tenant, closed: str):
    other = strict_tenant.queue()
    f.submit(strict_tenant, priority=9)
    low = f.submit(strict_tenant, queue_id=other)
    close = {"paused": f.pause, "limited": close_queue_limit, "spent": None}[closed]
    if close is None:
        f.change_queue(strict_tenant, start_rate=(1, 60_000))
        with connection.cursor() as cursor:
            cursor.execute("UPDATE orbit_queue SET start_level = 0 WHERE queue_id = %s", [strict_tenant.queue_id])
            cursor.execute("UPDATE orbit_queue SET start_level_at = %s", [f.now()])
    else:
        close(strict_tenant)
    assert f.claim_ids(strict_tenant, limit=5, queue_ids=[strict_tenant.queue_id, other]) == [low]


# -- deadlines


def test_what_is_past_its_deadline_is_not_offered_but_expired(tenant: Tenant):
    late = [f.submit(tenant, expires_in_ms=60_000) for _ in range(3)]
    good = f.submit(tenant)
    for task_id in late:
        f.pass_deadline(task_id)
    assert f.claim_ids(tenant, limit=2) == [good]
    assert {f.state(task_id) for task_id in late} == {S.EXPIRED}


def test_many_expired_tasks_at_the_head_do_not_hide_the_one_behind_them(tenant: Tenant):
    late = [f.submit(tenant, expires_in_ms=60_000) for _ in range(40)]
    good = f.submit(tenant)
    for task_id in late:
        f.pass_deadline(task_id)
    assert f.claim_ids(tenant, limit=1) == [good]


# -- STRICT: slots for normal work


def test_urgent_tasks_take_no_more_than_their_slots_and_normal_ones_are_found_behind_them(strict_tenant: Tenant):
    urgent = [f.submit(strict_tenant, priority=5) for _ in range(6)]
    normal = [f.submit(strict_tenant, priority=priority) for priority in (0, -3)]
    assert f.claim_ids(strict_tenant, limit=4, urgent_limit=2) == [*urgent[:2], *normal]
    assert f.claim_ids(strict_tenant, limit=4, urgent_limit=0) == []
    assert f.claim_ids(strict_tenant, limit=4) == urgent[2:]


# -- several claimers at once


@SERVER
def test_a_claim_passes_over_what_another_one_is_taking(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    """SKIP LOCKED: the second claimer neither waits nor comes back empty while the first holds its rows."""
    ids = [f.submit(tenant) for _ in range(6)]
    second: list[str] = []
    real = claims._lock

    def lock(*args: Any) -> Any:
        locked = real(*args)
        if not second:
            second.append("")
            second[:] = beside(lambda: f.claim_ids(tenant, limit=2)).result()
        return locked

    monkeypatch.setattr(claims, "_lock", lock)
    first = f.claim_ids(tenant, limit=2)
    assert (first, second) == (ids[:2], ids[2:4])


@pytest.mark.parametrize("limit", [1, 3])
def test_simultaneous_claimers_get_disjoint_tasks_and_none_goes_empty(tenant: Tenant, limit: int):
    """Faults C9."""
    for _ in range(16 * limit + 4):
        f.submit(tenant)
    claimed = together([lambda: f.claim_ids(tenant, limit=limit)] * 16)
    ids = [task_id for some in claimed for task_id in some]  # type: ignore[union-attr]
    assert [len(some) for some in claimed] == [limit] * 16  # type: ignore[arg-type]
    assert len(set(ids)) == len(ids)


def test_simultaneous_claimers_never_pass_a_limit(tenant: Tenant):
    f.change_queue(tenant, max_running=7)
    for _ in range(30):
        f.submit(tenant)
    claimed = together([lambda: f.claim_ids(tenant, limit=3)] * 10)
    assert sum(len(some) for some in claimed) <= 7  # type: ignore[arg-type]
    while f.claim_ids(tenant):
        pass
    assert f.queue_row(tenant.queue_id).running == 7


@SERVER
def test_a_permit_that_another_node_took_since_the_look_is_not_taken_twice(
    tenant: Tenant, points: Points, monkeypatch: pytest.MonkeyPatch
):
    """Both have seen one free permit; the guarded counter lets one of them have it, the other looks again."""
    f.change_queue(tenant, max_running=1)
    first, second = f.submit(tenant), f.submit(tenant)
    looked: list[bool] = []
    real = claims._candidates

    def look(*args: Any) -> Any:
        if not looked:
            looked.append(True)
            assert beside(lambda: f.claim_ids(tenant)).result() == [first]
        return real(*args)

    monkeypatch.setattr(claims, "_candidates", look)
    assert f.claim(tenant).reason is EmptyReason.QUEUE_LIMIT
    assert (f.state(first), f.state(second)) == (S.RESERVED, S.READY)


@SERVER
def test_a_claim_does_not_wait_for_a_row_that_somebody_holds(tenant: Tenant):
    held, free = f.submit(tenant), f.submit(tenant)

    def hold(tx: Tx) -> list[str]:
        tx.row("SELECT task_id FROM orbit_task WHERE task_id = %s FOR UPDATE", [held])
        return beside(lambda: f.claim_ids(tenant, limit=2)).result()

    assert unit(hold) == [free]
    assert f.claim_ids(tenant) == [held]


# -- lost answers of COMMIT


@SERVER
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("resource_key", [None, "k"], ids=["plain", "keyed"])
def test_a_claim_whose_answer_was_lost_offers_what_it_reserved_and_nothing_else(
    tenant: Tenant, proxy: MysqlProxy, when: When, resource_key: str | None
):
    task_id = f.submit(tenant, resource_key=resource_key)
    proxy.lose(Loss(when))
    outcome = f.claim(tenant)
    if when is When.AFTER:
        assert [offer.task.task_id for offer in outcome.offers] == [task_id]
        assert f.start(tenant, outcome.offers[0]).answer.name == "STARTED"
    else:
        assert (outcome.offers, outcome.reason) == ((), EmptyReason.NO_WORK)
        assert f.state(task_id) is S.READY
        assert f.claim_ids(tenant) == [task_id]
