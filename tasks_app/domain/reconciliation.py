"""Reconcile: a person decides what a machine cannot know (design 1.4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tasks_app import faults
from tasks_app.domain import audit
from tasks_app.domain.attempts import error_json
from tasks_app.domain.audit import Actor
from tasks_app.domain.cancellation import require_revision
from tasks_app.domain.task_rows import TaskRow, lock_one
from tasks_app.domain.tenancy import Principal
from tasks_app.domain.transitions import Ledger
from tasks_app.errors import FailedPrecondition, NotFound
from tasks_app.states import EventType, TaskState
from tasks_app.transactions import Tx, unit

RECONCILED_AS_FAILED = "RECONCILED_AS_FAILED"


class Decision(Enum):
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    RETRY = "RETRY"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided and why. `result` is JSON text; `error` (code, message, details as JSON text)."""

    decision: Decision
    reason: str
    result: str | None = None
    error: tuple[str, str, str | None] | None = None


def reconcile(principal: Principal, task_id: str, verdict: Verdict, *, revision: int, actor: Actor) -> TaskRow:
    """Settles an UNKNOWN task. Raises NotFound, PermissionDenied, FailedPrecondition (not UNKNOWN),
    RevisionConflict.

    A decision whose commit answer was lost is looked up in the audit: the same decision of the same actor on the same
    revision is this one; anybody else's is told as what it is.
    """

    def locked(tx: Tx) -> TaskRow:
        row = lock_one(tx, task_id, namespace_id=principal.namespace_id)
        if row is None:
            raise NotFound("no such task")
        principal.require_queue(row.queue_id)
        return row

    def run(tx: Tx) -> TaskRow:
        return reconcile_locked(tx, locked(tx), verdict, revision=revision, actor=actor)

    def confirmed(tx: Tx) -> TaskRow:
        row = locked(tx)
        if _was_decided(tx, row, verdict, revision=revision, actor=actor):
            return row
        return reconcile_locked(tx, row, verdict, revision=revision, actor=actor)

    row = unit(run, on_unknown=lambda: unit(confirmed))
    faults.point("reconcile.committed")
    return row


def reconcile_locked(tx: Tx, row: TaskRow, verdict: Verdict, *, revision: int, actor: Actor) -> TaskRow:
    if row.state is not TaskState.UNKNOWN:
        raise FailedPrecondition(
            f"only an UNKNOWN task can be reconciled; this one is {row.state.value}",
            details=[{"field": "state", "reason": "must be UNKNOWN", "state": row.state.value}],
        )
    require_revision(row, revision)
    ledger = Ledger(tx)
    data: dict[str, Any] = {"decision": verdict.decision.value, "reason": verdict.reason}
    if verdict.decision is Decision.RETRY:
        changes: dict[str, Any] = {
            "available_at": tx.now_us, "cancel_requested_at": None, "error": None, "error_code": None,
            "max_attempts": max(row.max_attempts, row.attempts + 1),
        }  # fmt: skip
        if row.deadline_at is not None and row.deadline_at <= tx.now_us:
            # An operator's word stands above a deadline that passed while nobody knew.
            changes["deadline_at"] = None
        ledger.move(row, TaskState.READY, event=EventType.RECONCILED, data=data, changes=changes)
    elif verdict.decision is Decision.SUCCEEDED:
        changes = {"result": verdict.result or "null", "error": None, "error_code": None}
        ledger.move(row, TaskState.SUCCEEDED, event=EventType.RECONCILED, data=data, changes=changes)
    else:
        code, message, details = verdict.error or (RECONCILED_AS_FAILED, verdict.reason, None)
        changes = {"error": error_json(code, message, details), "error_code": code}
        ledger.move(row, TaskState.FAILED, event=EventType.RECONCILED, data=data, changes=changes)
    ledger.also(
        *audit.statement(
            tx,
            actor,
            "task.reconcile",
            "task",
            row.task_id,
            namespace_id=row.namespace_id,
            reason=verdict.reason,
            revision_before=revision,
            revision_after=row.revision,
            data={"decision": verdict.decision.value},
        )  # fmt: skip
    )
    ledger.flush()
    return row


def _was_decided(tx: Tx, row: TaskRow, verdict: Verdict, *, revision: int, actor: Actor) -> bool:
    """Whether this very decision took effect; at most one can on one revision."""
    found = tx.row(
        "SELECT actor_kind, actor, request_id, reason, data FROM orbit_audit_entry"
        " WHERE object_id = %s AND action = 'task.reconcile' AND revision_before = %s",
        [row.task_id, revision],
    )
    if found is None:
        return False
    *who_and_why, data = found
    expected = [actor.kind.value, actor.name, actor.request_id, verdict.reason]
    return who_and_why == expected and json.loads(data)["decision"] == verdict.decision.value
