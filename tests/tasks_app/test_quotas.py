"""Counters with limits and start budgets: the SQL decides exactly what the pure bucket says."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks_app import limits
from tasks_app.domain.quotas import RunningLimit, StartBudget, counter_statements, spend_statement
from tasks_app.errors import ApplicationFull, QueueFull
from tasks_app.transactions import Tx, unit
from tests.tasks_app.factories import Tenant, application_row, change_queue, queue_row, set_quotas, submit

NOW = 1_800_000_000_000_000


# -- the bucket, pure


def bucket(*, starts: int = 2, per_ms: int = 60_000, level: int | None = None, at: int = NOW) -> StartBudget:
    full = starts * per_ms * 1000
    budget = StartBudget.of(starts, per_ms, full if level is None else level, at)
    assert budget is not None
    return budget


@pytest.mark.parametrize(("starts", "per_ms"), [(None, None), (None, 1), (1, None)])
def test_without_a_rate_there_is_no_budget(starts: int | None, per_ms: int | None):
    assert StartBudget.of(starts, per_ms, 0, 0) is None


def test_a_full_bucket_holds_its_starts_and_no_more_however_long_it_rests():
    assert bucket().left(NOW) == bucket().left(NOW + 10**15) == 2


def test_an_empty_bucket_refills_evenly():
    empty = bucket(level=0)  # 2 per minute: one each 30 s
    assert [empty.left(NOW + seconds * 1_000_000) for seconds in (0, 29, 30, 59, 60, 600)] == [0, 0, 1, 1, 2, 2]
    assert empty.left(NOW + 30_000_000 - 1) == 0


def test_when_the_next_start_is_possible_is_exact():
    empty = bucket(level=0)
    assert empty.next_at(NOW) == NOW + 30_000_000
    assert empty.next_at(NOW + 29_000_000) == NOW + 30_000_000
    assert empty.next_at(NOW + 31_000_000) == NOW + 31_000_000
    assert bucket().next_at(NOW) == NOW
    assert (empty.next_at(NOW, 2), bucket(level=bucket().per_us).next_at(NOW, 2)) == (
        NOW + 60_000_000,
        NOW + 30_000_000,
    )


def test_a_clock_that_went_back_refills_nothing_and_takes_nothing():
    assert bucket(level=bucket().per_us).left(NOW - 10**9) == 1


rates = st.tuples(
    st.integers(1, 10) | st.integers(1, limits.START_RATE_STARTS_MAX),
    st.integers(1, 1000) | st.integers(1, limits.START_RATE_PER_MS_MAX),
)


@given(rates, st.floats(0, 1), st.integers(0, 10**13))
def test_the_moment_told_is_the_first_at_which_a_start_is_possible(rate: tuple[int, int], fill: float, wait_us: int):
    starts, per_ms = rate
    budget = bucket(starts=starts, per_ms=per_ms, level=int(fill * starts * per_ms * 1000))
    now = NOW + wait_us
    at = budget.next_at(now)
    assert budget.left(at) >= 1
    assert at == now or budget.left(at - 1) == 0


# -- the bucket in SQL


def spend(tenant: Tenant, amount: int, now_us: int) -> bool:
    statement = spend_statement("orbit_queue", "queue_id", tenant.queue_id, amount=amount, now_us=now_us)
    return unit(lambda tx: tx.execute(*statement)) == 1


def set_bucket(tenant: Tenant, starts: int | None, per_ms: int | None, level: int, at: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orbit_queue SET start_rate_starts = %s, start_rate_per_ms = %s, start_level = %s,"
            " start_level_at = %s WHERE queue_id = %s",
            [starts, per_ms, level, at, tenant.queue_id],
        )


def stored_budget(tenant: Tenant) -> StartBudget:
    queue = queue_row(tenant.queue_id)
    budget = StartBudget.of(queue.start_rate_starts, queue.start_rate_per_ms, queue.start_level, queue.start_level_at)
    assert budget is not None
    return budget


steps = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 2, 3, 64]),
        st.integers(-1_000_000, 1_000_000) | st.integers(0, 10**10) | st.integers(0, 10**15),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rates, st.floats(0, 1), steps)
def test_the_sql_spends_exactly_what_the_pure_bucket_says(
    tenant: Tenant, rate: tuple[int, int], fill: float, steps: list[tuple[int, int]]
):
    """Same levels, same refusals, at every size that the limits allow: no product leaves 64 bits."""
    starts, per_ms = rate
    now = NOW
    model = bucket(starts=starts, per_ms=per_ms, level=int(fill * starts * per_ms * 1000))
    set_bucket(tenant, starts, per_ms, model.level, model.level_at)
    for amount, elapsed in steps:
        now += elapsed
        possible = model.left(now) >= amount
        assert spend(tenant, amount, now) is possible
        if possible:
            level = model.level_now(now) - amount * model.per_us
            model = StartBudget(model.starts, model.per_us, level, max(now, model.level_at))
        assert stored_budget(tenant) == model


def test_the_largest_bucket_fits_the_column(tenant: Tenant):
    starts, per_ms = limits.START_RATE_STARTS_MAX, limits.START_RATE_PER_MS_MAX
    set_bucket(tenant, starts, per_ms, starts * per_ms * 1000, 0)
    assert spend(tenant, starts, NOW)
    assert not spend(tenant, 1, NOW)


def test_nothing_is_spent_where_there_is_no_rate(tenant: Tenant):
    assert not spend(tenant, 1, NOW)


def test_a_long_rest_gives_no_more_than_the_bucket_holds(tenant: Tenant):
    set_bucket(tenant, 2, 60_000, 0, NOW)
    month_later = NOW + 30 * 86_400_000_000
    assert [spend(tenant, 1, month_later) for _ in range(3)] == [True, True, False]


# -- counters


def count(tenant: Tenant, *, queue: tuple[int, int] = (0, 0), application: tuple[int, int] = (0, 0)) -> None:
    """Adds (unfinished, running); rolled back by the caller's error or balanced by the caller."""
    statements, judge = counter_statements({tenant.queue_id: queue}, {tenant.application_id: application})
    unit(lambda tx: judge(tx.script(statements)))


@pytest.mark.parametrize(
    ("columns", "delta", "error"),
    [
        ({"max_unfinished": 5}, (6, 0), QueueFull),
        ({"max_running": 5}, (0, 6), RunningLimit),
        ({"max_running": 0}, (0, 1), RunningLimit),
    ],
)
def test_a_counter_that_would_pass_its_limit_refuses_the_unit(
    tenant: Tenant, columns: dict[str, Any], delta: tuple[int, int], error: type[Exception]
):
    change_queue(tenant, **columns)
    with pytest.raises(error):
        count(tenant, queue=delta)
    assert (queue_row(tenant.queue_id).unfinished, queue_row(tenant.queue_id).running) == (0, 0)


def test_a_counter_may_reach_its_limit_exactly(tenant: Tenant):
    change_queue(tenant, max_unfinished=5, max_running=5)
    count(tenant, queue=(5, 5))
    count(tenant, queue=(-5, -5))


def test_the_limits_of_an_application_are_judged_too(tenant: Tenant):
    set_quotas(tenant, max_unfinished=1, max_running=1)
    with pytest.raises(ApplicationFull):
        count(tenant, application=(2, 0))
    with pytest.raises(RunningLimit):
        count(tenant, application=(0, 2))


def test_what_shrinks_is_held_against_no_limit(tenant: Tenant):
    """A limit that was lowered below what is held takes nothing away and blocks no one who gives back."""
    count(tenant, queue=(4, 4), application=(4, 4))
    change_queue(tenant, max_unfinished=0, max_running=0)
    set_quotas(tenant, max_unfinished=0, max_running=0)
    count(tenant, queue=(-4, -4), application=(-4, -4))
    assert (application_row(tenant).unfinished, application_row(tenant).running) == (0, 0)


def test_queues_come_before_applications_each_by_id():
    queues = {"b": (1, 0), "a": (1, 0)}
    statements, _ = counter_statements(queues, {"z": (1, 0), "y": (1, 0)})
    order = [(sql.split()[1], params[2]) for sql, params in statements]
    assert order == [("orbit_queue", "a"), ("orbit_queue", "b"), ("orbit_application", "y"), ("orbit_application", "z")]


def test_a_counter_that_does_not_change_is_not_touched():
    statements, judge = counter_statements({"a": (0, 0)}, {})
    assert statements == []
    judge([])


def test_a_new_start_rate_begins_with_a_full_bucket(tenant: Tenant):
    change_queue(tenant, start_rate=(3, 60_000))
    queue = queue_row(tenant.queue_id)
    assert stored_budget(tenant).left(queue.start_level_at) == 3
    set_quotas(tenant, start_rate=(4, 1000))
    application = application_row(tenant)
    budget = StartBudget.of(
        application.start_rate_starts,
        application.start_rate_per_ms,
        application.start_level,
        application.start_level_at,
    )
    assert budget is not None
    assert budget.left(application.start_level_at) == 4


def test_counters_of_a_unit_that_fails_are_as_they_were(tenant: Tenant):
    def run(tx: Tx) -> None:
        statements, judge = counter_statements({tenant.queue_id: (1, 0)}, {})
        judge(tx.script(statements))
        raise RuntimeError

    submit(tenant)
    with pytest.raises(RuntimeError):
        unit(run)
    assert queue_row(tenant.queue_id).unfinished == 1
