"""orbit_prune: retention by hand (design 5.2)."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command

from tasks_app.domain import retention
from tasks_app.models import Task
from tasks_app.transactions import Tx
from tests.tasks_app.factories import cancel, make_tenant, now, submit

pytestmark = pytest.mark.django_db

DAY = 86_400_000_000


@pytest.fixture(autouse=True)
def a_month_later(monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = make_tenant()
    for _ in range(3):
        cancel(tenant, submit(tenant))
    submit(tenant)
    later = now() + 31 * DAY
    monkeypatch.setattr(Tx, "now_us", property(lambda self: later))
    monkeypatch.setattr(retention.time, "sleep", lambda seconds: None)


def run(*arguments: str) -> str:
    said = io.StringIO()
    call_command("orbit_prune", *arguments, stdout=said)
    return said.getvalue()


def test_says_what_was_deleted_by_kind() -> None:
    said = run()
    assert "tasks: 3 deleted (kept for 30 days)" in said
    assert "events: 6 deleted (kept for 30 days)" in said
    assert "receipts: 0 deleted (kept for 90 days)" in said
    assert Task.objects.count() == 1


def test_dry_run_says_what_would_be_deleted() -> None:
    assert "tasks: 3 would be deleted" in run("--dry-run")
    assert Task.objects.count() == 4
    assert "tasks: 3 deleted" in run()
    assert "tasks: 0 deleted" in run()
