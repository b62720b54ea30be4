"""Reading operations: what the API and the operators' pages show (design 4.8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lifecycle_app.models import LifecycleTask, OperationIntent
from lifecycle_app.states import IntentState
from lifecycle_app.statuses import DisplayStatus
from tasks_app import instants
from tasks_app.errors import NotFound


@dataclass(frozen=True)
class ShownRow:
    """The members of the visible row; a tombstone has none."""

    name: str
    requester: str
    status: DisplayStatus
    progress: int
    storage_node: str | None
    updated_at: int


@dataclass(frozen=True)
class Operation:
    """One gid as it is; instants in microseconds since the epoch. A row that never had an intent has no `state`."""

    gid: int
    operation_id: str | None
    delete_operation_id: str | None
    state: IntentState | None
    last_revision: int
    legacy: bool
    created_at: int
    updated_at: int
    submitted_at: int | None
    evidence: str | None  # JSON array
    row: ShownRow | None


@dataclass(frozen=True)
class OperationFilter:
    states: tuple[IntentState, ...] = ()
    requester: str | None = None


def get(namespace_id: str, gid: int) -> Operation:
    """One operation, tombstones included. Raises NotFound."""
    intent = _intents().filter(namespace_id=namespace_id, gid=gid).first()
    if intent is not None:
        return _operation(intent, intent.task)
    task = LifecycleTask.objects.select_related("storage_node").filter(namespace_id=namespace_id, gid=gid).first()
    if task is None:
        raise NotFound("no such operation")
    return _row_without_intent(task)


def unknown_now(gid: int, operation_id: str, *, name: str, requester: str, at_us: int) -> Operation:
    """What is known of an operation whose outcome was lost together with the database."""
    return Operation(
        gid=gid,
        operation_id=operation_id,
        delete_operation_id=None,
        state=IntentState.UNKNOWN,
        last_revision=0,
        legacy=False,
        created_at=at_us,
        updated_at=at_us,
        submitted_at=None,
        evidence=None,
        row=ShownRow(name, requester, DisplayStatus.SUBMIT_UNKNOWN, 0, None, at_us),
    )


def page(
    namespace_id: str, wanted: OperationFilter, *, before_operation_id: str | None, limit: int
) -> Sequence[Operation]:
    """Up to `limit` operations, newest generation first, those behind `before_operation_id`."""
    intents = _intents().filter(namespace_id=namespace_id)
    if wanted.states:
        intents = intents.filter(state__in=[state.value for state in wanted.states])
    if wanted.requester is not None:
        intents = intents.filter(task__requester=wanted.requester)
    if before_operation_id is not None:
        intents = intents.filter(operation_id__lt=before_operation_id)
    return [_operation(intent, intent.task) for intent in intents.order_by("-operation_id")[:limit]]


def _intents():  # type: ignore[no-untyped-def]  # a queryset
    return OperationIntent.objects.select_related("task__storage_node")


def _operation(intent: OperationIntent, task: LifecycleTask | None) -> Operation:
    return Operation(
        gid=intent.gid,
        operation_id=intent.operation_id,
        delete_operation_id=intent.delete_operation_id,
        state=IntentState(intent.state),
        last_revision=intent.last_revision,
        legacy=intent.legacy,
        created_at=instants.from_datetime(intent.created_at),
        updated_at=instants.from_datetime(intent.updated_at),
        submitted_at=None if intent.submitted_at is None else instants.from_datetime(intent.submitted_at),
        evidence=intent.evidence,
        row=None if task is None else _row(task),
    )


def _row_without_intent(task: LifecycleTask) -> Operation:
    return Operation(
        gid=task.gid,
        operation_id=None,
        delete_operation_id=None,
        state=None,
        last_revision=0,
        legacy=True,
        created_at=instants.from_datetime(task.created_at),
        updated_at=instants.from_datetime(task.updated_at),
        submitted_at=None,
        evidence=None,
        row=_row(task),
    )


def _row(task: LifecycleTask) -> ShownRow:
    return ShownRow(
        name=task.name,
        requester=task.requester,
        status=DisplayStatus(task.status),
        progress=task.progress,
        storage_node=None if task.storage_node is None else task.storage_node.name,
        updated_at=instants.from_datetime(task.updated_at),
    )
