"""What orbit_check and retention do with the lifecycle's rows (design 5.2, 5.6)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.db import connection

from lifecycle_app.models import Notification, ReportReceipt
from tasks_app import ids
from tasks_app.domain import invariants, retention
from tests.tasks_app.factories import make_tenant, now

pytestmark = pytest.mark.usefixtures("database")

DAY = 86_400_000_000


def receipt(age_days: float) -> str:
    at = now() - round(age_days * DAY)
    receipt_id = ids.new_id(at)
    ReportReceipt.objects.create(
        receipt_id=receipt_id, storage_node_id="5" * 32, report_id=receipt_id, result="APPLIED", created_at=at
    )
    return receipt_id


def prune_reports() -> int:
    (kind,) = [kind for kind in retention.kinds() if kind.name == "reports"]
    return sum(batch.rows for batch in retention.run(kind))


def test_receipts_of_reports_are_kept_for_30_days() -> None:
    kept = receipt(29.9)
    receipt(30.1)
    assert prune_reports() == 1
    assert [found.receipt_id for found in ReportReceipt.objects.all()] == [kept]


def test_the_period_is_a_setting(settings: Any) -> None:
    receipt(29.9)
    settings.ORBIT = dataclasses.replace(settings.ORBIT, retain_reports_days=5)
    assert prune_reports() == 1


def notification(age_days: float, *, waits: bool) -> str:
    at = now() - round(age_days * DAY)
    notification_id = ids.new_id(at)
    Notification.objects.create(
        notification_id=notification_id,
        namespace_id="5" * 32,
        gid=7,
        operation_id=notification_id,
        status="SUBMITTED",
        next_attempt_at=at if waits else None,
        delivered_at=None if waits else at,
        created_at=at,
    )
    return notification_id


def test_notifications_go_with_the_receipts_but_not_before_they_were_received() -> None:
    young, waiting = notification(29.9, waits=False), notification(99, waits=True)
    notification(30.1, waits=False)
    (kind,) = [kind for kind in retention.kinds() if kind.name == "notifications"]
    assert sum(batch.rows for batch in retention.run(kind)) == 1
    assert {found.notification_id for found in Notification.objects.all()} == {young, waiting}


def test_orbit_check_looks_at_the_lifecycle_too() -> None:
    assert list(invariants.look("lifecycle")) == []
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orbit_weekly_usage (namespace_id, requester, week, quantity) VALUES (%s, %s, %s, %s)",
            [make_tenant().namespace_id, "ada", "2026-W48", 5],
        )
    (finding,) = invariants.look("lifecycle")
    assert finding.object_id == "ada"
    assert "weekly sums" in finding.text and not finding.is_note
