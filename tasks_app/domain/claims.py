"""Claim: reserve tasks for a worker session (design 3.2 to 3.5).

Gates, in this order, all decided here in one unit: deadline -> queue paused -> capability -> application `max_running`
-> queue `max_running` -> resource key -> start budgets. Permits are taken last and all or none.

The order of tasks comes from one index: a seek for every (queue, lane, handler) that the session can serve, merged
(docs/decisions/claim-index.md). Ids are read from the index without locks, then locked by id with SKIP LOCKED; the
guarded update decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from django.conf import settings

from tasks_app import dialect, faults, ids, telemetry
from tasks_app.domain import resources
from tasks_app.domain.quotas import RunningLimit, StartBudget
from tasks_app.domain.task_rows import TASK_COLUMNS, TaskRow, from_columns
from tasks_app.domain.transitions import Ledger
from tasks_app.instants import US_PER_MS
from tasks_app.states import EventType, Lane, TaskState
from tasks_app.transactions import Tx, unit

_ORDER = "tier, dispatch_at, available_at, task_id"
_DIRECT_ARMS_MAX = 8  # up to so many seeks are made blindly; past that the empty ones are found out first
_ROUNDS_MAX = 64  # looks at the line in one claim: each starts behind tasks that expired or that others are taking
_RETRIES_MAX = 4  # claims that lost the race for the last permit and look again


class EmptyReason(Enum):
    """Why a claim brought nothing: the first gate that closed it."""

    NO_WORK = "no_work"
    QUEUE_PAUSED = "queue_paused"
    APPLICATION_LIMIT = "application_limit"
    QUEUE_LIMIT = "queue_limit"
    START_RATE = "start_rate"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A claimable task as the index shows it. Ascending (`tier`, `dispatch_at`, `available_at`, `task_id`) is the
    order.
    """

    tier: int
    dispatch_at: int
    available_at: int
    task_id: str
    queue_id: str

    @property
    def place(self) -> tuple[int, int, int, str]:
        return (self.tier, self.dispatch_at, self.available_at, self.task_id)


Allocate = Callable[[Sequence[Candidate], int, Mapping[str, int]], list[Candidate]]


def in_order(candidates: Sequence[Candidate], limit: int, weights: Mapping[str, int]) -> list[Candidate]:
    """The order of one queue. STRICT namespaces pass an allocation that shares a tier among queues by their weights."""
    return sorted(candidates, key=lambda candidate: candidate.place)[:limit]


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """What one session asks for. `queue_ids`: one in an AGED namespace, all of the session's in a STRICT one.

    `urgent_limit`: how many of `limit` may have a priority above 0 (STRICT `normal_reserved_slots`); None: all.
    """

    application_id: str
    namespace_id: str
    queue_ids: tuple[str, ...]
    handler_refs: tuple[int, ...]
    resource_keys: bool
    limit: int
    session_id: str
    urgent_limit: int | None = None
    allocate: Allocate = in_order


@dataclass(frozen=True, slots=True)
class Offer:
    """A committed reservation, with what the worker needs to start it."""

    task: TaskRow
    payload: str
    payload_version: str
    resource_key: str | None
    parent_task_id: str | None
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    offers: tuple[Offer, ...]
    reason: EmptyReason | None = None  # set when nothing was claimed
    retry_at: int | None = None  # when a start budget frees, where that is known and what closed the claim


def claim(order: ClaimOrder) -> ClaimOutcome:
    """Reserves up to `order.limit` tasks for the session, in order, or tells why none.

    A reservation whose commit answer was lost is looked up by its attempt id; if that fails too it returns by its
    lease.
    """
    with telemetry.CLAIM_SECONDS.time():
        outcome = _claim(order)
    telemetry.CLAIMS.labels(result="claimed" if outcome.offers else str(outcome.reason and outcome.reason.value)).inc()
    telemetry.CLAIMED.inc(len(outcome.offers))
    faults.point("claim.committed")
    return outcome


def _claim(order: ClaimOrder) -> ClaimOutcome:
    if not order.handler_refs or not order.queue_ids or order.limit < 1:
        return ClaimOutcome((), EmptyReason.NO_WORK)
    for attempt in range(_RETRIES_MAX):
        reserved: list[Offer] = []

        def run(tx: Tx, reserved: list[Offer] = reserved) -> ClaimOutcome:
            reserved.clear()
            return _claim_in(tx, order, reserved)

        def confirmed(reserved: list[Offer] = reserved) -> ClaimOutcome:
            return unit(lambda tx: ClaimOutcome(tuple(_still_reserved(tx, reserved)), EmptyReason.NO_WORK))

        try:
            return unit(run, on_unknown=confirmed)
        except RunningLimit:
            # Another node took the last permits between our look and our update: look again.
            if attempt == _RETRIES_MAX - 1:
                return ClaimOutcome((), EmptyReason.QUEUE_LIMIT)
    raise AssertionError("unreachable")


@dataclass(slots=True)
class _Room:
    """How many more each queue may reserve now, and why a queue may not."""

    by_queue: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    reason: EmptyReason | None = None
    retry_at: int | None = None


def claimable(tx: Tx, order: ClaimOrder, limit: int) -> list[Candidate]:
    """What `order` could claim now, all gates but the permits of resource keys looked at; nothing is locked or
    changed.
    """
    room, allowed = _room(tx, order)
    if allowed < 1:
        return []
    urgent_limit = limit if order.urgent_limit is None else order.urgent_limit
    return _candidates(tx, order, room, min(limit, allowed), urgent_limit, set())


def _claim_in(tx: Tx, order: ClaimOrder, reserved: list[Offer]) -> ClaimOutcome:
    room, limit = _room(tx, order)
    if limit < 1:
        return ClaimOutcome((), room.reason or EmptyReason.NO_WORK, room.retry_at)
    ledger = Ledger(tx)
    permits: dict[int, int | None] = {}
    urgent_left = order.limit if order.urgent_limit is None else order.urgent_limit
    passed: set[str] = set()
    dirty = False
    for _ in range(_ROUNDS_MAX):
        wanted = limit - len(reserved)
        chosen = order.allocate(_candidates(tx, order, room, wanted, urgent_left, passed), wanted, room.weights)
        if not chosen:
            break
        passed.update(candidate.task_id for candidate in chosen)
        locked = _lock(tx, chosen)
        _look_at_keys(tx, locked, permits)
        for offer in locked:
            task = offer.task
            if task.deadline_at is not None and task.deadline_at <= tx.now_us:
                ledger.move(task, TaskState.EXPIRED, event=EventType.EXPIRED)
                dirty = True
            elif room.by_queue.get(task.queue_id, 0) < 1:
                continue
            elif task.resource_ref is not None and not _take_permit(tx, task, permits):
                dirty = True
            else:
                _reserve(tx, ledger, order, task)
                room.by_queue[task.queue_id] -= 1
                urgent_left -= task.priority > 0
                reserved.append(offer)
        if len(reserved) >= limit:
            break
    if reserved or dirty:
        ledger.flush()
    faults.point("claim.before_commit")
    return ClaimOutcome(tuple(reserved), None if reserved else EmptyReason.NO_WORK)


def _room(tx: Tx, order: ClaimOrder) -> tuple[_Room, int]:
    """The gates of queues and application as they stand; the guarded counters decide at the end of the unit."""
    rows = tx.rows(
        "SELECT q.queue_id, q.weight, q.paused, q.max_running, q.running, q.start_rate_starts, q.start_rate_per_ms,"
        " q.start_level, q.start_level_at, a.max_running, a.running, a.start_rate_starts, a.start_rate_per_ms,"
        f" a.start_level, a.start_level_at, {tx.now_sql} FROM orbit_queue q JOIN orbit_application a"
        f" ON a.application_id = q.application_id WHERE q.queue_id IN ({dialect.placeholders(order.queue_ids)})"
        " AND q.namespace_id = %s",
        [*order.queue_ids, order.namespace_id],
    )
    room = _Room()
    limit = order.limit
    reserved = _reserved(tx, order) if any(row[5] is not None or row[11] is not None for row in rows) else {}
    for queue_id, weight, paused, max_running, running, *rates, app_max, app_running, a1, a2, a3, a4, now in rows:
        tx.saw_now(now)
        if paused:
            room.reason = room.reason or EmptyReason.QUEUE_PAUSED
            continue
        if app_max is not None and app_running >= app_max:
            return _Room(reason=EmptyReason.APPLICATION_LIMIT), 0
        if app_max is not None:
            limit = min(limit, app_max - app_running)
        if max_running is not None and running >= max_running:
            room.reason = room.reason or EmptyReason.QUEUE_LIMIT
            continue
        free = order.limit if max_running is None else max_running - running
        budget = StartBudget.of(a1, a2, a3, a4)
        if budget is not None:
            wanting = sum(reserved.values())
            limit = min(limit, budget.left(tx.now_us) - wanting)
            if limit < 1:
                return _Room(reason=EmptyReason.START_RATE, retry_at=_frees_at(tx, budget, wanting)), 0
        budget = StartBudget.of(*rates)
        if budget is not None:
            wanting = reserved.get(queue_id, 0)
            free = min(free, budget.left(tx.now_us) - wanting)
            if free < 1:
                room.reason = room.reason or EmptyReason.START_RATE
                room.retry_at = _frees_at(tx, budget, wanting)
                continue
        room.weights[queue_id] = weight
        room.by_queue[queue_id] = free
    return room, limit if room.by_queue else 0


def _frees_at(tx: Tx, budget: StartBudget, wanting: int) -> int | None:
    """When the budget has one more start than reservations want; None where a whole bucket is reserved."""
    return budget.next_at(tx.now_us, wanting + 1) if wanting < budget.starts else None


def _reserved(tx: Tx, order: ClaimOrder) -> dict[str, int]:
    """How many reservations of each queue of the application will want a start: their starts are spoken for."""
    return dict(
        tx.rows(
            "SELECT t.queue_id, COUNT(*) FROM orbit_queue q JOIN orbit_task t ON t.queue_id = q.queue_id"
            " WHERE q.application_id = %s AND t.state = 'RESERVED' GROUP BY t.queue_id",
            [order.application_id],
        )
    )


def _candidates(
    tx: Tx, order: ClaimOrder, room: _Room, wanted: int, urgent_left: int, passed: set[str]
) -> list[Candidate]:
    """The first claimable tasks of every queue with room, as far as `wanted`, behind those that this claim has passed
    (they still stand in the index). Reads the index only, locks nothing.
    """
    lanes = (Lane.OPEN, Lane.KEYED) if order.resource_keys else (Lane.OPEN,)
    open_queues = [queue_id for queue_id, free in room.by_queue.items() if free > 0]
    arms = [
        (queue_id, lane.value, handler_ref)
        for queue_id in open_queues
        for lane in lanes
        for handler_ref in order.handler_refs
    ]
    if len(arms) > _DIRECT_ARMS_MAX:
        arms = _arms_with_work(tx, open_queues, [lane.value for lane in lanes], order.handler_refs)
    if not arms:
        return []
    index = dialect.force_index(tx.connection, "task_to_claim")
    select = (
        f"SELECT tier, dispatch_at, available_at, task_id, queue_id FROM orbit_task{index}"
        " WHERE queue_id = %s AND state = 'READY' AND lane = %s AND handler_ref = %s{urgency}"
        f" ORDER BY {_ORDER} LIMIT %s"
    )
    selects: list[str] = []
    params: list[Any] = []
    # With few urgent slots left, urgent and normal work are looked for apart: one must not hide the other.
    kinds = [("", wanted)] if urgent_left >= wanted else [(" AND tier < 0", urgent_left), (" AND tier >= 0", wanted)]
    for queue_id, lane_value, handler_ref in arms:
        for urgency, limit in kinds:
            if limit > 0:
                selects.append(select.format(urgency=urgency))
                params += [queue_id, lane_value, handler_ref, limit + len(passed)]
    found: list[Candidate] = []
    rows = tx.rows(dialect.union_all(tx.connection, selects) if len(selects) > 1 else selects[0], params)
    per_queue: dict[str, int] = defaultdict(int)
    urgent_found = 0
    for candidate in sorted((Candidate(*row) for row in rows), key=lambda one: one.place):
        if candidate.task_id in passed:
            continue
        if candidate.tier < 0 and urgent_left < wanted:
            urgent_found += 1
            if urgent_found > urgent_left:
                continue
        per_queue[candidate.queue_id] += 1
        if per_queue[candidate.queue_id] <= wanted:
            found.append(candidate)
    return found


def _arms_with_work(
    tx: Tx, queue_ids: Sequence[str], lanes: Sequence[int], handler_refs: Sequence[int]
) -> list[tuple[str, int, int]]:
    """Those (queue, lane, handler) that have READY rows, found by skipping through the index.

    Each step asks for the smallest handler at or above the next announced one: as many seeks as the shorter of
    "announced" and "present" is long, however many rows there are.
    """
    sql = (
        "SELECT MIN(handler_ref) FROM orbit_task"
        " WHERE queue_id = %s AND state = 'READY' AND lane = %s AND handler_ref >= %s"
    )
    wanted = sorted(set(handler_refs))
    arms: list[tuple[str, int, int]] = []
    for queue_id in queue_ids:
        for lane in lanes:
            position = 0
            while position < len(wanted):
                row = tx.row(sql, [queue_id, lane, wanted[position]])
                present = None if row is None else row[0]
                if present is None:
                    break
                if present == wanted[position]:
                    arms.append((queue_id, lane, present))
                    position += 1
                while position < len(wanted) and wanted[position] < present:
                    position += 1
    return arms


def _lock(tx: Tx, chosen: Sequence[Candidate]) -> list[Offer]:
    """The chosen rows that nobody else holds and that still stand in the line, in the order of the line."""
    place = {candidate.task_id: number for number, candidate in enumerate(chosen)}
    rows = tx.rows(
        f"SELECT {TASK_COLUMNS}, payload, payload_version,"
        " (SELECT resource_key FROM orbit_resource_key k WHERE k.resource_ref = orbit_task.resource_ref),"
        f" parent_task_id, traceparent FROM orbit_task WHERE task_id IN ({dialect.placeholders(chosen)})"
        f" AND state = 'READY' AND lane IN (0, 1) ORDER BY task_id"
        f"{dialect.for_update(tx.connection, skip_locked=True)}",
        sorted(place),
    )
    offers = [Offer(from_columns(row[:-5]), *row[-5:]) for row in rows]
    offers.sort(key=lambda offer: place[offer.task.task_id])
    return offers


def _look_at_keys(tx: Tx, offers: Sequence[Offer], permits: dict[int, int | None]) -> None:
    """Locks the keys of those tasks, in the order of their ids, and notes how many permits each has free.

    A later look at the line may need a key that comes before one that is locked already: that one is not waited for.
    None: somebody else is at it, and settles its waiters.
    """
    refs = {offer.task.resource_ref for offer in offers if offer.task.resource_ref is not None}
    highest = max((ref for ref, free in permits.items() if free is not None), default=0)
    for resource_ref in sorted(refs - permits.keys()):
        permits[resource_ref] = resources.free_permits(tx, resource_ref, skip_locked=resource_ref < highest)


def _take_permit(tx: Tx, task: TaskRow, permits: dict[int, int | None]) -> bool:
    """Counts a permit of the task's key, locked by now; puts the task out of sight when there is none."""
    assert task.resource_ref is not None
    free = permits[task.resource_ref]
    if free is None:
        return False
    if free < 1:
        resources.hold_back(tx, [task.task_id])
        return False
    permits[task.resource_ref] = free - 1
    return True


def _reserve(tx: Tx, ledger: Ledger, order: ClaimOrder, task: TaskRow) -> None:
    ledger.move(
        task,
        TaskState.RESERVED,
        changes={
            "attempt_id": ids.new_id(tx.now_us),
            "session_id": order.session_id,
            "lease_until": tx.now_us + settings.ORBIT.reservation_ms * US_PER_MS,
            "fencing_token": task.fencing_token + 1,
        },
    )


def _still_reserved(tx: Tx, reserved: Sequence[Offer]) -> list[Offer]:
    """Of reservations whose commit answer was lost, those that did take effect."""
    if not reserved:
        return []
    rows = tx.rows(
        "SELECT attempt_id FROM orbit_task WHERE task_id IN"
        f" ({dialect.placeholders(reserved)}) AND state = 'RESERVED'{dialect.for_update(tx.connection)}",
        sorted(offer.task.task_id for offer in reserved),
    )
    present = {attempt_id for (attempt_id,) in rows}
    return [offer for offer in reserved if offer.task.attempt_id in present]
