"""The feed of a namespace: at least once, in one order, and never past an event that commits late (design 1.4)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from tasks_app import ids
from tasks_app.domain import event_feed
from tasks_app.domain.event_feed import _Unplaced, has_news, in_order, read_feed, sequence
from tasks_app.domain.event_reads import EventView, head_position
from tasks_app.domain.tenancy import Principal
from tasks_app.transactions import Tx, unit
from tests.support.waiting import eventually
from tests.tasks_app.factories import (
    Tenant,
    finish,
    make_credential,
    make_tenant,
    now,
    run_one,
    submit,
)


def read_all(principal: Principal, *, after: int = 0, limit: int = 50) -> tuple[list[EventView], int]:
    """Every page until an empty one."""
    seen: list[EventView] = []
    while True:
        page = read_feed(principal, after=after, limit=limit)
        if not page.events:
            return seen, page.next_position
        seen += page.events
        after = page.next_position


def write_events(tenant: Tenant, number: int, *, queue_id: str | None = None, at: int | None = None) -> list[str]:
    """Events of tasks that nobody keeps any more; quick to make."""
    moment = now() if at is None else at
    made = [ids.new_id(moment) for _ in range(number)]
    rows = [
        (event_id, tenant.namespace_id, event_id, queue_id or tenant.queue_id, "PROGRESS", 1, "RUNNING", moment, None)
        for event_id in made
    ]
    columns = ("event_id", "namespace_id", "task_id", "queue_id", "type", "revision", "state", "created_at", "data")
    unit(lambda tx: tx.insert("orbit_event", columns, rows))
    return made


def test_reads_every_event_once_oldest_first(tenant: Tenant) -> None:
    first = submit(tenant)
    second = submit(tenant)
    finish(run_one(tenant))

    events, _ = read_all(tenant.principal)

    assert [(event.task_id, event.type, event.revision) for event in events] == [
        (first, "ACCEPTED", 1),
        (second, "ACCEPTED", 1),
        (first, "STARTED", 2),
        (first, "SUCCEEDED", 3),
    ]
    assert [event.position for event in events] == [1, 2, 3, 4]


def test_pages_join_without_gap_or_repeat(tenant: Tenant) -> None:
    made = write_events(tenant, 23)
    for limit in (1, 7, 23, 200):
        events, end = read_all(tenant.principal, limit=limit)
        assert [event.event_id for event in events] == made
        assert end == 23


def test_end_of_the_feed_is_where_to_go_on(tenant: Tenant) -> None:
    empty = read_feed(tenant.principal, after=0, limit=10)
    assert (list(empty.events), empty.next_position) == ([], 0)
    write_events(tenant, 3)
    _, end = read_all(tenant.principal)
    again = read_feed(tenant.principal, after=end, limit=10)
    assert (list(again.events), again.next_position) == ([], 3)
    (late,) = write_events(tenant, 1)
    (event,) = read_feed(tenant.principal, after=end, limit=10).events
    assert event.event_id == late


def test_an_older_event_that_becomes_visible_later_is_read_later(tenant: Tenant) -> None:
    """The same on every engine, without the open transaction: its time and id are those of a second ago."""
    write_events(tenant, 2)
    _, end = read_all(tenant.principal)
    (late,) = write_events(tenant, 1, at=now() - 1_000_000)
    (event,) = read_feed(tenant.principal, after=end, limit=10).events
    assert event.event_id == late


@pytest.mark.mariadb_only("SQLite admits one writer: nothing can commit while another transaction is open")
def test_a_reader_does_not_pass_over_an_event_whose_transaction_commits_late(tenant: Tenant) -> None:
    """A inserts and stays open; B commits a later event; a reader reads; A commits; the reader reads on."""
    written, may_commit = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def transaction_a() -> None:
        try:
            with transaction.atomic(durable=True):
                write_in(Tx(), tenant, "a" * 32, now())
                written.set()
                assert may_commit.wait(20)
        except BaseException as error:
            failures.append(error)
            written.set()
        finally:
            connection.close()

    thread = threading.Thread(target=transaction_a)
    thread.start()
    assert written.wait(20)
    unit(lambda tx: write_in(tx, tenant, "b" * 32, tx.now_us))

    before, end = read_all(tenant.principal)
    assert [event.task_id for event in before] == ["b" * 32]
    assert read_feed(tenant.principal, after=end, limit=10).events == []

    may_commit.set()
    thread.join(20)
    assert not failures

    after, _ = read_all(tenant.principal, after=end)
    assert [event.task_id for event in after] == ["a" * 32]
    assert after[0].event_id < before[0].event_id, "it was older, which is what a naive cursor stumbles over"


def write_in(tx: Tx, tenant: Tenant, task_id: str, at: int) -> None:
    columns = ("event_id", "namespace_id", "task_id", "queue_id", "type", "revision", "state", "created_at", "data")
    tx.insert(
        "orbit_event",
        columns,
        [(ids.new_id(at), tenant.namespace_id, task_id, tenant.queue_id, "PROGRESS", 1, "RUNNING", at, None)],
    )


def test_readers_at_once_agree_on_one_order(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "SEQUENCE_BATCH", 20)
    made = write_events(tenant, 60)
    answers: list[list[EventView]] = []
    failures: list[BaseException] = []
    barrier = threading.Barrier(5)

    def read() -> None:
        try:
            barrier.wait(20)
            answers.append(read_all(tenant.principal, limit=7)[0])
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    def write() -> None:
        try:
            barrier.wait(20)
            for _ in range(10):
                made.extend(write_events(tenant, 3))
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=read) for _ in range(4)] + [threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    whole = [event.event_id for event in read_all(tenant.principal)[0]]
    assert sorted(whole) == sorted(made) and len(set(whole)) == 90
    for answer in answers:
        assert [event.event_id for event in answer] == whole[: len(answer)]


def test_events_of_a_task_follow_its_revisions_whatever_the_clocks_said(tenant: Tenant) -> None:
    """The unit of the later change read the clock first and then waited for the earlier one's lock."""
    task_id = submit(tenant)
    other = submit(tenant)
    finish(run_one(tenant))
    with connection.cursor() as cursor:
        for revision, created_at in ((1, 5000), (2, 4000), (3, 3000)):
            cursor.execute(
                "UPDATE orbit_event SET created_at = %s WHERE task_id = %s AND revision = %s",
                [created_at, task_id, revision],
            )
    events, _ = read_all(tenant.principal)
    assert [event.revision for event in events if event.task_id == task_id] == [1, 2, 3]
    assert events[-1].task_id == other, "places stay where time put them"


def test_the_end_of_a_batch_does_not_tear_a_task_apart(tenant: Tenant) -> None:
    """The event of revision 2 got a smaller id than that of revision 1 (another node); the batch ends between them."""
    first, second = ids.new_id(now()), ids.new_id(now())
    columns = ("event_id", "namespace_id", "task_id", "queue_id", "type", "revision", "state", "created_at")
    rows = [
        (second, tenant.namespace_id, "1" * 32, tenant.queue_id, "PROGRESS", 1, "RUNNING", 2),
        (first, tenant.namespace_id, "1" * 32, tenant.queue_id, "STARTED", 2, "RUNNING", 1),
    ]
    for row in sorted(rows):
        unit(lambda tx, row=row: tx.insert("orbit_event", columns, [row]))
    sequence(tenant.namespace_id, limit=1)
    events, _ = read_all(tenant.principal)
    assert [event.revision for event in events] == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(1, 6)), max_size=30), st.randoms())
def test_order_is_by_time_and_within_a_task_by_revision(
    raw: list[tuple[int, int, int]], shuffle: random.Random
) -> None:
    events = [
        _Unplaced(created_at, f"{number:032x}", str(task), revision)
        for number, (created_at, task, revision) in enumerate(raw)
    ]
    shuffled = list(events)
    shuffle.shuffle(shuffled)
    placed = in_order(shuffled)
    assert sorted(placed, key=repr) == sorted(events, key=repr)
    assert placed == in_order(events), "the order does not depend on how they came"
    for task in {event.task_id for event in events}:
        revisions = [event.revision for event in placed if event.task_id == task]
        assert revisions == sorted(revisions)
    places = [event.task_id for event in sorted(events, key=lambda one: (one.created_at, one.event_id))]
    assert [event.task_id for event in placed] == places


def test_a_confined_credential_sees_its_queues_and_its_cursor_passes_the_others(tenant: Tenant) -> None:
    other = tenant.queue()
    confined = make_credential(tenant, queue_ids=[other])
    mine = submit(tenant)
    theirs = submit(tenant, queue_id=other)
    submit(tenant)

    page = read_feed(confined, after=0, limit=10)

    assert [event.task_id for event in page.events] == [theirs]
    assert page.next_position == 3, "the events of the other queue are behind the cursor too"
    assert mine in [event.task_id for event in read_all(tenant.principal)[0]]


def test_a_credential_for_no_queue_sees_nothing_and_is_at_the_end(tenant: Tenant) -> None:
    nobody = make_credential(tenant, queue_ids=[])
    submit(tenant)
    assert list(read_feed(nobody, after=0, limit=10).events) == []


def test_many_events_of_other_queues_do_not_look_like_the_end(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "SEQUENCE_BATCH", 10)
    other = tenant.queue()
    confined = make_credential(tenant, queue_ids=[other])
    write_events(tenant, 95)
    (wanted,) = write_events(tenant, 1, queue_id=other)
    (event,) = read_feed(confined, after=0, limit=10).events
    assert event.event_id == wanted


def test_namespaces_have_feeds_of_their_own(tenant: Tenant) -> None:
    other = make_tenant()
    mine, theirs = submit(tenant), submit(other)
    assert [(event.task_id, event.position) for event in read_all(tenant.principal)[0]] == [(mine, 1)]
    assert [(event.task_id, event.position) for event in read_all(other.principal)[0]] == [(theirs, 1)]


def test_a_reader_that_is_behind_gives_no_positions(tenant: Tenant) -> None:
    write_events(tenant, 5)
    read_all(tenant.principal)
    write_events(tenant, 5)
    read_feed(tenant.principal, after=0, limit=5)
    assert head_position(tenant.namespace_id) == 5


def test_has_news_until_everything_was_read(tenant: Tenant) -> None:
    assert not has_news(tenant.namespace_id, after=0)
    write_events(tenant, 2)
    assert has_news(tenant.namespace_id, after=0)
    _, end = read_all(tenant.principal)
    assert not has_news(tenant.namespace_id, after=end)
    assert has_news(tenant.namespace_id, after=end - 1)
    write_events(tenant, 1)
    assert has_news(tenant.namespace_id, after=end)


def test_deleted_events_leave_gaps_that_nobody_minds(tenant: Tenant) -> None:
    made = write_events(tenant, 4)
    read_all(tenant.principal)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orbit_event WHERE event_id = %s", [made[1]])
    (late,) = write_events(tenant, 1)
    events, _ = read_all(tenant.principal, limit=1)
    assert [event.event_id for event in events] == [made[0], made[2], made[3], late]


def test_two_givers_of_positions_take_turns(tenant: Tenant, points: Any) -> None:
    """The second starts while the first is about to commit: it must not see the same events as free."""
    write_events(tenant, 5)
    second: list[int] = []
    began = threading.Event()

    def competitor() -> None:
        try:
            began.set()
            second.append(sequence(tenant.namespace_id))
        finally:
            connection.close()

    thread = threading.Thread(target=competitor)

    def compete() -> None:
        thread.start()
        assert began.wait(20)

    points.once("event_feed.before_commit", compete)
    assert sequence(tenant.namespace_id) == 5
    thread.join(20)
    assert second == [0]
    events, _ = read_all(tenant.principal)
    assert [event.position for event in events] == [1, 2, 3, 4, 5]


@pytest.mark.mariadb_only("asks the server for its plan")
@pytest.mark.parametrize(
    "look", [event_feed._unplaced, lambda tx, namespace, limit: event_feed._has_unplaced(tx, namespace)]
)
def test_looking_for_events_without_a_position_sorts_nothing(
    tenant: Tenant, look: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a million kept events a sort of the backlog for every batch would make reading it quadratic."""
    write_events(tenant, 200)
    read_all(tenant.principal)
    write_events(tenant, 200)
    plans: list[tuple[Any, ...]] = []

    def explained(tx: Tx, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        tx._cursor.execute(f"EXPLAIN {sql}", params)
        plans.extend(tx._cursor.fetchall())
        tx._cursor.execute(sql, params)
        return list(tx._cursor.fetchall())

    monkeypatch.setattr(Tx, "rows", explained)
    monkeypatch.setattr(Tx, "row", lambda tx, sql, params=(): (explained(tx, sql, params) or [None])[0])
    unit(lambda tx: look(tx, tenant.namespace_id, 50))
    first = next(plan for plan in plans if plan[5] == "event_position_unique" or "event_position_unique" in str(plan))
    assert "const,const" in str(first)
    assert not any("filesort" in str(plan) for plan in plans)


@pytest.mark.sqlite_only("asks SQLite for its plan")
def test_looking_for_events_without_a_position_sorts_nothing_on_sqlite(tenant: Tenant) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "EXPLAIN QUERY PLAN SELECT event_id FROM orbit_event WHERE namespace_id = %s AND position IS NULL LIMIT 9",
            [tenant.namespace_id],
        )
        plan = str(cursor.fetchall())
    assert "USING INDEX" in plan and "namespace_id=? AND position=?" in plan
    assert "TEMP B-TREE" not in plan


def test_waiting_for_the_feed_ends_when_something_happens(tenant: Tenant) -> None:
    _, end = read_all(tenant.principal)
    thread = threading.Thread(target=lambda: (submit(tenant), connection.close()))
    thread.start()
    eventually(lambda: has_news(tenant.namespace_id, after=end), 10)
    thread.join(10)
