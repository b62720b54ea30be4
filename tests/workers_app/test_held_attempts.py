"""What a connection holds, and when it needs a look."""

from __future__ import annotations

from workers_app.database_clock import DatabaseClock
from workers_app.held_attempts import Due, HeldAttempt, HeldAttempts

S = 1_000_000


def attempt(attempt_id: str, *, lease_until: int = 10 * S, **changes: object) -> HeldAttempt:
    values: dict = {
        "task_id": f"task-{attempt_id}",
        "fencing_token": 1,
        "queue_id": "q",
        "priority": 0,
        "is_running": False,
        **changes,
    }
    return HeldAttempt(attempt_id=attempt_id, lease_until=lease_until, **values)


def dues(held: HeldAttempts, now: int) -> list[tuple[str, Due]]:
    return [(one.attempt_id, due) for one, due in held.due(now)]


def test_counts_follow_what_is_added_started_and_dropped() -> None:
    held = HeldAttempts()
    first, second = attempt("a", priority=5), attempt("b")
    held.add(first)
    held.add(second)
    assert (len(held), held.running, held.urgent) == (2, 0, 1)
    held.started(first, lease_until=30 * S, started_at=1 * S)
    held.started(first, lease_until=30 * S, started_at=1 * S)  # a repeated start
    assert (held.running, held.urgent) == (1, 1)
    held.drop("a")
    held.drop("a")
    assert (len(held), held.running, held.urgent) == (1, 0, 0)
    assert held.of_task("task-a") is None
    assert held.of_task("task-b") is second


def test_unstarted_come_newest_claim_first() -> None:
    held = HeldAttempts()
    for name in "abc":
        held.add(attempt(name))
    running = held.get("b")
    assert running is not None
    held.started(running, lease_until=30 * S, started_at=0)
    assert [one.attempt_id for one in held.unstarted_newest_first()] == ["c", "a"]


def test_lease_that_ran_out_is_due_once() -> None:
    held = HeldAttempts()
    held.add(attempt("a", lease_until=10 * S))
    assert dues(held, 10 * S - 1) == []
    assert dues(held, 10 * S) == [("a", Due.LEASE)]
    assert dues(held, 11 * S) == []


def test_extended_lease_is_due_at_its_new_end() -> None:
    held = HeldAttempts()
    one = attempt("a", lease_until=10 * S)
    held.add(one)
    held.extended(one, lease_until=20 * S)
    assert dues(held, 15 * S) == []
    assert dues(held, 20 * S) == [("a", Due.LEASE)]


def test_shortened_lease_is_due_at_its_new_end() -> None:
    """A running lease never reaches past the deadline: it may end before the reservation would have."""
    held = HeldAttempts()
    one = attempt("a", lease_until=10 * S)
    held.add(one)
    held.started(one, lease_until=4 * S, started_at=0)
    assert dues(held, 4 * S) == [("a", Due.LEASE)]


def test_limits_are_watched_only_while_it_runs() -> None:
    held = HeldAttempts()
    one = attempt("a", lease_until=100 * S, deadline_at=5 * S, attempt_timeout_ms=2000)
    held.add(one)
    assert dues(held, 6 * S) == []
    held.started(one, lease_until=100 * S, started_at=7 * S)
    assert dues(held, 8 * S) == [("a", Due.DEADLINE)]
    assert dues(held, 9 * S) == [("a", Due.TIMEOUT)]
    assert dues(held, 50 * S) == []


def test_dropped_attempt_is_never_due() -> None:
    held = HeldAttempts()
    held.add(attempt("a", is_running=True, deadline_at=1 * S))
    held.drop("a")
    assert dues(held, 100 * S) == []


def test_clock_never_runs_early() -> None:
    """A reading is older than the moment it is noted: the latest of them counts, until it is old itself."""
    clock = DatabaseClock()
    clock.note(1_000 * S)
    first = clock.now_us()
    assert first >= 1_000 * S
    clock.note(999 * S)  # came back late: says less than what is known
    assert clock.now_us() >= first
    clock.note(2_000 * S)
    assert clock.now_us() >= 2_000 * S
