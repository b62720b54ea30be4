"""Acceptance under simultaneity and under lost answers: exact quotas, one task a key, the truth and never a guess."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from django.db import connection

from tasks_app import faults
from tasks_app.errors import ApplicationFull, IdempotencyConflict, QueueFull, Unavailable
from tasks_app.states import TaskState
from tests.support.mysql_proxy import How, Loss, MysqlProxy, When
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import await_lock_wait, beside, together
from tests.tasks_app.conftest import Points
from tests.tasks_app.factories import Tenant, make_tenant

SERVER = pytest.mark.mariadb_only("answers of COMMIT are lost between a client and a server")


def kinds(outcomes: list[Any]) -> Counter[str]:
    """How often each outcome came: `new`, `repeated`, or the name of the error."""
    return Counter(
        type(outcome).__name__
        if isinstance(outcome, BaseException)
        else ("repeated" if outcome.receipt.deduplicated else "new")
        for outcome in outcomes
    )


# -- one key, many submits


def while_another_writes_the_key(tenant: Tenant, points: Points, *, then: type[Exception] | None) -> tuple[Any, Any]:
    """The first submit has written its rows and not committed; the second comes with the same key; the first ends.

    Gives the outcomes of both. `then` is what the first one ends with; None: it commits.
    """
    written, go_on = threading.Event(), threading.Event()
    first_thread = threading.Event()

    def first_waits() -> None:
        if not first_thread.is_set():
            first_thread.set()
            written.set()
            assert go_on.wait(20)
            if then is not None:
                raise then("accept.before_commit")

    f.submit(tenant)  # the handler's row exists
    points["accept.before_commit"] = first_waits
    first = beside(lambda: f.accept(tenant, key="k"))
    assert written.wait(20)
    second = beside(lambda: f.accept(tenant, key="k"))
    if connection.vendor == "mysql":
        await_lock_wait()
    go_on.set()
    outcomes: list[Any] = []
    for actor in (first, second):
        try:
            outcomes.append(actor.result())
        except Exception as error:
            outcomes.append(error)
    return outcomes[0], outcomes[1]


def test_a_second_submit_waits_for_the_first_and_gets_its_receipt(tenant: Tenant, points: Points):
    first, second = while_another_writes_the_key(tenant, points, then=None)
    assert kinds([first, second]) == {"new": 1, "repeated": 1}
    assert second.receipt.task_id == first.receipt.task_id


def test_if_the_first_rolls_back_the_second_is_the_acceptance(tenant: Tenant, points: Points):
    """Oban 1093: never a receipt for a task that does not exist."""
    first, second = while_another_writes_the_key(tenant, points, then=faults.FaultInjected)
    assert isinstance(first, faults.FaultInjected)
    assert second.receipt.deduplicated is False
    assert f.state(second.receipt.task_id) is TaskState.READY
    assert len(f.rows_of("orbit_task")) == 2  # and the one that made the handler's row


def test_twenty_simultaneous_submits_with_one_new_key_make_one_task(tenant: Tenant):
    """Solid Queue PR 99: no deadlock reaches a caller."""
    outcomes = together([lambda: f.accept(tenant, key="k")] * 20)
    assert kinds(outcomes) == {"new": 1, "repeated": 19}
    assert len({outcome.receipt.task_id for outcome in outcomes}) == 1
    assert len(f.rows_of("orbit_task")) == 1


def test_simultaneous_submits_with_one_key_and_different_content_make_one_task_and_conflicts(tenant: Tenant):
    outcomes = together([lambda n=n: f.accept(tenant, key="k", payload=str(n % 2)) for n in range(12)])
    assert kinds(outcomes)["new"] == 1
    assert kinds(outcomes)[IdempotencyConflict.__name__] == 6
    assert kinds(outcomes)["repeated"] == 5


def test_twenty_simultaneous_submits_with_a_new_resource_key_and_handler_make_one_row_of_each(tenant: Tenant):
    outcomes = together([lambda: f.accept(tenant, handler="new", resource_key="new")] * 20)
    assert kinds(outcomes) == {"new": 20}
    assert len(f.rows_of("orbit_resource_key")) == len(f.rows_of("orbit_handler")) == 1
    lanes = Counter(row.lane for row in f.rows_of("orbit_task"))
    assert lanes == {1: 1, 2: 19}


# -- quotas are exact


def test_two_hundred_parallel_submits_fill_a_queue_to_exactly_its_limit(tenant: Tenant):
    f.change_queue(tenant, max_unfinished=37)
    outcomes = in_parallel(tenant, 200)
    assert kinds(outcomes) == {"new": 37, QueueFull.__name__: 163}
    assert len(f.rows_of("orbit_task")) == f.queue_row(tenant.queue_id).unfinished == 37
    assert len(f.rows_of("orbit_idempotency_record")) == 37


def test_parallel_submits_to_many_queues_fill_an_application_to_exactly_its_limit(tenant: Tenant):
    f.set_quotas(tenant, max_unfinished=20)
    queues = [tenant.queue_id, tenant.queue(), tenant.queue()]
    outcomes = in_parallel(tenant, 60, queues=queues)
    assert kinds(outcomes) == {"new": 20, ApplicationFull.__name__: 40}
    assert f.application_row(tenant).unfinished == 20


def in_parallel(tenant: Tenant, count: int, *, queues: list[str] | None = None, threads: int = 20) -> list[Any]:
    """The outcomes of `count` submits that `threads` threads make at once."""
    queues = queues or [tenant.queue_id]

    def some(thread: int) -> list[Any]:
        outcomes: list[Any] = []
        for number in range(thread, count, threads):
            try:
                outcomes.append(f.accept(tenant, key=f"n{number}", queue_id=queues[number % len(queues)]))
            except Exception as error:
                outcomes.append(error)
        return outcomes

    found = together([lambda n=n: some(n) for n in range(threads)])
    return [outcome for outcomes in found for outcome in outcomes]  # type: ignore[union-attr]


def test_ends_and_submits_at_once_keep_the_books(tenant: Tenant):
    """Accept and finish meet at the same counters; the fixture counts again."""
    for _ in range(20):
        f.submit(tenant)
    offers = f.claim(tenant, limit=20).offers
    f.start_all(tenant, offers)
    together(
        [
            *(lambda offer=offer: f.finish(offer) for offer in offers),
            *(lambda: f.submit(tenant) for _ in range(20)),
        ]
    )
    assert f.queue_row(tenant.queue_id).unfinished == 20


# -- the answer of COMMIT is lost


@SERVER
@pytest.mark.parametrize("how", [How.CLOSE, How.RESET])
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("resource_key", [None, "k"], ids=["plain", "keyed"])
def test_an_unknown_commit_is_resolved_to_the_truth(
    tenant: Tenant, proxy: MysqlProxy, when: When, how: How, resource_key: str | None
):
    f.submit(tenant, resource_key=resource_key)  # the rows that are made on demand exist
    proxy.lose(Loss(when, how), skip=1 if resource_key else 0)  # a keyed submit looks its key up first
    accepted = f.accept(tenant, key="k", resource_key=resource_key)
    assert [commit.committed for commit in proxy.lost] == [when is When.AFTER]
    # What took effect is found by its key; what did not is accepted now. Either way there is one task of that key.
    assert accepted.receipt.deduplicated is (when is When.AFTER)
    (record,) = f.rows_of("orbit_idempotency_record", "idempotency_key = 'k'")
    assert record.task_id == accepted.receipt.task_id
    assert f.state(record.task_id) is TaskState.READY


@SERVER
@pytest.mark.parametrize("when", When)
def test_an_outcome_that_cannot_be_learned_is_unavailable_and_the_same_key_tells_it_later(
    tenant: Tenant, proxy: MysqlProxy, when: When
):
    f.submit(tenant)
    proxy.lose(Loss(when, then=proxy.refuse))
    with pytest.raises(Unavailable) as told:
        f.accept(tenant, key="k")
    assert told.value.retry_after_ms == 1000
    proxy.refuse(False)
    assert f.accept(tenant, key="k").receipt.deduplicated is (when is When.AFTER)
    assert len(f.rows_of("orbit_task")) == 2


@SERVER
def test_a_look_up_whose_own_commit_is_lost_is_unavailable_too(tenant: Tenant, proxy: MysqlProxy):
    f.submit(tenant)
    proxy.lose(Loss(When.AFTER), times=2)
    with pytest.raises(Unavailable):
        f.accept(tenant, key="k")
    assert f.accept(tenant, key="k").receipt.deduplicated is True


@SERVER
def test_a_refusal_is_a_refusal_whatever_happens_to_the_connection(tenant: Tenant, proxy: MysqlProxy):
    """A unit that is refused never comes to COMMIT."""
    f.change_queue(tenant, max_unfinished=0)
    proxy.lose(Loss(When.AFTER))
    with pytest.raises(QueueFull):
        f.submit(tenant, handler="h2")
    assert proxy.lost == []


@SERVER
def test_many_submits_with_lost_answers_make_one_task_a_key(tenant: Tenant, proxy: MysqlProxy):
    """Half of the lost answers belong to commits that took effect; repeats of the same keys tell the rest."""
    f.submit(tenant)
    number = iter(range(10_000))

    def every_third(commit: Any) -> Loss | None:
        step = 1 if commit.autocommit else next(number)
        return None if step % 3 else Loss(list(When)[step % 2])

    proxy.policy = every_third
    told: dict[str, str] = {}
    for round_ in range(3):
        for key in range(15):
            try:
                receipt = f.accept(tenant, key=f"n{key}").receipt
            except Unavailable:
                continue
            assert told.setdefault(f"n{key}", receipt.task_id) == receipt.task_id, f"round {round_}"
    proxy.policy = None
    assert {commit.committed for commit in proxy.lost} == {True, False}
    records = f.rows_of("orbit_idempotency_record", "idempotency_key LIKE 'n%%'")
    assert {record.idempotency_key: record.task_id for record in records} == told
    assert len(f.rows_of("orbit_task")) == 16


@pytest.mark.mariadb_only("SQLite admits one writer and promises nothing else")
def test_tenants_do_not_wait_for_each_other(database: None, points: Points):
    """An open acceptance of one application locks nothing that another one needs."""
    one, other = make_tenant(), make_tenant()
    f.submit(one), f.submit(other)
    points.once("accept.before_commit", lambda: beside(lambda: f.submit(other, resource_key="k")).result())
    f.submit(one, resource_key="k")
    assert len(f.rows_of("orbit_task")) == 4
