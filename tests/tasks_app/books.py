"""The books: what counters, permits, revisions and events must say after any test, counted again from the rows.

These are the invariants N4, N8, N9, N10, N15 and N19 at rest. Written against the tables, not the domain's code.
"""

from __future__ import annotations

from typing import Any

from django.db import connection

from tasks_app.states import EventType

_UNFINISHED = "state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'EXPIRED')"
_LEASED = "state IN ('RESERVED', 'RUNNING')"
_KEEPS_KEY = "state IN ('RESERVED', 'RUNNING', 'UNKNOWN')"
_WITHOUT_REVISION = f"('{EventType.YIELDED}', '{EventType.PROGRESS}')"


def assert_balanced() -> None:
    """Fails with everything that does not add up."""
    found = [fault for check in (_counters, _permits, _waiters, _histories, _attempts, _records) for fault in check()]
    assert not found, "the books do not balance:\n" + "\n".join(found)


def _rows(sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _counters() -> list[str]:
    """Counters of queues and applications are exactly the tasks they count."""
    found = []
    for table, key in (("orbit_queue", "queue_id"), ("orbit_application", "application_id")):
        for identity, unfinished, running, counted_unfinished, counted_running in _rows(
            f"SELECT c.{key}, c.unfinished, c.running, COALESCE(SUM({_UNFINISHED}), 0), COALESCE(SUM({_LEASED}), 0)"
            f" FROM {table} c LEFT JOIN orbit_task t ON t.{key} = c.{key} GROUP BY c.{key}, c.unfinished, c.running"
        ):
            if (unfinished, running) != (counted_unfinished, counted_running):
                found.append(
                    f"{table} {identity}: unfinished {unfinished}, running {running}; the tasks say"
                    f" {counted_unfinished} and {counted_running}"
                )
    return found


def _permits() -> list[str]:
    """Permits held are the tasks that hold them, and never more than the namespace allows."""
    found = []
    for ref, held, limit, counted in _rows(
        f"SELECT k.resource_ref, k.held, n.resource_limit, COALESCE(SUM({_KEEPS_KEY}), 0) FROM orbit_resource_key k"
        " JOIN orbit_namespace n ON n.namespace_id = k.namespace_id"
        " LEFT JOIN orbit_task t ON t.resource_ref = k.resource_ref GROUP BY k.resource_ref, k.held, n.resource_limit"
    ):
        if held != counted:
            found.append(f"resource key {ref}: held {held}, but {counted} tasks hold it")
        if counted > limit:
            found.append(f"resource key {ref}: {counted} tasks hold it, the limit is {limit}")
    return found


def _waiters() -> list[str]:
    """In each queue and handler the first waiters of a key, as many as it has free permits, are open to claims.

    A waiter that had to be passed over because another transaction held it is announced by `recheck_at`.
    """
    found = []
    by_group: dict[tuple[int, str, int], list[tuple[str, int]]] = {}
    free = {
        ref: (limit - held, recheck_at is not None)
        for ref, held, limit, recheck_at in _rows(
            "SELECT k.resource_ref, k.held, n.resource_limit, k.recheck_at FROM orbit_resource_key k"
            " JOIN orbit_namespace n ON n.namespace_id = k.namespace_id"
        )
    }
    for ref, queue_id, handler_ref, task_id, lane in _rows(
        "SELECT resource_ref, queue_id, handler_ref, task_id, lane FROM orbit_task"
        " WHERE resource_ref IS NOT NULL AND state = 'READY' AND lane IN (1, 2)"
        " ORDER BY resource_ref, queue_id, handler_ref, tier, dispatch_at, available_at, task_id"
    ):
        by_group.setdefault((ref, queue_id, handler_ref), []).append((task_id, lane))
    for (ref, queue_id, handler_ref), waiters in by_group.items():
        permits, recheck = free[ref]
        open_ones = [place for place, (_, lane) in enumerate(waiters) if lane == 1]
        # A KEYED task without a permit is harmless: its claim finds out at the key's row. A HELD one that should be
        # KEYED would be forgotten, unless maintenance was told to look again.
        wanted = set(range(min(max(0, permits), len(waiters))))
        if not recheck and not wanted <= set(open_ones):
            found.append(
                f"key {ref}, queue {queue_id}, handler {handler_ref}: open {open_ones}, wanted {sorted(wanted)}"
            )
    return found


def _histories() -> list[str]:
    """Revisions of an accepted task have no gap and one event each; what was claimed or given back left none."""
    found = []
    revisions: dict[str, list[int]] = {}
    for task_id, revision in _rows(
        f"SELECT task_id, revision FROM orbit_event WHERE type NOT IN {_WITHOUT_REVISION} ORDER BY task_id, event_id"
    ):
        revisions.setdefault(task_id, []).append(revision)
    for task_id, revision in _rows(
        "SELECT t.task_id, t.revision FROM orbit_task t JOIN orbit_idempotency_record r ON r.task_id = t.task_id"
    ):
        seen = revisions.get(task_id)
        if seen != list(range(1, revision + 1)):
            found.append(f"task {task_id}: revision {revision}, events say {seen}")
    return found


def _attempts() -> list[str]:
    """Every start left one attempt; tokens rise; only the running task's attempt runs."""
    found = []
    attempts: dict[str, list[tuple[int, int, str, str]]] = {}
    for task_id, number, token, state, attempt_id in _rows(
        "SELECT task_id, number, fencing_token, state, attempt_id FROM orbit_attempt ORDER BY task_id, number"
    ):
        attempts.setdefault(task_id, []).append((number, token, state, attempt_id))
    for task_id, state, count, maximum, token, attempt_id in _rows(
        "SELECT task_id, state, attempts, max_attempts, fencing_token, attempt_id FROM orbit_task"
    ):
        made = attempts.get(task_id, [])
        if [number for number, *_ in made] != list(range(1, count + 1)) or count > maximum:
            found.append(f"task {task_id}: attempts {count} of {maximum}, rows say {[number for number, *_ in made]}")
        tokens = [one for _, one, *_ in made]
        if tokens != sorted(set(tokens)) or any(one > token for one in tokens):
            found.append(f"task {task_id}: tokens of its attempts {tokens}, its own {token}")
        running = [one for *_, one_state, one in made if one_state == "RUNNING"]
        if running != ([attempt_id] if state == "RUNNING" else []):
            found.append(f"task {task_id} is {state} under {attempt_id}, but {running} run")
    return found


def _records() -> list[str]:
    """Every receipt leads to a task of its namespace and queue; every accepted task has an audit entry."""
    found = [
        f"the record of task {task_id} leads nowhere"
        for (task_id,) in _rows(
            "SELECT r.task_id FROM orbit_idempotency_record r LEFT JOIN orbit_task t"
            " ON t.task_id = r.task_id AND t.namespace_id = r.namespace_id AND t.queue_id = r.queue_id"
            " WHERE r.task_id IS NOT NULL AND t.task_id IS NULL"
        )
    ]
    found += [
        f"task {task_id} has an ACCEPTED event and no audit entry"
        for (task_id,) in _rows(
            "SELECT e.task_id FROM orbit_event e LEFT JOIN orbit_audit_entry a"
            " ON a.object_id = e.task_id AND a.object_type = 'task' WHERE e.type = 'ACCEPTED' AND a.audit_id IS NULL"
        )
    ]
    return found
