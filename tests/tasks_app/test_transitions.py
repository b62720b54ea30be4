"""The table of moves (design 3.1): every legal move by its verb, every illegal one raises and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tasks_app.domain import claims
from tasks_app.domain.attempts import Answer
from tasks_app.domain.claims import Offer
from tasks_app.domain.reconciliation import Decision
from tasks_app.domain.task_rows import lock_one
from tasks_app.domain.transitions import IllegalMove, Ledger, StaleGuard
from tasks_app.endings import Report
from tasks_app.states import MOVES, Lane, TaskState
from tasks_app.transactions import Tx, unit
from tests.tasks_app import factories as f
from tests.tasks_app.factories import NEVER, SAFE, Tenant

S = TaskState
# Written out a second time, from the picture in the design: the table in the code must say the same.
LEGAL = {
    "SCHEDULED": "READY CANCELED EXPIRED",
    "READY": "RESERVED CANCELED EXPIRED",
    "RESERVED": "READY RUNNING CANCELED EXPIRED",
    "RUNNING": "SCHEDULED READY UNKNOWN SUCCEEDED FAILED CANCELED EXPIRED",
    "UNKNOWN": "SUCCEEDED FAILED READY",
    "SUCCEEDED": "",
    "FAILED": "",
    "CANCELED": "",
    "EXPIRED": "",
}


def test_the_table_of_moves_is_that_of_the_design():
    assert {before: set(after) for before, after in MOVES.items()} == {
        S(before): {S(word) for word in after.split()} for before, after in LEGAL.items()
    }


@dataclass
class Subject:
    """A task in some state, and who holds it."""

    tenant: Tenant
    task_id: str
    offer: Offer | None = None

    @property
    def held(self) -> Offer:
        assert self.offer is not None
        return self.offer


def in_state(tenant: Tenant, state: TaskState, *, resource_key: str | None = None, retry: object = SAFE) -> Subject:
    """A task that came into `state` by the verbs."""
    if state is S.UNKNOWN:
        retry = NEVER
    delay_ms = 60_000 if state is S.SCHEDULED else None
    subject = Subject(tenant, f.submit(tenant, resource_key=resource_key, retry=retry, delay_ms=delay_ms))
    if state is S.CANCELED:
        f.cancel(tenant, subject.task_id)
    elif state is S.EXPIRED:
        f.pass_deadline(subject.task_id)
        f.sweep()
    elif state is S.RESERVED:
        subject.offer = f.claim_one(tenant)
    elif state not in (S.SCHEDULED, S.READY):
        subject.offer = f.run_one(tenant)
    if state is S.UNKNOWN:
        f.lose(subject.held)
    elif state is S.SUCCEEDED:
        f.finish(subject.held)
    elif state is S.FAILED:
        f.finish(subject.held, Report.FAILED, retryable=False)
    assert f.state(subject.task_id) is state
    return subject


def comes_due(subject: Subject) -> None:
    f.due(subject.task_id, seconds_ago=1)
    f.sweep()


def is_canceled(subject: Subject) -> None:
    f.cancel(subject.tenant, subject.task_id)


def passes_its_deadline(subject: Subject) -> None:
    f.pass_deadline(subject.task_id)
    f.sweep()


def is_claimed_past_its_deadline(subject: Subject) -> None:
    f.pass_deadline(subject.task_id)
    assert f.claim_ids(subject.tenant) == []


def is_claimed(subject: Subject) -> None:
    subject.offer = f.claim_one(subject.tenant)


def is_released(subject: Subject) -> None:
    assert [result.answer for result in f.release(subject.held)] == [Answer.RELEASED]


def is_not_started_in_time(subject: Subject) -> None:
    f.expire_lease(subject.task_id)
    f.sweep()


def is_refused_at_start(subject: Subject) -> None:
    f.pause(subject.tenant)
    assert f.start(subject.tenant, subject.held).answer is Answer.QUEUE_PAUSED


def is_started(subject: Subject) -> None:
    assert f.start(subject.tenant, subject.held).answer is Answer.STARTED


def is_started_past_its_deadline(subject: Subject) -> None:
    f.pass_deadline(subject.task_id)
    assert f.start(subject.tenant, subject.held).answer is Answer.EXPIRED


def fails_and_backs_off(subject: Subject) -> None:
    assert f.finish(subject.held, Report.FAILED).answer is Answer.COMMITTED


def fails_and_may_go_on_at_once(subject: Subject) -> None:
    assert f.finish(subject.held, Report.FAILED, retry_after_ms=0).answer is Answer.COMMITTED


def fails_for_good(subject: Subject) -> None:
    assert f.finish(subject.held, Report.FAILED, retryable=False).answer is Answer.COMMITTED


def succeeds(subject: Subject) -> None:
    assert f.finish(subject.held).answer is Answer.COMMITTED


def loses_its_worker(subject: Subject) -> None:
    f.lose(subject.held)


def stops_when_asked(subject: Subject) -> None:
    f.cancel(subject.tenant, subject.task_id)
    assert f.finish(subject.held, Report.CANCELED).answer is Answer.COMMITTED


def stops_at_its_deadline(subject: Subject) -> None:
    f.pass_deadline(subject.task_id)
    assert f.finish(subject.held, Report.CANCELED).answer is Answer.COMMITTED


def is_reconciled(decision: Decision) -> Callable[[Subject], None]:
    def verb(subject: Subject) -> None:
        f.reconcile(subject.tenant, subject.task_id, decision)

    verb.__name__ = f"is_reconciled_as_{decision.value}"
    return verb


# (before, after, verb, the event that it leaves). `retry` of the task is SAFE but where the verb needs NEVER.
VERBS: list[tuple[TaskState, TaskState, Callable[[Subject], None], str | None]] = [
    (S.SCHEDULED, S.READY, comes_due, None),
    (S.SCHEDULED, S.CANCELED, is_canceled, "CANCELED"),
    (S.SCHEDULED, S.EXPIRED, passes_its_deadline, "EXPIRED"),
    (S.READY, S.RESERVED, is_claimed, None),
    (S.READY, S.CANCELED, is_canceled, "CANCELED"),
    (S.READY, S.EXPIRED, passes_its_deadline, "EXPIRED"),
    (S.READY, S.EXPIRED, is_claimed_past_its_deadline, "EXPIRED"),
    (S.RESERVED, S.READY, is_released, None),
    (S.RESERVED, S.READY, is_not_started_in_time, None),
    (S.RESERVED, S.READY, is_refused_at_start, None),
    (S.RESERVED, S.RUNNING, is_started, "STARTED"),
    (S.RESERVED, S.CANCELED, is_canceled, "CANCELED"),
    (S.RESERVED, S.EXPIRED, passes_its_deadline, "EXPIRED"),
    (S.RESERVED, S.EXPIRED, is_started_past_its_deadline, "EXPIRED"),
    (S.RUNNING, S.SCHEDULED, fails_and_backs_off, "RETRY_SCHEDULED"),
    (S.RUNNING, S.READY, fails_and_may_go_on_at_once, "RETRY_SCHEDULED"),
    (S.RUNNING, S.UNKNOWN, loses_its_worker, "UNKNOWN"),
    (S.RUNNING, S.SUCCEEDED, succeeds, "SUCCEEDED"),
    (S.RUNNING, S.FAILED, fails_for_good, "FAILED"),
    (S.RUNNING, S.CANCELED, stops_when_asked, "CANCELED"),
    (S.RUNNING, S.EXPIRED, stops_at_its_deadline, "EXPIRED"),
    (S.UNKNOWN, S.SUCCEEDED, is_reconciled(Decision.SUCCEEDED), "RECONCILED"),
    (S.UNKNOWN, S.FAILED, is_reconciled(Decision.FAILED), "RECONCILED"),
    (S.UNKNOWN, S.READY, is_reconciled(Decision.RETRY), "RECONCILED"),
]
NEEDS_NEVER = {(S.RUNNING, S.UNKNOWN)}


def test_every_legal_move_has_a_verb():
    assert {(before, after) for before, after, _, _ in VERBS} == {
        (before, after) for before, moves in MOVES.items() for after in moves
    }


@pytest.mark.parametrize("resource_key", [None, "k"], ids=["plain", "keyed"])
@pytest.mark.parametrize(
    ("before", "after", "verb", "event"), VERBS, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_verb_moves_the_task_and_leaves_its_event(
    tenant: Tenant,
    before: TaskState,
    after: TaskState,
    verb: Callable[[Subject], None],
    event: str | None,
    resource_key: str | None,
):
    """Counters, permits, revisions and attempts are counted again by the fixture."""
    retry = NEVER if (before, after) in NEEDS_NEVER else SAFE
    subject = in_state(tenant, before, resource_key=resource_key, retry=retry)
    events = f.events_of(subject.task_id)
    verb(subject)
    assert f.state(subject.task_id) is after
    new = [name for name in f.events_of(subject.task_id)[len(events) :] if name != "CANCEL_REQUESTED"]
    assert new == ([] if event is None else [event])


ILLEGAL = [(before, after) for before in S for after in S if after not in MOVES[before]]


@pytest.mark.parametrize(("before", "after"), ILLEGAL, ids=lambda state: state.value)
def test_an_illegal_move_raises_and_changes_nothing(tenant: Tenant, before: TaskState, after: TaskState):
    subject = in_state(tenant, before)
    seen = f.snapshot()

    def move(tx: Tx) -> None:
        task = lock_one(tx, subject.task_id)
        assert task is not None
        ledger = Ledger(tx)
        ledger.move(task, after)
        ledger.flush()

    with pytest.raises(IllegalMove, match=f"{before} -> {after}"):
        unit(move)
    assert f.snapshot() == seen


@pytest.mark.parametrize("lane", [Lane.OPEN, Lane.KEYED, Lane.HELD])
def test_only_a_yielded_task_can_come_back_into_the_line(tenant: Tenant, lane: Lane):
    key = None if lane is Lane.OPEN else "k"
    if lane is Lane.HELD:
        f.submit(tenant, resource_key=key)
    task_id = f.submit(tenant, resource_key=key)
    assert f.row(task_id).lane == lane
    with pytest.raises(IllegalMove):
        unit(lambda tx: Ledger(tx).enter_line(lock_one(tx, task_id)))


# -- the guard: id, expected state, fencing token


@pytest.mark.parametrize("stale", ["state", "fencing_token"])
def test_a_row_that_is_not_what_was_locked_refuses_the_whole_unit(tenant: Tenant, stale: str):
    """It cannot happen while rows are locked; if it does, nothing of the unit may be kept."""
    first, second = f.submit(tenant), f.submit(tenant)
    seen = f.snapshot()

    def move(tx: Tx) -> None:
        ledger = Ledger(tx)
        for task_id in (first, second):
            task = lock_one(tx, task_id)
            assert task is not None
            if task_id == second:
                if stale == "state":
                    task.state = S.SCHEDULED
                else:
                    task.fencing_token += 1
            ledger.move(task, S.CANCELED)
        ledger.flush()

    with pytest.raises(StaleGuard):
        unit(move)
    assert f.snapshot() == seen


# -- revisions and events


def test_revision_grows_with_each_event_that_has_one_and_with_nothing_else(tenant: Tenant):
    task_id = f.submit(tenant, retry=f.SAFE_AT_ONCE, delay_ms=60_000)
    comes_due(Subject(tenant, task_id))  # no revision
    f.release(f.claim_one(tenant))  # neither
    is_not_started_in_time(Subject(tenant, task_id, f.claim_one(tenant)))  # neither
    offer = f.run_one(tenant)  # 2
    f.renew(offer)  # neither
    f.renew(offer, percent=50, message="half")  # an event without a revision
    f.finish(offer, Report.FAILED)  # 3
    offer = f.run_one(tenant)  # 4
    f.cancel(tenant, task_id)  # 5
    f.finish(offer, Report.CANCELED)  # 6
    events = f.rows_of("orbit_event", "task_id = %s ORDER BY event_id", [task_id])
    assert [(event.type, event.revision, event.state) for event in events] == [
        ("ACCEPTED", 1, "SCHEDULED"),
        ("STARTED", 2, "RUNNING"),
        ("PROGRESS", 2, "RUNNING"),
        ("RETRY_SCHEDULED", 3, "READY"),
        ("STARTED", 4, "RUNNING"),
        ("CANCEL_REQUESTED", 5, "RUNNING"),
        ("CANCELED", 6, "CANCELED"),
    ]
    assert f.row(task_id).revision == 6


def test_nobody_loses_a_cancel_against_an_offer_that_goes_back_and_forth(tenant: Tenant):
    task_id = f.submit(tenant)
    revision = f.row(task_id).revision
    f.release(f.claim_one(tenant))
    f.claim_one(tenant)
    assert f.cancel(tenant, task_id, revision=revision).state is S.CANCELED


def test_fencing_tokens_rise_with_every_reservation(tenant: Tenant):
    f.submit(tenant)
    tokens = []
    for _ in range(4):
        offer = f.claim_one(tenant)
        tokens.append(offer.task.fencing_token)
        f.release(offer)
    assert tokens == [1, 2, 3, 4]


def test_events_of_one_unit_stand_in_the_order_in_which_they_happened(tenant: Tenant):
    ids = [f.submit(tenant) for _ in range(3)]
    offers = f.claim(tenant, limit=3).offers
    f.start_all(tenant, offers)
    events = f.rows_of("orbit_event", "type = 'STARTED' ORDER BY event_id")
    assert [event.task_id for event in events] == ids


def test_a_refused_claim_leaves_no_trace(tenant: Tenant):
    f.submit(tenant)
    f.pause(tenant)
    seen = f.snapshot()
    assert f.claim(tenant).reason is claims.EmptyReason.QUEUE_PAUSED
    assert f.snapshot() == seen
