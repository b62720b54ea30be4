"""Create: reserve, look, persist SUBMITTING, ask once, write down what is known (design 4.2).

    unit 1  RESERVED + placeholder row       the UNIQUE (namespace, gid) makes one winner; losers cause nothing
            upstream.prepare                 read-only; a failure releases the reservation
    unit 2  SUBMITTING                       only after its commit
            upstream.submit                  the one call in the life of the generation
    unit 3  SUBMITTED + row + metering, or UNKNOWN, or released (an explicit refusal)

Whatever goes wrong from the commit of unit 2 on ends in UNKNOWN, here or by recovery; nothing is ever sent again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import DatabaseError, IntegrityError

from lifecycle_app import evidence, telemetry, wakeups
from lifecycle_app.domain import metering, transitions
from lifecycle_app.domain.ownership import Owner, in_flight
from lifecycle_app.domain.transitions import OBJECT_TYPE, Why
from lifecycle_app.limits import SUBMIT_DELAY_SECONDS_MAX, UPSTREAM_CALLS_MAX
from lifecycle_app.models import Delivery, LifecycleTask, OperationIntent
from lifecycle_app.states import CALL_MAY_BE_OPEN, IntentState
from lifecycle_app.statuses import DisplayStatus
from lifecycle_app.upstream import Prepared, SubmitOutcome, SubmitResult, Upstream, refusal
from tasks_app import faults, ids
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.errors import AlreadyExists, FailedPrecondition, Unavailable
from tasks_app.instants import to_datetime
from tasks_app.models import Namespace
from tasks_app.transactions import CommitOutcomeUnknown, Tx, unit

logger = logging.getLogger("orbit.lifecycle")

UPSTREAM_WAIT_SECONDS = 2.0
_upstream_calls = threading.BoundedSemaphore(UPSTREAM_CALLS_MAX)


@dataclass(frozen=True)
class CreateRequest:
    """What is asked for; ranges and lengths are judged by the edge."""

    gid: int
    name: str
    requester: str


@dataclass(frozen=True)
class Created:
    """`state` is SUBMITTED or UNKNOWN."""

    operation_id: str
    state: IntentState


@dataclass(frozen=True)
class Reservation:
    """One generation, reserved by this process."""

    namespace_id: str
    gid: int
    operation_id: str


def create(
    namespace_id: str, request: CreateRequest, *, upstream: Upstream | None, owner: Owner, actor: Actor
) -> Created:
    """Submits a gid to the upstream, once, and says what is known of it: SUBMITTED or UNKNOWN.

    Raises AlreadyExists (any state but DELETED, in `details`), QuotaExceeded, UpstreamFailed (prepare failed or an
    explicit refusal: the reservation is released), Unavailable (no upstream, too many calls at once, the database is
    away: nothing was submitted), FailedPrecondition (an operator settled the intent otherwise during the call).
    """
    if upstream is None:
        raise Unavailable("no upstream is configured")
    operation_id = ids.new_id(_process_now_us())
    reservation = Reservation(namespace_id, request.gid, operation_id)
    with in_flight(operation_id):
        _reserve(reservation, request, owner, actor)
        faults.point("lifecycle.create.reserved")
        with _released_on_error(reservation, actor), _upstream_turn():
            prepared = upstream.prepare(request.gid)
            faults.point("lifecycle.create.prepared")
            asked_at = time.monotonic()
            if not _begin_submit(reservation, prepared, actor):
                raise Unavailable("the reservation was taken back before anything was submitted")
            faults.point("lifecycle.create.submitting")
            outcome = _submit(upstream, prepared, reservation, asked_at)
        faults.point("lifecycle.create.answered")
        state = _conclude(reservation, outcome, actor)
    telemetry.operation_ended(state.value)
    return Created(operation_id, state)


# -- Unit 1


def _reserve(reservation: Reservation, request: CreateRequest, owner: Owner, actor: Actor) -> None:
    def run(tx: Tx) -> None:
        _reserve_in(tx, reservation, request, owner, actor)
        faults.point("lifecycle.create.before_reserved")

    def look_again() -> None:
        """The answer to COMMIT was lost: the generation is there or it is not."""
        if not unit(lambda tx: _is_ours(reservation, IntentState.RESERVED)):
            unit(run)

    while True:
        try:
            unit(run, on_unknown=look_again)
            return
        except metering.WeekRowMissing:
            metering.ensure_week(reservation.namespace_id, request.requester)
        except CommitOutcomeUnknown as error:
            raise Unavailable() from error  # swept as an orphan of this process once the database is back
        except IntegrityError as error:
            # Another create of this gid committed while this one waited. Its state answers this one.
            if not _is_gid_taken(error):
                raise
            unit(lambda tx: _refuse_if_taken(reservation))


def _reserve_in(tx: Tx, reservation: Reservation, request: CreateRequest, owner: Owner, actor: Actor) -> None:
    before = transitions.lock_intent(reservation.namespace_id, request.gid)
    if before is not None and before.state != IntentState.DELETED:
        raise _taken(IntentState(before.state), before.operation_id)
    if before is None and _has_row(reservation):
        raise _taken(None, None)
    now = to_datetime(tx.now_us)
    task = LifecycleTask.objects.create(
        task_id=ids.new_id(tx.now_us),
        namespace_id=reservation.namespace_id,
        gid=request.gid,
        name=request.name,
        requester=request.requester,
        status=DisplayStatus.SUBMITTING.value,
        created_at=now,
        updated_at=now,
    )
    owned = {"owner_node_id": owner.node_id, "owner_incarnation": owner.incarnation}
    why = Why(actor, "operation.create", data={"requester": request.requester})
    if before is None:
        intent = OperationIntent.objects.create(
            intent_id=ids.new_id(tx.now_us),
            namespace_id=reservation.namespace_id,
            gid=request.gid,
            operation_id=reservation.operation_id,
            state=IntentState.RESERVED.value,
            task=task,
            created_at=now,
            updated_at=now,
            **owned,
        )
        transitions.record_first(tx, intent, why)
    else:
        transitions.begin_generation(tx, before, task, why, operation_id=reservation.operation_id, **owned)
    limit = Namespace.objects.values_list("weekly_limit", flat=True).get(namespace_id=reservation.namespace_id)
    if limit is not None:
        metering.require_room(tx, reservation.namespace_id, request.requester, limit)


def _has_row(reservation: Reservation) -> bool:
    return LifecycleTask.objects.filter(namespace_id=reservation.namespace_id, gid=reservation.gid).exists()


def _refuse_if_taken(reservation: Reservation) -> None:
    """Raises AlreadyExists unless the winner has let go of the gid again; then the caller's turn comes."""
    known = transitions.lock_intent(reservation.namespace_id, reservation.gid)
    if known is not None and known.state != IntentState.DELETED:
        raise _taken(IntentState(known.state), known.operation_id)
    if known is None and _has_row(reservation):
        raise _taken(None, None)


def _taken(state: IntentState | None, operation_id: str | None) -> AlreadyExists:
    detail = {"field": "gid", "reason": "has a live generation", "state": None if state is None else state.value}
    if operation_id is not None:
        detail["operation_id"] = operation_id
    return AlreadyExists("the gid has a live generation already", details=[detail])


def _is_gid_taken(error: IntegrityError) -> bool:
    """One of the two identities of a gid was hit; any other broken constraint is a fault of ours."""
    text = str(error)
    return any(
        mark in text
        for mark in (
            "intent_gid_unique",
            "lifecycle_task_gid_unique",
            "orbit_operation_intent.gid",
            "orbit_lifecycle_task.gid",
        )
    )


# -- Unit 2 and the call


def _begin_submit(reservation: Reservation, prepared: Prepared, actor: Actor) -> bool:
    """Persists SUBMITTING. False when the reservation is not ours any more: nothing may be called then."""

    def run(tx: Tx) -> bool:
        intent = _locked(reservation, IntentState.RESERVED)
        if intent is None:
            return False
        why = Why(actor, "operation.submit")
        transitions.move(tx, intent, IntentState.SUBMITTING, why, quantity=prepared.quantity)
        faults.point("lifecycle.create.before_submitting")
        return True

    def look_again() -> bool:
        return unit(lambda tx: _is_ours(reservation, IntentState.SUBMITTING)) or unit(run)

    try:
        return unit(run, on_unknown=look_again)
    except CommitOutcomeUnknown as error:
        raise _NotCalled from error
    except DatabaseError as error:
        raise _NotCalled from error


class _NotCalled(Exception):
    """SUBMITTING may or may not be committed, and the call was not made. Recovery settles it; the caller hears 503."""


def _submit(upstream: Upstream, prepared: Prepared, reservation: Reservation, asked_at: float) -> SubmitOutcome | None:
    """The one call. None when it was not made, because so much time went by that others may have judged the intent."""
    if time.monotonic() - asked_at > SUBMIT_DELAY_SECONDS_MAX:
        return None
    try:
        return upstream.submit(prepared, gid=reservation.gid, operation_id=reservation.operation_id)
    except Exception as error:
        # An adapter's fault after the call began: whether it had its effect is as unknown as after a time-out.
        logger.exception("the upstream adapter failed inside submit")
        return SubmitOutcome(SubmitResult.UNKNOWN, {"request": "submit", "fault": type(error).__name__})


@contextmanager
def _upstream_turn() -> Iterator[None]:
    """One of a few places, so that a slow upstream cannot hold every thread of the API."""
    if not _upstream_calls.acquire(timeout=UPSTREAM_WAIT_SECONDS):
        raise Unavailable("too many operations wait for the upstream; nothing was submitted")
    try:
        yield
    finally:
        _upstream_calls.release()


@contextmanager
def _released_on_error(reservation: Reservation, actor: Actor) -> Iterator[None]:
    """Whatever fails before the call releases the reservation, if it is still ours and still RESERVED."""
    try:
        yield
    except _NotCalled as error:
        raise Unavailable() from error
    except Exception as error:
        try:
            unit(lambda tx: _release_in(tx, reservation, {IntentState.RESERVED}, Why(actor, "operation.release")))
        except (DatabaseError, CommitOutcomeUnknown):
            # Swept as an orphan of this process once the database is back; the caller hears what happened first.
            logger.warning("a reservation could not be released", extra={"operation_id": reservation.operation_id})
        faults.point("lifecycle.create.released")
        raise error


# -- Unit 3


def _conclude(reservation: Reservation, outcome: SubmitOutcome | None, actor: Actor) -> IntentState:
    if outcome is None:
        unit(lambda tx: _release_in(tx, reservation, CALL_MAY_BE_OPEN, Why(actor, "operation.release")))
        raise Unavailable("the node stood still before it could submit; nothing was submitted")
    try:
        if outcome.result is SubmitResult.REFUSED:
            why = Why(actor, "operation.refused", data={"answer": outcome.evidence})
            unit(lambda tx: _release_in(tx, reservation, CALL_MAY_BE_OPEN, why))
            faults.point("lifecycle.create.refused")
        elif outcome.result is SubmitResult.ACCEPTED:
            settled = unit(lambda tx: _record_accepted(tx, reservation, outcome, actor))
            faults.point("lifecycle.create.submitted")
            if not settled:
                raise FailedPrecondition("the operation was settled otherwise while it was being submitted")
            return IntentState.SUBMITTED
    except (DatabaseError, CommitOutcomeUnknown):
        # The upstream has answered and the answer could not be written down, metering included.
        logger.exception("an outcome could not be recorded", extra={"operation_id": reservation.operation_id})
    else:
        if outcome.result is SubmitResult.REFUSED:
            raise refusal(outcome)
    return _record_unknown(reservation, outcome, actor)


def _record_accepted(tx: Tx, reservation: Reservation, outcome: SubmitOutcome, actor: Actor) -> bool:
    """SUBMITTED, the row and the metering, all or nothing. False when this generation was settled otherwise."""
    intent = _locked(reservation, *CALL_MAY_BE_OPEN, IntentState.SUBMITTED, IntentState.DELETE_PENDING)
    if intent is None:
        # An operator said that it was not submitted, and it was. Nothing is revived; the contradiction must be seen.
        data = {"operation_id": reservation.operation_id, "answer": outcome.evidence}
        gid, namespace_id = str(reservation.gid), reservation.namespace_id
        audit.write(tx, actor, "operation.late_answer", OBJECT_TYPE, gid, namespace_id=namespace_id, data=data)
        return False
    if intent.state not in CALL_MAY_BE_OPEN:
        return True  # an operator's word was first, and was right
    certain(tx, intent, Why(actor, "operation.submitted", data={"answer": outcome.evidence}))
    faults.point("lifecycle.create.before_submitted")
    return True


def certain(tx: Tx, intent: OperationIntent, why: Why) -> None:
    """A locked SUBMITTING or UNKNOWN intent was certainly submitted: state, row and metering in one transaction."""
    task = transitions.lock_task(intent)
    transitions.move(tx, intent, IntentState.SUBMITTED, why, submitted_at=tx.now_us, tombstone=None)
    transitions.show(tx, intent, task, DisplayStatus.SUBMITTED, delivery=Delivery.WAITING)
    metering.record_usage(tx, intent, task)
    tx.after_commit(wakeups.DELIVER.set)


def _record_unknown(reservation: Reservation, outcome: SubmitOutcome, actor: Actor) -> IntentState:
    def run(tx: Tx) -> IntentState:
        intent = _locked(reservation, *CALL_MAY_BE_OPEN, IntentState.SUBMITTED)
        if intent is None:
            return IntentState.UNKNOWN  # settled by an operator meanwhile: the caller asks for the state
        if intent.state == IntentState.SUBMITTED:
            return IntentState.SUBMITTED  # the answer to COMMIT was lost, not the commit
        facts = {"result": outcome.result.value, **outcome.evidence}
        become_unknown(tx, intent, evidence.Kind.SUBMIT, facts, Why(actor, "operation.unknown"))
        faults.point("lifecycle.create.before_unknown")
        return IntentState.UNKNOWN

    try:
        state = unit(run)
    except (DatabaseError, CommitOutcomeUnknown):
        # SUBMITTING stands in the database; the sweep of this process makes it UNKNOWN when the database is back.
        logger.warning("UNKNOWN could not be recorded yet", extra={"operation_id": reservation.operation_id})
        return IntentState.UNKNOWN
    faults.point("lifecycle.create.unknown")
    return state


def become_unknown(tx: Tx, intent: OperationIntent, kind: evidence.Kind, facts: evidence.Facts, why: Why) -> None:
    """A locked SUBMITTING intent lost its outcome (or an UNKNOWN one learned more about why)."""
    text = evidence.with_entry(intent.evidence, kind, tx.now_us, facts)
    if intent.state == IntentState.UNKNOWN:
        transitions.note(tx, intent, evidence=text)
        return
    task = transitions.lock_task(intent)
    transitions.move(tx, intent, IntentState.UNKNOWN, why, evidence=text)
    transitions.show(tx, intent, task, DisplayStatus.SUBMIT_UNKNOWN)


def _release_in(tx: Tx, reservation: Reservation, states: frozenset[IntentState] | set[IntentState], why: Why) -> bool:
    intent = _locked(reservation, *states)
    if intent is None:
        return False
    transitions.release(tx, intent, why)
    return True


def _locked(reservation: Reservation, *states: IntentState) -> OperationIntent | None:
    """The intent if it still is this generation in one of these states: nobody is revived, nobody else is touched."""
    intent = transitions.lock_intent(reservation.namespace_id, reservation.gid)
    if intent is None or intent.operation_id != reservation.operation_id or intent.state not in states:
        return None
    return intent


def _is_ours(reservation: Reservation, state: IntentState) -> bool:
    return _locked(reservation, state) is not None


def _process_now_us() -> int:
    return time.time_ns() // 1000
