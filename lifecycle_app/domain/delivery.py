"""What a storage node is told, and when: only what is certain, again until the node has answered (design 4.5).

A row waits for delivery from the moment that it is certain until its node's first applied report. On each connection of
the node it is sent once, whichever process holds it; the mark that it was sent is committed before it leaves, so that a
crash in between costs at most a repeat on the next connection, always with the same operation id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.db.models import Count, Q

from lifecycle_app.domain import transitions
from lifecycle_app.domain.storage_nodes import Connected, connected_node_ids, is_current
from lifecycle_app.limits import DELIVERY_BATCH
from lifecycle_app.models import Delivery, LifecycleTask, OperationIntent
from lifecycle_app.states import CommandAction, IntentState, StorageProtocol
from lifecycle_app.statuses import DisplayStatus
from tasks_app import faults
from tasks_app.instants import to_datetime
from tasks_app.transactions import Tx, unit


@dataclass(frozen=True)
class Command:
    """One thing that a storage node is told."""

    action: CommandAction
    gid: int
    name: str
    operation_id: str


def deliverable(state: IntentState) -> CommandAction | None:
    """The decision resolver: what may be told about an intent in this state; None for everything not certain."""
    if state is IntentState.SUBMITTED:
        return CommandAction.DOWNLOAD
    return CommandAction.DELETE if state is IntentState.DELETE_PENDING else None


def assign_waiting(namespace_ids: Sequence[str]) -> int:
    """Gives rows that no node was given to the connected node with the fewest unfinished rows. Returns how many."""
    if not namespace_ids:
        return 0
    waiting = list(
        LifecycleTask.objects.filter(
            delivery=Delivery.WAITING.value, storage_node__isnull=True, namespace_id__in=namespace_ids
        )
        .order_by("task_id")
        .values_list("namespace_id", "gid")[:DELIVERY_BATCH]
    )
    assigned = 0
    for namespace_id in sorted({row[0] for row in waiting}):
        gids = sorted(gid for row_namespace, gid in waiting if row_namespace == namespace_id)
        assigned += unit(partial(_assign_in, namespace_id=namespace_id, gids=gids))
        faults.point("lifecycle.deliver.assigned")
    return assigned


def _assign_in(tx: Tx, *, namespace_id: str, gids: list[int]) -> int:
    assigned = 0
    load: Counter[str] | None = None
    for gid in gids:
        intent = transitions.lock_intent(namespace_id, gid)
        if intent is None or deliverable(IntentState(intent.state)) is None:
            continue
        if load is None:
            load = _unfinished_rows(tx, namespace_id)
        if not load:
            return 0
        chosen = _least_loaded(load)
        given = LifecycleTask.objects.filter(
            task_id=intent.task_id, storage_node__isnull=True, delivery=Delivery.WAITING.value
        ).update(storage_node_id=chosen, updated_at=tx.now_us)
        load[chosen] += given
        assigned += given
    return assigned


def _unfinished_rows(tx: Tx, namespace_id: str, *, but: str | None = None) -> Counter[str]:
    """Unfinished rows of every connected node of the namespace."""
    load = Counter(dict.fromkeys(connected_node_ids(tx, namespace_id, but=but), 0))
    counted = (
        LifecycleTask.objects.filter(storage_node_id__in=list(load))
        .exclude(status=DisplayStatus.COMPLETE.value)
        .values("storage_node_id")
        .annotate(rows=Count("task_id"))
    )
    for row in counted:
        load[row["storage_node_id"]] = row["rows"]
    return load


def other_node(tx: Tx, namespace_id: str, *, but: str | None) -> str | None:
    """The connected node with the fewest unfinished rows, apart from `but`; None when there is no other."""
    load = _unfinished_rows(tx, namespace_id, but=but)
    return _least_loaded(load) if load else None


def _least_loaded(load: Counter[str]) -> str:
    return min(load, key=lambda node: (load[node], node))


def with_work(connections: Sequence[Connected]) -> list[Connected]:
    """The connections on which something waits to be sent: one query for all of them, however many are idle."""
    if not connections:
        return []
    rows = LifecycleTask.objects.filter(
        delivery=Delivery.WAITING.value,
        storage_node_id__in=[connected.reporter.storage_node_id for connected in connections],
    ).exclude(sent_connection_id__in=[connected.connection_id for connected in connections])
    nodes = set(rows.values_list("storage_node_id", flat=True).distinct())
    return [connected for connected in connections if connected.reporter.storage_node_id in nodes]


def take_commands(connected: Connected, protocol: StorageProtocol) -> list[Command]:
    """Commands to send on this connection now; taken means marked as sent, and committed.

    Sent as old messages they have no operation id, so the intent becomes `legacy` first: the node's reports will not
    have one either.
    """
    node_id = connected.reporter.storage_node_id
    waiting = LifecycleTask.objects.filter(delivery=Delivery.WAITING.value, storage_node_id=node_id).filter(
        Q(sent_connection_id__isnull=True) | ~Q(sent_connection_id=connected.connection_id)
    )
    gids = sorted(waiting.order_by("task_id").values_list("gid", flat=True)[:DELIVERY_BATCH])
    if not gids:
        return []
    commands = unit(lambda tx: _take_in(tx, connected, protocol, gids))
    faults.point("lifecycle.deliver.marked")
    return commands


def _take_in(tx: Tx, connected: Connected, protocol: StorageProtocol, gids: list[int]) -> list[Command]:
    reporter = connected.reporter
    if not is_current(connected):
        return []  # what is marked on a replaced connection would wait for the newer one for nothing
    intents = OperationIntent.objects.select_for_update().filter(namespace_id=reporter.namespace_id, gid__in=gids)
    commands: list[Command] = []
    for intent in intents.order_by("gid"):
        action = deliverable(IntentState(intent.state))
        if action is None:
            continue
        task = transitions.lock_task(intent)
        if (
            task.storage_node_id != reporter.storage_node_id
            or task.delivery != Delivery.WAITING
            or task.sent_connection_id == connected.connection_id
        ):
            continue
        if protocol is StorageProtocol.LEGACY and action is CommandAction.DOWNLOAD and not intent.legacy:
            transitions.note(tx, intent, legacy=True)
        LifecycleTask.objects.filter(task_id=task.task_id).update(
            sent_connection_id=connected.connection_id, sent_at=to_datetime(tx.now_us)
        )
        operation_id = intent.operation_id if action is CommandAction.DOWNLOAD else intent.delete_operation_id
        assert operation_id is not None  # noqa: S101 - a CHECK: it is set exactly while deleting
        commands.append(Command(action, intent.gid, task.name, operation_id))
    return commands
