"""Metering: one entry per generation, in the transaction that makes it certain; the weekly limit (design 4.1, 4.2)."""

from __future__ import annotations

from lifecycle_app.models import LifecycleTask, OperationIntent, UsageEntry, WeeklyUsage
from lifecycle_app.states import OPEN_RESERVATIONS
from lifecycle_app.weeks import iso_week, ms_to_next_week
from tasks_app import dialect, faults, ids
from tasks_app.errors import QuotaExceeded
from tasks_app.instants import to_datetime
from tasks_app.transactions import Tx, unit

_KEY = ("namespace_id", "requester", "week")


class WeekRowMissing(Exception):
    """The requester's row of this week is not there yet: make it (`ensure_week`), then come again."""


def record_usage(tx: Tx, intent: OperationIntent, task: LifecycleTask) -> None:
    """Meters a generation. Doing it again changes nothing."""
    # The intent is locked, so nobody else meters this generation meanwhile; the UNIQUE is the last word all the same.
    if UsageEntry.objects.filter(operation_id=intent.operation_id).exists():
        return
    week = iso_week(tx.now_us)
    UsageEntry.objects.create(
        entry_id=ids.new_id(tx.now_us),
        operation_id=intent.operation_id,
        namespace_id=intent.namespace_id,
        gid=intent.gid,
        requester=task.requester,
        week=week,
        quantity=intent.quantity,
        created_at=to_datetime(tx.now_us),
    )
    faults.point("lifecycle.metered")
    _add_to_week(tx, [intent.namespace_id, task.requester, week], intent.quantity)


def ensure_week(namespace_id: str, requester: str) -> None:
    """Makes the requester's row of this week, in a transaction of its own, so that no other one waits for it."""
    unit(lambda tx: _add_to_week(tx, [namespace_id, requester, iso_week(tx.now_us)], 0))


def require_room(tx: Tx, namespace_id: str, requester: str, limit: int) -> None:
    """Raises QuotaExceeded when this week's sum plus 1 for each open reservation is at the limit.

    The caller's own reservation is among the open ones already. The lock on the week's row makes simultaneous creates
    of one requester come one after the other, so the limit is exact. Raises WeekRowMissing when there is no such row.
    """
    week = WeeklyUsage.objects.select_for_update().filter(
        namespace_id=namespace_id, requester=requester, week=iso_week(tx.now_us)
    )
    row = week.first()
    if row is None:
        raise WeekRowMissing
    used = row.quantity
    others = (
        OperationIntent.objects.filter(
            namespace_id=namespace_id,
            state__in=[state.value for state in OPEN_RESERVATIONS],
            task__requester=requester,
        ).count()
        - 1
    )
    if used + others >= limit:
        # When the sum alone has reached the limit only the next week helps; a reservation may be released at any time.
        retry_after_ms = ms_to_next_week(tx.now_us) if used >= limit else None
        raise QuotaExceeded(
            "the requester's weekly limit is used up",
            details=[
                {"field": "requester", "reason": "weekly limit", "limit": limit, "used": used, "reserved": others}
            ],
            retry_after_ms=retry_after_ms,
        )


def _add_to_week(tx: Tx, key: list[str], quantity: int) -> None:
    columns = (*_KEY, "quantity")
    insert = f"INSERT INTO orbit_weekly_usage ({', '.join(columns)}) VALUES ({dialect.placeholders(columns)})"  # noqa: S608
    if tx.is_mysql:
        insert += " ON DUPLICATE KEY UPDATE quantity = quantity + VALUES(quantity)"
    else:
        insert += f" ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET quantity = quantity + excluded.quantity"
    tx.execute(insert, [*key, quantity])
