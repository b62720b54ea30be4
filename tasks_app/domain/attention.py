"""What needs a person now, and where work piles up. Reads for operators, over every tenant.

Counts stop at `COUNTED_MAX`: an operator needs to know that it is many, and a page must not count millions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.conf import settings

from tasks_app.domain import statistics
from tasks_app.domain.tenancy import operator_of
from tasks_app.instants import US_PER_SECOND
from tasks_app.transactions import Tx, reading

COUNTED_MAX: Final = 1000
GROUPED_MAX: Final = 5000  # dead letters that are looked at to group them
SILENT_NODE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Need:
    """One kind of thing that waits for a person. `count` is at most one more than `COUNTED_MAX`."""

    count: int
    oldest_at: int | None

    @property
    def has_more(self) -> bool:
        return self.count > COUNTED_MAX


def tasks_needing(kind: str) -> Need:
    """`UNKNOWN` or `DEAD` tasks and since when the oldest of them is so; read from the index of exactly those."""
    count, oldest = 0, None
    with reading() as tx:
        for (namespace_id,) in tx.rows("SELECT namespace_id FROM orbit_namespace"):
            ((found, first),) = tx.rows(
                "SELECT COUNT(*), MIN(task_id) FROM (SELECT task_id FROM orbit_task WHERE namespace_id = %s"
                f" AND attention = %s ORDER BY task_id LIMIT {COUNTED_MAX + 1}) needing",
                [namespace_id, kind],
            )
            count += int(found)
            if first is not None:
                ((since,),) = tx.rows("SELECT updated_at FROM orbit_task WHERE task_id = %s", [first])
                oldest = since if oldest is None else min(oldest, since)
    return Need(min(count, COUNTED_MAX + 1), oldest)


def full_queues() -> Need:
    """Queues that refuse, or whose every running permit is taken."""
    return _of_queues(
        "(max_unfinished IS NOT NULL AND unfinished >= max_unfinished)"
        " OR (max_running IS NOT NULL AND running >= max_running)"
    )


def paused_queues() -> Need:
    return _of_queues("paused = 1")


def _of_queues(where: str) -> Need:
    with reading() as tx:
        ((count, oldest),) = tx.rows(f"SELECT COUNT(*), MIN(updated_at) FROM orbit_queue WHERE {where}")
    return Need(int(count), oldest)


def silent_nodes() -> Need:
    """Nodes that neither said good-bye nor gave a sign for `SILENT_NODE_SECONDS`."""
    with reading() as tx:
        now_us = _now(tx)
        ((count, oldest),) = tx.rows(
            "SELECT COUNT(*), MIN(heartbeat_at) FROM orbit_node WHERE state <> 'STOPPED' AND heartbeat_at < %s",
            [now_us - SILENT_NODE_SECONDS * US_PER_SECOND],
        )
    return Need(int(count), oldest)


# -- backlog


@dataclass(frozen=True, slots=True)
class Cell:
    priority: int
    waiting: int
    oldest_seconds: int
    is_starving: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A queue with something waiting in it."""

    queue_id: str
    name: str
    paused: bool
    cells: tuple[Cell, ...]


def backlog() -> list[Line]:
    """Every queue with due work that nobody holds, by namespace and name; priorities highest first."""
    alert_ms = settings.ORBIT.starvation_alert_ms
    lines = []
    with reading() as tx:
        queues = tx.rows(
            "SELECT q.queue_id, q.namespace_id, n.name, q.name, q.paused FROM orbit_queue q"
            " JOIN orbit_namespace n ON n.namespace_id = q.namespace_id WHERE q.unfinished > 0 ORDER BY n.name, q.name"
        )
    for queue_id, namespace_id, namespace, name, paused in queues:
        found = statistics.of_queue(operator_of(namespace_id), queue_id)
        cells = tuple(
            Cell(
                priority,
                count,
                found.oldest_waiting_ms[priority] // 1000,
                is_starving=found.oldest_waiting_ms[priority] >= alert_ms,
            )
            for priority, count in found.backlog.items()
        )
        if cells:
            lines.append(Line(queue_id, f"{namespace} / {name}", bool(paused), cells))
    return lines


def starving(lines: list[Line]) -> Need:
    """Tiers whose oldest task has waited longer than the alert says."""
    with reading() as tx:
        now_us = _now(tx)
    waits = [cell.oldest_seconds for line in lines for cell in line.cells if cell.is_starving]
    return Need(len(waits), now_us - max(waits) * US_PER_SECOND if waits else None)


# -- dead letters


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead letters of one queue, handler and error code."""

    namespace_id: str
    queue_id: str
    queue: str
    handler: str
    error_code: str
    count: int
    sample_id: str


def dead_groups() -> tuple[list[DeadGroup], bool]:
    """The oldest `GROUPED_MAX` dead letters of each namespace, grouped, most first; and whether there are more."""
    groups: list[DeadGroup] = []
    is_cut = False
    with reading() as tx:
        for namespace_id, namespace in tx.rows("SELECT namespace_id, name FROM orbit_namespace"):
            rows = tx.rows(
                "SELECT t.queue_id, q.name, h.handler, t.error_code, COUNT(*), MIN(t.task_id) FROM"
                " (SELECT task_id, queue_id, handler_ref, error_code FROM orbit_task WHERE namespace_id = %s"
                f" AND attention = 'DEAD' ORDER BY task_id LIMIT {GROUPED_MAX}) t"
                " JOIN orbit_queue q ON q.queue_id = t.queue_id JOIN orbit_handler h ON h.handler_ref = t.handler_ref"
                " GROUP BY t.queue_id, q.name, h.handler, t.error_code",
                [namespace_id],
            )
            is_cut = is_cut or sum(int(row[4]) for row in rows) == GROUPED_MAX
            groups += [
                DeadGroup(namespace_id, queue_id, f"{namespace} / {queue}", handler, code or "", int(count), sample)
                for queue_id, queue, handler, code, count, sample in rows
            ]
    return sorted(groups, key=lambda group: (-group.count, group.queue, group.handler)), is_cut


def _now(tx: Tx) -> int:
    ((now_us,),) = tx.rows(f"SELECT {tx.now_sql}")
    return int(now_us)
