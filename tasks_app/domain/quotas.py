"""Counters of queues and applications: unfinished tasks, running permits, start budgets.

All are one row a queue and one row an application, updated last before COMMIT, queues before applications (measured:
1.7 times the throughput of counters first). A limit is part of the update's WHERE: the row count says whether there
was room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks_app.errors import ApplicationFull, QueueFull

Statement = tuple[str, Sequence[Any]]


class RunningLimit(Exception):
    """The queue or the application has no running permit left: an answer to a claim or a start, not an error."""


def counter_statements(
    queues: Mapping[str, Sequence[int]], applications: Mapping[str, Sequence[int]]
) -> tuple[list[Statement], Callable[[Sequence[int]], None]]:
    """Statements that add (unfinished, running) deltas, and the function that judges their row counts.

    Only what grows is held against its limit: a lowered limit takes nothing away. The judge raises QueueFull,
    ApplicationFull or RunningLimit.
    """
    statements: list[Statement] = []
    refusals: list[Exception] = []
    for table, key, rows, full in (
        ("orbit_queue", "queue_id", queues, QueueFull),
        ("orbit_application", "application_id", applications, ApplicationFull),
    ):
        for identity in sorted(rows):
            unfinished, running = rows[identity]
            if not unfinished and not running:
                continue
            guard = ""
            if unfinished > 0:
                guard += " AND (max_unfinished IS NULL OR unfinished + %s <= max_unfinished)"
            if running > 0:
                guard += " AND (max_running IS NULL OR running + %s <= max_running)"
            params: list[Any] = [unfinished, running, identity]
            params += [amount for amount in (unfinished, running) if amount > 0]
            statements.append(
                (
                    f"UPDATE {table} SET unfinished = unfinished + %s, running = running + %s WHERE {key} = %s{guard}",
                    params,
                )
            )
            refusals.append(full() if unfinished > 0 else RunningLimit(table))

    def judge(counts: Sequence[int]) -> None:
        for count, refusal in zip(counts, refusals, strict=True):
            if count != 1:
                raise refusal

    return statements, judge


@dataclass(frozen=True, slots=True)
class StartBudget:
    """A bucket of `starts`, refilled evenly over `per_ms`. The level is counted in start x microsecond: whole
    numbers.
    """

    starts: int
    per_us: int
    level: int
    level_at: int

    @classmethod
    def of(cls, starts: int | None, per_ms: int | None, level: int, level_at: int) -> StartBudget | None:
        """None where there is no start rate."""
        return None if starts is None or per_ms is None else cls(starts, per_ms * 1000, level, level_at)

    def level_now(self, now_us: int) -> int:
        # A clock that went back (another node of a failed-over database) refills nothing and takes nothing.
        return min(self.starts * self.per_us, self.level + max(0, now_us - self.level_at) * self.starts)

    def left(self, now_us: int) -> int:
        return self.level_now(now_us) // self.per_us

    def next_at(self, now_us: int, starts: int = 1) -> int:
        """When so many starts, no more than the bucket holds, will be possible at once (now, if they are)."""
        missing = starts * self.per_us - self.level_now(now_us)
        return now_us if missing <= 0 else now_us + -(-missing // self.starts)


def start_rate_columns(rate: tuple[int, int] | None, budget: StartBudget | None, now_us: int) -> dict[str, Any]:
    """Columns for a start rate (starts, per_ms); `budget` is that of the rate in force.

    The first rate starts with a full bucket; another one keeps the starts that were left, so that changing it back and
    forth refills nothing.
    """
    if rate is None:
        return {"start_rate_starts": None, "start_rate_per_ms": None, "start_level": 0, "start_level_at": now_us}
    starts, per_ms = rate
    left = starts if budget is None else min(budget.left(now_us), starts)
    return {
        "start_rate_starts": starts,
        "start_rate_per_ms": per_ms,
        "start_level": left * per_ms * 1000,
        "start_level_at": now_us,
    }


def spend_statement(table: str, key: str, identity: str, *, amount: int, now_us: int) -> Statement:
    """Spends `amount` starts of a row that has a start rate; matches no row when the budget is too small."""
    # A full bucket needs no more than per_us to fill: cutting the time there keeps every product inside 64 bits.
    elapsed = (
        "(CASE WHEN %s - start_level_at > start_rate_per_ms * 1000 THEN start_rate_per_ms * 1000"
        " WHEN %s > start_level_at THEN %s - start_level_at ELSE 0 END)"
    )
    size, refilled = "start_rate_starts * start_rate_per_ms * 1000", f"start_level + {elapsed} * start_rate_starts"
    level = f"(CASE WHEN {refilled} > {size} THEN {size} ELSE {refilled} END)"
    cost = "%s * start_rate_per_ms * 1000"
    # start_level is assigned before start_level_at: MySQL reads columns as already assigned, from left to right.
    sql = (
        f"UPDATE {table} SET start_level = {level} - {cost},"
        " start_level_at = CASE WHEN %s > start_level_at THEN %s ELSE start_level_at END"
        f" WHERE {key} = %s AND start_rate_starts IS NOT NULL AND {level} >= {cost}"
    )
    now = [now_us] * 6
    return sql, [*now, amount, now_us, now_us, identity, *now, amount]
