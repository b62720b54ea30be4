"""Rows that came from before: a visible row without an intent gets one the first time it matters (design 4.4)."""

from __future__ import annotations

from lifecycle_app.domain import transitions
from lifecycle_app.domain.transitions import Why
from lifecycle_app.models import LifecycleTask, OperationIntent
from lifecycle_app.states import IntentState
from tasks_app import ids, instants
from tasks_app.domain.audit import SYSTEM
from tasks_app.instants import to_datetime
from tasks_app.transactions import Tx

NO_NODE = "-"  # nobody makes a call for it any more


def adopt(tx: Tx, task: LifecycleTask, *, operation_id: str | None) -> OperationIntent:
    """A generation for a locked row that never had one: it was certainly submitted, before Orbit kept intents.

    What the row shows is not touched, and nothing is metered: that happened in its own time.
    """
    now = to_datetime(tx.now_us)
    intent = OperationIntent.objects.create(
        intent_id=ids.new_id(tx.now_us),
        namespace_id=task.namespace_id,
        gid=task.gid,
        operation_id=operation_id or ids.new_id(tx.now_us),
        state=IntentState.SUBMITTED.value,
        task=task,
        legacy=True,
        owner_node_id=NO_NODE,
        owner_incarnation=ids.id_floor(instants.from_datetime(task.created_at)),
        created_at=task.created_at,
        updated_at=now,
        submitted_at=task.created_at,
    )
    transitions.record_first(tx, intent, Why(SYSTEM, "operation.adopt"))
    return intent


def lock_row_without_intent(namespace_id: str, gid: int) -> LifecycleTask | None:
    return LifecycleTask.objects.select_for_update().filter(namespace_id=namespace_id, gid=gid).first()
