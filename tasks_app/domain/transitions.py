"""The one place where a task's state changes (design 3.1).

A verb decides and calls `Ledger.move`; the ledger collects guarded updates, events, attempts, permits and counters of
all tasks of the unit and writes them in the documented lock order:

    task rows (locked by the verb) -> resource keys -> [inserts] -> queue rows -> application rows

Rows that change alike are written by one statement, each guarded by id, expected state and fencing token; a row count
that differs from what was locked means that another actor was first although it could not be: the whole unit is
refused.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tasks_app import dialect, ids
from tasks_app.columns import EVENT_COLUMNS
from tasks_app.domain import resources
from tasks_app.domain.quotas import counter_statements
from tasks_app.domain.task_rows import TaskRow
from tasks_app.hints import Hint, HintKind, publish
from tasks_app.states import ENDS, HOLDS_RESOURCE_KEY, LEASED, AttemptState, EventType, Lane, TaskState, is_move
from tasks_app.telemetry import task_ended
from tasks_app.transactions import Tx, insert_statement

_NO_HOLDER: dict[str, Any] = {"attempt_id": None, "session_id": None, "lease_until": None, "started_at": None}
_EVENTS_WITHOUT_REVISION = frozenset({EventType.YIELDED, EventType.PROGRESS})


class IllegalMove(Exception):
    """A move outside the table of states: a fault of the calling code, never of a request."""


class StaleGuard(Exception):
    """A guarded update matched fewer rows than were locked. The unit is rolled back."""


class Ledger:
    """The changes of one unit, written by `flush`."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self._moves: dict[tuple[Any, ...], list[tuple[TaskRow, dict[str, Any]]]] = defaultdict(list)
        self._statements: list[tuple[str, Sequence[Any]]] = []
        self._events: list[Sequence[Any]] = []
        self._attempts: list[tuple[str, str, bytes | None, str | None]] = []
        self._queues: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._applications: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._resources = resources.Changes()
        self._hints: list[Hint] = []
        self._ended: list[TaskState] = []

    def move(
        self,
        task: TaskRow,
        to: TaskState,
        *,
        event: EventType | None = None,
        data: dict[str, Any] | None = None,
        changes: dict[str, Any] | None = None,
    ) -> TaskRow:
        """Moves a locked task to `to`. `changes` are further columns. Returns the row as it will be.

        Permits, counters, lease columns, lane, revision and the event follow from the two states; nobody else sets
        them.
        """
        before = task.state
        if not is_move(before, to):
            raise IllegalMove(f"{before} -> {to}")
        columns: dict[str, Any] = {"state": to.value, **(changes or {})}
        if before in LEASED and to not in LEASED:
            columns |= _NO_HOLDER
        if to is TaskState.READY:
            columns.setdefault("lane", (Lane.OPEN if task.resource_ref is None else Lane.HELD).value)
        elif before is TaskState.READY:
            columns |= {"lane": Lane.OPEN.value, "visible_at": None}
        if to in ENDS:
            columns["finished_at"] = self.tx.now_us
            self._ended.append(to)
        elif to is TaskState.UNKNOWN:
            self._ended.append(to)
        self._write(task, columns, event, data)
        self._count(task, before, to)
        task.state = to
        return task

    def note(
        self,
        task: TaskRow,
        *,
        event: EventType | None,
        data: dict[str, Any] | None = None,
        changes: dict[str, Any] | None = None,
    ) -> TaskRow:
        """Changes other columns of a locked task and keeps its state (a cancel request, a dismissal, a new lease)."""
        self._write(task, dict(changes or {}), event, data)
        return task

    def enter_line(self, task: TaskRow) -> TaskRow:
        """A yielded task whose delay is over stands in the line again, at the place that it never lost."""
        if task.state is not TaskState.READY or task.lane != Lane.YIELDED:
            raise IllegalMove(f"{task.state} in lane {task.lane} is not yielded")
        lane = Lane.OPEN if task.resource_ref is None else Lane.HELD
        self._write(task, {"lane": lane.value, "visible_at": None}, None, None)
        if task.resource_ref is not None:
            self._resources.note(task.resource_ref, held=0, group=(task.queue_id, task.handler_ref))
        self._hints.append(self._work_added(task))
        return task

    def also(self, sql: str, params: Sequence[Any]) -> None:
        """A further statement of this unit (attempts, audit), run after the tasks' own."""
        self._statements.append((sql, params))

    def end_attempt(
        self, attempt_id: str, state: AttemptState, *, report_digest: bytes | None = None, error: str | None = None
    ) -> None:
        """Ends a RUNNING attempt; all of a unit are written by one statement."""
        self._attempts.append((attempt_id, state.value, report_digest, error))

    def hint(self, hint: Hint) -> None:
        self._hints.append(hint)

    def flush(self) -> None:
        """Writes everything collected so far. Raises StaleGuard, or QueueLimit / ApplicationLimit from the counters."""
        updates = [self._update(shape, rows) for shape, rows in self._moves.items()]
        expected = [len(rows) for rows in self._moves.values()]
        script: list[tuple[str, Sequence[Any]]] = list(updates)
        keyed = bool(self._resources)
        rest: list[tuple[str, Sequence[Any]]] = list(self._statements)
        if self._attempts:
            rest.append(self._end_attempts())
        if self._events:
            rest.append(insert_statement("orbit_event", EVENT_COLUMNS, self._events))
        counters, check = counter_statements(self._queues, self._applications)
        if keyed:
            # The key's row decides lanes, and its waiters are looked at after the tasks moved: a round trip of its own.
            _expect(self.tx.script(script), expected)
            resources.settle(self.tx, self._resources)
            check(self.tx.script([*rest, *counters])[len(rest) :])
        else:
            counts = self.tx.script([*script, *rest, *counters])
            _expect(counts[: len(expected)], expected)
            check(counts[len(expected) + len(rest) :])
        self._announce()
        self._moves.clear()
        self._statements, self._attempts, self._events, self._hints, self._ended = [], [], [], [], []
        self._queues.clear()
        self._applications.clear()
        self._resources = resources.Changes()

    def _write(
        self, task: TaskRow, columns: dict[str, Any], event: EventType | None, data: dict[str, Any] | None
    ) -> None:
        if event is not None:
            if event not in _EVENTS_WITHOUT_REVISION:
                columns["revision"] = task.revision + 1
                columns["updated_at"] = self.tx.now_us
            state = columns.get("state", task.state.value)
            self._events.append(
                (
                    ids.new_id(self.tx.now_us),
                    task.namespace_id,
                    task.task_id,
                    task.queue_id,
                    event.value,
                    columns.get("revision", task.revision),
                    state,
                    self.tx.now_us,
                    json.dumps(data, ensure_ascii=False, separators=(",", ":")) if data else None,
                )
            )
            self._hints.append(
                Hint(
                    HintKind.TASK_CHANGED, namespace_id=task.namespace_id, queue_id=task.queue_id, task_id=task.task_id
                )
            )
        if columns:
            # The guard is what the row was when it was locked; what it becomes is remembered on the row object.
            self._moves[task.state, tuple(columns)].append((_guard(task), columns))
        for name, value in columns.items():
            if name != "state" and hasattr(task, name):
                setattr(task, name, value)

    def _update(self, shape: tuple[Any, ...], rows: list[tuple[TaskRow, dict[str, Any]]]) -> tuple[str, list[Any]]:
        before, names = shape
        rows.sort(key=lambda row: row[0].task_id)
        task_ids = [task.task_id for task, _ in rows]
        assignments: list[str] = []
        params: list[Any] = []
        for name in names:
            sql, column_params = _assign(name, "task_id", task_ids, [columns[name] for _, columns in rows])
            assignments.append(sql)
            params += column_params
        tokens = [task.fencing_token for task, _ in rows]
        if all(token == tokens[0] for token in tokens):
            guard, guard_params = "%s", [tokens[0]]
        else:
            guard, guard_params = dialect.case_by_id(
                "task_id", [(task.task_id, task.fencing_token) for task, _ in rows]
            )
        sql = (
            f"UPDATE orbit_task SET {', '.join(assignments)}"
            f" WHERE task_id IN ({dialect.placeholders(rows)}) AND state = %s AND fencing_token = {guard}"
        )
        return sql, [*params, *task_ids, before.value, *guard_params]

    def _end_attempts(self) -> tuple[str, list[Any]]:
        rows = sorted(self._attempts, key=lambda row: row[0])
        attempt_ids, *columns = zip(*rows, strict=True)
        assignments: list[str] = []
        params: list[Any] = []
        for name, values in zip(("state", "report_digest", "error"), columns, strict=True):
            sql, column_params = _assign(name, "attempt_id", attempt_ids, values)
            assignments.append(sql)
            params += column_params
        sql = (
            f"UPDATE orbit_attempt SET {', '.join(assignments)}, finished_at = %s"
            f" WHERE attempt_id IN ({dialect.placeholders(rows)}) AND state = %s"
        )
        return sql, [*params, self.tx.now_us, *attempt_ids, AttemptState.RUNNING.value]

    def _count(self, task: TaskRow, before: TaskState, to: TaskState) -> None:
        unfinished = -1 if to in ENDS else 0
        running = (to in LEASED) - (before in LEASED)
        if unfinished or running:
            for counters in (self._queues[task.queue_id], self._applications[task.application_id]):
                counters[0] += unfinished
                counters[1] += running
        if task.resource_ref is not None:
            held = (to in HOLDS_RESOURCE_KEY) - (before in HOLDS_RESOURCE_KEY)
            self._resources.note(
                task.resource_ref,
                held=held,
                group=(task.queue_id, task.handler_ref) if TaskState.READY in (before, to) else None,
            )
        if running < 0 or unfinished:
            self._hints.append(Hint(HintKind.PERMIT_FREED, namespace_id=task.namespace_id, queue_id=task.queue_id))
        if to is TaskState.READY:
            self._hints.append(self._work_added(task))

    @staticmethod
    def _work_added(task: TaskRow) -> Hint:
        return Hint(
            HintKind.WORK_ADDED,
            namespace_id=task.namespace_id,
            queue_id=task.queue_id,
            task_id=task.task_id,
            handler_ref=task.handler_ref,
            priority=task.priority,
        )

    def _announce(self) -> None:
        hints, ended = tuple(self._hints), tuple(self._ended)

        def tell() -> None:
            publish(*hints)
            task_ended(ended)

        if hints or ended:
            self.tx.after_commit(tell)


def _assign(column: str, key: str, keys: Sequence[str], values: Sequence[Any]) -> tuple[str, list[Any]]:
    """`column = …` for rows that are told apart by `key`; a CASE only where their values differ."""
    if all(value == values[0] for value in values):
        return f"{column} = %s", [values[0]]
    sql, params = dialect.case_by_id(key, list(zip(keys, values, strict=True)))
    return f"{column} = {sql}", params


def _guard(task: TaskRow) -> TaskRow:
    """The identity and token that the update is guarded by, as they are now."""
    copy = object.__new__(TaskRow)
    copy.task_id, copy.fencing_token = task.task_id, task.fencing_token
    return copy


def _expect(counts: Sequence[int], expected: Sequence[int]) -> None:
    if list(counts) != list(expected):
        raise StaleGuard(f"guarded updates matched {counts} rows, {expected} were locked")
