"""Retention: each sort of row has its period, nothing goes before its task ended, batches are small (design 5.6)."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from tasks_app import ids
from tasks_app.domain import invariant_rows, invariants, plan_firing, plans, replays, retention
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.event_feed import read_feed
from tasks_app.domain.reconciliation import Decision
from tasks_app.domain.retention import Batch, Pace, Retention
from tasks_app.endings import Report
from tasks_app.models import Operation
from tasks_app.transactions import Tx, unit
from tests.tasks_app import books
from tests.tasks_app.factories import (
    SAFE_AT_ONCE,
    Tenant,
    accept,
    cancel,
    claim_one,
    finish,
    lose,
    now,
    reconcile,
    row,
    rows_of,
    run_one,
    submit,
)
from tests.tasks_app.test_plans import definition

DAY = 86_400_000_000
invariant_rows.register_checks()


@pytest.fixture(autouse=True)
def receipts_may_outlive_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The books know no retention; `assert_sound` asks orbit_check instead."""
    monkeypatch.setattr(books, "assert_balanced", lambda: None)
    yield


@pytest.fixture
def in_days(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock that Orbit reads: `in_days(31)`."""
    start = now()

    def move(days: float) -> None:
        monkeypatch.setattr(Tx, "now_us", property(lambda self: start + round(days * DAY)))
        monkeypatch.setattr(Tx, "now_sql", property(lambda self: str(self.now_us)))

    return move


def prune(*names: str, dry_run: bool = False) -> dict[str, int]:
    """Rows deleted by kind, without the rests."""
    return {
        kind.name: sum(batch.rows for batch in retention.run(kind, dry_run=dry_run))
        for kind in retention.kinds()
        if not names or kind.name in names
    }


def count(table: str) -> int:
    return len(rows_of(table))


def assert_sound() -> None:
    found = [finding for name in invariants.names() for finding in invariants.look(name)]
    assert found == []


def finished(tenant: Tenant, report: Report = Report.SUCCEEDED, **fields: Any) -> str:
    task_id = submit(tenant, **fields)
    finish(run_one(tenant), report, retryable=False)
    return task_id


# -- periods


def test_periods_are_those_of_the_settings(settings: Any) -> None:
    days = {kind.name: kind.days() for kind in retention.kinds()}
    kept = {"tasks": 30, "events": 30, "receipts": 90, "firings": 30, "audit": 400, "reports": 30, "notifications": 30}
    assert days == kept
    settings.ORBIT = dataclasses.replace(settings.ORBIT, retain_tasks_days=5, retain_audit_days=6)
    assert {kind.name: kind.days() for kind in retention.kinds()}["tasks"] == 5


@pytest.mark.parametrize(
    ("days", "kept"),
    [
        (29.9, {"task": 1, "attempt": 1, "event": 3, "idempotency_record": 1}),
        (30.1, {"task": 0, "attempt": 0, "event": 0, "idempotency_record": 1}),
        (89.9, {"task": 0, "attempt": 0, "event": 0, "idempotency_record": 1}),
        (90.1, {"task": 0, "attempt": 0, "event": 0, "idempotency_record": 0}),
    ],
)
def test_each_sort_of_row_has_its_own_period(
    tenant: Tenant, in_days: Callable[[float], None], days: float, kept: dict[str, int]
) -> None:
    finished(tenant)
    in_days(days)
    prune()
    assert {name: count(f"orbit_{name}") for name in kept} == kept
    assert count("orbit_audit_entry") > 0
    assert_sound()


@pytest.mark.parametrize(("days", "is_kept"), [(399.9, True), (400.1, False)])
def test_audit_entries_are_kept_longest(
    tenant: Tenant, in_days: Callable[[float], None], days: float, is_kept: bool
) -> None:
    finished(tenant)
    in_days(days)
    prune()
    assert (count("orbit_audit_entry") > 0) is is_kept


def test_a_tasks_period_counts_from_its_end(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    task_id = submit(tenant)
    in_days(40)
    finish(run_one(tenant))
    in_days(69.9)
    prune()
    assert row(task_id).state == "SUCCEEDED"
    in_days(70.1)
    prune()
    assert rows_of("orbit_task") == []


@pytest.mark.parametrize("how", ["FAILED", "CANCELED"])
def test_every_end_is_an_end(tenant: Tenant, in_days: Callable[[float], None], how: str) -> None:
    if how == "FAILED":
        finished(tenant, Report.FAILED)
    else:
        cancel(tenant, submit(tenant))
    in_days(31)
    assert prune("tasks") == {"tasks": 1}


@pytest.mark.parametrize("state", ["READY", "SCHEDULED", "RESERVED", "RUNNING", "UNKNOWN"])
def test_nothing_of_an_unfinished_task_goes_however_old_it_is(
    tenant: Tenant, in_days: Callable[[float], None], state: str
) -> None:
    delay_ms = 60_000 if state == "SCHEDULED" else None
    task_id = submit(tenant, delay_ms=delay_ms)
    if state == "RESERVED":
        claim_one(tenant)
    elif state in ("RUNNING", "UNKNOWN"):
        offer = run_one(tenant)
        if state == "UNKNOWN":
            lose(offer)
    assert row(task_id).state == state
    before = {
        table: count(table) for table in ("orbit_task", "orbit_attempt", "orbit_event", "orbit_idempotency_record")
    }
    in_days(399)

    prune()

    assert {table: count(table) for table in before} == before
    again = accept(tenant, key=record_of(task_id), delay_ms=delay_ms)
    assert again.receipt.deduplicated, "its receipt still answers"


def record_of(task_id: str) -> str:
    (record,) = rows_of("orbit_idempotency_record", "task_id = %s", [task_id])
    return str(record.idempotency_key)


def test_an_unknown_task_that_was_reconciled_goes_after_its_period(
    tenant: Tenant, in_days: Callable[[float], None]
) -> None:
    task_id = submit(tenant)
    lose(run_one(tenant))
    in_days(100)
    prune()
    reconcile(tenant, task_id, Decision.FAILED)
    prune("events", "receipts")
    assert rows_of("orbit_idempotency_record") == [], "90 days are over and the task has ended"
    in_days(131)
    prune()
    assert [count(table) for table in ("orbit_task", "orbit_attempt", "orbit_event")] == [0, 0, 0]


def test_a_receipt_answers_after_its_task_was_pruned(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    task_id = submit(tenant, key="mine")
    cancel(tenant, task_id)
    in_days(60)
    prune()
    again = accept(tenant, key="mine")
    assert (again.receipt.task_id, again.receipt.deduplicated) == (task_id, True)
    in_days(91)
    prune()
    assert accept(tenant, key="mine").receipt.task_id != task_id


def test_frozen_selections_go_with_the_receipts(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    finished(tenant, Report.FAILED)
    order = replays.SelectionOrder(tenant.queue_id, limit=5)
    replays.replay_many(tenant.principal, order, key="all", is_over=lambda: False)
    finish(run_one(tenant))
    where = f"operation = '{Operation.TASKS_REPLAY.value}'"
    assert len(rows_of("orbit_idempotency_record", where)) == 2
    in_days(91)
    prune()
    assert rows_of("orbit_idempotency_record", where) == []


def test_firings_go_with_the_tasks_period(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    plan = plans.create(tenant.principal, "p", definition(tenant), actor=SYSTEM)
    plan_firing.trigger(tenant.principal, plan.plan_id, key="1")
    finish(run_one(tenant))
    plan_firing.trigger(tenant.principal, plan.plan_id, key="2")
    in_days(31)
    plan_firing.trigger(tenant.principal, plan.plan_id, key="3")
    assert prune("firings") == {"firings": 1}
    assert len(rows_of("orbit_plan_firing")) == 2, "one is new, and the task of the other has not ended"


def test_the_feed_goes_on_over_pruned_events(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    finished(tenant)
    page = read_feed(tenant.principal, after=0, limit=2)
    in_days(31)
    prune()
    task_id = submit(tenant)
    events = read_feed(tenant.principal, after=page.next_position, limit=10).events
    assert [(event.task_id, event.position) for event in events] == [(task_id, 4)]


# -- batches


def old_tasks(tenant: Tenant, number: int, *, attempts: int = 1) -> list[str]:
    """Tasks that ended 40 days ago, with attempts, events and receipts; quick to make."""
    submit(tenant)
    (pattern,) = rows_of("orbit_task")
    at = now() - 40 * DAY
    made = [ids.new_id(at) for _ in range(number)]

    def write(tx: Tx) -> None:
        columns = [c for c in vars(pattern) if c not in ("dispatch_at", "wake_at", "attention")]
        changes = {
            "state": "SUCCEEDED", "result": "1", "finished_at": at, "created_at": at, "updated_at": at,
            "available_at": at, "attempts": attempts, "max_attempts": attempts,
        }  # fmt: skip
        tx.insert(
            "orbit_task",
            columns,
            [[{**vars(pattern), **changes, "task_id": task_id}[c] for c in columns] for task_id in made],
        )
        tx.insert(
            "orbit_attempt",
            ("attempt_id", "task_id", "number", "fencing_token", "session_id", "worker_name", "node_id", "state",
             "started_at", "finished_at"),
            [
                (ids.new_id(at), task_id, number, number, "5" * 32, "w", "n", "SUCCEEDED", at, at)
                for task_id in made
                for number in range(1, attempts + 1)
            ],
        )  # fmt: skip

    unit(write)
    return made


def batches(name: str) -> list[Batch]:
    (kind,) = [kind for kind in retention.kinds() if kind.name == name]
    return list(retention.run(kind))


def test_statements_delete_at_most_500_rows(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    old_tasks(tenant, 1300)
    deleted: list[int] = []
    real = Tx.execute

    def watched(tx: Tx, sql: str, params: Any = ()) -> int:
        rows = real(tx, sql, params)
        if sql.startswith("DELETE"):
            deleted.append(rows)
        return rows

    monkeypatch.setattr(Tx, "execute", watched)
    monkeypatch.setattr(Pace, "after", lambda self, seconds: Pace(retention.ROWS_MAX))
    done = batches("tasks")
    assert sum(batch.rows for batch in done) == 1300
    assert max(deleted) <= 500
    assert [batch.is_last for batch in done] == [False] * (len(done) - 1) + [True]


def test_attempts_count_too(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 tasks with 30 attempts each are 3000 rows, not one batch."""
    old_tasks(tenant, 100, attempts=30)
    deleted: list[int] = []
    real = Tx.execute

    def watched(tx: Tx, sql: str, params: Any = ()) -> int:
        rows = real(tx, sql, params)
        if sql.startswith("DELETE FROM orbit_attempt"):
            deleted.append(rows)
        return rows

    monkeypatch.setattr(Tx, "execute", watched)
    assert sum(batch.rows for batch in batches("tasks")) == 100
    assert sum(deleted) == 3000 and max(deleted) <= 500
    assert rows_of("orbit_attempt") == []


@pytest.mark.parametrize("rows", [1, 499, 500])
def test_a_batch_smaller_than_asked_for_is_the_last(tenant: Tenant, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "Pace", lambda rows=500: Pace(500))
    old_tasks(tenant, rows)
    assert sum(batch.rows for batch in batches("tasks")) == rows


def test_what_may_not_go_is_walked_over(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    """The oldest ones are unfinished: they must not hide what is behind them."""
    kept = [submit(tenant) for _ in range(3)]
    gone = [cancel(tenant, submit(tenant)).task_id for _ in range(4)]
    in_days(31)
    (kind,) = [kind for kind in retention.kinds() if kind.name == "tasks"]
    seen: list[str] = []
    after: Any = kind.start
    with connection.cursor():
        while after is not None:
            looked = unit(lambda tx, after=after: kind.look(tx, after, tx.now_us - 30 * DAY, 2))
            seen += looked.doomed
            after = looked.after
    assert seen == gone
    prune("tasks")
    assert [task.task_id for task in rows_of("orbit_task", "1 = 1 ORDER BY task_id")] == kept


def test_stopped_at_any_batch_it_goes_on_at_the_next_run(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "after", lambda self, seconds: Pace(20))
    monkeypatch.setattr(retention, "Pace", lambda rows=20: Pace(20))
    old_tasks(tenant, 100)
    (kind,) = [kind for kind in retention.kinds() if kind.name == "tasks"]
    assert sum(batch.rows for batch in itertools.islice(retention.run(kind), 2)) == 40
    assert sum(batch.rows for batch in retention.run(kind)) == 60


def test_two_nodes_at_once_delete_each_row_once(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "after", lambda self, seconds: Pace(20))
    monkeypatch.setattr(retention, "Pace", lambda rows=20: Pace(20))
    old_tasks(tenant, 100)
    (kind,) = [kind for kind in retention.kinds() if kind.name == "tasks"]
    rows = 0
    for pair in itertools.zip_longest(retention.run(kind), retention.run(kind)):
        rows += sum(batch.rows for batch in pair if batch)
    assert rows == 100
    assert rows_of("orbit_task", "finished_at IS NOT NULL") == []


@pytest.mark.mariadb_only("SQLite locks no rows")
def test_a_row_that_somebody_holds_is_left_for_the_next_run(tenant: Tenant) -> None:
    made = old_tasks(tenant, 3)
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic(durable=True):
                Tx().row("SELECT 1 FROM orbit_task WHERE task_id = %s FOR UPDATE", [made[1]])
                locked.set()
                release.wait(20)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(20)
    first = prune("tasks")
    release.set()
    thread.join(20)
    assert (first, prune("tasks")) == ({"tasks": 2}, {"tasks": 1})


def test_dry_run_counts_and_deletes_nothing(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    finished(tenant)
    finished(tenant, Report.FAILED)
    submit(tenant)
    in_days(31)
    before = {table: count(table) for table in ("orbit_task", "orbit_attempt", "orbit_event")}
    wanted = prune(dry_run=True)
    assert {table: count(table) for table in before} == before
    assert (wanted["tasks"], wanted["events"], wanted["receipts"], wanted["audit"]) == (2, 6, 0, 0)
    assert prune() == wanted


def test_counters_and_permits_are_untouched(tenant: Tenant, in_days: Callable[[float], None]) -> None:
    for number in range(4):
        submit(tenant, resource_key=f"k{number % 2}", retry=SAFE_AT_ONCE)
    finish(run_one(tenant))
    run_one(tenant)
    in_days(31)
    prune()
    assert_sound()


# -- pace


def test_a_slow_batch_makes_the_next_one_smaller_and_a_quick_one_larger() -> None:
    assert Pace(100).after(0.2).rows == 50
    assert Pace(100).after(0.001).rows == 200
    assert Pace(100).after(0.02).rows == 100
    assert Pace(400).after(0.001).rows == retention.ROWS_MAX == 500
    assert Pace(30).after(1).rows == retention.ROWS_MIN


@pytest.mark.parametrize(("worked", "rests"), [(0.0, 0.01), (0.05, 0.2), (10.0, 2.0)])
def test_rests_four_times_as_long_as_it_worked(worked: float, rests: float) -> None:
    assert retention.rest_seconds(worked) == rests


def test_the_loop_does_one_batch_at_a_time_and_rests_after_each(tenant: Tenant) -> None:
    old_tasks(tenant, 250)
    rests: list[float] = []
    loop = Retention(rest=rests.append)
    steps = 0
    while loop.step():
        steps += 1
    assert steps == len(rests) >= len(retention.kinds())
    assert rows_of("orbit_task", "finished_at IS NOT NULL") == []
    assert loop.step(), "the next round begins"


def test_the_loop_begins_anew_after_a_failure(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    old_tasks(tenant, 3)
    loop = Retention(rest=lambda seconds: None)
    with monkeypatch.context() as patch:
        patch.setattr(retention, "reading", lambda: (_ for _ in ()).throw(RuntimeError("the database is away")))
        with pytest.raises(RuntimeError):
            loop.step()
    while loop.step():
        pass
    assert rows_of("orbit_task", "finished_at IS NOT NULL") == []
