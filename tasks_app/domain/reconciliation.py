"""Reconcile: a person decides what a machine cannot know (design 1.4)."""

from __future__ import annotations

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
    """

    def run(tx: Tx) -> TaskRow:
        row = lock_one(tx, task_id, namespace_id=principal.namespace_id)
        if row is None:
            raise NotFound("no such task")
        principal.require_queue(row.queue_id)
        return reconcile_locked(tx, row, verdict, revision=revision, actor=actor)

    row = unit(run)
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
