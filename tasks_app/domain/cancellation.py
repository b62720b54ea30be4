"""Cancel: durable, whoever is connected (design 1.4)."""

from __future__ import annotations

from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.domain.task_rows import TaskRow, lock_one
from tasks_app.domain.tenancy import Principal
from tasks_app.domain.transitions import Ledger
from tasks_app.errors import FailedPrecondition, NotFound, RevisionConflict
from tasks_app.hints import Hint, HintKind
from tasks_app.states import EventType, TaskState
from tasks_app.transactions import Tx, unit


def cancel(principal: Principal, task_id: str, *, revision: int, reason: str | None, actor: Actor) -> TaskRow:
    """Cancels a task that has not started; asks a running one to stop. Repeatable: asked twice is asked once.

    Raises NotFound, PermissionDenied (queue out of scope), FailedPrecondition (UNKNOWN, or ended otherwise; judged
    before the revision) and RevisionConflict.
    """

    def run(tx: Tx) -> TaskRow:
        row = lock_one(tx, task_id, namespace_id=principal.namespace_id)
        if row is None:
            raise NotFound("no such task")
        principal.require_queue(row.queue_id)
        return cancel_locked(tx, row, revision=revision, reason=reason, actor=actor)

    return unit(run, on_unknown=lambda: unit(run))


def cancel_locked(tx: Tx, row: TaskRow, *, revision: int, reason: str | None, actor: Actor) -> TaskRow:
    if row.state is TaskState.CANCELED or (row.state is TaskState.RUNNING and row.cancel_requested_at is not None):
        return row
    if row.state in (TaskState.UNKNOWN, TaskState.SUCCEEDED, TaskState.FAILED, TaskState.EXPIRED):
        raise FailedPrecondition(
            f"a task that is {row.state.value} cannot be canceled",
            details=[{"field": "state", "reason": "cannot be canceled", "state": row.state.value}],
        )
    require_revision(row, revision)
    ledger = Ledger(tx)
    data = {"reason": reason} if reason else None
    hint = Hint(
        HintKind.CANCEL_REQUESTED if row.state is TaskState.RUNNING else HintKind.RESERVATION_REVOKED,
        namespace_id=row.namespace_id,
        queue_id=row.queue_id,
        task_id=row.task_id,
        session_id=row.session_id or "",
        attempt_id=row.attempt_id or "",
        detail="REQUESTED" if row.state is TaskState.RUNNING else "CANCELED",
    )
    if row.session_id is not None:
        ledger.hint(hint)
    if row.state is TaskState.RUNNING:
        ledger.note(row, event=EventType.CANCEL_REQUESTED, data=data, changes={"cancel_requested_at": tx.now_us})
    else:
        ledger.move(row, TaskState.CANCELED, event=EventType.CANCELED, data=data)
    ledger.also(
        *_audit_statement(tx, actor, "task.cancel", row, revision=revision, reason=reason),
    )
    ledger.flush()
    return row


def require_revision(row: TaskRow, revision: int) -> None:
    if row.revision != revision:
        raise RevisionConflict(
            details=[{"field": "revision", "reason": "the task changed since", "current": str(row.revision)}]
        )


def _audit_statement(
    tx: Tx, actor: Actor, action: str, row: TaskRow, *, revision: int, reason: str | None
) -> tuple[str, list[object]]:
    return audit.statement(
        tx, actor, action, "task", row.task_id, namespace_id=row.namespace_id, reason=reason,
        revision_before=revision, revision_after=row.revision,
    )  # fmt: skip
