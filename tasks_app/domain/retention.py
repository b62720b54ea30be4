"""Retention: what is old enough is deleted, in small batches, while everything runs (design 5.6).

    kind       kept for                     from                  never before
    tasks      ORBIT_RETAIN_TASKS           the end of the task   (with their attempts)
    events     ORBIT_RETAIN_EVENTS          the event             the end of the task
    receipts   ORBIT_RETAIN_RECEIPTS        acceptance            the end of the task
    firings    ORBIT_RETAIN_TASKS           the firing            the end of the task
    audit      ORBIT_RETAIN_AUDIT           the entry

Ids begin with the moment at which they were made, so the rows that can be old enough are one range of the primary key,
walked from its beginning; no index on time is needed and nothing is counted. A batch is a transaction of at most 500
deleted rows a statement, by primary key, in the order of the ids. A batch that took long makes the next one smaller,
and between two batches retention rests several times as long as it worked. Nothing has to be remembered between runs:
what was deleted is gone, and what is left at the beginning of the range is what may not be deleted yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from tasks_app import dialect, faults, ids, telemetry
from tasks_app.instants import US_PER_MS
from tasks_app.limits import MS_PER_DAY
from tasks_app.states import UNFINISHED
from tasks_app.transactions import Tx, reading, unit

ROWS_MAX: Final = 500  # of one statement
ROWS_MIN: Final = 20
BATCH_SECONDS_MAX: Final = 0.025  # a batch that took longer makes the next one smaller
REST_RATIO: Final = 4  # resting time for working time
REST_SECONDS_MIN, REST_SECONDS_MAX = 0.01, 2.0

_UNFINISHED: Final = ", ".join(f"'{state.value}'" for state in sorted(UNFINISHED))


@dataclass(frozen=True, slots=True)
class Looked:
    """The next rows of a kind: those to be deleted, and where to go on. `after` None: nothing older is left."""

    doomed: tuple[Any, ...]
    after: Any | None


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows of one sort. `look(tx, after, cutoff, size)` reads, `delete(tx, doomed, cutoff)` deletes and counts."""

    name: str
    days: Callable[[], int]
    start: Any
    look: Callable[[Tx, Any, int, int], Looked]
    delete: Callable[[Tx, Sequence[Any], int], int]


_kinds: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Adds a kind; apps above this one add their own rows."""
    _kinds[kind.name] = kind


def kinds() -> tuple[Kind, ...]:
    return tuple(_kinds.values())


def aged(name: str, table: str, key: str, days: Callable[[], int], *, where: str = "1 = 1") -> Kind:
    """Rows with a time-ordered id that may go when they are old enough and `where` holds."""

    def look(tx: Tx, after: str, cutoff: int, size: int) -> Looked:
        rows = tx.rows(
            f"SELECT {key}, CASE WHEN {where} THEN 1 ELSE 0 END FROM {table}"
            f" WHERE {key} > %s AND {key} < %s ORDER BY {key} LIMIT {size}",
            [after, ids.id_floor(max(0, cutoff))],
        )
        return _looked(rows, size, [identity for identity, may_go in rows if may_go])

    return Kind(name, days, "", look, lambda tx, doomed, cutoff: _delete(tx, table, key, doomed, where))


def with_task(name: str, table: str, key: str, days: Callable[[], int]) -> Kind:
    """Rows with a time-ordered id and a `task_id` that stay, however old, until that task has ended."""

    def look(tx: Tx, after: str, cutoff: int, size: int) -> Looked:
        rows = tx.rows(
            f"SELECT {key}, task_id FROM {table} WHERE {key} > %s AND {key} < %s ORDER BY {key} LIMIT {size}",
            [after, ids.id_floor(max(0, cutoff))],
        )
        return _looked(rows, size, _of_ended_tasks(tx, rows))

    return Kind(name, days, "", look, lambda tx, doomed, cutoff: _delete(tx, table, key, doomed))


def _looked(rows: Sequence[tuple[Any, ...]], size: int, doomed: Sequence[Any]) -> Looked:
    return Looked(tuple(doomed), rows[-1][0] if len(rows) == size else None)


def _of_ended_tasks(tx: Tx, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """The first column of those rows whose second names no unfinished task."""
    task_ids = sorted({task_id for _, task_id, *_ in rows if task_id is not None})
    if not task_ids:
        return [row[0] for row in rows]
    found = tx.rows(
        f"SELECT task_id FROM orbit_task WHERE task_id IN ({dialect.placeholders(task_ids)})"
        f" AND state IN ({_UNFINISHED})",
        task_ids,
    )
    unfinished = {task_id for (task_id,) in found}
    return [row[0] for row in rows if row[1] not in unfinished]


def _delete(tx: Tx, table: str, key: str, doomed: Sequence[Any], where: str = "1 = 1") -> int:
    return tx.execute(
        f"DELETE FROM {table} WHERE {key} IN ({dialect.placeholders(doomed)}) AND {where}", sorted(doomed)
    )


# -- tasks


def _look_at_tasks(tx: Tx, after: str, cutoff: int, size: int) -> Looked:
    """Tasks accepted and ended before the cutoff; no more than the attempts of which fit one statement too."""
    rows = tx.rows(
        "SELECT task_id, finished_at, attempts FROM orbit_task WHERE task_id > %s AND task_id < %s"
        f" ORDER BY task_id LIMIT {size}",
        [after, ids.id_floor(max(0, cutoff))],
    )
    doomed: list[str] = []
    attempts = 0
    for task_id, finished_at, starts in rows:
        if finished_at is None or finished_at >= cutoff:
            continue
        attempts += starts
        if attempts > ROWS_MAX and doomed:
            return Looked(tuple(doomed), doomed[-1])
        doomed.append(task_id)
    return _looked(rows, size, doomed)


def _delete_tasks(tx: Tx, doomed: Sequence[str], cutoff: int) -> int:
    """An end is for ever: what has ended cannot come back between the look and the lock. What another node deletes, or
    a replay holds, at this moment is left for the next run.
    """
    locked = [
        task_id
        for (task_id,) in tx.rows(
            f"SELECT task_id FROM orbit_task WHERE task_id IN ({dialect.placeholders(doomed)}) AND finished_at < %s"
            f" ORDER BY task_id{dialect.for_update(tx.connection, skip_locked=True)}",
            [*sorted(doomed), cutoff],
        )
    ]
    if not locked:
        return 0
    marks = dialect.placeholders(locked)
    tx.execute(f"DELETE FROM orbit_attempt WHERE task_id IN ({marks})", locked)
    return tx.execute(f"DELETE FROM orbit_task WHERE task_id IN ({marks})", locked)


# -- firings of plans, whose numbers rise with time


def _look_at_firings(tx: Tx, after: int, cutoff: int, size: int) -> Looked:
    rows = tx.rows(
        f"SELECT id, task_id, created_at FROM orbit_plan_firing WHERE id > %s ORDER BY id LIMIT {size}", [after]
    )
    old = [row for row in rows if row[2] < cutoff]
    return _looked(rows if len(old) == len(rows) else [], size, _of_ended_tasks(tx, old))


register(Kind("tasks", lambda: settings.ORBIT.retain_tasks_days, "", _look_at_tasks, _delete_tasks))
register(with_task("events", "orbit_event", "event_id", lambda: settings.ORBIT.retain_events_days))
register(with_task("receipts", "orbit_idempotency_record", "record_id", lambda: settings.ORBIT.retain_receipts_days))
register(
    Kind(
        "firings",
        lambda: settings.ORBIT.retain_tasks_days,
        0,
        _look_at_firings,
        lambda tx, doomed, cutoff: _delete(tx, "orbit_plan_firing", "id", doomed),
    )
)
register(aged("audit", "orbit_audit_entry", "audit_id", lambda: settings.ORBIT.retain_audit_days))


# -- running


@dataclass(frozen=True, slots=True)
class Pace:
    """How many rows the next batch looks at."""

    rows: int = 100

    def after(self, seconds: float) -> Pace:
        """Half as many after a batch that took too long, up to twice as many after a quick one."""
        if seconds > BATCH_SECONDS_MAX:
            return Pace(max(ROWS_MIN, self.rows // 2))
        return Pace(min(ROWS_MAX, self.rows * 2)) if seconds < BATCH_SECONDS_MAX / 2 else self


def rest_seconds(worked_seconds: float) -> float:
    """How long to rest after a batch, so that retention takes a fifth of one connection at most."""
    return min(REST_SECONDS_MAX, max(REST_SECONDS_MIN, worked_seconds * REST_RATIO))


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch did: rows deleted (or that would be), how long it took, whether the kind is done."""

    kind: str
    rows: int
    seconds: float
    is_last: bool


def run(kind: Kind, *, dry_run: bool = False) -> Iterator[Batch]:
    """Batch by batch through the rows of a kind; the caller rests between two, and may stop at any time.

    Each batch is committed when it is given. `dry_run` only reads.
    """
    with reading() as tx:
        cutoff = tx.now_us - kind.days() * MS_PER_DAY * US_PER_MS
    pace, after = Pace(), kind.start
    while after is not None:
        began = time.monotonic()
        with reading() as tx:
            looked = kind.look(tx, after, cutoff, pace.rows)
        deleted = len(looked.doomed)
        if looked.doomed and not dry_run:
            deleted = unit(lambda tx, looked=looked: kind.delete(tx, looked.doomed, cutoff))  # type: ignore[misc]
            telemetry.PRUNED.labels(kind=kind.name).inc(deleted)
            faults.point("retention.committed")
        seconds = time.monotonic() - began
        pace, after = pace.after(seconds), looked.after
        yield Batch(kind.name, deleted, seconds, is_last=after is None)


class Retention:
    """Retention of one process, one batch at a time: for a maintenance loop."""

    def __init__(self, rest: Callable[[float], object] = time.sleep) -> None:
        self._rest = rest
        self._batches: Iterator[Batch] | None = None

    def step(self) -> bool:
        """One batch and the rest after it; False when every kind has been walked to its end, until it is called again.

        After a failure it begins anew.
        """
        if self._batches is None:
            self._batches = (batch for kind in kinds() for batch in run(kind))
        try:
            batch = next(self._batches, None)
        except BaseException:
            self._batches = None
            raise
        if batch is None:
            self._batches = None
            return False
        self._rest(rest_seconds(batch.seconds))
        return True
