"""What `orbit_check` and retention do with the rows of this app (design 5.2, 5.6).

Receipts of reports, and notifications that were received, go when they are old; tombstones, metering and intents stay.
A report that is repeated after its receipt is gone carries a revision that is not newer than the last one, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from lifecycle_app.domain.invariants import broken_rules
from tasks_app.domain import invariants, retention
from tasks_app.domain.invariants import Finding

CHECK = "lifecycle"


def register() -> None:
    """Tells the app below, which knows nothing of this one."""
    invariants.register(CHECK, _findings)
    retention.register(
        retention.aged("reports", "orbit_report_receipt", "receipt_id", lambda: settings.ORBIT.retain_reports_days)
    )
    retention.register(
        retention.aged(
            "notifications",
            "orbit_notification",
            "notification_id",
            lambda: settings.ORBIT.retain_reports_days,
            where="next_attempt_at IS NULL",  # what the receiver has not got yet stays
        )
    )


def _findings() -> Iterator[Finding]:
    for rule, breakers in broken_rules().items():
        for breaker in breakers:
            yield Finding(CHECK, breaker, f"does not hold: {rule}")
