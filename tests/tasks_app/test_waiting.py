"""Why a task waits (design 3.5): each reason with its detail, and the first gate that holds wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tasks_app.domain import waiting
from tasks_app.domain.waiting import AHEAD_MAX, Reason, Waiting, Worker, why
from tasks_app.states import Lane
from tasks_app.transactions import unit
from tests.tasks_app import factories
from tests.tasks_app.factories import Tenant

SESSION = "5" * 32
Workers = Callable[..., None]


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    """Says which workers are connected, whatever namespace is asked for."""

    def connect(*connected: Worker) -> None:
        def look_up(namespace_id: str) -> Sequence[Worker]:
            return connected

        monkeypatch.setattr(waiting, "_workers_of", look_up)

    connect()
    return connect


def worker(tenant: Tenant, **changes: Any) -> Worker:
    """One that can do the factory's tasks, with ten free slots."""
    told: dict[str, Any] = {
        "session_id": tenant.session_id,
        "queue_ids": frozenset({tenant.queue_id}),
        "handlers": frozenset({("h", "1")}),
        "resource_keys": True,
        "capacity": 10,
        **changes,
    }
    return Worker(**told)


def execute(sql: str) -> None:
    unit(lambda tx: tx.execute(sql))


def reason_of(task_id: str) -> Waiting:
    found = why(task_id)
    assert found is not None
    return found


def test_a_task_that_is_not_due_waits_for_its_time(tenant: Tenant, workers: Workers):
    task_id = factories.submit(tenant, delay_ms=60_000)
    assert reason_of(task_id) == Waiting(Reason.NOT_DUE, {"available_at": factories.row(task_id).available_at})


def test_a_task_that_backs_off_waits_for_its_time(tenant: Tenant, workers: Workers):
    task_id = factories.submit(tenant, retry=factories.SAFE)
    factories.finish(factories.run_one(tenant), factories.Report.FAILED)
    assert reason_of(task_id).reason is Reason.NOT_DUE


def test_a_yielded_task_waits_out_its_delay(strict_tenant: Tenant, workers: Workers):
    task_id = factories.submit(strict_tenant)
    later = factories.now() + 60 * factories.SECOND
    factories.set_columns(task_id, lane=Lane.YIELDED.value, visible_at=later, yields=3)
    assert reason_of(task_id) == Waiting(Reason.YIELD_DELAY, {"visible_at": later, "yields": 3})


def test_a_task_of_a_paused_queue_says_why_it_was_paused(tenant: Tenant, workers: Workers):
    workers(worker(tenant))
    task_id = factories.submit(tenant)
    factories.queues.pause(tenant.principal, tenant.queue_id, reason="no paper", actor=factories.SYSTEM)
    assert reason_of(task_id) == Waiting(Reason.QUEUE_PAUSED, {"pause_reason": "no paper"})


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_ids": frozenset({"0" * 32})},
        {"handlers": frozenset({("h", "2")})},
        {"handlers": frozenset({("H", "1")})},
        {"handlers": frozenset()},
    ],
)
def test_a_task_that_no_connected_worker_can_do_says_so(changes: dict[str, Any], tenant: Tenant, workers: Workers):
    task_id = factories.submit(tenant)
    workers(worker(tenant, **changes))
    assert reason_of(task_id) == Waiting(Reason.NO_COMPATIBLE_WORKER, {"handler": "h", "handler_version": "1"})


def test_a_worker_without_resource_keys_cannot_do_a_task_with_one(tenant: Tenant, workers: Workers):
    plain, keyed = factories.submit(tenant), factories.submit(tenant, resource_key="k")
    workers(worker(tenant, resource_keys=False))
    assert reason_of(plain).reason is Reason.BEHIND_OTHERS
    assert reason_of(keyed).detail["resource_key"] == "k"


@pytest.mark.parametrize("scope", ["application", "queue"])
def test_a_running_limit_that_is_used_up_says_how_many_run(scope: str, tenant: Tenant, workers: Workers):
    workers(worker(tenant))
    factories.submit(tenant)
    factories.run_one(tenant)
    task_id = factories.submit(tenant)
    if scope == "application":
        factories.set_quotas(tenant, max_running=1)
    else:
        factories.change_queue(tenant, max_running=1)
    reason = Reason.APPLICATION_LIMIT if scope == "application" else Reason.QUEUE_LIMIT
    assert reason_of(task_id) == Waiting(reason, {"running": 1, "max_running": 1})


def test_a_busy_resource_key_names_its_holders(tenant: Tenant, workers: Workers):
    workers(worker(tenant))
    holder = factories.submit(tenant, resource_key="k")
    factories.run_one(tenant)
    task_id = factories.submit(tenant, resource_key="k")
    assert reason_of(task_id) == Waiting(Reason.RESOURCE_KEY, {"resource_key": "k", "limit": 1, "holders": [holder]})


def test_a_key_held_by_an_unknown_outcome_names_it(tenant: Tenant, workers: Workers):
    workers(worker(tenant))
    holder = factories.submit(tenant, resource_key="k")
    factories.lose(factories.run_one(tenant))
    assert factories.state(holder) == "UNKNOWN"
    assert reason_of(factories.submit(tenant, resource_key="k")).detail["holders"] == [holder]


@pytest.mark.parametrize("scope", ["application", "queue"])
def test_a_spent_start_budget_says_when_the_next_start_is_possible(scope: str, tenant: Tenant, workers: Workers):
    workers(worker(tenant))
    rate = (1, 2_678_400_000)
    if scope == "application":
        factories.set_quotas(tenant, start_rate=rate)
    else:
        factories.change_queue(tenant, start_rate=rate)
    factories.submit(tenant)
    factories.run_one(tenant)
    found = reason_of(factories.submit(tenant))
    assert (found.reason, found.detail["scope"]) == (Reason.START_RATE, scope)
    assert found.detail["next_at"] > factories.now() + 30 * 86_400 * factories.SECOND


def test_a_task_whose_workers_are_all_busy_says_so(tenant: Tenant, workers: Workers):
    factories.submit(tenant)
    factories.run_one(tenant)
    task_id = factories.submit(tenant)
    workers(worker(tenant, capacity=1))
    assert reason_of(task_id) == Waiting(Reason.NO_FREE_WORKER, {"workers": 1, "capacity": 1})
    workers(worker(tenant, capacity=1), worker(tenant, session_id=SESSION, capacity=1))
    assert reason_of(task_id).reason is Reason.BEHIND_OTHERS


def test_slots_kept_for_normal_work_are_not_free_for_urgent_work(strict_tenant: Tenant, workers: Workers):
    normal, urgent = factories.submit(strict_tenant), factories.submit(strict_tenant, priority=5)
    workers(worker(strict_tenant, capacity=2, normal_reserved_slots=2))
    assert reason_of(urgent).reason is Reason.NO_FREE_WORKER
    assert reason_of(normal).reason is Reason.BEHIND_OTHERS
    workers(worker(strict_tenant, capacity=2, normal_reserved_slots=1))
    assert reason_of(urgent).reason is Reason.BEHIND_OTHERS


@pytest.mark.parametrize("policy", ["AGED", "STRICT"])
def test_a_task_behind_others_says_how_many(policy: str, tenant: Tenant, strict_tenant: Tenant, workers: Workers):
    chosen = tenant if policy == "AGED" else strict_tenant
    workers(worker(chosen, handlers=frozenset({("h", "1"), ("other", "1")})))
    tasks = [factories.submit(chosen, handler=handler) for handler in ("h", "other", "h")]
    urgent = factories.submit(chosen, priority=9)
    assert [reason_of(task).detail["ahead"] for task in (urgent, *tasks)] == [0, 1, 2, 3]
    assert reason_of(tasks[2]) == Waiting(Reason.BEHIND_OTHERS, {"ahead": 3, "more": False})


def test_what_is_ahead_is_counted_up_to_a_bound(tenant: Tenant, workers: Workers, monkeypatch: pytest.MonkeyPatch):
    assert AHEAD_MAX == 1000
    monkeypatch.setattr(waiting, "AHEAD_MAX", 2)
    workers(worker(tenant))
    tasks = [factories.submit(tenant) for _ in range(4)]
    assert reason_of(tasks[2]).detail == {"ahead": 2, "more": False}
    assert reason_of(tasks[3]).detail == {"ahead": 2, "more": True}


def test_the_first_gate_that_holds_is_told_in_the_order_of_the_contract(tenant: Tenant, workers: Workers):
    """Everything holds at once; gate after gate is opened."""
    factories.submit(tenant, resource_key="k")
    factories.run_one(tenant)
    task_id = factories.submit(tenant, resource_key="k")
    factories.submit(tenant, priority=9)
    rate = (1, 2_678_400_000)
    factories.change_queue(tenant, max_running=1, start_rate=rate)
    factories.set_quotas(tenant, max_running=1)
    factories.pause(tenant)
    row = factories.row(task_id)
    execute("UPDATE orbit_queue SET start_level = 0")
    factories.set_columns(task_id, available_at=factories.now() + 60 * factories.SECOND)
    told = []

    def tell() -> None:
        told.append(reason_of(task_id).reason)

    tell()
    factories.set_columns(task_id, available_at=row.available_at)
    tell()
    factories.queues.resume(tenant.principal, tenant.queue_id, actor=factories.SYSTEM)
    tell()
    workers(worker(tenant, capacity=1))
    tell()
    factories.set_quotas(tenant, max_running=None)
    tell()
    factories.change_queue(tenant, max_running=None)
    tell()
    execute("UPDATE orbit_namespace SET resource_limit = 2")
    tell()
    factories.change_queue(tenant, start_rate=None)
    tell()
    workers(worker(tenant))
    tell()
    execute("UPDATE orbit_namespace SET resource_limit = 1")  # what was raised behind the back of the key's lanes
    assert told == [
        Reason.NOT_DUE,
        Reason.QUEUE_PAUSED,
        Reason.NO_COMPATIBLE_WORKER,
        Reason.APPLICATION_LIMIT,
        Reason.QUEUE_LIMIT,
        Reason.RESOURCE_KEY,
        Reason.START_RATE,
        Reason.NO_FREE_WORKER,
        Reason.BEHIND_OTHERS,
    ]


def test_what_does_not_wait_has_no_reason(tenant: Tenant, workers: Workers):
    task_id = factories.submit(tenant)
    factories.claim_one(tenant)
    assert why(task_id) is None
    assert why("0" * 32) is None


def test_without_anybody_who_knows_the_workers_nothing_is_said_of_them(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, "_workers_of", None)
    assert reason_of(factories.submit(tenant)).reason is Reason.BEHIND_OTHERS
