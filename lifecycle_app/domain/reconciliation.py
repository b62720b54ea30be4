"""Reconcile: a person decides what a machine cannot know (design 4.8).

UNKNOWN         SUBMITTED · NOT_SUBMITTED · LOOKUP (asks the upstream, read-only; changes nothing)
DELETE_PENDING  DELETED: the files are gone, whatever the node says
SUBMITTED       REASSIGN: another storage node takes the row over
"""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_app import evidence, wakeups
from lifecycle_app.domain import creation, delivery, transitions
from lifecycle_app.domain.transitions import OBJECT_TYPE, Why
from lifecycle_app.models import Delivery, OperationIntent
from lifecycle_app.states import DECISIONS, Decision, IntentState
from lifecycle_app.statuses import DisplayStatus
from lifecycle_app.upstream import LookedUp, Upstream
from tasks_app import faults
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.errors import FailedPrecondition, InvalidArgument, NotFound, RevisionConflict, Unavailable
from tasks_app.limits import REASON_LENGTH_MAX
from tasks_app.transactions import Tx, unit


@dataclass(frozen=True)
class Verdict:
    """What the operator saw, what they decided, and why."""

    seen_operation_id: str
    seen_state: IntentState
    decision: Decision
    reason: str


def reconcile(
    namespace_id: str, gid: int, verdict: Verdict, *, upstream: Upstream | None, actor: Actor
) -> LookedUp | None:
    """Carries a decision out; the answer of the upstream for LOOKUP.

    Raises InvalidArgument (no reason), FailedPrecondition (the decision does not fit the state that was seen, or nobody
    is there to take a row over), NotFound, RevisionConflict (it is not any more what was seen), UpstreamFailed and
    Unavailable (LOOKUP only).
    """
    require_reason(verdict.reason)
    if verdict.decision not in DECISIONS[verdict.seen_state]:
        raise _unfit(verdict)
    if verdict.decision is Decision.LOOKUP:
        return _look_up(namespace_id, gid, verdict, upstream, actor)
    unit(lambda tx: _decide_in(tx, namespace_id, gid, verdict, actor))
    faults.point("lifecycle.reconcile.committed")
    return None


def require_reason(reason: str) -> None:
    if not reason.strip():
        raise InvalidArgument.field("reason", "must not be empty")
    if len(reason) > REASON_LENGTH_MAX:
        raise InvalidArgument.field(
            "reason", f"must be at most {REASON_LENGTH_MAX} characters long", limit=REASON_LENGTH_MAX
        )


def _decide_in(tx: Tx, namespace_id: str, gid: int, verdict: Verdict, actor: Actor) -> None:
    intent = _locked_as_seen(namespace_id, gid, verdict)
    decision = verdict.decision
    why = Why(actor, "operation.reconcile", verdict.reason, {"decision": decision.value})
    if decision is Decision.SUBMITTED:
        creation.certain(tx, intent, why)
    elif decision is Decision.NOT_SUBMITTED:
        transitions.release(tx, intent, why)
    elif decision is Decision.DELETED:
        transitions.bury(tx, intent, why)
    else:
        _reassign(tx, intent, why)
    faults.point("lifecycle.reconcile.before_commit")


def _reassign(tx: Tx, intent: OperationIntent, why: Why) -> None:
    task = transitions.lock_task(intent)
    chosen = delivery.other_node(tx, intent.namespace_id, but=task.storage_node_id)
    if chosen is None:
        raise FailedPrecondition(
            "no other storage node of the namespace is connected",
            details=[{"field": "decision", "reason": "no other storage node is connected"}],
        )
    # Delivery begins anew, so what the old node reported counts no more, and neither does how it was spoken to.
    transitions.note(tx, intent, last_revision=0, legacy=False)
    transitions.show(
        tx,
        intent,
        task,
        DisplayStatus.SUBMITTED,
        delivery=Delivery.WAITING,
        progress=0,
        storage_node_id=chosen,
    )
    data = {**(why.data or {}), "operation_id": intent.operation_id, "storage_node_id": chosen}
    audit.write(
        tx,
        why.actor,
        why.action,
        OBJECT_TYPE,
        str(intent.gid),
        namespace_id=intent.namespace_id,
        reason=why.reason,
        data=data,
    )
    tx.after_commit(wakeups.DELIVER.set)


def _look_up(namespace_id: str, gid: int, verdict: Verdict, upstream: Upstream | None, actor: Actor) -> LookedUp:
    """Asks outside of any transaction, then keeps what was said, if the intent is still what was seen."""
    if upstream is None:
        raise Unavailable("no upstream is configured")
    unit(lambda tx: _locked_as_seen(namespace_id, gid, verdict))
    looked_up = upstream.lookup(gid)

    def run(tx: Tx) -> None:
        intent = _locked_as_seen(namespace_id, gid, verdict)
        facts = {"found": looked_up.found, **looked_up.evidence}
        transitions.note(
            tx, intent, evidence=evidence.with_entry(intent.evidence, evidence.Kind.LOOKUP, tx.now_us, facts)
        )
        audit.write(
            tx,
            actor,
            "operation.reconcile",
            OBJECT_TYPE,
            str(gid),
            namespace_id=namespace_id,
            reason=verdict.reason,
            data={"decision": Decision.LOOKUP.value, "operation_id": intent.operation_id, "found": looked_up.found},
        )

    unit(run)
    return looked_up


def _locked_as_seen(namespace_id: str, gid: int, verdict: Verdict) -> OperationIntent:
    intent = transitions.lock_intent(namespace_id, gid)
    if intent is None:
        raise NotFound("no such operation")
    if intent.operation_id != verdict.seen_operation_id or intent.state != verdict.seen_state:
        raise RevisionConflict(
            "the operation changed since it was seen",
            details=[
                {"field": "operation_id", "reason": "is not what was seen", "current": intent.operation_id},
                {"field": "state", "reason": "is not what was seen", "current": intent.state},
            ],
        )
    return intent


def _unfit(verdict: Verdict) -> FailedPrecondition:
    allowed = sorted(decision.value for decision in DECISIONS[verdict.seen_state])
    return FailedPrecondition(
        f"{verdict.decision.value} does not fit an operation in state {verdict.seen_state.value}",
        details=[
            {
                "field": "decision",
                "reason": "does not fit the state",
                "state": verdict.seen_state.value,
                "allowed": allowed,
            }
        ],
    )
