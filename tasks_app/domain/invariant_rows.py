"""The checks of `orbit_check` that look at rows one by one: tasks, attempts, receipts, waiters of keys, the feed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from django.conf import settings

from tasks_app import dialect, ids
from tasks_app.domain.invariants import CHUNK, KEYS_PER_LOOK, Finding, register
from tasks_app.instants import US_PER_MS, US_PER_SECOND
from tasks_app.limits import MS_PER_DAY
from tasks_app.states import AttemptState, EventType, Lane, TaskState
from tasks_app.transactions import Tx, reading

US_PER_DAY: Final = MS_PER_DAY * US_PER_MS
_WITHOUT_REVISION: Final = f"('{EventType.YIELDED.value}', '{EventType.PROGRESS.value}')"
_ID_SLACK_US: Final = 2 * US_PER_SECOND  # ids of one burst may run ahead of the clock by a second


def _ranges(table: str, key: str, *, start: str = "") -> Iterator[tuple[str, str]]:
    """(after, up to) over the whole primary key, `CHUNK` rows each; the last one is open."""
    after = start
    while True:
        with reading() as tx:
            row = tx.row(
                f"SELECT {key} FROM {table} WHERE {key} > %s ORDER BY {key} LIMIT 1 OFFSET {CHUNK - 1}",
                [after],
            )
        yield after, "g" if row is None else row[0]  # "g" stands behind every hex digit
        if row is None:
            return
        after = row[0]


def attempts() -> Iterator[Finding]:
    """One live attempt per RUNNING task, its own; none elsewhere; as many attempts as starts, their tokens rising."""
    for after, upto in _ranges("orbit_task", "task_id"):
        with reading() as tx:
            rows = tx.rows(
                "SELECT t.task_id, t.state, t.attempts, t.fencing_token, t.attempt_id, a.attempt_id, a.number,"
                " a.fencing_token, a.state FROM orbit_task t LEFT JOIN orbit_attempt a ON a.task_id = t.task_id"
                " WHERE t.task_id > %s AND t.task_id <= %s ORDER BY t.task_id, a.number",
                [after, upto],
            )
        by_task: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            by_task[row[0]].append(row)
        for task_id, mine in by_task.items():
            yield from (Finding("attempts", f"task {task_id}", text) for text in _attempt_faults(mine))


def _attempt_faults(rows: list[tuple[Any, ...]]) -> Iterator[str]:
    _, state, starts, token, attempt_id, *_ = rows[0]
    made = [(row[5], row[6], row[7], row[8]) for row in rows if row[5] is not None]
    numbers = [number for _, number, _, _ in made]
    if numbers != list(range(1, starts + 1)):
        yield f"was started {starts} times, its attempts are {numbers}"
    tokens = [one for _, _, one, _ in made]
    if tokens != sorted(set(tokens)) or any(one > token for one in tokens):
        yield f"has the fencing token {token}, its attempts have {tokens}"
    live = [one for one, _, _, attempt_state in made if attempt_state == AttemptState.RUNNING]
    if live != ([attempt_id] if state == TaskState.RUNNING else []):
        yield f"is {state} under attempt {attempt_id}, the live attempts are {live}"


def leases() -> Iterator[Finding]:
    """No running lease reaches past deadline or attempt time-out plus the grace; no two tasks share an attempt."""
    grace = settings.ORBIT.finish_grace_ms * US_PER_MS
    for after, upto in _ranges("orbit_task", "task_id"):
        with reading() as tx:
            rows = tx.rows(
                "SELECT task_id, lease_until, deadline_at, started_at + attempt_timeout_ms * 1000, attempt_id,"
                " (SELECT COUNT(*) FROM orbit_attempt a WHERE a.attempt_id = t.attempt_id AND a.task_id <> t.task_id)"
                f" FROM orbit_task t WHERE task_id > %s AND task_id <= %s AND state = '{TaskState.RUNNING.value}'",
                [after, upto],
            )
        for task_id, lease_until, deadline_at, timeout_at, attempt_id, shared in rows:
            for limit, what in ((deadline_at, "deadline"), (timeout_at, "attempt time-out")):
                if limit is not None and lease_until > limit + grace:
                    beyond = (lease_until - limit) // US_PER_MS
                    yield Finding("leases", f"task {task_id}", f"its lease ends {beyond} ms after its {what}")
            if shared:
                yield Finding("leases", f"task {task_id}", f"its attempt {attempt_id} is another task's")


def ownership() -> Iterator[Finding]:
    """Queue, handler and resource key of a task are of its namespace; a replay and its source name each other."""
    for after, upto in _ranges("orbit_task", "task_id"):
        with reading() as tx:
            rows = tx.rows(
                "SELECT t.task_id, t.namespace_id, t.application_id, n.application_id, q.namespace_id,"
                " q.application_id, h.namespace_id, t.resource_ref, k.namespace_id, t.replayed_as, r.replayed_from"
                " FROM orbit_task t LEFT JOIN orbit_namespace n ON n.namespace_id = t.namespace_id"
                " LEFT JOIN orbit_queue q ON q.queue_id = t.queue_id"
                " LEFT JOIN orbit_handler h ON h.handler_ref = t.handler_ref"
                " LEFT JOIN orbit_resource_key k ON k.resource_ref = t.resource_ref"
                " LEFT JOIN orbit_task r ON r.task_id = t.replayed_as"
                " WHERE t.task_id > %s AND t.task_id <= %s",
                [after, upto],
            )
        for (
            task_id,
            namespace_id,
            application_id,
            owner,
            queue_in,
            queue_of,
            handler_in,
            ref,
            key_in,
            new,
            source,
        ) in rows:
            wrong = [
                what
                for what, found, wanted in (
                    ("application", owner, application_id),
                    ("queue", queue_in, namespace_id),
                    ("queue's application", queue_of, application_id),
                    ("handler", handler_in, namespace_id),
                    ("resource key", key_in, None if ref is None else namespace_id),
                )
                if found != wanted
            ]
            if wrong:
                yield Finding("ownership", f"task {task_id}", f"not of its namespace: {', '.join(wrong)}")
            # A replay that retention has taken leaves its name behind.
            if new is not None and source is not None and source != task_id:
                yield Finding("ownership", f"task {task_id}", f"was replayed as {new}, which replays {source}")


def revisions() -> Iterator[Finding]:
    """Revisions of a task have one event each and no gap, for every task whose events are all still kept."""
    with reading() as tx:
        oldest = tx.now_us - settings.ORBIT.retain_events_days * US_PER_DAY
    for after, upto in _ranges("orbit_task", "task_id", start=ids.id_floor(max(0, oldest))):
        with reading() as tx:
            rows = tx.rows(
                "SELECT t.task_id, t.revision, COUNT(e.event_id), COUNT(DISTINCT e.revision), MIN(e.revision),"
                " MAX(e.revision) FROM orbit_task t LEFT JOIN orbit_event e ON e.task_id = t.task_id"
                f" AND e.type NOT IN {_WITHOUT_REVISION} WHERE t.task_id > %s AND t.task_id <= %s"
                " AND t.created_at >= %s GROUP BY t.task_id, t.revision",
                [after, upto, oldest],
            )
        for task_id, revision, events, distinct, first, last in rows:
            if not (events == distinct == revision and first == 1 and last == revision):
                text = f"is at revision {revision}; its events: {events}, from {first} to {last}, {distinct} different"
                yield Finding("revisions", f"task {task_id}", text)


def receipts() -> Iterator[Finding]:
    """Every receipt has its task, with its first event and its audit entry, or is older than retention."""
    with reading() as tx:
        now = tx.now_us
    kept = settings.ORBIT
    tasks_from = now - kept.retain_tasks_days * US_PER_DAY
    events_from = now - kept.retain_events_days * US_PER_DAY
    audit_from = now - kept.retain_audit_days * US_PER_DAY
    for after, upto in _ranges("orbit_idempotency_record", "record_id"):
        with reading() as tx:
            rows = tx.rows(
                "SELECT r.idempotency_key, r.created_at, r.task_id, t.task_id,"
                " CASE WHEN t.namespace_id = r.namespace_id AND t.queue_id = r.queue_id THEN 1 ELSE 0 END,"
                " EXISTS (SELECT 1 FROM orbit_event e WHERE e.task_id = r.task_id"
                f" AND e.type = '{EventType.ACCEPTED.value}'),"
                " EXISTS (SELECT 1 FROM orbit_audit_entry a WHERE a.object_id = r.task_id)"
                " FROM orbit_idempotency_record r LEFT JOIN orbit_task t ON t.task_id = r.task_id"
                " WHERE r.record_id > %s AND r.record_id <= %s AND r.task_id IS NOT NULL",
                [after, upto],
            )
        for key, created_at, task_id, found, fits, has_event, has_entry in rows:
            if found is None:
                missing = ["its task"] if created_at > tasks_from else []
            else:
                missing = [] if fits else ["a task of its namespace and queue"]
                missing += [] if has_event or created_at <= events_from else ["the event ACCEPTED"]
                missing += [] if has_entry or created_at <= audit_from else ["the audit entry"]
            if missing:
                yield Finding("receipts", f"task {task_id}", f"its receipt (key {key}) lacks {', '.join(missing)}")


def lanes() -> Iterator[Finding]:
    """Waiters of a key: as many open to claims as it has free permits, the first in order; the others are held.

    A free permit that nobody who waits for it can see is a fault, unless maintenance was told to look again. One that
    is open without a permit is harmless: its claim finds out at the key's row and holds it back.
    """
    after = 0
    while True:
        with reading() as tx:
            keys = tx.rows(
                "SELECT resource_ref FROM orbit_resource_key WHERE resource_ref > %s"
                f" ORDER BY resource_ref LIMIT {KEYS_PER_LOOK}",
                [after],
            )
            refs = [ref for (ref,) in keys]
            groups = _groups(tx, after, refs[-1]) if refs else {}
        for (ref, queue_id, handler_ref), group in groups.items():
            yield from _lane_findings(f"resource key {ref}, queue {queue_id}, handler {handler_ref}", group)
            if group.keyed and group.held and not group.recheck:
                yield from _order_findings(ref, queue_id, handler_ref)
        if len(refs) < KEYS_PER_LOOK:
            return
        after = refs[-1]


class _Group:
    """The waiters of one key in one queue for one handler."""

    def __init__(self, free: int, recheck: bool) -> None:
        self.free, self.recheck = free, recheck
        self.keyed = self.held = 0


def _groups(tx: Tx, after: int, upto: int) -> dict[tuple[int, str, int], _Group]:
    rows = tx.rows(
        "SELECT k.resource_ref, n.resource_limit - k.held, k.recheck_at, t.queue_id, t.handler_ref, t.lane, COUNT(*)"
        " FROM orbit_resource_key k JOIN orbit_namespace n ON n.namespace_id = k.namespace_id"
        " JOIN orbit_task t ON t.resource_ref = k.resource_ref AND t.state = 'READY' AND t.lane IN (1, 2)"
        " WHERE k.resource_ref > %s AND k.resource_ref <= %s"
        " GROUP BY k.resource_ref, n.resource_limit, k.held, k.recheck_at, t.queue_id, t.handler_ref, t.lane",
        [after, upto],
    )
    groups: dict[tuple[int, str, int], _Group] = {}
    for ref, free, recheck_at, queue_id, handler_ref, lane, count in rows:
        group = groups.setdefault((ref, queue_id, handler_ref), _Group(max(0, free), recheck_at is not None))
        if lane == Lane.KEYED:
            group.keyed = count
        else:
            group.held = count
    return groups


def _lane_findings(name: str, group: _Group) -> Iterator[Finding]:
    if group.held and group.keyed < group.free and not group.recheck:
        text = f"{group.free} permits are free and {group.held} tasks wait, but only {group.keyed} can be claimed"
        yield Finding("lanes", name, text)
    if group.keyed > group.free:
        text = f"{group.keyed} tasks can be seen by claims for {group.free} free permits"
        yield Finding("lanes", name, text, is_note=True)


def _order_findings(ref: int, queue_id: str, handler_ref: int) -> Iterator[Finding]:
    """Whether a waiter that is held comes before one that is open, seen in one statement."""
    arm = (
        "SELECT t.lane, t.tier, t.dispatch_at, t.available_at, t.task_id, k.recheck_at FROM orbit_task t"
        " JOIN orbit_resource_key k ON k.resource_ref = t.resource_ref WHERE t.resource_ref = %s AND t.state = 'READY'"
        " AND t.lane = {lane} AND t.queue_id = %s AND t.handler_ref = %s"
        " ORDER BY t.tier {way}, t.dispatch_at {way}, t.available_at {way}, t.task_id {way} LIMIT 1"
    )
    arms = [arm.format(lane=Lane.KEYED.value, way="DESC"), arm.format(lane=Lane.HELD.value, way="ASC")]
    params = [ref, queue_id, handler_ref]
    with reading() as tx:
        rows = tx.rows(dialect.union_all(tx.connection, arms), [*params, *params])
    by_lane = {row[0]: row for row in rows}
    if len(by_lane) == 2 and by_lane[Lane.HELD][1:5] < by_lane[Lane.KEYED][1:5] and by_lane[Lane.HELD][5] is None:
        first, last = by_lane[Lane.HELD][4], by_lane[Lane.KEYED][4]
        name = f"resource key {ref}, queue {queue_id}, handler {handler_ref}"
        yield Finding("lanes", name, f"task {first} is held although it comes before task {last}, which is not")


def feed() -> Iterator[Finding]:
    """Every namespace has a head of its feed, and no event stands behind it."""
    with reading() as tx:
        rows = tx.rows(
            "SELECT n.namespace_id, h.position, (SELECT MAX(e.position) FROM orbit_event e"
            " WHERE e.namespace_id = n.namespace_id) FROM orbit_namespace n"
            " LEFT JOIN orbit_event_head h ON h.namespace_id = n.namespace_id ORDER BY n.namespace_id"
        )
    for namespace_id, head, last in rows:
        if head is None:
            yield Finding("feed", f"namespace {namespace_id}", "has no head of its feed")
        elif last is not None and last > head:
            yield Finding("feed", f"namespace {namespace_id}", f"its feed ends at {head}, an event stands at {last}")


def register_checks() -> None:
    for check in (attempts, leases, ownership, revisions, receipts, lanes, feed):
        register(check.__name__, check)
