"""Plans fire (design 1.6): by the clock from the maintenance loop of every node, or by hand.

A firing is a submit through `accept` with the identity `plan.fire` / `{plan_id}:{fire instant in UTC}`, so however many
nodes fire, one task is made. Whether the instant still is to be fired is decided under the row lock of the plan, in the
unit that accepts the task: a plan that was paused, given another version, or moved on by another node fires nothing.
What was not accepted (refused, skipped, missed) is recorded under the same lock, together with the next fire time.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tasks_app import dialect, faults, telemetry
from tasks_app.domain.audit import SYSTEM, Actor
from tasks_app.domain.plan_definitions import PlanDefinition, stored_definition
from tasks_app.domain.plan_schedule import Due, Overlap, due
from tasks_app.domain.plans import PlanRow, find_active, lock_plan
from tasks_app.domain.submission import Accepted, AcceptedTask, Submission, accept
from tasks_app.domain.tenancy import Principal, operator_of
from tasks_app.errors import IdempotencyConflict, OrbitError, Unavailable
from tasks_app.instants import format_rfc3339
from tasks_app.models import FiringStatus, Operation
from tasks_app.states import UNFINISHED, Action
from tasks_app.submission_request import SubmitRequest, digest
from tasks_app.transactions import Tx, reading, unit

PLANS_PER_PASS: Final = 100
MISSED_ROWS_MAX: Final = 1000  # of one look that are recorded one by one; all of them are counted
_OVERLAP_LOOKS_BACK: Final = 1000  # firings
_TRIES_MAX: Final = 5
_TRIGGER_FORM: Final = b"orbit trigger 1\n"


class _Superseded(Exception):
    """The plan is not any more what was read: another node was first, or somebody changed it."""


class _Overlapping(Exception):
    """A task of the plan is unfinished, and the version says that this skips the firing."""


# -- by the clock


@dataclass(frozen=True, slots=True)
class _DuePlan:
    """A plan whose next fire time has come, as it was read."""

    plan_id: str
    namespace_id: str
    version: int
    activated_at: int
    next_fire_at: int
    definition: PlanDefinition
    now_us: int


def fire_due(*, limit: int = PLANS_PER_PASS) -> int:
    """Fires every plan whose time has come, the most overdue first; how many of them there were, at most `limit`.

    One plan that fails does not hold the others up: it is logged and tried again at the next pass. Safe to run on any
    number of nodes at once.
    """
    with reading() as tx:
        now = tx.now_us
        rows = tx.rows(
            "SELECT p.plan_id, p.namespace_id, p.active_version, p.activated_at, p.next_fire_at, v.definition"
            " FROM orbit_plan p JOIN orbit_plan_version v ON v.plan_id = p.plan_id AND v.version = p.active_version"
            f" WHERE p.next_fire_at <= %s ORDER BY p.next_fire_at LIMIT {limit}",
            [now],
        )
    for plan_id, namespace_id, version, activated_at, next_fire_at, raw in rows:
        try:
            definition = stored_definition(raw)
            _fire(_DuePlan(plan_id, namespace_id, version, activated_at, next_fire_at, definition, now))
        except Exception as error:
            telemetry.plan_failed(plan_id, error)
    return len(rows)


@dataclass(frozen=True, slots=True)
class _NotFired:
    """A firing without a task: refused (with the error) or skipped."""

    at: int
    status: FiringStatus
    error: OrbitError | None = None


def _fire(plan: _DuePlan) -> None:
    found = due(plan.definition.timing(), anchor=plan.activated_at, next_fire_at=plan.next_fire_at, now_us=plan.now_us)
    principal = operator_of(plan.namespace_id)
    not_fired: list[_NotFired] = []
    try:
        for at in found.fire:
            result = _fire_one(principal, plan, at)
            if result is not None:
                not_fired.append(result)
    except _Superseded:
        return
    faults.point("plan.fired")
    unit(lambda tx: _move_on(tx, plan, found, not_fired))


def _fire_one(principal: Principal, plan: _DuePlan, at: int) -> _NotFired | None:
    """None when the task is there, whoever accepted it. Raises _Superseded, and Unavailable for an unknown outcome."""
    request = plan.definition.task
    submission = Submission(
        key=f"{plan.plan_id}:{format_rfc3339(at)}",
        request=request,
        digest=digest(request, principal.policy),
        operation=Operation.PLAN_FIRE,
        plan_id=plan.plan_id,
        in_same_unit=lambda tx, task: _record_fired(tx, plan, at, task),
    )
    try:
        accept(principal, submission, actor=SYSTEM)
    except _Overlapping:
        return _NotFired(at, FiringStatus.SKIPPED)
    except Unavailable:
        raise  # nothing is recorded: the next pass asks again with the same identity
    except IdempotencyConflict:
        return None  # fired under another version, a moment before that one was replaced
    except OrbitError as error:
        return _NotFired(at, FiringStatus.REFUSED, error)
    return None


def _record_fired(tx: Tx, plan: _DuePlan, at: int, task: AcceptedTask) -> None:
    row = lock_plan(tx, plan.plan_id)
    if row is None or row.active_version != plan.version or row.next_fire_at is None or row.next_fire_at > at:
        raise _Superseded
    if plan.definition.overlap == Overlap.SKIP.value and _has_unfinished(tx, plan.plan_id):
        raise _Overlapping
    _insert_fired(tx, row, at, task)


def _insert_fired(tx: Tx, plan: PlanRow, at: int, task: AcceptedTask) -> None:
    tx.insert(
        "orbit_plan_firing",
        ("plan_id", "version", "fire_time", "status", "task_id", "created_at"),
        [(plan.plan_id, plan.active_version, at, FiringStatus.ACCEPTED.value, task.task_id, tx.now_us)],
    )
    tx.execute(
        "UPDATE orbit_plan SET last_fired_at = %s WHERE plan_id = %s AND (last_fired_at IS NULL OR last_fired_at < %s)",
        [at, plan.plan_id, at],
    )
    tx.after_commit(lambda: telemetry.plan_fired({FiringStatus.ACCEPTED.value: 1}))


def _has_unfinished(tx: Tx, plan_id: str) -> bool:
    """Whether one of the plan's latest tasks has not ended."""
    states = sorted(state.value for state in UNFINISHED)
    row = tx.row(
        "SELECT 1 FROM (SELECT task_id FROM orbit_plan_firing WHERE plan_id = %s AND task_id IS NOT NULL"
        f" ORDER BY fire_time DESC LIMIT {_OVERLAP_LOOKS_BACK}) f JOIN orbit_task t ON t.task_id = f.task_id"
        f" WHERE t.state IN ({dialect.placeholders(states)}) LIMIT 1",
        [plan_id, *states],
    )
    return row is not None


def _move_on(tx: Tx, plan: _DuePlan, found: Due, not_fired: Sequence[_NotFired]) -> None:
    """Records what was not accepted and sets the next fire time, unless somebody else has done so."""
    row = lock_plan(tx, plan.plan_id)
    if row is None or row.active_version != plan.version or row.next_fire_at != plan.next_fire_at:
        return
    recorded = [_NotFired(at, FiringStatus.MISSED) for at in found.missed[-MISSED_ROWS_MAX:]] + list(not_fired)
    counts = Counter({FiringStatus.MISSED: max(0, len(found.missed) - MISSED_ROWS_MAX)})
    for firing in recorded:
        counts[firing.status] += _record_not_fired(tx, plan, firing)
    tx.execute(
        "UPDATE orbit_plan SET next_fire_at = %s, missed = missed + %s, updated_at = %s WHERE plan_id = %s",
        [found.next_fire_at, counts[FiringStatus.MISSED], tx.now_us, plan.plan_id],
    )
    tx.after_commit(lambda: telemetry.plan_fired({status.value: count for status, count in counts.items()}))


def _record_not_fired(tx: Tx, plan: _DuePlan, firing: _NotFired) -> int:
    """1, or 0 where the instant has a firing: one that was accepted before a crash, or a trigger, stands as it is."""
    columns = ("plan_id", "version", "fire_time", "status", "error", "created_at")
    error = None if firing.error is None else json.dumps(firing.error.as_json(), ensure_ascii=False)
    return tx.execute(
        f"{dialect.insert_ignore(tx.connection)} orbit_plan_firing ({', '.join(columns)})"
        f" VALUES ({dialect.placeholders(columns)})",
        [plan.plan_id, plan.version, firing.at, firing.status.value, error, tx.now_us],
    )


# -- by hand


def trigger(
    principal: Principal,
    plan_id: str,
    *,
    key: str,
    request_id: str | None = None,
    traceparent: str | None = None,
    actor: Actor | None = None,
) -> tuple[Accepted, SubmitRequest]:
    """One firing of the active version now, also of a paused plan and beside an unfinished task of it.

    Answers and is refused like a submit, besides NotFound for the plan. The key stands for the plan, not for the
    version that was active: a repeat gives the same receipt.
    """
    for _ in range(_TRIES_MAX):
        with reading() as tx:
            plan, definition = find_active(tx, principal, plan_id)
        submission = Submission(
            key=key,
            request=definition.task,
            digest=hashlib.sha256(_TRIGGER_FORM + plan_id.encode()).digest(),
            operation=Operation.PLAN_TRIGGER,
            action=Action.PLANS_MANAGE,
            plan_id=plan_id,
            traceparent=traceparent,
            in_same_unit=lambda tx, task, plan=plan: _record_triggered(tx, plan, task),  # type: ignore[misc]
        )
        try:
            return accept(principal, submission, request_id=request_id, actor=actor), definition.task
        except _Superseded:
            continue  # another version was activated between our look and our unit
    raise Unavailable()


def _record_triggered(tx: Tx, plan: PlanRow, task: AcceptedTask) -> None:
    row = lock_plan(tx, plan.plan_id)
    if row is None or row.active_version != plan.active_version:
        raise _Superseded
    at = task.created_at
    # An instant has one firing: one that is taken to the microsecond leaves the next.
    while tx.row("SELECT 1 FROM orbit_plan_firing WHERE plan_id = %s AND fire_time = %s", [plan.plan_id, at]):
        at += 1
    _insert_fired(tx, row, at, task)
