"""An operator's jobs in a real browser: every click as a person makes it, no script error, no fault of the policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from tests.admin.world import World, detail, task
from tests.tasks_app.factories import rows_of

pytestmark = pytest.mark.slow


def overflow(page: Any) -> int:
    """How many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_every_place_fits_the_window_and_throws_nothing(
    world: World, log_in: Callable[..., Any], picture: Any, width: str, language: str
):
    unknown, failed, plan = world.unknown(), world.failed(), world.plan()
    world.failed(), world.ready(priority=3), world.ready()
    page = log_in("admin", width=width, language=language, dark=language == "zh-hans")
    places = {
        "start": "/admin/",
        "unknown": reverse("admin:tasks_app_task_changelist") + "?attention=UNKNOWN",
        "task": detail(unknown),
        "reconcile": detail(unknown).replace("/change/", "/do/reconcile/"),
        "dead-letters": reverse("admin:tasks_app_dead_letters"),
        "dead-letter": detail(failed),
        "backlog": reverse("admin:tasks_app_queue_backlog"),
        "fairness": reverse("admin:tasks_app_fairness"),
        "queue": detail(world.queue()),
        "plan": detail(plan),
        "credential": detail(world.credential()),
        "audit": reverse("admin:tasks_app_auditentry_changelist"),
    }
    for name, address in places.items():
        page.goto(address)
        picture(page, f"{name}-{width}-{language}")
        assert overflow(page) <= 0, f"{name} is {overflow(page)} pixels too wide"
        assert page.faults == [], name


def test_an_unknown_task_is_reconciled_from_the_start_page(world: World, log_in: Callable[..., Any]):
    seen = world.unknown()
    page = log_in("operator")
    page.click(".orbit-tile:has-text('unknown outcome')")
    page.click(f"a:has-text('{seen.task_id}')")
    page.click("a.orbit-button:has-text('Reconcile')")
    page.select_option("select[name=decision]", "SUCCEEDED")
    page.fill("textarea[name=result]", '{"n": 1.10}')
    page.fill("textarea[name=reason]", "the ledger shows it")
    page.click("button:has-text('Reconcile')")
    page.wait_for_selector("text=The task goes on as you said")
    now = task(seen.task_id)
    assert (now.state, now.result) == ("SUCCEEDED", '{"n": 1.10}')


def test_a_view_that_is_old_does_nothing(world: World, log_in: Callable[..., Any]):
    seen = world.unknown()
    first, second = log_in("operator"), log_in("operator")
    for page in (first, second):
        page.goto(detail(seen).replace("/change/", "/do/reconcile/"))
        page.select_option("select[name=decision]", "FAILED")
        page.fill("textarea[name=reason]", "I looked")
    first.click("button:has-text('Reconcile')")
    first.wait_for_selector("text=The task goes on as you said")
    second.click("button:has-text('Reconcile')")
    second.wait_for_selector("text=It changed while you were looking")
    assert len(rows_of("orbit_audit_entry", "action = 'task.reconcile'")) == 1


def test_a_group_of_dead_letters_is_stopped_and_goes_on(
    world: World, log_in: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
):
    for _ in range(3):
        world.failed()
    page = log_in("operator")
    page.click(".orbit-tile:has-text('Dead letters')")
    page.click("a.orbit-button:has-text('Replay many')")
    page.fill("textarea[name=reason]", "mended")
    page.click("button:has-text('Show the tasks')")
    page.wait_for_selector("text=0 of 3 replayed")
    monkeypatch.setattr("tasks_app.admin.dead_letters.STEP_SECONDS", -1.0)  # nothing fits into a step
    page.click("button:has-text('Replay them')")
    page.click("a.orbit-button:has-text('Stop')")
    page.wait_for_selector("text=0 of 3 replayed")
    monkeypatch.undo()
    page.click("button:has-text('Replay them')")
    page.wait_for_selector("text=3 of 3 replayed")
    assert len(rows_of("orbit_task")) == 6


def test_a_queue_is_paused_and_its_head_says_why_it_waits(world: World, log_in: Callable[..., Any]):
    world.ready()
    page = log_in("operator")
    page.goto(detail(world.queue()))
    page.click("a.orbit-button:has-text('Pause')")
    page.fill("textarea[name=reason]", "the bank is closed")
    page.click("button:has-text('Pause')")
    page.wait_for_selector("text=The queue is paused")
    assert "the bank is closed" in page.inner_text("#content")


def test_a_credential_is_rotated_and_the_trail_says_who(world: World, log_in: Callable[..., Any]):
    page = log_in("admin")
    page.goto(detail(world.credential()))
    page.click("a.orbit-button:has-text('Rotate')")
    page.click("button:has-text('Rotate')")
    token = page.inner_text("#orbit-token")
    assert re.fullmatch(r"orbit_[\w-]{20,}", token)
    page.goto(reverse("admin:tasks_app_auditentry_changelist") + "?q=credential.rotate")
    assert "admin-0" in page.inner_text("#content")
    assert token not in page.content()


def test_the_keyboard_alone_reaches_a_verb(world: World, log_in: Callable[..., Any]):
    seen = world.failed()
    page = log_in("operator")
    page.goto(detail(seen))
    page.focus("a.orbit-button:has-text('Dismiss')")
    page.keyboard.press("Enter")
    page.wait_for_selector("textarea[name=reason]")
    page.focus("textarea[name=reason]")
    page.keyboard.type("known and harmless")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=it is no dead letter any more")
    assert task(seen.task_id).dismissed_at is not None
