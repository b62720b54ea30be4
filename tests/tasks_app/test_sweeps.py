"""Sweeps (design 3.6): what time does to tasks, by the row's own policy, and never by an old reading."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tasks_app import hints
from tasks_app.domain import sweeps
from tasks_app.domain.attempts import Answer
from tasks_app.endings import Report
from tasks_app.hints import Hint, HintKind
from tasks_app.states import Lane, TaskState
from tasks_app.transactions import Tx, unit
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import beside, together
from tests.tasks_app.conftest import Points
from tests.tasks_app.factories import NEVER, SAFE, Tenant, make_tenant

S = TaskState
ROWS_ARE_LOCKED = pytest.mark.mariadb_only("SQLite admits one writer: nobody can come in between")


@pytest.fixture
def told() -> Iterator[list[Hint]]:
    seen: list[Hint] = []
    undo = hints.subscribe(seen.append)
    yield seen
    undo()


# -- what is due


def test_a_scheduled_task_that_is_due_is_ready_without_a_revision(tenant: Tenant):
    task_id = f.submit(tenant, delay_ms=60_000)
    f.due(task_id, seconds_ago=0)
    assert f.sweep() == 1
    task = f.row(task_id)
    assert (task.state, task.revision, f.events_of(task_id)) == (S.READY, 1, ["ACCEPTED"])
    assert f.claim_ids(tenant) == [task_id]


def test_what_is_not_due_is_left_alone(tenant: Tenant):
    f.submit(tenant, delay_ms=60_000)
    f.submit(tenant, expires_in_ms=60_000)
    f.submit(tenant)
    f.run_one(tenant)
    f.claim_one(tenant)
    seen = f.snapshot()
    assert sweeps.sweep_due() == sweeps.Swept(0, 0)
    assert f.snapshot() == seen


@pytest.mark.parametrize("state", [S.SCHEDULED, S.READY, S.RESERVED])
def test_a_task_that_has_not_started_expires_at_its_deadline(tenant: Tenant, state: TaskState):
    delay_ms = 30_000 if state is S.SCHEDULED else None
    task_id = f.submit(tenant, expires_in_ms=60_000, delay_ms=delay_ms)
    if state is S.RESERVED:
        f.claim_one(tenant)
    f.pass_deadline(task_id)
    f.sweep()
    assert (f.state(task_id), f.events_of(task_id)) == (S.EXPIRED, ["ACCEPTED", "EXPIRED"])


def test_expiry_happens_once(tenant: Tenant):
    task_id = f.submit(tenant, expires_in_ms=60_000)
    f.pass_deadline(task_id)
    together([f.sweep] * 4)
    assert f.events_of(task_id) == ["ACCEPTED", "EXPIRED"]


def test_a_task_that_runs_past_its_deadline_may_still_report_until_its_lease_ends(tenant: Tenant):
    task_id = f.submit(tenant, expires_in_ms=60_000)
    offer = f.run_one(tenant)
    f.pass_deadline(task_id)
    assert f.sweep() == 0
    assert f.finish(offer).state is S.SUCCEEDED


def test_a_reservation_that_ran_out_returns_and_counts_nothing(tenant: Tenant):
    task_id = f.submit(tenant)
    offer = f.claim_one(tenant)
    f.expire_lease(task_id)
    f.sweep()
    assert (f.state(task_id), f.row(task_id).attempts, f.row(task_id).losses) == (S.READY, 0, 0)
    assert f.start(tenant, offer).answer is Answer.LEASE_LOST
    assert f.claim_one(tenant).task.fencing_token == 2


def test_a_lease_that_ran_out_is_a_loss_by_the_rows_own_policy(tenant: Tenant):
    safe, never = f.submit(tenant, retry=SAFE), f.submit(tenant, retry=NEVER)
    offers = f.claim(tenant, limit=2).offers
    f.start_all(tenant, offers)
    for task_id in (safe, never):
        f.expire_lease(task_id)
    f.sweep()
    assert (f.state(safe), f.state(never)) == (S.SCHEDULED, S.UNKNOWN)
    assert [f.attempts_of(task_id)[0].state for task_id in (safe, never)] == ["LOST", "LOST"]


def test_a_task_in_back_off_holds_no_permit(tenant: Tenant):
    """Procrastinate 1599: the next task of the key goes on at once."""
    f.submit(tenant, resource_key="k", retry=SAFE)
    f.finish(f.run_one(tenant), Report.FAILED, retry_after_ms=3_600_000)
    waiting = f.submit(tenant, resource_key="k")
    assert f.claim_ids(tenant) == [waiting]
    assert f.queue_row(tenant.queue_id).running == 1


def test_a_yielded_task_comes_back_to_its_place_when_its_delay_is_over(strict_tenant: Tenant):
    first, second = f.submit(strict_tenant), f.submit(strict_tenant)
    offer = f.claim_one(strict_tenant)
    f.release(offer)
    f.set_columns(first, lane=Lane.YIELDED.value, visible_at=f.now() + 60 * f.SECOND)
    assert f.claim_ids(strict_tenant) == [second]
    f.set_columns(first, visible_at=f.now())
    f.sweep()
    task = f.row(first)
    assert (task.lane, task.visible_at, task.revision) == (Lane.OPEN, None, 1)
    assert f.claim_ids(strict_tenant) == [first]


def test_a_yielded_task_of_a_busy_key_comes_back_held(strict_tenant: Tenant):
    yielded = f.submit(strict_tenant, resource_key="k")
    f.set_columns(yielded, lane=Lane.YIELDED.value, visible_at=f.now())
    f.submit(strict_tenant, resource_key="k")
    f.run_one(strict_tenant)
    f.sweep()
    assert f.row(yielded).lane == Lane.HELD


# -- batches


def test_a_sweep_takes_a_bounded_batch_oldest_first_and_says_that_there_is_more(tenant: Tenant, monkeypatch):
    monkeypatch.setattr(sweeps, "BATCH", 3)
    ids = [f.submit(tenant, delay_ms=60_000) for _ in range(4)]
    for place, task_id in enumerate(reversed(ids)):
        f.due(task_id, seconds_ago=100 - place)
    swept = sweeps.sweep_due()
    assert (swept, swept.more) == (sweeps.Swept(3, 3), True)
    assert [f.state(task_id) for task_id in ids] == [S.SCHEDULED, S.READY, S.READY, S.READY]
    assert sweeps.sweep_due().more is False


def test_tasks_of_many_tenants_and_kinds_are_swept_in_one_batch(database: None):
    tenants = [make_tenant(), make_tenant(policy="STRICT")]
    for tenant in tenants:
        f.submit(tenant, retry=NEVER)
        f.expire_lease(f.run_one(tenant).task.task_id)
        f.due(f.submit(tenant, delay_ms=60_000), seconds_ago=1)
        f.pass_deadline(f.submit(tenant, expires_in_ms=60_000, resource_key="k"))
    assert sweeps.sweep_due() == sweeps.Swept(6, 6)


def test_simultaneous_sweeps_share_the_work(tenant: Tenant):
    for _ in range(40):
        f.submit(tenant)
    offers = f.claim(tenant, limit=40).offers
    f.start_all(tenant, offers)
    for offer in offers:
        f.expire_lease(offer.task.task_id)
    together([f.sweep] * 4)
    f.sweep()
    assert {row.state for row in f.rows_of("orbit_task")} == {"UNKNOWN"}
    assert len(f.rows_of("orbit_event", "type = 'UNKNOWN'")) == 40


# -- an old reading changes nothing (River 1302, faults F18)


def between_reading_and_writing(points: Points, act: object) -> None:
    points.once("sweep.read", lambda: beside(act).result())  # type: ignore[arg-type]


@ROWS_ARE_LOCKED
@pytest.mark.parametrize("report", [Report.SUCCEEDED, Report.FAILED])
def test_a_finish_that_commits_between_the_sweeps_look_and_its_write_stands(
    tenant: Tenant, points: Points, report: Report
):
    """The lease ends in the moment between; the sweep has seen it as run out."""
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.expire_lease(task_id)

    def finish_in_time() -> None:
        f.set_columns(task_id, lease_until=f.now() + f.SECOND)
        assert f.finish(offer, report).answer is Answer.COMMITTED

    between_reading_and_writing(points, finish_in_time)
    assert sweeps.sweep_due() == sweeps.Swept(1, 0)
    task = f.row(task_id)
    assert (task.state, task.losses, task.attempts) == (report.name, 0, 1)
    assert f.events_of(task_id) == ["ACCEPTED", "STARTED", report.name]


@ROWS_ARE_LOCKED
def test_a_renewal_that_commits_in_between_keeps_the_lease(tenant: Tenant, points: Points):
    task_id = f.submit(tenant)
    offer = f.run_one(tenant)
    f.expire_lease(task_id)

    def renew_in_time() -> None:
        f.set_columns(task_id, lease_until=f.now() + f.SECOND)
        assert f.renew(offer).answer is Answer.RENEWED

    between_reading_and_writing(points, renew_in_time)
    assert sweeps.sweep_due().changed == 0
    assert f.state(task_id) is S.RUNNING


@ROWS_ARE_LOCKED
def test_a_cancel_that_commits_in_between_stands(tenant: Tenant, points: Points):
    task_id = f.submit(tenant, expires_in_ms=60_000)
    f.pass_deadline(task_id)
    between_reading_and_writing(points, lambda: f.cancel(tenant, task_id))
    assert sweeps.sweep_due().changed == 0
    assert f.events_of(task_id) == ["ACCEPTED", "CANCELED"]


@ROWS_ARE_LOCKED
def test_a_row_that_somebody_holds_is_passed_over_and_swept_later(tenant: Tenant, points: Points):
    held, free = f.submit(tenant, delay_ms=60_000), f.submit(tenant, delay_ms=60_000)
    for task_id in (held, free):
        f.due(task_id, seconds_ago=1)

    def sweep_beside() -> None:
        beside(lambda: sweeps.sweep_due()).result()

    def hold(tx: Tx) -> None:
        tx.row("SELECT task_id FROM orbit_task WHERE task_id = %s FOR UPDATE", [held])
        sweep_beside()

    unit(hold)
    assert (f.state(held), f.state(free)) == (S.SCHEDULED, S.READY)
    f.sweep()
    assert f.state(held) is S.READY


# -- who is told


def test_the_holder_of_what_was_swept_is_told(tenant: Tenant, told: list[Hint]):
    reserved, running = f.submit(tenant), f.submit(tenant)
    offers = f.claim(tenant, limit=2).offers
    f.start(tenant, offers[1])
    for task_id in (reserved, running):
        f.expire_lease(task_id)
    told.clear()
    f.sweep()
    revoked = {hint.task_id: hint for hint in told if hint.kind is HintKind.RESERVATION_REVOKED}
    assert {task_id: hint.detail for task_id, hint in revoked.items()} == {
        reserved: "LEASE_LOST",
        running: "LEASE_LOST",
    }
    assert all(hint.session_id == tenant.session_id for hint in revoked.values())
    assert {hint.task_id for hint in told if hint.kind is HintKind.WORK_ADDED} == {reserved}


# -- resource keys to look at again


def test_a_key_whose_waiter_was_passed_over_is_looked_at_again(tenant: Tenant):
    first = f.submit(tenant, resource_key="k")
    ref = f.key_row(tenant).resource_ref
    f.set_columns(first, lane=Lane.HELD.value)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_resource_key SET recheck_at = %s WHERE resource_ref = %s", [f.now(), ref])
    assert sweeps.recheck_resource_keys() == 1
    assert (f.row(first).lane, f.key_row(tenant).recheck_at) == (Lane.KEYED, None)
    assert sweeps.recheck_resource_keys() == 0
