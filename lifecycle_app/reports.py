"""What one entry of a report does to the row it names: the table of design 4.4 as one pure decision.

The first row of the table that fits decides. Two facts of the seed are stricter than the table's order and hold first:
a generation that is not certain yet (RESERVED, SUBMITTING, UNKNOWN) shows no progress, because a download without
metering must not exist (invariant 4); and a revision that is not newer changes nothing, whoever sends it (invariant 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lifecycle_app.messages import ReportedTask
from lifecycle_app.states import NOT_CERTAIN, IntentState
from lifecycle_app.statuses import SHOWN, DisplayStatus, NodeStatus
from tasks_app.ids import is_id


class IgnoredBecause(StrEnum):
    """Why an entry changed nothing. It is acknowledged all the same, so that the node stops repeating it."""

    UNKNOWN_GID = "UNKNOWN_GID"
    TOMBSTONE = "TOMBSTONE"
    DELETE_PENDING = "DELETE_PENDING"
    OTHER_STORAGE_NODE = "OTHER_STORAGE_NODE"
    OTHER_GENERATION = "OTHER_GENERATION"
    NO_OPERATION_ID = "NO_OPERATION_ID"
    NOT_CERTAIN = "NOT_CERTAIN"
    OLD_REVISION = "OLD_REVISION"
    NOT_DELETING = "NOT_DELETING"
    NOTHING_SAID = "NOTHING_SAID"


@dataclass(frozen=True)
class KnownIntent:
    state: IntentState
    operation_id: str
    delete_operation_id: str | None
    last_revision: int
    legacy: bool


@dataclass(frozen=True)
class KnownTask:
    status: DisplayStatus
    progress: int
    storage_node_id: str | None


@dataclass(frozen=True)
class Ignore:
    because: IgnoredBecause


@dataclass(frozen=True)
class Adoption:
    operation_id: str | None


@dataclass(frozen=True)
class Move:
    """The row moves. `adopt`: it never had an intent, so one is made, with this id or (None inside) a new one."""

    status: DisplayStatus
    progress: int
    last_revision: int
    adopt: Adoption | None = None


@dataclass(frozen=True)
class EndDelete:
    """The node confirmed: favourites and row go, the tombstone stays."""


@dataclass(frozen=True)
class FailDelete:
    """The node could not: row and intent stay, a retry uses the same id."""

    error: str


Decision = Ignore | Move | EndDelete | FailDelete


def decide(
    *,
    intent: KnownIntent | None,
    task: KnownTask | None,
    entry: ReportedTask,
    revision: int | None,
    storage_node_id: str,
    adoptable: bool = True,
) -> Decision:
    """What `entry`, sent by `storage_node_id` with `revision` (None: a legacy message), does.

    `adoptable` is false when the entry's operation id already names a generation of another gid.
    """
    if intent is None and task is None:
        return Ignore(IgnoredBecause.UNKNOWN_GID)
    if intent is not None and intent.state is IntentState.DELETED:
        return Ignore(IgnoredBecause.TOMBSTONE)
    if intent is not None and intent.state is IntentState.DELETE_PENDING:
        return _while_deleting(intent, task, entry, storage_node_id)
    if task is None:
        return Ignore(IgnoredBecause.UNKNOWN_GID)
    if task.storage_node_id is not None and task.storage_node_id != storage_node_id:
        return Ignore(IgnoredBecause.OTHER_STORAGE_NODE)
    if intent is None:
        return _adopt(task, entry, revision, adoptable)
    if entry.operation_id is not None and entry.operation_id != intent.operation_id:
        return Ignore(IgnoredBecause.OTHER_GENERATION)
    if entry.operation_id is None and not intent.legacy:
        return Ignore(IgnoredBecause.NO_OPERATION_ID)
    if intent.state in NOT_CERTAIN:
        return Ignore(IgnoredBecause.NOT_CERTAIN)
    if revision is not None and revision <= intent.last_revision:
        return Ignore(IgnoredBecause.OLD_REVISION)
    return _move(task, entry, revision, last_revision=intent.last_revision)


def _while_deleting(intent: KnownIntent, task: KnownTask | None, entry: ReportedTask, storage_node_id: str) -> Decision:
    named = entry.operation_id is not None and entry.operation_id == intent.delete_operation_id
    if not named or not (entry.deleted or entry.error is not None):
        return Ignore(IgnoredBecause.DELETE_PENDING)
    if task is not None and task.storage_node_id not in (None, storage_node_id):
        return Ignore(IgnoredBecause.OTHER_STORAGE_NODE)
    # Both at once contradict each other; believing the failure loses nothing.
    if entry.error is not None:
        return FailDelete(entry.error)
    return EndDelete()


def _adopt(task: KnownTask, entry: ReportedTask, revision: int | None, adoptable: bool) -> Decision:
    # An id that Orbit could not have made, or that belongs to another gid, is not this row's generation.
    if entry.operation_id is not None and not (adoptable and is_id(entry.operation_id)):
        return Ignore(IgnoredBecause.OTHER_GENERATION)
    decision = _move(task, entry, revision, last_revision=0)
    if isinstance(decision, Move):
        return Move(decision.status, decision.progress, decision.last_revision, adopt=Adoption(entry.operation_id))
    return decision


def _move(task: KnownTask, entry: ReportedTask, revision: int | None, *, last_revision: int) -> Decision:
    if entry.deleted:
        return Ignore(IgnoredBecause.NOT_DELETING)  # nobody asked for it: no row goes without a committed delete
    if entry.status is None and entry.progress is None:
        return Ignore(IgnoredBecause.NOTHING_SAID)
    status = SHOWN[entry.status] if entry.status is not None else task.status
    progress = task.progress if entry.progress is None else entry.progress
    if entry.status is NodeStatus.COMPLETE and entry.progress is None:
        progress = 100
    return Move(status, progress, last_revision if revision is None else revision)
