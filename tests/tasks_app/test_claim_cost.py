"""What a claim costs does not depend on work that is held (design 3.5): counted in rows read, never in time.

On MariaDB the server's own count of rows read by a session, on SQLite the steps of its virtual machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from tasks_app.domain import claims, sweeps
from tasks_app.states import Lane, TaskState
from tests.tasks_app import factories as f
from tests.tasks_app.factories import Tenant

BACKLOG = 1000
# How much more than without the backlog: a few rows on the way of a seek, not one for each held task.
ROWS_MORE_MAX, STEPS_MORE_MAX = 30, 3000


def work_of(action: Callable[[], Any]) -> int:
    """Rows read (MariaDB) or steps made (SQLite) by this connection while `action` runs."""
    if connection.vendor == "mysql":
        idle = -_rows_read() + _rows_read()  # asking reads rows too
        before = _rows_read()
        action()
        return _rows_read() - before - idle
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    connection.ensure_connection()
    connection.connection.set_progress_handler(step, 1)
    try:
        action()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return steps


def _rows_read() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in cursor.fetchall())


def assert_not_more(loaded: int, alone: int) -> None:
    more = ROWS_MORE_MAX if connection.vendor == "mysql" else STEPS_MORE_MAX
    assert loaded <= alone + more, f"{loaded} with the backlog, {alone} without"


# -- what may be held


def behind_a_busy_key(tenant: Tenant) -> str:
    f.submit(tenant, resource_key="busy")
    f.run_one(tenant)
    return f.submit(tenant, resource_key="busy")


def of_a_foreign_handler(tenant: Tenant) -> str:
    return f.submit(tenant, handler="foreign")


def urgent_of_a_foreign_handler(tenant: Tenant) -> str:
    return f.submit(tenant, handler="foreign", priority=9)


def not_due_yet(tenant: Tenant) -> str:
    """Priority 9: their `dispatch_at` sorts them among what is ready."""
    return f.submit(tenant, priority=9, delay_ms=200_000)


def yielded(tenant: Tenant) -> str:
    task_id = f.submit(tenant)
    f.set_columns(task_id, lane=Lane.YIELDED.value, visible_at=f.now() + 3_600 * f.SECOND)
    return task_id


HELD = [behind_a_busy_key, of_a_foreign_handler, urgent_of_a_foreign_handler, not_due_yet, yielded]


@pytest.mark.parametrize("held", HELD, ids=lambda held: held.__name__)
def test_held_work_does_not_slow_the_claim_of_what_stands_behind_it(tenant: Tenant, held: Any):
    template = held(tenant)
    behind = [f.submit(tenant) for _ in range(2)]
    order = f.order(tenant)  # its look-ups of handlers are not the claim's
    alone = work_of(lambda: claim_of(order, behind[0]))
    f.backlog(template, BACKLOG)
    assert_not_more(work_of(lambda: claim_of(order, behind[1])), alone)


@pytest.mark.parametrize("held", HELD, ids=lambda held: held.__name__)
def test_held_work_does_not_slow_a_claim_that_finds_nothing(tenant: Tenant, held: Any):
    template = held(tenant)
    f.submit(tenant)
    f.run_one(tenant)
    order = f.order(tenant)
    alone = work_of(lambda: claim_of(order, None))
    f.backlog(template, BACKLOG)
    assert_not_more(work_of(lambda: claim_of(order, None)), alone)


def claim_of(order: Any, expected: str | None) -> None:
    assert [offer.task.task_id for offer in claims.claim(order).offers] == ([] if expected is None else [expected])


def test_a_long_line_costs_a_claim_no_more_than_a_short_one(tenant: Tenant):
    template = f.submit(tenant)
    f.submit(tenant)
    order = f.order(tenant, limit=4)
    alone = work_of(lambda: claims.claim(order))
    f.backlog(f.submit(tenant), BACKLOG)
    loaded = work_of(lambda: claims.claim(order))
    assert f.state(template) is TaskState.RESERVED
    assert_not_more(loaded, 3 * alone)  # four tasks instead of two


def test_many_handlers_cost_a_claim_no_row_of_theirs(tenant: Tenant):
    names = [f"h{number}" for number in range(30)]
    f.submit(tenant, handler="h0")
    f.backlog(f.submit(tenant, handler="foreign"), BACKLOG)
    for name in names:
        f.submit(tenant, handler=name, delay_ms=60_000)  # the handler is known and has nothing ready
    order = f.order(tenant, handlers=names)
    loaded = work_of(lambda: claims.claim(order))
    assert loaded < (200 if connection.vendor == "mysql" else 20_000)


# -- the other verbs beside a long line of waiters


def test_a_freed_permit_finds_the_best_of_many_waiters_by_a_seek(tenant: Tenant):
    f.submit(tenant, resource_key="k")
    f.submit(tenant, resource_key="k")
    offer = f.run_one(tenant)
    alone = work_of(lambda: f.finish(offer))
    offer = f.run_one(tenant)
    template = f.submit(tenant, resource_key="k")
    f.backlog(template, BACKLOG)
    assert_not_more(work_of(lambda: f.finish(offer)), alone)
    assert f.claim_one(tenant).task.task_id < template, "the first of the copies"


@pytest.mark.parametrize("resource_key", [None, "k"], ids=["plain", "keyed"])
def test_a_submit_beside_many_waiters_looks_at_none_of_them(tenant: Tenant, resource_key: str | None):
    f.submit(tenant, resource_key="k")
    f.run_one(tenant)
    template = f.submit(tenant, resource_key="k")
    f.submit(tenant)
    alone = work_of(lambda: f.submit(tenant, resource_key=resource_key))
    f.backlog(template, BACKLOG)
    assert_not_more(work_of(lambda: f.submit(tenant, resource_key=resource_key)), alone)


@pytest.mark.parametrize("held", [not_due_yet, of_a_foreign_handler], ids=lambda held: held.__name__)
def test_a_sweep_reads_only_what_is_due(tenant: Tenant, held: Any):
    template = held(tenant)
    alone = work_of(sweeps.sweep_due)
    f.backlog(template, BACKLOG)
    assert_not_more(work_of(sweeps.sweep_due), alone)


def test_a_recheck_of_a_key_with_many_waiters_is_a_few_seeks(tenant: Tenant):
    template = behind_a_busy_key(tenant)
    f.backlog(template, BACKLOG)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_resource_key SET recheck_at = 1")
    loaded = work_of(sweeps.recheck_resource_keys)
    assert loaded < (60 if connection.vendor == "mysql" else 10_000)


# -- the plans


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """Every statement of this connection, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def record(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(record):
        yield seen


def plan_of(sql: str, params: Any) -> list[str]:
    """A line per table that the plan touches."""
    with connection.cursor() as cursor:
        cursor.execute(f"{'EXPLAIN' if connection.vendor == 'mysql' else 'EXPLAIN QUERY PLAN'} {sql}", params)
        return [" ".join(str(value) for value in line) for line in cursor.fetchall()]


def is_by_primary_key(lines: list[str]) -> bool:
    """Whether the tasks are found by their ids; a single id that is gone is found out before any plan is made."""
    touching = [line for line in lines if "orbit_task" in line]
    if not touching:
        return "Impossible WHERE" in lines[0] or "no matching row in const table" in lines[0]
    return all("PRIMARY" in line or "sqlite_autoindex_orbit_task_1" in line for line in touching)


@pytest.mark.parametrize("more", [{}, {"urgent_limit": 1}], ids=["all", "urgent and normal apart"])
@pytest.mark.parametrize("rows", [1, BACKLOG])
def test_the_candidates_come_from_the_claim_index_in_its_order(strict_tenant: Tenant, rows: int, more: dict[str, Any]):
    """Faults C9: a filesort under SKIP LOCKED would lock every candidate."""
    template = f.submit(strict_tenant)
    if rows > 1:
        f.backlog(template, rows)
    with statements() as seen:
        f.claim(strict_tenant, limit=2, **more)
    candidates = [(sql, params) for sql, params in seen if "dispatch_at, available_at, task_id, queue_id" in sql][0]
    lines = [line for line in plan_of(*candidates) if "orbit_task" in line]
    assert len(lines) == (2 if not more else 4)
    for line in lines:
        assert "task_to_claim" in line
        # SQLite computes a generated column again from the row, which it therefore looks at.
        assert "Using index" in line or connection.vendor == "sqlite", "rows are not looked at"
    whole = " ".join(plan_of(*candidates))
    assert "filesort" not in whole
    assert "TEMP B-TREE FOR ORDER BY" not in whole
    assert " ALL " not in " ".join(lines)


@pytest.mark.parametrize("rows", [1, BACKLOG])
def test_the_chosen_rows_are_locked_by_their_primary_key(tenant: Tenant, rows: int):
    """A scan would wait for, or lock, rows that are none of the claim's business."""
    template = f.submit(tenant)
    if rows > 1:
        f.backlog(template, rows)
    with statements() as seen:
        f.claim(tenant, limit=2)
    (locking,) = [(sql, params) for sql, params in seen if "payload_version" in sql]
    assert is_by_primary_key(plan_of(*locking))


@pytest.mark.mariadb_only("SQLite has no row locks")
@pytest.mark.parametrize("rows", [1, 10, BACKLOG])
def test_every_update_of_tasks_finds_its_rows_by_the_primary_key(tenant: Tenant, rows: int):
    """In a small table too: an update that scans locks its neighbours out of order."""
    if rows > 1:
        f.backlog(f.submit(tenant, resource_key="k"), rows)
    with statements() as seen:
        f.submit(tenant, resource_key="k", retry=f.SAFE)
        f.submit(tenant, resource_key="k")
        f.release(f.claim_one(tenant))
        offer = f.run_one(tenant)
        f.renew(offer)
        f.finish(offer)
    updates = [update for sql, params in seen for update in _updates(sql, params)]
    assert len(updates) >= 5
    for sql, params in updates:
        assert is_by_primary_key(plan_of(sql, params)), sql


def _updates(script: str, params: Any) -> Iterator[tuple[str, Any]]:
    """The updates of tasks in a script, each with its own parameters."""
    position = 0
    for statement in script.split("; "):
        count = statement.count("%s")
        if statement.startswith("UPDATE orbit_task "):
            yield statement, params[position : position + count]
        position += count
