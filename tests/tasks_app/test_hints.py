"""Hints: told after commit to whoever listens; a listener's fault is not the verb's."""

from __future__ import annotations

import pytest

from tasks_app import hints
from tasks_app.hints import Hint, HintKind, publish, subscribe
from tests.tasks_app import factories as f
from tests.tasks_app.factories import Tenant

HINT = Hint(HintKind.WORK_ADDED, task_id="t")


@pytest.fixture(autouse=True)
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "_listeners", [])


def test_every_listener_hears_every_hint_in_order_until_it_stops():
    first: list[Hint] = []
    second: list[Hint] = []
    stop = subscribe(first.append)
    subscribe(second.append)
    publish(HINT)
    stop()
    publish(HINT)
    assert (len(first), len(second)) == (1, 2)


def test_a_listener_that_fails_is_logged_and_the_others_hear(caplog: pytest.LogCaptureFixture):
    heard: list[Hint] = []

    def broken(hint: Hint) -> None:
        raise RuntimeError("not my day")

    subscribe(broken)
    subscribe(heard.append)
    publish(HINT)
    assert heard == [HINT]
    assert "not my day" in caplog.text


def test_a_listener_may_stop_listening_while_it_hears():
    heard: list[Hint] = []

    def once(hint: Hint) -> None:
        heard.append(hint)
        stop()

    stop = subscribe(once)
    publish(HINT, HINT)
    publish(HINT)
    assert heard == [HINT, HINT]


def test_a_verb_whose_listener_fails_has_committed_and_answers(tenant: Tenant):
    def broken(hint: Hint) -> None:
        raise RuntimeError("not my day")

    subscribe(broken)
    assert f.state(f.submit(tenant)) == "READY"


def test_what_frees_a_permit_is_told_for_its_queue(tenant: Tenant):
    heard: list[Hint] = []
    f.submit(tenant)
    offer = f.run_one(tenant)
    subscribe(heard.append)
    f.finish(offer)
    freed = [hint for hint in heard if hint.kind is HintKind.PERMIT_FREED]
    assert [(hint.queue_id, hint.namespace_id) for hint in freed] == [(tenant.queue_id, tenant.namespace_id)]
    changed = [hint for hint in heard if hint.kind is HintKind.TASK_CHANGED]
    assert [hint.task_id for hint in changed] == [offer.task.task_id]
