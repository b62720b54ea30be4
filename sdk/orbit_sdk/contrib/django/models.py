"""The outbox: submissions that were committed together with the business that wants them."""

from __future__ import annotations

from datetime import datetime

from django.db import models


class OutboxState(models.TextChoices):
    """PENDING until Orbit's answer is certain; who leaves it never comes back but by `outbox.retry`."""

    PENDING = "PENDING", "Pending"
    SENT = "SENT", "Sent"  # accepted: `task_id` is set
    REFUSED = "REFUSED", "Refused"  # refused for good: a person has to look at `error_code`


class OutboxEntry(models.Model):
    """One submission: its key and its content, never changed once they are committed."""

    key: models.CharField[str, str] = models.CharField(
        max_length=128, db_comment="the idempotency key, given by the business"
    )
    # The key itself may compare without regard to case in this database; its digest does not.
    key_digest: models.CharField[str, str] = models.CharField(
        max_length=64, unique=True, db_comment="SHA-256 of the key, hex"
    )
    request: models.TextField[str, str] = models.TextField(
        db_comment="the task as JSON, every digit as given; the queue by name or id"
    )
    state: models.CharField[str, str] = models.CharField(
        max_length=8, choices=OutboxState.choices, default=OutboxState.PENDING, db_comment="PENDING, SENT or REFUSED"
    )
    attempts: models.PositiveIntegerField[int, int] = models.PositiveIntegerField(
        default=0, db_comment="requests that had this entry and did not end it"
    )
    next_attempt_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(db_comment="not sent before")
    task_id: models.CharField[str, str] = models.CharField(
        max_length=32, blank=True, default="", db_comment="of the accepted task"
    )
    error_code: models.CharField[str, str] = models.CharField(
        max_length=64, blank=True, default="", db_comment="the last refusal"
    )
    error_message: models.TextField[str, str] = models.TextField(
        blank=True, default="", db_comment="the last refusal, for people"
    )
    created_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(db_comment="when the business wrote it")
    updated_at: models.DateTimeField[datetime, datetime] = models.DateTimeField(
        db_comment="the last change of state or attempt"
    )

    objects: models.Manager[OutboxEntry] = models.Manager()

    class Meta:
        verbose_name_plural = "outbox entries"
        indexes = [
            # The relay's read: what is pending and due, oldest first.
            models.Index(fields=["state", "next_attempt_at", "id"], name="orbit_outbox_due"),
        ]
        constraints = [
            models.CheckConstraint(
                name="orbit_outbox_task_id_iff_sent",
                condition=(models.Q(state=OutboxState.SENT) & ~models.Q(task_id=""))
                | (~models.Q(state=OutboxState.SENT) & models.Q(task_id="")),
            ),
            models.CheckConstraint(
                name="orbit_outbox_state_is_known", condition=models.Q(state__in=list(OutboxState.values))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key} ({self.state})"
