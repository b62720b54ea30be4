"""What was intended for a gid, and the visible row of it (design 4.1).

The intent is the truth and stays for ever, as a tombstone at last; the row is what people see and goes with the files.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from lifecycle_app import limits
from lifecycle_app.models.storage_nodes import StorageNode
from lifecycle_app.states import DELETING, HAS_TASK, NOT_CERTAIN, IntentState
from lifecycle_app.statuses import TEXTS, DisplayStatus
from tasks_app.fields import AsciiField, ExactTextField, IdField, InstantField, LongTextField
from tasks_app.models import Namespace
from tasks_app.models.constraints import at_least, exactly_when, in_range, is_member, only_when

_CERTAIN_WITH_TASK = HAS_TASK - NOT_CERTAIN


def _state_in(states: frozenset[IntentState]) -> Q:
    return Q(state__in=sorted(state.value for state in states))


class Delivery(models.TextChoices):
    """Whether a storage node is to be told something about the row."""

    NONE = "NONE", _("Nothing to deliver")
    WAITING = "WAITING", _("To be delivered")  # again at every connection of the node, until its first applied report
    SETTLED = "SETTLED", _("Answered by the node")


class LifecycleTask(models.Model):
    """The visible row of a gid. It is there exactly while its intent is not DELETED."""

    task_id = IdField(_("row id"), primary_key=True, db_comment="32 hex digits, time-ordered")
    namespace = models.ForeignKey(
        Namespace,
        verbose_name=_("namespace"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant",
    )
    gid = models.BigIntegerField(_("gid"), db_comment="what is downloaded; positive")
    name = ExactTextField(_("name"), max_length=limits.NAME_LENGTH_MAX, db_comment="printable, for people and nodes")
    requester = ExactTextField(
        _("requester"), max_length=limits.REQUESTER_LENGTH_MAX, db_comment="who asked for it, printable"
    )
    status = AsciiField(
        _("status"),
        max_length=19,
        choices=[(status.value, TEXTS[status].en) for status in DisplayStatus],
        db_comment="shown to people",
    )
    progress = models.SmallIntegerField(_("progress"), default=0, db_comment="percent, as the storage node reported it")
    storage_node = models.ForeignKey(
        StorageNode,
        verbose_name=_("storage node"),
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="whose row it is; chosen once",
    )
    delivery = AsciiField(
        _("delivery"),
        max_length=7,
        choices=Delivery.choices,
        default=Delivery.NONE,
        db_comment="is the node to be told something",
    )
    sent_connection_id = IdField(
        _("sent connection id"), null=True, db_comment="the connection on which the command was sent last"
    )
    sent_at = InstantField(_("sent at"), null=True, db_comment="when it was sent last")
    created_at = InstantField(_("created at"), db_comment="microseconds since the epoch, UTC")
    updated_at = InstantField(_("updated at"), db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_lifecycle_task"
        verbose_name = _("lifecycle row")
        verbose_name_plural = _("lifecycle rows")
        constraints = [
            models.UniqueConstraint(fields=["namespace", "gid"], name="lifecycle_task_gid_unique"),
            at_least("lifecycle_task_gid_positive", "gid", limits.GID_MIN),
            is_member("lifecycle_task_status_known", "status", [status.value for status in DisplayStatus]),
            in_range("lifecycle_task_progress_is_percent", "progress", 0, 100),
            is_member("lifecycle_task_delivery_known", "delivery", Delivery.values),
            # What is not certain is never told to a storage node (invariant 9), whatever code may try.
            models.CheckConstraint(
                name="lifecycle_task_uncertain_is_not_delivered",
                condition=~Q(status__in=[DisplayStatus.SUBMITTING.value, DisplayStatus.SUBMIT_UNKNOWN.value])
                | Q(delivery=Delivery.NONE.value),
            ),
            models.CheckConstraint(
                name="lifecycle_task_sent_together",
                condition=Q(sent_connection_id__isnull=True, sent_at__isnull=True)
                | Q(sent_connection_id__isnull=False, sent_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["delivery", "storage_node"], name="lifecycle_task_to_deliver"),
            models.Index(fields=["storage_node", "status"], name="lifecycle_task_of_node"),
            models.Index(fields=["namespace", "requester", "status"], name="lifecycle_task_of_requester"),
        ]

    def __str__(self) -> str:
        return f"{self.gid} {self.name}"


class OperationIntent(models.Model):
    """The one lifecycle of a gid: at most one generation is alive, and each has its own operation id."""

    intent_id = IdField(_("intent id"), primary_key=True, db_comment="32 hex digits, time-ordered")
    namespace = models.ForeignKey(
        Namespace,
        verbose_name=_("namespace"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant",
    )
    gid = models.BigIntegerField(_("gid"), db_comment="positive 63-bit integer, unique in the namespace")
    operation_id = IdField(
        _("operation id"), db_comment="one per generation; time-ordered unless adopted from a report"
    )
    state = AsciiField(
        _("state"), max_length=14, choices=IntentState.choices, db_comment="changed by domain/transitions.py only"
    )
    delete_operation_id = IdField(
        _("delete operation id"), null=True, db_comment="stable through every retry of the delete"
    )
    task = models.ForeignKey(
        LifecycleTask,
        verbose_name=_("task"),
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="the visible row; NULL exactly for a tombstone",
    )
    last_revision = models.BigIntegerField(
        _("last revision"), default=0, db_comment="newest revision that a storage node reported"
    )
    legacy = models.BooleanField(
        _("legacy"), default=False, db_comment="no v2 generation: reports without operation id apply"
    )
    quantity = models.BigIntegerField(
        _("quantity"), default=1, db_comment="what is metered once it is certainly submitted"
    )
    owner_node_id = ExactTextField(_("owner node id"), max_length=64, db_comment="Orbit node that makes the one call")
    owner_incarnation = IdField(
        _("owner incarnation"), db_comment="its incarnation; another one cannot know the outcome"
    )
    evidence = LongTextField(
        _("evidence"), null=True, db_comment="JSON array: what an operator needs to decide; no secrets"
    )
    tombstone = LongTextField(
        _("tombstone"), null=True, db_comment="JSON: the generation before, until this one is certain"
    )
    created_at = InstantField(_("created at"), db_comment="of this generation; microseconds since the epoch, UTC")
    updated_at = InstantField(_("updated at"), db_comment="microseconds since the epoch, UTC")
    submitted_at = InstantField(_("submitted at"), null=True, db_comment="when it became certain that it was submitted")

    class Meta:
        db_table = "orbit_operation_intent"
        verbose_name = _("operation intent")
        verbose_name_plural = _("operation intents")
        permissions = [("reconcile_operationintent", "Can reconcile operation intents")]
        constraints = [
            models.UniqueConstraint(fields=["namespace", "gid"], name="intent_gid_unique"),
            models.UniqueConstraint(fields=["operation_id"], name="intent_operation_id_unique"),
            models.UniqueConstraint(fields=["delete_operation_id"], name="intent_delete_operation_id_unique"),
            at_least("intent_gid_positive", "gid", limits.GID_MIN),
            is_member("intent_state_known", "state", IntentState.values),
            exactly_when(
                "intent_delete_operation_id_iff_deleting", "delete_operation_id", condition=_state_in(DELETING)
            ),
            exactly_when("intent_task_iff_not_deleted", "task", condition=_state_in(HAS_TASK)),
            only_when("intent_submitted_at_only_if_certain", "submitted_at", condition=~_state_in(NOT_CERTAIN)),
            models.CheckConstraint(
                name="intent_submitted_at_if_submitted",
                condition=~_state_in(_CERTAIN_WITH_TASK) | Q(submitted_at__isnull=False),
            ),
            only_when("intent_tombstone_only_if_uncertain", "tombstone", condition=_state_in(NOT_CERTAIN)),
            at_least("intent_last_revision_not_negative", "last_revision", 0),
            in_range("intent_quantity_in_range", "quantity", 0, limits.QUANTITY_MAX),
        ]
        indexes = [
            models.Index(fields=["namespace", "operation_id"], name="intent_newest"),
            models.Index(fields=["namespace", "state", "operation_id"], name="intent_newest_of_state"),
            # Recovery looks for RESERVED and SUBMITTING, operators for UNKNOWN and DELETE_PENDING, oldest first.
            models.Index(fields=["state", "operation_id"], name="intent_waiting"),
        ]

    def __str__(self) -> str:
        return f"{self.gid} {self.state}"
