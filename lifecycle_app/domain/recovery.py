"""Recovery: what a process left behind between reserving and writing the outcome down (design 4.6).

    RESERVED     nothing was asked of the upstream: released
    SUBMITTING   the call may have been made: UNKNOWN, with the same operation id, and nothing is sent

Each intent is judged in a transaction of its own, under its lock, by what it is then: recovery may be cut off anywhere,
run twice, or run on two nodes at once, and each intent is still recovered by one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lifecycle_app import evidence
from lifecycle_app.domain import transitions
from lifecycle_app.domain.creation import become_unknown
from lifecycle_app.domain.ownership import Owner, is_in_flight
from lifecycle_app.domain.transitions import Why
from lifecycle_app.limits import OWNER_SILENCE_SECONDS_MAX
from lifecycle_app.models import OperationIntent, RecoveryRun
from lifecycle_app.states import IntentState
from tasks_app import faults
from tasks_app.domain.audit import SYSTEM
from tasks_app.instants import US_PER_SECOND, from_datetime, to_datetime
from tasks_app.models import Node
from tasks_app.transactions import Tx, unit

_OPEN = (IntentState.RESERVED, IntentState.SUBMITTING)
_PAGE = 200


@dataclass(frozen=True)
class Recovered:
    released: int = 0
    unknown: int = 0

    def __add__(self, other: Recovered) -> Recovered:
        return Recovered(self.released + other.released, self.unknown + other.unknown)

    @property
    def total(self) -> int:
        return self.released + self.unknown


def recover_at_start(owner: Owner) -> Recovered:
    """Everything that earlier incarnations of this node left behind, and what other nodes did that are gone."""
    recovered = sweep(owner)
    faults.point("lifecycle.recovery.done")
    return recovered


def sweep(owner: Owner) -> Recovered:
    """Every orphan there is. Repeated by maintenance, so that an owner's death is noticed while others run."""
    return _sum(
        _recover(intent.namespace_id, intent.gid, intent.operation_id, owner)
        for intent in _open_intents()
        if _is_orphan(intent, owner)
    )


def _open_intents() -> Iterator[OperationIntent]:
    """Page by page; there are no more of them than calls that are being made, but for what was left behind."""
    rows = OperationIntent.objects.filter(state__in=[state.value for state in _OPEN]).order_by("intent_id")
    last = ""
    while page := list(rows.filter(intent_id__gt=last)[:_PAGE]):
        yield from page
        last = page[-1].intent_id


def _is_orphan(intent: OperationIntent, owner: Owner) -> bool:
    """Nobody will ever write the outcome of this intent down.

    - Its process is superseded: the node of that name is another incarnation now, ours or somebody else's, or is gone.
      (A superseded process that still runs judges nobody but itself by this rule, so it cannot harm its successor.)
    - It belongs to this very process, which is not working on it: a fault came between.
    - Its process has not beaten for 30 s by the database's clock.
    """
    node = Node.objects.filter(node_id=intent.owner_node_id).first()
    if node is None or node.incarnation != intent.owner_incarnation:
        return True
    if intent.owner_incarnation == owner.incarnation:
        return not is_in_flight(intent.operation_id)
    return unit(lambda tx: from_datetime(node.heartbeat_at) < tx.now_us - OWNER_SILENCE_SECONDS_MAX * US_PER_SECOND)


def _recover(namespace_id: str, gid: int, operation_id: str, owner: Owner) -> Recovered:
    def run(tx: Tx) -> Recovered:
        intent = transitions.lock_intent(namespace_id, gid)
        if intent is None or intent.operation_id != operation_id or intent.state not in _OPEN:
            return Recovered()  # another node recovered it, or its owner was only slow
        facts = {"owner": intent.owner_node_id, "recovered_by": owner.node_id}
        why = Why(SYSTEM, "operation.recover", data=facts)
        if intent.state == IntentState.RESERVED:
            transitions.release(tx, intent, why)
            result = Recovered(released=1)
        else:
            become_unknown(tx, intent, evidence.Kind.RECOVERED, facts, why)
            result = Recovered(unknown=1)
        faults.point("lifecycle.recovery.before_commit")
        return result

    recovered = unit(run)
    faults.point("lifecycle.recovery.committed")
    return recovered


def _sum(parts: Iterable[Recovered]) -> Recovered:
    return sum(parts, Recovered())


def record_run(owner: Owner, error: str | None) -> None:
    """How the recovery of this start went, for the operators' pages."""

    def run(tx: Tx) -> None:
        columns = {
            "incarnation": owner.incarnation,
            "error": None if error is None else error[:1000],
            "created_at": to_datetime(tx.now_us),
        }
        known = RecoveryRun.objects.select_for_update().filter(orbit_node_id=owner.node_id)
        if known.first() is None:
            RecoveryRun.objects.create(orbit_node_id=owner.node_id, **columns)
        else:
            known.update(**columns)

    unit(run)
