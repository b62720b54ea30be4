"""What orbit_check finds: nothing in a sound database, every kind of fault in a broken one (design 5.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from tasks_app.domain import invariant_rows, invariants
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.event_feed import read_feed
from tasks_app.domain.invariants import Finding
from tasks_app.domain.reconciliation import Decision
from tasks_app.domain.sweeps import recheck_resource_keys
from tasks_app.endings import Report
from tests.tasks_app import books
from tests.tasks_app.factories import (
    SAFE_AT_ONCE,
    Tenant,
    application_row,
    cancel,
    claim,
    claim_one,
    finish,
    key_row,
    lose,
    make_tenant,
    now,
    queue_row,
    reconcile,
    release,
    renew,
    row,
    rows_of,
    run_one,
    set_columns,
    start,
    submit,
    sweep,
)

invariant_rows.register_checks()
pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(autouse=True)
def books_are_broken_on_purpose(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(books, "assert_balanced", lambda: None)
    yield


def everything() -> list[Finding]:
    return [finding for name in invariants.names() for finding in invariants.look(name)]


def sound_database() -> Tenant:
    """A bit of everything that can happen to tasks."""
    tenant = make_tenant(resource_limit=2)
    strict = make_tenant(policy="STRICT")
    for _ in range(3):
        submit(tenant)
        submit(tenant, resource_key="k")
        submit(strict, priority=-4)
    submit(tenant, delay_ms=60_000, resource_key="k")
    finish(run_one(tenant))
    finish(run_one(strict), Report.FAILED)
    other = tenant.queue()
    submit(tenant, queue_id=other, retry=SAFE_AT_ONCE)
    finish(run_one(tenant, queue_ids=[other]), Report.FAILED)
    run_one(tenant, queue_ids=[other])
    submit(tenant, queue_id=other)
    lose(run_one(tenant, queue_ids=[other]))
    stopped = submit(tenant, resource_key="k", queue_id=other)
    cancel(tenant, stopped)
    release(claim_one(tenant))
    claim(tenant, limit=2)
    read_feed(tenant.principal, after=0, limit=5)
    return tenant


def test_a_sound_database_has_no_findings() -> None:
    sound_database()
    assert everything() == []


def test_nothing_is_written_by_a_look() -> None:
    sound_database()
    tables = ("orbit_task", "orbit_queue", "orbit_resource_key", "orbit_event", "orbit_event_head")
    before = {table: sorted(map(repr, rows_of(table))) for table in tables}
    everything()
    assert {table: sorted(map(repr, rows_of(table))) for table in tables} == before


def execute(sql: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        assert cursor.rowcount == 1, f"the fault was not made: {sql}"


Break = Callable[[Tenant], None]


def queue_counts_one_too_many(tenant: Tenant) -> None:
    execute("UPDATE orbit_queue SET unfinished = unfinished + 1 WHERE queue_id = %s", tenant.queue_id)


def queue_counts_a_run_too_few(tenant: Tenant) -> None:
    run_one(tenant)
    execute("UPDATE orbit_queue SET running = running - 1 WHERE queue_id = %s", tenant.queue_id)


def application_counts_one_too_few(tenant: Tenant) -> None:
    execute("UPDATE orbit_application SET unfinished = unfinished - 1 WHERE application_id = %s", tenant.application_id)


def key_counts_a_permit_nobody_holds(tenant: Tenant) -> None:
    submit(tenant, resource_key="k")
    execute("UPDATE orbit_resource_key SET held = held + 1 WHERE resource_key = 'k'")


def key_is_held_by_more_than_the_limit(tenant: Tenant) -> None:
    queue_id = tenant.queue()
    submit(tenant, resource_key="k", queue_id=queue_id)
    held = claim_one(tenant, queue_ids=[queue_id]).task
    submit(tenant, resource_key="k", queue_id=queue_id)
    (second,) = rows_of("orbit_task", "queue_id = %s AND state = 'READY'", [queue_id])
    execute(
        "UPDATE orbit_task SET state = 'RESERVED', lane = 0, attempt_id = %s, session_id = %s, lease_until = %s,"
        " fencing_token = 1 WHERE task_id = %s",
        "e" * 32, held.session_id, held.lease_until, second.task_id,
    )  # fmt: skip


def a_start_left_no_attempt(tenant: Tenant) -> None:
    run_one(tenant)
    execute("DELETE FROM orbit_attempt")


def an_attempt_lives_on_after_its_task_ended(tenant: Tenant) -> None:
    finish(run_one(tenant))
    execute("UPDATE orbit_attempt SET state = 'RUNNING', finished_at = NULL")


def a_second_attempt_lives(tenant: Tenant) -> None:
    offer = run_one(tenant)
    execute(
        "INSERT INTO orbit_attempt (attempt_id, task_id, number, fencing_token, session_id, worker_name, node_id,"
        " state, started_at) SELECT %s, task_id, 2, fencing_token, session_id, worker_name, node_id, state, started_at"
        " FROM orbit_attempt WHERE task_id = %s",
        "e" * 32, offer.task.task_id,
    )  # fmt: skip


def an_attempt_has_a_token_that_was_never_given(tenant: Tenant) -> None:
    run_one(tenant)
    execute("UPDATE orbit_attempt SET fencing_token = 99")


def a_lease_reaches_past_its_deadline(tenant: Tenant) -> None:
    queue_id = tenant.queue()
    task_id = submit(tenant, queue_id=queue_id, expires_in_ms=60_000)
    run_one(tenant, queue_ids=[queue_id])
    set_columns(task_id, lease_until=row(task_id).deadline_at + 6_000_000)


def a_lease_reaches_past_its_time_out(tenant: Tenant) -> None:
    queue_id = tenant.queue()
    task_id = submit(tenant, queue_id=queue_id, attempt_timeout_ms=1000)
    run_one(tenant, queue_ids=[queue_id])
    set_columns(task_id, lease_until=row(task_id).started_at + 7_000_000)


def a_task_stands_in_a_foreign_queue(tenant: Tenant) -> None:
    task_id = submit(tenant)
    other = make_tenant()
    set_columns(task_id, queue_id=other.queue_id)
    for there, by in ((tenant, -1), (other, 1)):
        execute("UPDATE orbit_queue SET unfinished = unfinished + %s WHERE queue_id = %s", by, there.queue_id)
        execute(
            "UPDATE orbit_application SET unfinished = unfinished + %s WHERE application_id = %s",
            by, there.application_id,
        )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orbit_idempotency_record")


def a_task_has_a_foreign_handler(tenant: Tenant) -> None:
    other = make_tenant()
    set_columns(submit(tenant), handler_ref=row(submit(other)).handler_ref)


def a_replay_names_another_source(tenant: Tenant) -> None:
    first, second, third = (submit(tenant) for _ in range(3))
    for task_id in (first, second):
        cancel(tenant, task_id)
    set_columns(third, replayed_from=second)
    set_columns(first, replayed_as=third)


def a_revision_has_no_event(tenant: Tenant) -> None:
    finish(run_one(tenant))
    execute("DELETE FROM orbit_event WHERE type = 'STARTED'")


def a_revision_has_two_events(tenant: Tenant) -> None:
    task_id = submit(tenant)
    execute(
        "INSERT INTO orbit_event (event_id, namespace_id, task_id, queue_id, type, revision, state, created_at)"
        " SELECT %s, namespace_id, task_id, queue_id, type, revision, state, created_at FROM orbit_event"
        " WHERE task_id = %s",
        "e" * 32, task_id,
    )  # fmt: skip


def a_revision_grew_by_itself(tenant: Tenant) -> None:
    set_columns(submit(tenant), revision=5)


def a_receipt_has_no_task(tenant: Tenant) -> None:
    task_id = submit(tenant, queue_id=tenant.queue())
    queue_id = row(task_id).queue_id
    cancel(tenant, task_id)
    execute("DELETE FROM orbit_task WHERE task_id = %s", task_id)
    assert queue_row(queue_id).unfinished == 0


def a_receipt_names_another_queue(tenant: Tenant) -> None:
    submit(tenant, queue_id=tenant.queue())
    execute("UPDATE orbit_idempotency_record SET queue_id = %s WHERE queue_id <> %s", "e" * 32, tenant.queue_id)


def an_accepted_task_has_no_audit_entry(tenant: Tenant) -> None:
    execute("DELETE FROM orbit_audit_entry WHERE object_id = %s", submit(tenant))


def a_waiter_is_forgotten(tenant: Tenant) -> None:
    submit(tenant, resource_key="k")
    execute("UPDATE orbit_task SET lane = 2 WHERE resource_ref IS NOT NULL")


def the_wrong_waiter_is_open(tenant: Tenant) -> None:
    first, second = submit(tenant, resource_key="k"), submit(tenant, resource_key="k")
    assert (row(first).lane, row(second).lane) == (1, 2)
    set_columns(first, lane=2)
    set_columns(second, lane=1)


def an_event_stands_behind_the_head(tenant: Tenant) -> None:
    read_feed(tenant.principal, after=0, limit=5)
    execute("UPDATE orbit_event_head SET position = 0 WHERE position > 0")


def a_namespace_has_no_feed(tenant: Tenant) -> None:
    execute("DELETE FROM orbit_event_head WHERE namespace_id = %s", tenant.namespace_id)


@pytest.mark.parametrize(
    ("check", "break_it", "said"),
    [
        ("counters", queue_counts_one_too_many, "unfinished is 2, the tasks say 1"),
        ("counters", queue_counts_a_run_too_few, "running is 0, the tasks say 1"),
        ("counters", application_counts_one_too_few, "unfinished is 0, the tasks say 1"),
        ("counters", key_counts_a_permit_nobody_holds, "held is 1, the tasks say 0"),
        ("counters", key_is_held_by_more_than_the_limit, "held by 2 tasks, the limit is 1"),
        ("attempts", a_start_left_no_attempt, "was started 1 times, its attempts are []"),
        ("attempts", an_attempt_lives_on_after_its_task_ended, "the live attempts are"),
        ("attempts", a_second_attempt_lives, "the live attempts are"),
        ("attempts", an_attempt_has_a_token_that_was_never_given, "its attempts have [99]"),
        ("leases", a_lease_reaches_past_its_deadline, "6000 ms after its deadline"),
        ("leases", a_lease_reaches_past_its_time_out, "6000 ms after its attempt time-out"),
        ("ownership", a_task_stands_in_a_foreign_queue, "not of its namespace: queue, queue's application"),
        ("ownership", a_task_has_a_foreign_handler, "not of its namespace: handler"),
        ("ownership", a_replay_names_another_source, "was replayed as"),
        ("revisions", a_revision_has_no_event, "its events: 2, from 1 to 3"),
        ("revisions", a_revision_has_two_events, "its events: 2, from 1 to 1"),
        ("revisions", a_revision_grew_by_itself, "is at revision 5"),
        ("receipts", a_receipt_has_no_task, "lacks its task"),
        ("receipts", a_receipt_names_another_queue, "lacks a task of its namespace and queue"),
        ("receipts", an_accepted_task_has_no_audit_entry, "lacks the audit entry"),
        ("lanes", a_waiter_is_forgotten, "1 permits are free and 1 tasks wait, but only 0 can be claimed"),
        ("lanes", the_wrong_waiter_is_open, "is held although it comes before"),
        ("feed", an_event_stands_behind_the_head, "its feed ends at 0, an event stands at 1"),
        ("feed", a_namespace_has_no_feed, "has no head"),
    ],
)
def test_every_kind_of_fault_is_found_by_its_check(check: str, break_it: Break, said: str) -> None:
    tenant = make_tenant()
    submit(tenant)

    break_it(tenant)

    found = [finding for finding in invariants.look(check) if not finding.is_note]
    assert any(said in finding.text for finding in found), found


def test_a_fault_is_told_of_the_row_that_has_it() -> None:
    tenant = make_tenant()
    sound, broken = submit(tenant), submit(tenant)
    set_columns(broken, revision=9)
    (finding,) = invariants.look("revisions")
    assert broken in finding.object_id and sound not in finding.object_id


def test_tables_are_walked_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariant_rows, "CHUNK", 3)
    tenant = make_tenant()
    made = [submit(tenant) for _ in range(7)]
    for task_id in made:
        set_columns(task_id, revision=9)
        execute("DELETE FROM orbit_audit_entry WHERE object_id = %s", task_id)
    assert sorted(f"task {task_id}" for task_id in made) == sorted(f.object_id for f in invariants.look("revisions"))
    assert len(list(invariants.look("receipts"))) == 7


def test_keys_are_walked_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (invariants, invariant_rows):
        monkeypatch.setattr(module, "KEYS_PER_LOOK", 2)
    tenant = make_tenant()
    for number in range(5):
        submit(tenant, resource_key=f"k{number}")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_resource_key SET held = 1")
        cursor.execute("UPDATE orbit_task SET lane = 2 WHERE lane = 1")
    assert len(list(invariants.look("counters"))) == 5
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_resource_key SET held = 0")
    assert len(list(invariants.look("lanes"))) == 5


# -- what is no fault


def test_a_receipt_may_outlive_its_task(settings: Any) -> None:
    tenant = make_tenant()
    a_receipt_has_no_task(tenant)
    with connection.cursor() as cursor:
        days = settings.ORBIT.retain_tasks_days * 86_400_000_000
        cursor.execute("UPDATE orbit_idempotency_record SET created_at = created_at - %s", [days + 1])
    assert list(invariants.look("receipts")) == []


def test_events_that_retention_took_leave_no_gap(settings: Any) -> None:
    """Of a task that is older than the events' period some are gone; that is not looked at."""
    tenant = make_tenant()
    task_id = submit(tenant)
    age = settings.ORBIT.retain_events_days * 86_400_000_000 + 1
    set_columns(task_id, created_at=now() - age, available_at=now() - age)
    execute("DELETE FROM orbit_event WHERE task_id = %s", task_id)
    assert list(invariants.look("revisions")) == []


def test_progress_and_yields_have_events_without_a_revision() -> None:
    tenant = make_tenant()
    submit(tenant)
    renew(run_one(tenant), percent=5)
    assert list(invariants.look("revisions")) == []


def test_a_forgotten_waiter_that_maintenance_will_look_at_is_no_fault() -> None:
    tenant = make_tenant()
    submit(tenant)
    a_waiter_is_forgotten(tenant)
    execute("UPDATE orbit_resource_key SET recheck_at = 1")
    assert list(invariants.look("lanes")) == []


def test_a_waiter_that_is_open_without_a_permit_is_a_note() -> None:
    """Its claim finds out at the key's row; a killed transaction may leave one behind."""
    tenant = make_tenant()
    submit(tenant, resource_key="k"), submit(tenant, resource_key="k")
    execute("UPDATE orbit_task SET lane = 1 WHERE lane = 2")
    (finding,) = invariants.look("lanes")
    assert finding.is_note and "2 tasks can be seen by claims for 1 free permits" in finding.text


def test_unknown_keeps_its_key_and_counts_as_unfinished() -> None:
    tenant = make_tenant()
    task_id = submit(tenant, resource_key="k")
    lose(run_one(tenant))
    assert row(task_id).state == "UNKNOWN"
    assert everything() == []
    reconcile(tenant, task_id, Decision.SUCCEEDED)
    assert everything() == []


# -- repair


def test_repair_sets_counters_to_what_the_tasks_say() -> None:
    tenant = make_tenant()
    submit(tenant, resource_key="k"), submit(tenant)
    claim_one(tenant)
    for table in ("orbit_queue", "orbit_application"):
        execute(f"UPDATE {table} SET unfinished = 7, running = 5")
    execute("UPDATE orbit_resource_key SET held = 0")
    found = list(invariants.look("counters"))
    assert len(found) == 3

    for finding in found:
        assert finding.drift is not None
        assert invariants.repair(finding.drift, actor=SYSTEM)

    assert list(invariants.look("counters")) == []
    assert (queue_row(tenant.queue_id).unfinished, queue_row(tenant.queue_id).running) == (2, 1)
    assert (application_row(tenant).unfinished, application_row(tenant).running) == (2, 1)
    assert key_row(tenant).held == 1
    assert len(rows_of("orbit_audit_entry", "action = 'counter.repair'")) == 3


def test_repair_of_a_key_has_its_waiters_looked_at_again() -> None:
    tenant = make_tenant()
    submit(tenant, resource_key="k")
    execute("UPDATE orbit_resource_key SET held = 1")
    execute("UPDATE orbit_task SET lane = 2 WHERE lane = 1")
    (finding,) = invariants.look("counters")
    assert finding.drift is not None
    invariants.repair(finding.drift, actor=SYSTEM)
    recheck_resource_keys()
    sweep()
    assert claim_one(tenant).resource_key == "k"


def test_repair_of_what_agrees_by_now_changes_nothing() -> None:
    tenant = make_tenant()
    submit(tenant)
    queue_counts_one_too_many(tenant)
    (finding,) = invariants.look("counters")
    assert finding.drift is not None
    execute("UPDATE orbit_queue SET unfinished = unfinished - 1 WHERE queue_id = %s", tenant.queue_id)
    assert not invariants.repair(finding.drift, actor=SYSTEM)
    assert rows_of("orbit_audit_entry", "action = 'counter.repair'") == []


@pytest.mark.slow
def test_repair_while_tasks_come_and_go_leaves_exact_counters() -> None:
    """The counters' row is locked while the tasks are counted: what commits meanwhile is counted by itself."""
    tenant = make_tenant()
    stop = threading.Event()
    failures: list[BaseException] = []

    def traffic() -> None:
        try:
            while not stop.is_set():
                submit(tenant)
                for offer in claim(tenant, limit=1).offers:
                    release(offer)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=traffic) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE orbit_queue SET unfinished = unfinished + 3 WHERE queue_id = %s", [tenant.queue_id]
                )
            repaired = False
            while not repaired:
                for finding in invariants.look("counters"):
                    assert finding.drift is not None
                    repaired |= invariants.repair(finding.drift, actor=SYSTEM)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not failures
    assert list(invariants.look("counters")) == []


@pytest.mark.slow
def test_a_busy_database_gives_no_false_alarm() -> None:
    tenant = make_tenant(resource_limit=2)
    stop = threading.Event()
    failures: list[BaseException] = []

    def traffic(number: int) -> None:
        try:
            while not stop.is_set():
                submit(tenant, resource_key=f"k{number}", retry=SAFE_AT_ONCE)
                offers = claim(tenant, limit=2).offers
                for offer in offers:
                    if start(tenant, offer).answer.name == "STARTED":
                        finish(offer, Report.FAILED if number else Report.SUCCEEDED)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=traffic, args=[number]) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        looks = [everything() for _ in range(8)]
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not failures
    assert [finding for found in looks for finding in found if not finding.is_note] == []
