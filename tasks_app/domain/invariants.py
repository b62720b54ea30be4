"""What must hold in the database, looked at while everything runs (design 5.2, `orbit_check`).

Each look is one statement, which sees one moment: what it finds is true of that moment, not of two. Nothing is locked,
tables are walked by primary key in chunks, and counts come from the claim index, so that a check of millions of rows
disturbs nobody. Only counters can be repaired: they are sums, and the rows say what the sum is. Everything else is a
fault of the code or of the disk, which a person has to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tasks_app import dialect
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.states import HOLDS_RESOURCE_KEY, LEASED, UNFINISHED, TaskState
from tasks_app.transactions import Tx, reading, unit

CHUNK: Final = 1000
KEYS_PER_LOOK: Final = 200


@dataclass(frozen=True, slots=True)
class CounterDrift:
    """A row whose counters say something else than the tasks: `is_now` and `should_be` by column."""

    table: str
    key: str
    identity: Any
    is_now: dict[str, int]
    should_be: dict[str, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold. A `note` is harmless and mends itself; a `drift` can be repaired."""

    check: str
    object_id: str
    text: str
    drift: CounterDrift | None = None
    is_note: bool = False


Check = Callable[[], Iterator[Finding]]
_checks: dict[str, Check] = {}


def register(name: str, check: Check) -> None:
    """Adds a check; apps above this one add those of their own rows."""
    _checks[name] = check


def names() -> tuple[str, ...]:
    return tuple(_checks)


def look(name: str) -> Iterator[Finding]:
    """What the check of that name finds now."""
    return _checks[name]()


# -- counters


def counters() -> Iterator[Finding]:
    """Counters of queues and applications equal their tasks; permits held equal the tasks that hold the key."""
    yield from _queue_and_application_counters()
    yield from _resource_counters()


def _queue_and_application_counters() -> Iterator[Finding]:
    with reading() as tx:
        applications = [
            row[0] for row in tx.rows("SELECT application_id FROM orbit_application ORDER BY application_id")
        ]
    for application_id in applications:
        with reading() as tx:
            rows = _counted_application(tx, application_id)
        if not rows:
            continue
        yield from _compare("orbit_application", "application_id", application_id, rows[0][0], rows[0][1], _sums(rows))
        for row in rows:
            if row[2] is not None:
                yield from _compare("orbit_queue", "queue_id", row[2], row[3], row[4], (int(row[5]), int(row[6])))


def _counted_application(tx: Tx, application_id: str) -> list[tuple[Any, ...]]:
    """(application's unfinished, running, queue_id, queue's unfinished, running, counted unfinished, running)."""
    index = dialect.force_index(tx.connection, "task_to_claim")
    return tx.rows(
        "SELECT a.unfinished, a.running, q.queue_id, q.unfinished, q.running, COALESCE(c.unfinished, 0),"
        " COALESCE(c.running, 0) FROM orbit_application a"
        " LEFT JOIN orbit_queue q ON q.application_id = a.application_id"
        f" LEFT JOIN (SELECT t.queue_id, COUNT(*) AS unfinished, SUM(CASE WHEN t.state IN ({_quoted(LEASED)}) THEN 1"
        f" ELSE 0 END) AS running FROM orbit_task t{index} WHERE t.queue_id IN"
        f" (SELECT queue_id FROM orbit_queue WHERE application_id = %s) AND t.state IN ({_quoted(UNFINISHED)})"
        " GROUP BY t.queue_id) c ON c.queue_id = q.queue_id WHERE a.application_id = %s ORDER BY q.queue_id",
        [application_id, application_id],
    )


def _sums(rows: list[tuple[Any, ...]]) -> tuple[int, int]:
    return sum(int(row[5]) for row in rows), sum(int(row[6]) for row in rows)


def _compare(
    table: str, key: str, identity: str, unfinished: int, running: int, counted: tuple[int, int]
) -> Iterator[Finding]:
    if (unfinished, running) != counted:
        is_now, should_be = (
            {"unfinished": unfinished, "running": running},
            dict(zip(("unfinished", "running"), counted, strict=True)),
        )
        yield _drift("counters", table, key, identity, is_now, should_be)


def _resource_counters() -> Iterator[Finding]:
    after = 0
    while True:
        with reading() as tx:
            rows = tx.rows(
                "SELECT k.resource_ref, k.held, n.resource_limit,"
                " (SELECT COUNT(*) FROM orbit_task t WHERE t.resource_ref = k.resource_ref"
                f" AND t.state IN ({_quoted(HOLDS_RESOURCE_KEY)})) FROM orbit_resource_key k"
                " JOIN orbit_namespace n ON n.namespace_id = k.namespace_id"
                f" WHERE k.resource_ref > %s ORDER BY k.resource_ref LIMIT {KEYS_PER_LOOK}",
                [after],
            )
        for ref, held, limit, counted in rows:
            if held != counted:
                now, wanted = {"held": held}, {"held": int(counted)}
                yield _drift("counters", "orbit_resource_key", "resource_ref", ref, now, wanted)
            if counted > limit:
                yield Finding("counters", f"resource key {ref}", f"is held by {counted} tasks, the limit is {limit}")
        if len(rows) < KEYS_PER_LOOK:
            return
        after = rows[-1][0]


def _drift(
    check: str, table: str, key: str, identity: Any, is_now: dict[str, int], should_be: dict[str, int]
) -> Finding:
    name = f"{table.removeprefix('orbit_').replace('_', ' ')} {identity}"
    parts = [
        f"{column} is {is_now[column]}, the tasks say {should_be[column]}"
        for column in is_now
        if is_now[column] != should_be[column]
    ]
    return Finding(check, name, "; ".join(parts), CounterDrift(table, key, identity, is_now, should_be))


def repair(drift: CounterDrift, *, actor: Actor) -> bool:
    """Sets the counters to what the tasks say now; False if they agree by now.

    The counters' row is locked first. Whoever changes tasks of it changes it too, before the same COMMIT: nothing that
    it counts can commit between the count and ours.
    """

    def run(tx: Tx) -> bool:
        columns = list(drift.is_now)
        row = tx.row(
            f"SELECT {', '.join(columns)} FROM {drift.table} WHERE {drift.key} = %s{dialect.for_update(tx.connection)}",
            [drift.identity],
        )
        if row is None:
            return False
        counted = _count(tx, drift)
        is_now = dict(zip(columns, (int(value) for value in row), strict=True))
        if counted == is_now:
            return False
        assignments = ", ".join(f"{column} = %s" for column in columns)
        if drift.table == "orbit_resource_key":
            # Which waiters may be seen follows from the permits: maintenance looks at them again.
            assignments += f", recheck_at = {tx.now_us}"
        tx.execute(
            f"UPDATE {drift.table} SET {assignments} WHERE {drift.key} = %s",
            [*(counted[column] for column in columns), drift.identity],
        )
        audit.write(
            tx, actor, "counter.repair", drift.table.removeprefix("orbit_"), str(drift.identity),
            data={"before": is_now, "after": counted},
        )  # fmt: skip
        return True

    return unit(run)


def _count(tx: Tx, drift: CounterDrift) -> dict[str, int]:
    if drift.table == "orbit_resource_key":
        sql = f"SELECT COUNT(*) FROM orbit_task WHERE resource_ref = %s AND state IN ({_quoted(HOLDS_RESOURCE_KEY)})"
        return {"held": int(tx.rows(sql, [drift.identity])[0][0])}
    index = dialect.force_index(tx.connection, "task_to_claim")
    which = (
        "= %s" if drift.table == "orbit_queue" else "IN (SELECT queue_id FROM orbit_queue WHERE application_id = %s)"
    )
    ((unfinished, running),) = tx.rows(
        f"SELECT COUNT(*), SUM(CASE WHEN state IN ({_quoted(LEASED)}) THEN 1 ELSE 0 END) FROM orbit_task{index}"
        f" WHERE queue_id {which} AND state IN ({_quoted(UNFINISHED)})",
        [drift.identity],
    )
    return {"unfinished": int(unfinished), "running": int(running or 0)}


def _quoted(states: frozenset[TaskState]) -> str:
    """A list of our own words, written out: a constant list lets the index be used in a subquery."""
    return ", ".join(f"'{state.value}'" for state in sorted(states))


# -- what the operators' site shows of it


def record_run(*, faults: int, notes: int, repaired: int, seconds: float, actor: Actor) -> None:
    """Leaves an audit entry: when the whole database was last looked at and what was found."""
    data = {"faults": faults, "notes": notes, "repaired": repaired, "seconds": round(seconds, 3)}
    unit(lambda tx: audit.write(tx, actor, "check.run", "database", "database", data=data))


register("counters", counters)
