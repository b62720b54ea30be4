"""Start, renew, finish, release: what a worker does with what it was offered (design 2 and 3).

Every item is judged by the row of its task, locked, against its attempt id and fencing token: an older token is
refused, whoever sends it and however late. Items of one call are one transaction; one bad item never spoils the others.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from django.conf import settings

from tasks_app import dialect, faults, telemetry
from tasks_app.columns import ATTEMPT_COLUMNS
from tasks_app.domain.quotas import StartBudget, spend_statement
from tasks_app.domain.task_rows import TaskRow, lock
from tasks_app.domain.tenancy import Principal, principal_again
from tasks_app.domain.transitions import Ledger
from tasks_app.endings import Ending, Report, ending_of
from tasks_app.errors import Unauthenticated
from tasks_app.instants import US_PER_MS, US_PER_SECOND
from tasks_app.limits import STRICT_PRIORITY_MIN
from tasks_app.states import Action, AttemptState, EventType, RetryPriority, TaskState
from tasks_app.transactions import Tx, insert_statement, reading, unit

_RETRIES_MAX = 8


class Answer(Enum):
    """What became of one item. The words are those of the worker protocol."""

    STARTED = "STARTED"
    LEASE_LOST = "LEASE_LOST"
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    LIMITED = "LIMITED"
    RENEWED = "RENEWED"
    COMMITTED = "COMMITTED"
    ALREADY = "ALREADY"
    INVALID = "INVALID"
    RELEASED = "RELEASED"
    LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Held:
    """An attempt as its holder names it. `task_id` was remembered with the offer, or found by `locate`."""

    task_id: str
    attempt_id: str
    fencing_token: int
    namespace_id: str


@dataclass(frozen=True, slots=True)
class Starter:
    """On whose behalf attempts start: checked in the transaction that starts them."""

    credential_id: str
    session_id: str
    worker_name: str


@dataclass(frozen=True, slots=True)
class StartItem:
    held: Held
    starter: Starter


@dataclass(frozen=True, slots=True)
class RenewItem:
    held: Held
    percent: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class FinishItem:
    """`result` and `error_details` are JSON text, exactly as reported."""

    held: Held
    report: Report
    result: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    error_details: str | None = None
    retryable: bool = True
    retry_after_ms: int | None = None

    def digest(self) -> bytes:
        """What the report says, to know a repeat of it."""
        content = [self.report.value, self.result, self.error_code, self.error_message, self.error_details,
                   self.retryable, self.retry_after_ms]  # fmt: skip
        return hashlib.sha256(json.dumps(content).encode()).digest()

    def error_json(self) -> str | None:
        if self.error_code is None:
            return None
        return error_json(self.error_code, self.error_message or "", self.error_details)


def error_json(code: str, message: str, details: str | None = None) -> str:
    """The stored form of an error; `details` is spliced in as it was written, so that its digits survive."""
    head = json.dumps({"code": code, "message": message}, ensure_ascii=False)
    return head if details is None else f'{head[:-1]}, "details": {details}}}'


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to one item, with what belongs to it."""

    attempt_id: str
    answer: Answer
    lease_until: int | None = None
    cancel_requested: bool = False
    state: TaskState | None = None
    revision: int | None = None
    message: str | None = None  # INVALID: why


def locate(namespace_id: str, attempt_ids: Sequence[str]) -> dict[str, str]:
    """attempt_id -> task_id of attempts that have started; for a connection that did not start them itself."""
    if not attempt_ids:
        return {}
    with reading() as tx:
        rows = tx.rows(
            "SELECT a.attempt_id, a.task_id FROM orbit_attempt a JOIN orbit_task t ON t.task_id = a.task_id"
            f" WHERE a.attempt_id IN ({dialect.placeholders(attempt_ids)}) AND t.namespace_id = %s",
            [*attempt_ids, namespace_id],
        )
    return dict(rows)


# -- start


class _BudgetSpent(Exception):
    """Another start spent the budget between our look and our update: look again."""


def start(items: Sequence[StartItem]) -> list[Result]:
    """Starts attempts. Only STARTED is a right to run; a repeat of it after a lost answer is STARTED again."""
    if not items:
        return []
    for attempt in range(_RETRIES_MAX):
        try:
            # The unit is safe to run again when the answer to its COMMIT was lost: what it started it finds RUNNING.
            results = unit(lambda tx: _start_in(tx, items), on_unknown=lambda: unit(lambda tx: _start_in(tx, items)))
            break
        except _BudgetSpent:
            if attempt == _RETRIES_MAX - 1:
                raise
    faults.point("start.committed")
    telemetry.STARTED.inc(sum(result.answer is Answer.STARTED for result in results))
    return results


@dataclass(slots=True)
class _StartGates:
    """What the queue and the application of a task say about one more start."""

    paused: bool
    over_limit: int  # reservations and runs beyond a lowered `max_running`
    budget_left: int | None


def _start_in(tx: Tx, items: Sequence[StartItem]) -> list[Result]:
    rows = lock(tx, sorted({item.held.task_id for item in items}))
    allowed = _allowed_starters(tx, items)
    gates, application_gates = _start_gates(tx, rows)
    ledger = Ledger(tx)
    attempts: list[Sequence[Any]] = []
    spent: Counter[tuple[str, str, str]] = Counter()
    results = [_start_one(tx, ledger, item, rows, allowed, gates, application_gates, attempts, spent) for item in items]
    if attempts:
        ledger.also(*insert_statement("orbit_attempt", ATTEMPT_COLUMNS, attempts))
    ledger.flush()
    for (table, key, identity), amount in sorted(
        spent.items(), key=lambda pair: (pair[0][0] != "orbit_queue", pair[0])
    ):
        if tx.execute(*spend_statement(table, key, identity, amount=amount, now_us=tx.now_us)) != 1:
            raise _BudgetSpent
    faults.point("start.before_commit")
    return results


def _start_one(
    tx: Tx,
    ledger: Ledger,
    item: StartItem,
    rows: dict[str, TaskRow],
    allowed: dict[Starter, Principal],
    gates: dict[str, _StartGates],
    application_gates: dict[str, _StartGates],
    attempts: list[Sequence[Any]],
    spent: Counter[tuple[str, str, str]],
) -> Result:
    held = item.held
    row = rows.get(held.task_id)
    if row is None or row.namespace_id != held.namespace_id or row.fencing_token != held.fencing_token:
        return Result(held.attempt_id, Answer.LEASE_LOST)
    if row.attempt_id != held.attempt_id:
        # The same token without the reservation: it ended before it started.
        ended = {TaskState.CANCELED: Answer.CANCELED, TaskState.EXPIRED: Answer.EXPIRED}
        return Result(held.attempt_id, ended.get(row.state, Answer.LEASE_LOST))
    if row.state is TaskState.RUNNING:
        alive = row.lease_until is not None and row.lease_until > tx.now_us
        return Result(held.attempt_id, Answer.STARTED if alive else Answer.LEASE_LOST, lease_until=row.lease_until)
    queue, application = gates[row.queue_id], application_gates[row.application_id]
    refusal = _start_refusal(tx, item, row, allowed, queue, application)
    if refusal is Answer.EXPIRED:
        ledger.move(row, TaskState.EXPIRED, event=EventType.EXPIRED)
        return Result(held.attempt_id, refusal)
    if refusal is not None:
        ledger.move(row, TaskState.READY)
        return Result(held.attempt_id, refusal)
    for gate, place in ((queue, ("orbit_queue", "queue_id", row.queue_id)),
                        (application, ("orbit_application", "application_id", row.application_id))):  # fmt: skip
        if gate.budget_left is not None:
            gate.budget_left -= 1
            spent[place] += 1
    number, started_at = row.attempts + 1, tx.now_us
    row.started_at = started_at
    lease_until = lease_end(row, tx.now_us)
    ledger.move(
        row,
        TaskState.RUNNING,
        event=EventType.STARTED,
        data={"attempt": number, "worker_name": item.starter.worker_name},
        changes={"attempts": number, "started_at": started_at, "lease_until": lease_until},
    )
    attempts.append((held.attempt_id, row.task_id, number, row.fencing_token, item.starter.session_id,
                     item.starter.worker_name, settings.ORBIT.node_id, AttemptState.RUNNING.value,
                     started_at))  # fmt: skip
    telemetry.WAIT_SECONDS.observe(max(0, started_at - row.available_at) / US_PER_SECOND)
    return Result(held.attempt_id, Answer.STARTED, lease_until=lease_until)


def _start_refusal(
    tx: Tx,
    item: StartItem,
    row: TaskRow,
    allowed: dict[Starter, Principal],
    queue: _StartGates,
    application: _StartGates,
) -> Answer | None:
    """The first gate that closes, in the order of 3.5."""
    if row.state is not TaskState.RESERVED or (row.lease_until is not None and row.lease_until <= tx.now_us):
        return Answer.LEASE_LOST
    principal = allowed.get(item.starter)
    if principal is None or principal.namespace_id != row.namespace_id or not principal.in_scope(row.queue_id):
        return Answer.LEASE_LOST
    if row.deadline_at is not None and row.deadline_at <= tx.now_us:
        return Answer.EXPIRED
    if queue.paused:
        return Answer.QUEUE_PAUSED
    for gate in (application, queue):
        if gate.over_limit > 0:
            gate.over_limit -= 1
            return Answer.LIMITED
    if any(gate.budget_left == 0 for gate in (application, queue)):
        return Answer.LIMITED
    return None


def _allowed_starters(tx: Tx, items: Sequence[StartItem]) -> dict[Starter, Principal]:
    """Those whose credential is still valid and may consume, now, in this transaction, with what it may touch."""
    allowed: dict[Starter, Principal] = {}
    for starter in {item.starter for item in items}:
        try:
            principal = principal_again(tx, starter.credential_id)
        except Unauthenticated:
            continue
        if principal.may(Action.WORKERS_CONSUME):
            allowed[starter] = principal
    return allowed


def _start_gates(tx: Tx, rows: dict[str, TaskRow]) -> tuple[dict[str, _StartGates], dict[str, _StartGates]]:
    queue_ids = sorted({row.queue_id for row in rows.values()})
    if not queue_ids:
        return {}, {}
    queues: dict[str, _StartGates] = {}
    applications: dict[str, _StartGates] = {}
    for queue_id, paused, q_max, q_running, q1, q2, q3, q4, app_id, a_max, a_running, a1, a2, a3, a4 in tx.rows(
        "SELECT q.queue_id, q.paused, q.max_running, q.running, q.start_rate_starts, q.start_rate_per_ms,"
        " q.start_level, q.start_level_at, a.application_id, a.max_running, a.running, a.start_rate_starts,"
        " a.start_rate_per_ms, a.start_level, a.start_level_at FROM orbit_queue q JOIN orbit_application a"
        f" ON a.application_id = q.application_id WHERE q.queue_id IN ({dialect.placeholders(queue_ids)})",
        queue_ids,
    ):
        q_budget, a_budget = StartBudget.of(q1, q2, q3, q4), StartBudget.of(a1, a2, a3, a4)
        queues[queue_id] = _StartGates(
            bool(paused),
            0 if q_max is None else max(0, q_running - q_max),
            None if q_budget is None else q_budget.left(tx.now_us),
        )
        applications[app_id] = _StartGates(
            False,
            0 if a_max is None else max(0, a_running - a_max),
            None if a_budget is None else a_budget.left(tx.now_us),
        )
    return queues, applications


def lease_end(row: TaskRow, now_us: int) -> int:
    """A running lease, the first included, reaches no further than deadline or attempt time-out plus the grace."""
    end = now_us + settings.ORBIT.lease_ms * US_PER_MS
    grace = settings.ORBIT.finish_grace_ms * US_PER_MS
    for limit in (row.deadline_at, row.attempt_timeout_at):
        if limit is not None:
            end = min(end, limit + grace)
    return end


# -- renew


def renew(items: Sequence[RenewItem]) -> list[Result]:
    """Extends running leases and records progress. LOST for whatever is not running under this very attempt and
    token.
    """
    if not items:
        return []
    return unit(lambda tx: _renew_in(tx, items), on_unknown=lambda: unit(lambda tx: _renew_in(tx, items)))


def _renew_in(tx: Tx, items: Sequence[RenewItem]) -> list[Result]:
    rows = lock(tx, sorted({item.held.task_id for item in items}))
    ledger = Ledger(tx)
    results: list[Result] = []
    renewed: set[str] = set()
    for item in items:
        row = _running_row(tx, rows, item.held)
        if row is None:
            results.append(Result(item.held.attempt_id, Answer.LOST))
            continue
        lease_until = max(lease_end(row, tx.now_us), row.lease_until or 0)
        progress = item.percent is not None
        ledger.note(
            row,
            event=EventType.PROGRESS if progress else None,
            data={"percent": item.percent, "message": item.message} if progress else None,
            # An attempt that two connections renew at the same moment is written once.
            changes={} if item.held.attempt_id in renewed else {"lease_until": lease_until},
        )
        renewed.add(item.held.attempt_id)
        if progress:
            ledger.also(
                "UPDATE orbit_attempt SET progress_percent = %s, progress_message = %s"
                " WHERE attempt_id = %s AND state = %s",
                [item.percent, item.message, item.held.attempt_id, AttemptState.RUNNING.value],
            )
        results.append(
            Result(
                item.held.attempt_id,
                Answer.RENEWED,
                lease_until=lease_until,
                cancel_requested=row.cancel_requested_at is not None,
            )
        )
    ledger.flush()
    faults.point("renew.before_commit")
    return results


def _running_row(tx: Tx, rows: dict[str, TaskRow], held: Held) -> TaskRow | None:
    """The row, if it is running under this attempt and token with a lease that has not run out."""
    row = rows.get(held.task_id)
    if row is None or row.namespace_id != held.namespace_id or row.state is not TaskState.RUNNING:
        return None
    if row.attempt_id != held.attempt_id or row.fencing_token != held.fencing_token:
        return None
    # An expired lease is over even before a sweep has noticed.
    return row if row.lease_until is not None and row.lease_until > tx.now_us else None


# -- finish


def finish(items: Sequence[FinishItem]) -> list[Result]:
    """Reports. COMMITTED after the commit; ALREADY for a repeat of the very same report; LOST for everything late."""
    if not items:
        return []
    # Safe to run again after a lost COMMIT: what it finished answers ALREADY with the same state and revision.
    results = unit(lambda tx: _finish_in(tx, items), on_unknown=lambda: unit(lambda tx: _finish_in(tx, items)))
    faults.point("finish.committed")
    return results


def _finish_in(tx: Tx, items: Sequence[FinishItem]) -> list[Result]:
    rows = lock(tx, sorted({item.held.task_id for item in items}))
    ledger = Ledger(tx)
    lower = _queues_that_lower(tx, rows, items)
    results: list[Result] = []
    committed: dict[tuple[str, bytes], Result] = {}  # a repeat in the same message is a repeat too
    for item in items:
        row = _running_row(tx, rows, item.held)
        repeated = committed.get((item.held.attempt_id, item.digest()))
        if repeated is not None:
            results.append(replace(repeated, answer=Answer.ALREADY))
        elif row is None:
            results.append(_finish_late(tx, ledger, item, rows))
        else:
            results.append(_finish_running(tx, ledger, item, row, lower))
            if results[-1].answer is Answer.COMMITTED:
                committed[item.held.attempt_id, item.digest()] = results[-1]
    ledger.flush()
    faults.point("finish.before_commit")
    return results


def _finish_running(tx: Tx, ledger: Ledger, item: FinishItem, row: TaskRow, lower: set[str]) -> Result:
    ending = ending_of(
        row.as_running(),
        item.report,
        now_us=tx.now_us,
        max_losses=settings.ORBIT.max_losses,
        random_unit=random.random(),  # noqa: S311 - jitter
        retryable=item.retryable,
        retry_after_ms=item.retry_after_ms,
    )
    if ending.invalid:
        return Result(
            item.held.attempt_id,
            Answer.INVALID,
            message="CANCELED is for attempts that were asked to stop (cancel, deadline or time-out); this one was not",
        )
    started_at = row.started_at or tx.now_us
    ledger.end_attempt(item.held.attempt_id, ending.attempt_state, report_digest=item.digest(), error=item.error_json())
    apply_ending(ledger, row, ending, result=item.result, error=item.error_json(), error_code=item.error_code,
                 lower_priority=row.queue_id in lower)  # fmt: skip
    telemetry.RUN_SECONDS.observe(max(0, tx.now_us - started_at) / US_PER_SECOND)
    return Result(item.held.attempt_id, Answer.COMMITTED, state=row.state, revision=row.revision)


def _finish_late(tx: Tx, ledger: Ledger, item: FinishItem, rows: dict[str, TaskRow]) -> Result:
    """Not running under this attempt any more: a repeat, or too late. A late report is kept as evidence, once."""
    row = rows.get(item.held.task_id)
    attempt = tx.row(
        "SELECT fencing_token, state, report_digest FROM orbit_attempt WHERE attempt_id = %s AND task_id = %s",
        [item.held.attempt_id, item.held.task_id],
    )
    if row is None or row.namespace_id != item.held.namespace_id or attempt is None:
        return Result(item.held.attempt_id, Answer.LOST)
    token, _, digest = attempt
    if int(token) != item.held.fencing_token:
        return Result(item.held.attempt_id, Answer.LOST)
    if digest is not None and bytes(digest) == item.digest():
        return Result(item.held.attempt_id, Answer.ALREADY, state=row.state, revision=row.revision)
    report = {"outcome": item.report.name, "result": item.result, "error": item.error_json()}
    ledger.also(
        "UPDATE orbit_attempt SET late_report = %s, late_report_at = %s WHERE attempt_id = %s AND late_report IS NULL",
        [json.dumps(report, ensure_ascii=False), tx.now_us, item.held.attempt_id],
    )
    return Result(item.held.attempt_id, Answer.LOST)


_ORBIT_MESSAGES = {
    "WORKER_LOST": "the worker was lost and no attempt is left",
    "ATTEMPT_TIMEOUT": "the attempt took longer than attempt_timeout_ms",
}


def apply_ending(
    ledger: Ledger,
    row: TaskRow,
    ending: Ending,
    *,
    result: str | None = None,
    error: str | None = None,
    error_code: str | None = None,
    lower_priority: bool = False,
) -> None:
    """Moves a RUNNING task as its ending says. The only way out of RUNNING, for reports and for leases that ran out."""
    changes: dict[str, Any] = {"losses": ending.losses}
    if ending.state is TaskState.SUCCEEDED:
        # What an earlier attempt ended with is told by that attempt.
        changes |= {"result": "null" if result is None else result, "error": None, "error_code": None}
    elif ending.retry_at is not None:
        changes |= {"available_at": ending.retry_at, "cancel_requested_at": None}
        if lower_priority and row.tier == -row.priority and row.priority > STRICT_PRIORITY_MIN:
            changes |= {"priority": row.priority - 1, "tier": -(row.priority - 1)}
    if ending.state is not TaskState.SUCCEEDED:
        if ending.error_code is not None and (error is None or ending.state is TaskState.FAILED):
            error_code, error = ending.error_code, error_json(ending.error_code, _ORBIT_MESSAGES[ending.error_code])
        changes |= {"error": error, "error_code": error_code}
    data: dict[str, Any] = {"attempt": row.attempts}
    if error_code is not None:
        data["error_code"] = error_code
    ledger.move(row, ending.state, event=ending.event, data=data, changes=changes)


def _queues_that_lower(tx: Tx, rows: dict[str, TaskRow], items: Sequence[FinishItem]) -> set[str]:
    """Queues whose retries lose a priority level; asked only when something may be retried."""
    if all(item.report is Report.SUCCEEDED for item in items):
        return set()
    queue_ids = sorted({row.queue_id for row in rows.values()})
    if not queue_ids:
        return set()
    found = tx.rows(
        f"SELECT queue_id FROM orbit_queue WHERE queue_id IN ({dialect.placeholders(queue_ids)})"
        " AND retry_priority = %s",
        [*queue_ids, RetryPriority.LOWER.value],
    )
    return {queue_id for (queue_id,) in found}


# -- release


def release(items: Sequence[Held]) -> list[Result]:
    """Hands unstarted reservations back to their place in line. No attempt is counted."""
    if not items:
        return []
    return unit(lambda tx: _release_in(tx, items), on_unknown=lambda: unit(lambda tx: _release_in(tx, items)))


def _release_in(tx: Tx, items: Sequence[Held]) -> list[Result]:
    rows = lock(tx, sorted({item.task_id for item in items}))
    ledger = Ledger(tx)
    results: list[Result] = []
    for item in items:
        row = rows.get(item.task_id)
        if (
            row is None
            or row.namespace_id != item.namespace_id
            or row.state is not TaskState.RESERVED
            or row.attempt_id != item.attempt_id
            or row.fencing_token != item.fencing_token
        ):
            results.append(Result(item.attempt_id, Answer.LOST))
            continue
        ledger.move(row, TaskState.READY)
        results.append(Result(item.attempt_id, Answer.RELEASED))
    ledger.flush()
    faults.point("release.before_commit")
    return results
