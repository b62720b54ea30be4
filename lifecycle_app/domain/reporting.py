"""Reports of storage nodes: applied in one transaction each, and acknowledged only after its commit (design 4.4).

What an entry does is decided by the pure table in `reports.py`; here the rows are locked, read, and moved as it says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import DatabaseError, IntegrityError

from lifecycle_app import evidence, reports
from lifecycle_app.domain import deletion, transitions
from lifecycle_app.domain.adoption import adopt
from lifecycle_app.domain.transitions import Why
from lifecycle_app.messages import ReportedTask, TaskReport
from lifecycle_app.models import Delivery, LifecycleTask, OperationIntent, ReportReceipt, StorageNode
from lifecycle_app.reports import EndDelete, FailDelete, Ignore, IgnoredBecause, KnownIntent, KnownTask, Move
from lifecycle_app.states import AckResult, IntentState
from lifecycle_app.statuses import DisplayStatus
from tasks_app import faults, ids
from tasks_app.domain.audit import SYSTEM
from tasks_app.instants import to_datetime
from tasks_app.transactions import CommitOutcomeUnknown, Tx, unit

logger = logging.getLogger("orbit.lifecycle")

_GIDS_PER_QUERY = 500


@dataclass(frozen=True)
class Reporter:
    """The storage node that a connection was authenticated as."""

    storage_node_id: str
    namespace_id: str
    name: str


def apply_report(reporter: Reporter, report: TaskReport) -> AckResult | None:
    """Applies a report. The result is what may be acknowledged now; None means: nothing was committed, say nothing.

    The node keeps what was not acknowledged and sends it again, so nothing is lost by silence.
    """
    try:
        result = _apply_until_definite(reporter, report)
    except (DatabaseError, CommitOutcomeUnknown):
        logger.exception("a report could not be applied; it is not acknowledged", extra={"storage_node": reporter.name})
        return None
    faults.point("lifecycle.report.committed")
    return result


def _apply_until_definite(reporter: Reporter, report: TaskReport) -> AckResult:
    while True:
        try:
            # A lost answer to COMMIT needs no look-up of its own: applied again, a report finds its receipt.
            return unit(lambda tx: _apply_in(tx, reporter, report), on_unknown=lambda: _again(reporter, report))
        except IntegrityError as error:
            # The same report was committed through another connection while this one waited.
            if not _is_receipt_taken(error):
                raise


def _again(reporter: Reporter, report: TaskReport) -> AckResult:
    result = unit(lambda tx: _apply_in(tx, reporter, report))
    return result


def _apply_in(tx: Tx, reporter: Reporter, report: TaskReport) -> AckResult:
    if report.report_id is not None and _has_receipt(reporter, report.report_id):
        return AckResult.DUPLICATE
    gids = sorted({entry.gid for entry in report.tasks})
    intents = _lock_intents(reporter.namespace_id, gids)
    tasks = _lock_tasks(reporter.namespace_id, gids)
    elsewhere = _known_elsewhere(report.tasks, intents)
    changed = False
    for entry in report.tasks:
        intent, task = intents.get(entry.gid), tasks.get(entry.gid)
        decision = reports.decide(
            intent=None if intent is None else _known_intent(intent),
            task=None if task is None else _known_task(task),
            entry=entry,
            revision=report.revision,
            storage_node_id=reporter.storage_node_id,
            adoptable=entry.operation_id not in elsewhere,
        )
        if isinstance(decision, Ignore):
            _keep_evidence(tx, intent, entry, report, decision, reporter)
        elif isinstance(decision, Move):
            assert task is not None  # noqa: S101 - the table moves rows only
            intents[entry.gid] = _apply_move(tx, intent, task, decision, reporter)
            changed = True
        else:
            assert intent is not None  # noqa: S101 - the table ends deletes of intents only
            _apply_delete(tx, intent, decision, entry, reporter)
            tasks.pop(entry.gid, None) if isinstance(decision, EndDelete) else None
            changed = True
    result = AckResult.APPLIED if changed else AckResult.IGNORED
    if report.report_id is not None:
        ReportReceipt.objects.create(
            receipt_id=ids.new_id(tx.now_us),
            storage_node_id=reporter.storage_node_id,
            report_id=report.report_id,
            result=result.value,
            created_at=to_datetime(tx.now_us),
        )
    StorageNode.objects.filter(storage_node_id=reporter.storage_node_id).update(last_seen_at=tx.now_us)
    faults.point("lifecycle.report.before_commit")
    return result


def _has_receipt(reporter: Reporter, report_id: str) -> bool:
    return ReportReceipt.objects.filter(storage_node_id=reporter.storage_node_id, report_id=report_id).exists()


def _lock_intents(namespace_id: str, gids: list[int]) -> dict[int, OperationIntent]:
    found: dict[int, OperationIntent] = {}
    for part in _parts(gids):
        rows = OperationIntent.objects.select_for_update().filter(namespace_id=namespace_id, gid__in=part)
        found |= {intent.gid: intent for intent in rows.order_by("gid")}
    return found


def _lock_tasks(namespace_id: str, gids: list[int]) -> dict[int, LifecycleTask]:
    found: dict[int, LifecycleTask] = {}
    for part in _parts(gids):
        rows = LifecycleTask.objects.select_for_update().filter(namespace_id=namespace_id, gid__in=part)
        found |= {task.gid: task for task in rows.order_by("gid")}
    return found


def _parts(gids: list[int]) -> Iterable[list[int]]:
    return (gids[at : at + _GIDS_PER_QUERY] for at in range(0, len(gids), _GIDS_PER_QUERY))


def _known_elsewhere(entries: Iterable[ReportedTask], intents: dict[int, OperationIntent]) -> set[str | None]:
    """Operation ids that rows without an intent cannot adopt, because they are those of other generations."""
    wanted = [e.operation_id for e in entries if e.operation_id is not None and e.gid not in intents]
    if not wanted:
        return set()
    return set(OperationIntent.objects.filter(operation_id__in=wanted).values_list("operation_id", flat=True))


def _known_intent(intent: OperationIntent) -> KnownIntent:
    return KnownIntent(
        state=IntentState(intent.state),
        operation_id=intent.operation_id,
        delete_operation_id=intent.delete_operation_id,
        last_revision=intent.last_revision,
        legacy=intent.legacy,
    )


def _known_task(task: LifecycleTask) -> KnownTask:
    return KnownTask(status=DisplayStatus(task.status), progress=task.progress, storage_node_id=task.storage_node_id)


def _apply_move(
    tx: Tx, intent: OperationIntent | None, task: LifecycleTask, move: Move, reporter: Reporter
) -> OperationIntent:
    if intent is None:
        intent = adopt(tx, task, operation_id=None if move.adopt is None else move.adopt.operation_id)
    transitions.note(tx, intent, last_revision=move.last_revision)
    transitions.show(
        tx,
        intent,
        task,
        move.status,
        delivery=Delivery.SETTLED,  # the node has the row: its command need not be sent again
        progress=move.progress,
        storage_node_id=reporter.storage_node_id,
    )
    return intent


def _apply_delete(
    tx: Tx, intent: OperationIntent, decision: EndDelete | FailDelete, entry: ReportedTask, reporter: Reporter
) -> None:
    if isinstance(decision, EndDelete):
        transitions.bury(tx, intent, Why(SYSTEM, "operation.deleted", data={"storage_node": reporter.name}))
        return
    facts = {"storage_node": reporter.name, "error": decision.error}
    transitions.note(
        tx, intent, evidence=evidence.with_entry(intent.evidence, evidence.Kind.NODE_ERROR, tx.now_us, facts)
    )
    deletion.fail(tx, intent)


def _keep_evidence(
    tx: Tx,
    intent: OperationIntent | None,
    entry: ReportedTask,
    report: TaskReport,
    decision: Ignore,
    reporter: Reporter,
) -> None:
    """A report about what is UNKNOWN moves nothing and helps the operator who has to decide."""
    if intent is None or decision.because is not IgnoredBecause.NOT_CERTAIN or intent.state != IntentState.UNKNOWN:
        return
    facts = {"storage_node": reporter.name, "revision": report.revision}
    facts |= {
        "status": None if entry.status is None else entry.status.value,
        "progress": entry.progress,
        "error": entry.error,
    }
    known = {key: value for key, value in facts.items() if value is not None}
    text = evidence.with_entry(intent.evidence, evidence.Kind.REPORT, tx.now_us, known)
    transitions.note(tx, intent, evidence=text)


def _is_receipt_taken(error: IntegrityError) -> bool:
    text = str(error)
    return "report_receipt_unique" in text or "orbit_report_receipt.report_id" in text
