"""Looking at events: those of one task, and the feed of a namespace (design 1.4).

Events get their place in the feed after the commit that wrote them, one at a time and in that order, so that no reader
can pass an event that commits late. An event that has no place yet is not in the feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tasks_app import dialect
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import NotFound
from tasks_app.transactions import reading


@dataclass(frozen=True, slots=True)
class EventView:
    """An event as it is shown. `position` is its place in the feed, None until it has one; `data` is JSON text or
    None."""

    event_id: str
    type: str
    task_id: str
    queue_id: str
    revision: int
    state: str
    created_at: int
    data: str | None
    position: int | None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """`next_position` is where to go on, also at the end of the feed."""

    events: Sequence[EventView]
    next_position: int


_COLUMNS: Final = "event_id, type, task_id, queue_id, revision, state, created_at, data, position"


def of_task(principal: Principal, task_id: str, *, limit: int, after: str | None) -> tuple[list[EventView], str | None]:
    """Up to `limit` events of a task, oldest first, and the event id to go on after (None at the end).

    Raises NotFound, PermissionDenied.
    """
    with reading() as tx:
        row = tx.row(
            "SELECT queue_id FROM orbit_task WHERE task_id = %s AND namespace_id = %s",
            [task_id, principal.namespace_id],
        )
        if row is None:
            raise NotFound("no such task")
        principal.require_queue(row[0])
        rows = tx.rows(
            f"SELECT {_COLUMNS} FROM orbit_event WHERE task_id = %s AND event_id > %s"
            f" ORDER BY event_id LIMIT {limit + 1}",
            [task_id, after or ""],
        )
    events = [EventView(*row) for row in rows[:limit]]
    return events, events[-1].event_id if len(rows) > limit else None


def feed(principal: Principal, *, limit: int, after: int) -> FeedPage:
    """Up to `limit` events behind position `after` that the credential may see, in the order of the feed."""
    where, params = "namespace_id = %s AND position > %s", [principal.namespace_id, after]
    if principal.queue_scope is not None:
        if not principal.queue_scope:
            return FeedPage((), max(after, head_position(principal.namespace_id)))
        where = f"{where} AND queue_id IN ({dialect.placeholders(sorted(principal.queue_scope))})"
        params += sorted(principal.queue_scope)
    # The head first: what gets its place between the two looks is then read next time, not passed over.
    head = head_position(principal.namespace_id)
    with reading() as tx:
        rows = tx.rows(
            f"SELECT {_COLUMNS} FROM orbit_event WHERE {where} ORDER BY position LIMIT {limit}",
            params,
        )
    events = [EventView(*row) for row in rows]
    if len(events) == limit:
        return FeedPage(events, _position(events[-1]))
    return FeedPage(events, max(head, after, *(_position(event) for event in events[-1:])))


def start_after(principal: Principal, event_id: str) -> int:
    """A position from which everything behind that event is read: nothing is passed over, some may come again.

    An event without a place gets one behind the head; of one that is no longer kept, everything kept lies behind.
    """
    head = head_position(principal.namespace_id)
    with reading() as tx:
        row = tx.row(
            "SELECT position FROM orbit_event WHERE event_id = %s AND namespace_id = %s",
            [event_id, principal.namespace_id],
        )
    if row is None:
        return 0
    return head if row[0] is None else int(row[0])


def head_position(namespace_id: str) -> int:
    """The last place that was given in the feed."""
    with reading() as tx:
        row: Sequence[Any] | None = tx.row(
            "SELECT position FROM orbit_event_head WHERE namespace_id = %s", [namespace_id]
        )
    return 0 if row is None else int(row[0])


def _position(event: EventView) -> int:
    return event.position or 0
