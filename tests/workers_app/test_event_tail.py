"""Hints from other nodes: one read of the newest events."""

from __future__ import annotations

import pytest

from tasks_app.domain import submission
from tasks_app.hints import Hint, HintKind
from tests.tasks_app import factories
from tests.tasks_app.factories import Tenant, make_tenant
from workers_app.event_tail import EventTail


@pytest.fixture
def tenant(transactional_db: None) -> Tenant:
    submission.forget_references()
    return make_tenant()


@pytest.fixture
def tail(tenant: Tenant) -> EventTail:
    """A tail that has looked once."""
    made = EventTail()
    assert made.read()[0] == []
    return made


def news(tail: EventTail) -> list[tuple[HintKind, str]]:
    events, now_us = tail.read()
    assert now_us > 0
    return [(hint.kind, hint.task_id) for hint in tail.news(events)]


def test_acceptance_elsewhere_is_work(tail: EventTail, tenant: Tenant) -> None:
    task_id = factories.submit(tenant)
    assert news(tail) == [(HintKind.TASK_CHANGED, task_id), (HintKind.WORK_ADDED, task_id)]


def test_acceptance_that_is_not_due_is_no_work(tail: EventTail, tenant: Tenant) -> None:
    task_id = factories.submit(tenant, delay_ms=60_000)
    assert news(tail) == [(HintKind.TASK_CHANGED, task_id)]


def test_each_event_is_told_once_however_often_it_is_read(tail: EventTail, tenant: Tenant) -> None:
    factories.submit(tenant)
    assert news(tail)
    assert news(tail) == []


def test_what_happened_before_the_first_look_is_not_told(tenant: Tenant) -> None:
    factories.submit(tenant)
    tail = EventTail()
    tail.read()
    factories.submit(tenant)
    events, _ = tail.read()
    # The look-back may show the older one again: told at worst once too often.
    assert 1 <= len(events) <= 2


def test_commits_of_this_process_are_left_out(tail: EventTail, tenant: Tenant) -> None:
    task_id = factories.submit(tenant)
    tail.own(Hint(HintKind.WORK_ADDED, task_id=task_id))
    assert news(tail) == []


def test_end_elsewhere_frees_permits(tail: EventTail, tenant: Tenant) -> None:
    factories.submit(tenant)
    offer = factories.claim_one(tenant)
    factories.start(tenant, offer)
    news(tail)
    factories.finish(offer)
    assert (HintKind.PERMIT_FREED, offer.task.task_id) in news(tail)


def test_cancel_is_told_even_of_a_task_that_this_process_touched(tail: EventTail, tenant: Tenant) -> None:
    """A task accepted here a moment ago may be canceled on another node while a worker of ours holds it."""
    task_id = factories.submit(tenant)
    offer = factories.claim_one(tenant)
    factories.start(tenant, offer)
    tail.own(Hint(HintKind.WORK_ADDED, task_id=task_id))
    factories.cancel(tenant, task_id)
    assert news(tail) == [(HintKind.CANCEL_REQUESTED, task_id)]


def test_reservation_that_was_canceled_elsewhere_is_told_with_its_reason(tail: EventTail, tenant: Tenant) -> None:
    task_id = factories.submit(tenant)
    factories.claim_one(tenant)
    tail.own(Hint(HintKind.WORK_ADDED, task_id=task_id))
    factories.cancel(tenant, task_id)
    events, _ = tail.read()
    (hint,) = tail.news(events)
    assert (hint.kind, hint.detail) == (HintKind.RESERVATION_REVOKED, "CANCELED")
