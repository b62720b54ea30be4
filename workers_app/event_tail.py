"""What happened on other nodes: one read of the newest events every 100 ms, told as hints (design 3.4).

A hint never authorises anything, so this read may be cheap and a little blind: an event whose transaction commits after
younger ones were read may be missed, which costs a scan cycle at most. Events of this process's own commits were told
already and are left out.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from tasks_app import ids
from tasks_app.hints import Hint, HintKind
from tasks_app.instants import US_PER_MS
from tasks_app.states import EventType, TaskState
from tasks_app.transactions import reading

ROWS_MAX = 500
LOOK_BACK_US = 300 * US_PER_MS  # events that committed a little late are still seen
OWN_SECONDS = 2.0
OWN_MAX = 50_000

_WAITS_FOR_CLAIM = frozenset({TaskState.READY.value})
_FREES = frozenset(
    state.value
    for state in (
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.CANCELED,
        TaskState.EXPIRED,
        TaskState.UNKNOWN,
        TaskState.SCHEDULED,
    )
)


@dataclass(frozen=True, slots=True)
class TailEvent:
    """One event as the tail shows it."""

    event_id: str
    namespace_id: str
    queue_id: str
    task_id: str
    type: str
    state: str


class EventTail:
    """The newest events of all namespaces. `own(hint)` is told what this process committed; `read` runs in a thread."""

    def __init__(self) -> None:
        self._after: str | None = None
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._own: OrderedDict[str, float] = OrderedDict()

    def own(self, hint: Hint) -> None:
        """A commit of this process touched a task."""
        if hint.task_id:
            self._own[hint.task_id] = time.monotonic()
            self._own.move_to_end(hint.task_id)
            if len(self._own) > OWN_MAX:
                self._own.popitem(last=False)

    def read(self) -> tuple[list[TailEvent], int]:
        """The events since the last read (none on the first), and the database's clock. More than can be told one by
        one are left out: the node is busy then, and looks by itself."""
        with reading() as tx:
            now_us = tx.now_us
            floor = ids.id_floor(now_us - LOOK_BACK_US)
            if self._after is None:
                self._after = ids.id_floor(now_us)
                return [], now_us
            rows = tx.rows(
                "SELECT event_id, namespace_id, queue_id, task_id, type, state FROM orbit_event WHERE event_id > %s"
                f" ORDER BY event_id DESC LIMIT {ROWS_MAX}",
                [min(self._after, floor)],
            )
        events = [TailEvent(*row) for row in reversed(rows)]
        if events:
            self._after = max(self._after, events[-1].event_id)
        return events, now_us

    def news(self, events: Iterable[TailEvent]) -> list[Hint]:
        """In the loop: the hints that those events are worth, each event once."""
        now = time.monotonic()
        found: list[Hint] = []
        for event in events:
            if event.event_id in self._seen:
                continue
            self._seen[event.event_id] = None
            if len(self._seen) > ROWS_MAX * 4:
                self._seen.popitem(last=False)
            is_own = now - self._own.get(event.task_id, float("-inf")) < OWN_SECONDS
            # What takes something from a worker is told whoever wrote it: a holder that knows already does nothing.
            if event.type == EventType.CANCEL_REQUESTED:
                found.append(_hint(HintKind.CANCEL_REQUESTED, event, detail="REQUESTED"))
            if event.state in (TaskState.CANCELED.value, TaskState.EXPIRED.value):
                found.append(_hint(HintKind.RESERVATION_REVOKED, event, detail=event.state))
            if is_own:
                continue
            found.append(_hint(HintKind.TASK_CHANGED, event))
            if event.state in _WAITS_FOR_CLAIM:
                found.append(_hint(HintKind.WORK_ADDED, event))
            if event.state in _FREES and event.type != EventType.ACCEPTED:
                found.append(_hint(HintKind.PERMIT_FREED, event))
        return found


def _hint(kind: HintKind, event: TailEvent, *, detail: str = "") -> Hint:
    return Hint(kind, namespace_id=event.namespace_id, queue_id=event.queue_id, task_id=event.task_id, detail=detail)
