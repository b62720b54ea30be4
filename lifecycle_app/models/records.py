"""What is written beside an intent: metering, favourites, receipts of reports, notifications, recovery."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from lifecycle_app import limits
from lifecycle_app.models.storage_nodes import StorageNode
from lifecycle_app.states import AckResult
from lifecycle_app.statuses import DisplayStatus
from tasks_app.fields import AsciiField, ExactTextField, IdField, InstantField
from tasks_app.models import Namespace
from tasks_app.models.constraints import at_least, in_range, is_member, only_when

WEEK_LENGTH = len("2026-W48")


class UsageEntry(models.Model):
    """One generation was submitted: metered once, in the transaction that made it certain."""

    entry_id = IdField(primary_key=True, db_comment="32 hex digits, time-ordered")
    operation_id = IdField(db_comment="the generation; unique, so that nothing is metered twice")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    gid = models.BigIntegerField(db_comment="what was submitted")
    requester = ExactTextField(max_length=limits.REQUESTER_LENGTH_MAX, db_comment="whose usage it is")
    week = AsciiField(max_length=WEEK_LENGTH, db_comment="ISO week in UTC, such as 2026-W48")
    quantity = models.BigIntegerField(db_comment="what the upstream called its size; 1 where it said none")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_usage_entry"
        constraints = [
            models.UniqueConstraint(fields=["operation_id"], name="usage_entry_operation_unique"),
            in_range("usage_entry_quantity_in_range", "quantity", 0, limits.QUANTITY_MAX),
        ]
        indexes = [models.Index(fields=["namespace", "requester", "week"], name="usage_entry_of_week")]


class WeeklyUsage(models.Model):
    """The sum of a requester's entries of one ISO week. Its row lock makes the weekly limit exact."""

    usage_id = models.BigAutoField(primary_key=True, db_comment="no meaning outside the database")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    requester = ExactTextField(max_length=limits.REQUESTER_LENGTH_MAX, db_comment="whose usage it is")
    week = AsciiField(max_length=WEEK_LENGTH, db_comment="ISO week in UTC, such as 2026-W48")
    quantity = models.BigIntegerField(default=0, db_comment="sum of the week's entries")

    class Meta:
        db_table = "orbit_weekly_usage"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "requester", "week"], name="weekly_usage_unique"),
            at_least("weekly_usage_not_negative", "quantity", 0),
        ]


class Favorite(models.Model):
    """A requester likes a gid. Cleared in the transaction that confirms its delete."""

    favorite_id = models.BigAutoField(primary_key=True, db_comment="no meaning outside the database")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    gid = models.BigIntegerField(db_comment="what is liked")
    requester = ExactTextField(max_length=limits.REQUESTER_LENGTH_MAX, db_comment="who likes it")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_favorite"
        constraints = [models.UniqueConstraint(fields=["namespace", "gid", "requester"], name="favorite_unique")]


class ReportReceipt(models.Model):
    """A report was applied, or found to change nothing: its repeats are answered from here."""

    receipt_id = IdField(primary_key=True, db_comment="time-ordered, so that retention walks the primary key")
    storage_node = models.ForeignKey(
        StorageNode, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="who reported"
    )
    report_id = ExactTextField(max_length=limits.REPORT_ID_LENGTH_MAX, db_comment="the node's own id of the report")
    result = AsciiField(max_length=9, choices=AckResult.choices, db_comment="what was answered first")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_report_receipt"
        constraints = [
            models.UniqueConstraint(fields=["storage_node", "report_id"], name="report_receipt_unique"),
            is_member("report_receipt_result_known", "result", [AckResult.APPLIED.value, AckResult.IGNORED.value]),
        ]


class NotificationStatus(models.TextChoices):
    """What can be told: every display status that a row enters, and its end."""

    SUBMITTED = DisplayStatus.SUBMITTED.value, "Submitted"
    DOWNLOADING = DisplayStatus.DOWNLOADING.value, "Downloading"
    WAITING_COMPRESSION = DisplayStatus.WAITING_COMPRESSION.value, "Waiting for compression"
    COMPRESSING = DisplayStatus.COMPRESSING.value, "Compressing"
    COMPLETE = DisplayStatus.COMPLETE.value, "Complete"
    SUBMIT_UNKNOWN = DisplayStatus.SUBMIT_UNKNOWN.value, "Submission unknown"
    DELETE_PENDING = DisplayStatus.DELETE_PENDING.value, "Waiting for deletion"
    DELETE_FAILED = DisplayStatus.DELETE_FAILED.value, "Deletion failed"
    DELETED = "DELETED", "Deleted"


class Notification(models.Model):
    """What is to be told after the commit that it was written in. Its id is what the receiver sees, every time."""

    notification_id = IdField(primary_key=True, db_comment="32 hex digits, time-ordered; the receiver's id")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    gid = models.BigIntegerField(db_comment="about which gid")
    operation_id = IdField(db_comment="about which generation")
    status = AsciiField(max_length=19, choices=NotificationStatus.choices, db_comment="what is told")
    attempts = models.IntegerField(default=0, db_comment="how often it was sent")
    next_attempt_at = InstantField(null=True, db_comment="when to send it (again); NULL: received")
    delivered_at = InstantField(null=True, db_comment="when the receiver said that it has it")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_notification"
        constraints = [
            models.UniqueConstraint(fields=["operation_id", "status"], name="notification_told_once"),
            is_member("notification_status_known", "status", NotificationStatus.values),
            at_least("notification_attempts_not_negative", "attempts", 0),
            only_when("notification_received_or_to_send", "next_attempt_at", condition=Q(delivered_at__isnull=True)),
        ]
        indexes = [models.Index(fields=["next_attempt_at"], name="notification_to_send")]


class RecoveryRun(models.Model):
    """How the recovery of an Orbit node's latest start went: without it, nothing is dispatched from there."""

    orbit_node_id = ExactTextField(primary_key=True, max_length=64, db_comment="ORBIT_NODE_ID")
    incarnation = IdField(db_comment="of that node")
    error = models.CharField(max_length=1000, null=True, db_comment="why it failed; NULL: it is done")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_recovery_run"
