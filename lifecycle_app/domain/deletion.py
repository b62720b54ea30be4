"""Delete: the intent first, the node's word second, and only then the row (design 4.3)."""

from __future__ import annotations

from lifecycle_app import wakeups
from lifecycle_app.domain import transitions
from lifecycle_app.domain.adoption import adopt, lock_row_without_intent
from lifecycle_app.domain.transitions import Why
from lifecycle_app.models import Delivery, OperationIntent
from lifecycle_app.states import NOT_CERTAIN, IntentState
from lifecycle_app.statuses import DisplayStatus
from tasks_app import faults, ids
from tasks_app.domain.audit import Actor
from tasks_app.errors import FailedPrecondition, NotFound
from tasks_app.transactions import Tx, unit


def request_delete(namespace_id: str, gid: int, *, actor: Actor) -> None:
    """Commits the wish to delete; the command to the storage node follows. A repeat keeps the same delete id.

    After a failure a repeat makes the node try again, under that same id. Raises NotFound (no such gid, or deleted),
    FailedPrecondition (being submitted, or UNKNOWN and to be reconciled first).
    """

    def run(tx: Tx) -> None:
        intent = transitions.lock_intent(namespace_id, gid)
        if intent is None:
            task = lock_row_without_intent(namespace_id, gid)
            if task is None:
                raise NotFound("no such operation")
            intent = adopt(tx, task, operation_id=None)
        _request_in(tx, intent, Why(actor, "operation.delete"))
        tx.after_commit(wakeups.DELIVER.set)
        faults.point("lifecycle.delete.before_requested")

    unit(run)
    faults.point("lifecycle.delete.requested")


def _request_in(tx: Tx, intent: OperationIntent, why: Why) -> None:
    state = IntentState(intent.state)
    if state is IntentState.DELETED:
        raise NotFound("no such operation")
    if state in NOT_CERTAIN:
        reason = "must be reconciled first" if state is IntentState.UNKNOWN else "is being submitted"
        raise FailedPrecondition(
            f"an operation in state {state.value} cannot be deleted: it {reason}",
            details=[{"field": "gid", "reason": reason, "state": state.value}],
        )
    task = transitions.lock_task(intent)
    if state is IntentState.SUBMITTED:
        transitions.move(tx, intent, IntentState.DELETE_PENDING, why, delete_operation_id=ids.new_id(tx.now_us))
        transitions.show(tx, intent, task, DisplayStatus.DELETE_PENDING, delivery=Delivery.WAITING)
    elif task.status == DisplayStatus.DELETE_FAILED:
        transitions.show(tx, intent, task, DisplayStatus.DELETE_PENDING, delivery=Delivery.WAITING)


def fail(tx: Tx, intent: OperationIntent) -> None:
    """The node could not delete: row and intent stay, and so does the delete id (the intent is locked)."""
    task = transitions.lock_task(intent)
    transitions.show(tx, intent, task, DisplayStatus.DELETE_FAILED, delivery=Delivery.SETTLED)
