"""What is written beside an intent: metering, favourites, receipts of reports, notifications, recovery."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from lifecycle_app import limits
from lifecycle_app.models.storage_nodes import StorageNode
from lifecycle_app.states import AckResult
from lifecycle_app.statuses import TEXTS, DisplayStatus
from tasks_app.fields import AsciiField, ExactTextField, IdField, InstantField
from tasks_app.models import Namespace
from tasks_app.models.constraints import at_least, in_range, is_member, only_when

WEEK_LENGTH = len("2026-W48")


class UsageEntry(models.Model):
    """One generation was submitted: metered once, in the transaction that made it certain."""

    entry_id = IdField(_("entry id"), primary_key=True, db_comment="32 hex digits, time-ordered")
    operation_id = IdField(_("operation id"), db_comment="the generation; unique, so that nothing is metered twice")
    namespace = models.ForeignKey(
        Namespace,
        verbose_name=_("namespace"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant",
    )
    gid = models.BigIntegerField(_("gid"), db_comment="what was submitted")
    requester = ExactTextField(_("requester"), max_length=limits.REQUESTER_LENGTH_MAX, db_comment="whose usage it is")
    week = AsciiField(_("week"), max_length=WEEK_LENGTH, db_comment="ISO week in UTC, such as 2026-W48")
    quantity = models.BigIntegerField(
        _("quantity"), db_comment="what the upstream called its size; 1 where it said none"
    )
    created_at = InstantField(_("created at"), db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_usage_entry"
        verbose_name = _("usage entry")
        verbose_name_plural = _("usage entries")
        constraints = [
            models.UniqueConstraint(fields=["operation_id"], name="usage_entry_operation_unique"),
            in_range("usage_entry_quantity_in_range", "quantity", 0, limits.QUANTITY_MAX),
        ]
        indexes = [models.Index(fields=["namespace", "requester", "week"], name="usage_entry_of_week")]


class WeeklyUsage(models.Model):
    """The sum of a requester's entries of one ISO week. Its row lock makes the weekly limit exact."""

    usage_id = models.BigAutoField(_("usage id"), primary_key=True, db_comment="no meaning outside the database")
    namespace = models.ForeignKey(
        Namespace,
        verbose_name=_("namespace"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant",
    )
    requester = ExactTextField(_("requester"), max_length=limits.REQUESTER_LENGTH_MAX, db_comment="whose usage it is")
    week = AsciiField(_("week"), max_length=WEEK_LENGTH, db_comment="ISO week in UTC, such as 2026-W48")
    quantity = models.BigIntegerField(_("quantity"), default=0, db_comment="sum of the week's entries")

    class Meta:
        db_table = "orbit_weekly_usage"
        verbose_name = _("weekly usage")
        verbose_name_plural = _("weekly usage")
        constraints = [
            models.UniqueConstraint(fields=["namespace", "requester", "week"], name="weekly_usage_unique"),
            at_least("weekly_usage_not_negative", "quantity", 0),
        ]


class Favorite(models.Model):
    """A requester likes a gid. Cleared in the transaction that confirms its delete."""

    favorite_id = models.BigAutoField(_("favorite id"), primary_key=True, db_comment="no meaning outside the database")
    namespace = models.ForeignKey(
        Namespace,
        verbose_name=_("namespace"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant",
    )
    gid = models.BigIntegerField(_("gid"), db_comment="what is liked")
    requester = ExactTextField(_("requester"), max_length=limits.REQUESTER_LENGTH_MAX, db_comment="who likes it")
    created_at = InstantField(_("created at"), db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_favorite"
        verbose_name = _("favourite")
        verbose_name_plural = _("favourites")
        constraints = [models.UniqueConstraint(fields=["namespace", "gid", "requester"], name="favorite_unique")]


class ReportReceipt(models.Model):
    """A report was applied, or found to change nothing: its repeats are answered from here."""

    receipt_id = IdField(
        _("receipt id"), primary_key=True, db_comment="time-ordered, so that retention walks the primary key"
    )
    storage_node = models.ForeignKey(
        StorageNode,
        verbose_name=_("storage node"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="who reported",
    )
    report_id = ExactTextField(
        _("report id"), max_length=limits.REPORT_ID_LENGTH_MAX, db_comment="the node's own id of the report"
    )
    result = AsciiField(_("result"), max_length=9, choices=AckResult.choices, db_comment="what was answered first")
    created_at = InstantField(_("created at"), db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_report_receipt"
        verbose_name = _("report receipt")
        verbose_name_plural = _("report receipts")
        constraints = [
            models.UniqueConstraint(fields=["storage_node", "report_id"], name="report_receipt_unique"),
            is_member("report_receipt_result_known", "result", [AckResult.APPLIED.value, AckResult.IGNORED.value]),
        ]


class NotificationStatus(models.TextChoices):
    """What can be told: every display status that a row enters, and its end."""

    SUBMITTED = DisplayStatus.SUBMITTED.value, TEXTS[DisplayStatus.SUBMITTED].en
    DOWNLOADING = DisplayStatus.DOWNLOADING.value, TEXTS[DisplayStatus.DOWNLOADING].en
    WAITING_COMPRESSION = DisplayStatus.WAITING_COMPRESSION.value, TEXTS[DisplayStatus.WAITING_COMPRESSION].en
    COMPRESSING = DisplayStatus.COMPRESSING.value, TEXTS[DisplayStatus.COMPRESSING].en
    COMPLETE = DisplayStatus.COMPLETE.value, TEXTS[DisplayStatus.COMPLETE].en
    SUBMIT_UNKNOWN = DisplayStatus.SUBMIT_UNKNOWN.value, TEXTS[DisplayStatus.SUBMIT_UNKNOWN].en
    DELETE_PENDING = DisplayStatus.DELETE_PENDING.value, TEXTS[DisplayStatus.DELETE_PENDING].en
    DELETE_FAILED = DisplayStatus.DELETE_FAILED.value, TEXTS[DisplayStatus.DELETE_FAILED].en
    DELETED = "DELETED", _("Deleted")


class Notification(models.Model):
    """What is to be told after the commit that it was written in. Its id is what the receiver sees, every time."""

    notification_id = IdField(
        _("notification id"), primary_key=True, db_comment="32 hex digits, time-ordered; the receiver's id"
    )
    namespace = models.ForeignKey(
        Namespace,
        verbose_name=_("namespace"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant",
    )
    gid = models.BigIntegerField(_("gid"), db_comment="about which gid")
    operation_id = IdField(_("operation id"), db_comment="about which generation")
    status = AsciiField(_("status"), max_length=19, choices=NotificationStatus.choices, db_comment="what is told")
    attempts = models.IntegerField(_("attempts"), default=0, db_comment="how often it was sent")
    next_attempt_at = InstantField(
        _("next attempt at"), null=True, db_comment="when to send it (again); NULL: received"
    )
    delivered_at = InstantField(_("delivered at"), null=True, db_comment="when the receiver said that it has it")
    created_at = InstantField(_("created at"), db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_notification"
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        constraints = [
            models.UniqueConstraint(fields=["operation_id", "status"], name="notification_told_once"),
            is_member("notification_status_known", "status", NotificationStatus.values),
            at_least("notification_attempts_not_negative", "attempts", 0),
            only_when("notification_received_or_to_send", "next_attempt_at", condition=Q(delivered_at__isnull=True)),
        ]
        indexes = [models.Index(fields=["next_attempt_at"], name="notification_to_send")]


class RecoveryRun(models.Model):
    """How the recovery of an Orbit node's latest start went: without it, nothing is dispatched from there."""

    orbit_node_id = ExactTextField(_("orbit node id"), primary_key=True, max_length=64, db_comment="ORBIT_NODE_ID")
    incarnation = IdField(_("incarnation"), db_comment="of that node")
    error = models.CharField(_("error"), max_length=1000, null=True, db_comment="why it failed; NULL: it is done")
    created_at = InstantField(_("created at"), db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_recovery_run"
        verbose_name = _("recovery")
        verbose_name_plural = _("recoveries")
