"""The feed of a namespace: every event once in one order, at least once to every reader, none passed over (design 1.4).

An event gets its position after the commit that wrote it, from whoever reads the feed next, one reader at a time under
the row lock of the namespace's `EventHead`. A reader goes on behind the last position it saw, so what commits late gets
a later position and is read later, however long its transaction was open (docs/decisions/event-feed.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tasks_app import dialect, faults
from tasks_app.domain import event_reads
from tasks_app.domain.event_reads import FeedPage
from tasks_app.domain.tenancy import Principal
from tasks_app.transactions import Tx, reading, unit

SEQUENCE_BATCH: Final = 1000  # events that get their position in one unit
_ROUNDS_MAX: Final = 20  # batches that one read works through for a credential that may see few of the events
_STATEMENT_ROWS: Final = 100  # rows of one UPDATE: a CASE is looked through arm by arm
_INDEX: Final = "event_position_unique"


def read_feed(principal: Principal, *, after: int, limit: int) -> FeedPage:
    """Up to `limit` events behind position `after` that the credential may see, and where to go on.

    What GET /v1/events calls. Positions are given first, and only when the events that have one do not fill the page:
    a reader that is behind locks nothing. The cursor advances past events outside the credential's scope. An empty page
    is the end of the feed, but for a credential that may see less than one event in `SEQUENCE_BATCH * _ROUNDS_MAX`: it
    asks again from `next_position`.
    """
    page = event_reads.feed(principal, limit=limit, after=after)
    for _ in range(_ROUNDS_MAX):
        if len(page.events) == limit or not sequence(principal.namespace_id):
            break
        page = event_reads.feed(principal, limit=limit, after=after)
    return page


def has_news(namespace_id: str, *, after: int) -> bool:
    """Whether a reader that has seen the feed up to `after` would find more: one cheap look, no lock."""
    with reading() as tx:
        return event_reads.head_position(namespace_id) > after or _has_unplaced(tx, namespace_id)


def sequence(namespace_id: str, *, limit: int = SEQUENCE_BATCH) -> int:
    """Gives positions to the first `limit` (or a few more) committed events that have none. Returns how many."""
    with reading() as tx:
        if not _has_unplaced(tx, namespace_id):
            return 0
    # Run again after a lost COMMIT, it finds what it placed and goes on behind it.
    return unit(lambda tx: _sequence_in(tx, namespace_id, limit), on_unknown=lambda: 1)


@dataclass(frozen=True, slots=True)
class _Unplaced:
    created_at: int
    event_id: str
    task_id: str
    revision: int


def _sequence_in(tx: Tx, namespace_id: str, limit: int) -> int:
    # Held to the end: the next giver of positions starts behind ours, and only once ours are visible to readers.
    ((head,),) = tx.rows(
        f"SELECT position FROM orbit_event_head WHERE namespace_id = %s{dialect.for_update(tx.connection)}",
        [namespace_id],
    )
    placed = in_order(_unplaced(tx, namespace_id, limit))
    if not placed:
        return 0
    positions = [(event.event_id, head + number) for number, event in enumerate(placed, start=1)]
    tx.script([_place(positions[i : i + _STATEMENT_ROWS]) for i in range(0, len(positions), _STATEMENT_ROWS)])
    tx.execute(
        "UPDATE orbit_event_head SET position = %s WHERE namespace_id = %s", [head + len(positions), namespace_id]
    )
    faults.point("event_feed.before_commit")
    return len(positions)


def _index(tx: Tx) -> str:
    # SQLite gives the index of a UNIQUE a name of its own, and takes it unasked.
    return dialect.force_index(tx.connection, _INDEX) if tx.is_mysql else ""


def _has_unplaced(tx: Tx, namespace_id: str) -> bool:
    index = _index(tx)
    sql = f"SELECT 1 FROM orbit_event{index} WHERE namespace_id = %s AND position IS NULL LIMIT 1"
    return tx.row(sql, [namespace_id]) is not None


def _unplaced(tx: Tx, namespace_id: str, limit: int) -> list[_Unplaced]:
    """The oldest events without a position, and with each of their tasks all of them.

    There is no ORDER BY: the index gives the rows as they were written, an order that no engine promises and that
    nothing depends on, while a promised one would sort the whole backlog for each batch of it. Because every visible
    event of a task that is not placed yet is among them, the order of one task's events does not depend on where the
    batch ends.
    """
    index = _index(tx)
    first = tx.rows(
        f"SELECT event_id FROM orbit_event{index} WHERE namespace_id = %s AND position IS NULL LIMIT {limit}",
        [namespace_id],
    )
    if not first:
        return []
    event_ids = [event_id for (event_id,) in first]
    columns = "created_at, event_id, task_id, revision"
    found = {
        values[1]: _Unplaced(*values)
        for values in tx.rows(
            f"SELECT {columns} FROM orbit_event"
            f" WHERE event_id IN ({dialect.placeholders(event_ids)}) AND position IS NULL",
            event_ids,
        )
    }
    task_ids = sorted({event.task_id for event in found.values()})
    for values in tx.rows(
        f"SELECT {columns} FROM orbit_event"
        f" WHERE task_id IN ({dialect.placeholders(task_ids)}) AND event_id >= %s AND position IS NULL",
        [*task_ids, min(event_ids)],
    ):
        found[values[1]] = _Unplaced(*values)
    return list(found.values())


def in_order(events: Iterable[_Unplaced]) -> list[_Unplaced]:
    """By time, and the events of one task by revision.

    A unit reads the clock before it waits for a row's lock, so the later of two changes of a task may have the earlier
    time. Such events change places among themselves; the places stay where time put them.
    """
    by_time = sorted(events, key=lambda event: (event.created_at, event.event_id))
    of_task: dict[str, list[_Unplaced]] = defaultdict(list)
    for event in by_time:
        of_task[event.task_id].append(event)
    next_of_task = {
        task_id: iter(sorted(mine, key=lambda event: (event.revision, event.created_at, event.event_id)))
        for task_id, mine in of_task.items()
    }
    return [next(next_of_task[event.task_id]) for event in by_time]


def _place(positions: Sequence[tuple[str, int]]) -> tuple[str, list[object]]:
    """An event that retention deleted meanwhile leaves a gap, which no reader minds."""
    case, params = dialect.case_by_id("event_id", positions)
    sql = (
        f"UPDATE orbit_event SET position = {case}"
        f" WHERE event_id IN ({dialect.placeholders(positions)}) AND position IS NULL"
    )
    return sql, [*params, *(event_id for event_id, _ in positions)]
