"""The one place where an intent's state changes (design 4.1 to 4.6).

Every function here takes an intent that the caller has locked in this unit, changes it by an update that is guarded by
its id, its generation and the state that was read, looks at the row count, and writes the audit entry beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lifecycle_app.domain import notifications
from lifecycle_app.models import Delivery, Favorite, LifecycleTask, NotificationStatus, OperationIntent
from lifecycle_app.states import RELEASABLE, IntentState, is_move
from lifecycle_app.statuses import DisplayStatus
from tasks_app import instants
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.transactions import Tx

OBJECT_TYPE = "operation"


class IllegalMove(Exception):
    """A move outside the table of states: a fault of the calling code, never of a request."""


class StaleGuard(Exception):
    """A guarded update matched no row although it was locked. The unit is rolled back."""


@dataclass(frozen=True)
class Why:
    """Who moves an intent, under which verb, and what the audit entry says beside it."""

    actor: Actor
    action: str
    reason: str | None = None
    data: dict[str, Any] | None = None


def lock_intent(namespace_id: str, gid: int) -> OperationIntent | None:
    """The intent of a gid, locked for this unit; first of all locks."""
    return OperationIntent.objects.select_for_update().filter(namespace_id=namespace_id, gid=gid).first()


def lock_task(intent: OperationIntent) -> LifecycleTask:
    """The row of an intent that is not DELETED, locked after the intent."""
    return LifecycleTask.objects.select_for_update().get(task_id=intent.task_id)


def move(tx: Tx, intent: OperationIntent, to: IntentState, why: Why, **columns: Any) -> None:
    """Moves a locked intent to `to`; `columns` change with it."""
    before = IntentState(intent.state)
    if not is_move(before, to):
        raise IllegalMove(f"{before} -> {to}")
    _update(tx, intent, state=to.value, **columns)
    _audit(tx, intent, why, before=before, after=to)


def note(tx: Tx, intent: OperationIntent, **columns: Any) -> None:
    """Changes other columns of a locked intent and keeps its state."""
    _update(tx, intent, **columns)


def show(
    tx: Tx,
    intent: OperationIntent,
    task: LifecycleTask,
    status: DisplayStatus,
    *,
    delivery: Delivery | None = None,
    **columns: Any,
) -> None:
    """What the row shows from now on. A status that it enters is told after the commit, once per generation."""
    entered = task.status != status.value
    if delivery is not None:
        columns["delivery"] = delivery.value
        if delivery is Delivery.WAITING:
            columns |= {"sent_connection_id": None, "sent_at": None}
    columns |= {"status": status.value, "updated_at": tx.now_us}
    matched = LifecycleTask.objects.filter(task_id=task.task_id, status=task.status).update(**columns)
    if matched != 1:
        raise StaleGuard(f"the row of gid {task.gid} changed although it was locked")
    _remember(task, columns)
    if entered and status is not DisplayStatus.SUBMITTING:
        notifications.tell(tx, intent, NotificationStatus(status.value))


def record_first(tx: Tx, intent: OperationIntent, why: Why) -> None:
    """A first generation was inserted in this unit: its audit entry."""
    _audit(tx, intent, why, before=None, after=IntentState(intent.state))


def begin_generation(
    tx: Tx, tombstone: OperationIntent, task: LifecycleTask, why: Why, *, operation_id: str, **columns: Any
) -> None:
    """An explicit create on a tombstone: a new generation, which remembers the tombstone until it is certain."""
    remembered = json.dumps(
        {
            "operation_id": tombstone.operation_id,
            "delete_operation_id": tombstone.delete_operation_id,
            "last_revision": tombstone.last_revision,
            "legacy": tombstone.legacy,
            "quantity": tombstone.quantity,
            "created_at": instants.from_datetime(tombstone.created_at),
            "submitted_at": None if tombstone.submitted_at is None else instants.from_datetime(tombstone.submitted_at),
        }
    )
    move(
        tx,
        tombstone,
        IntentState.RESERVED,
        why,
        operation_id=operation_id,
        delete_operation_id=None,
        task_id=task.task_id,
        last_revision=0,
        legacy=False,
        evidence=None,
        tombstone=remembered,
        created_at=tx.now_us,
        submitted_at=None,
        **columns,
    )


def release(tx: Tx, intent: OperationIntent, why: Why) -> None:
    """Forgets a generation that the upstream certainly does not know, with its placeholder row.

    What was there before it comes back: nothing, or the tombstone of the generation before.
    """
    before = IntentState(intent.state)
    if before not in RELEASABLE:
        raise IllegalMove(f"{before} is not released")
    _remove_task(intent)
    guarded = OperationIntent.objects.filter(
        intent_id=intent.intent_id, operation_id=intent.operation_id, state=before.value
    )
    # Written before the row may change: the entry names the generation that is forgotten.
    _audit(tx, intent, why, before=before, after=None)
    if intent.tombstone is None:
        matched, _ = guarded.delete()
    else:
        remembered = json.loads(intent.tombstone)
        matched = guarded.update(
            state=IntentState.DELETED.value,
            task_id=None,
            tombstone=None,
            evidence=None,
            updated_at=tx.now_us,
            **remembered,
        )
    if matched != 1:
        raise StaleGuard(f"the intent of gid {intent.gid} changed although it was locked")


def bury(tx: Tx, intent: OperationIntent, why: Why) -> None:
    """The files are gone: favourites and row go, the tombstone stays, in one transaction."""
    Favorite.objects.filter(namespace_id=intent.namespace_id, gid=intent.gid).delete()
    _remove_task(intent)
    move(tx, intent, IntentState.DELETED, why, task_id=None)
    notifications.tell(tx, intent, NotificationStatus.DELETED)


def _remove_task(intent: OperationIntent) -> None:
    matched, _ = LifecycleTask.objects.filter(task_id=intent.task_id, gid=intent.gid).delete()
    if matched != 1:
        raise StaleGuard(f"the row of gid {intent.gid} is gone although its intent was locked")


def _update(tx: Tx, intent: OperationIntent, **columns: Any) -> None:
    columns["updated_at"] = tx.now_us
    matched = OperationIntent.objects.filter(
        intent_id=intent.intent_id, operation_id=intent.operation_id, state=intent.state
    ).update(**columns)
    if matched != 1:
        raise StaleGuard(f"the intent of gid {intent.gid} changed although it was locked")
    _remember(intent, columns)


def _remember(row: Any, columns: dict[str, Any]) -> None:
    """The object goes on as the row is now, instants as the model reads them."""
    for name, value in columns.items():
        is_instant = name.endswith("_at") and isinstance(value, int)
        setattr(row, name, instants.to_datetime(value) if is_instant else value)


def _audit(tx: Tx, intent: OperationIntent, why: Why, *, before: IntentState | None, after: IntentState | None) -> None:
    audit.write(
        tx,
        why.actor,
        why.action,
        OBJECT_TYPE,
        str(intent.gid),
        namespace_id=intent.namespace_id,
        reason=why.reason,
        data={
            "operation_id": intent.operation_id,
            "before": None if before is None else before.value,
            "after": None if after is None else after.value,
            **(why.data or {}),
        },
    )
