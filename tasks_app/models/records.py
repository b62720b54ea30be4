"""What is written beside a task: idempotency records, events, audit entries."""

from __future__ import annotations

from django.db import models

from tasks_app.fields import AsciiField, DigestField, ExactTextField, IdField, InstantField, LongTextField
from tasks_app.models.constraints import at_least, is_member
from tasks_app.models.tenancy import Namespace
from tasks_app.states import EventType, TaskState


class Operation(models.TextChoices):
    """The spaces of idempotency keys (1.2)."""

    TASK_SUBMIT = "task.submit"
    TASK_REPLAY = "task.replay"
    TASKS_REPLAY = "tasks.replay"
    PLAN_TRIGGER = "plan.trigger"
    PLAN_FIRE = "plan.fire"


class IdempotencyRecord(models.Model):
    """One key of one namespace and operation, the content it stands for and the receipt that was given."""

    record_id = IdField(primary_key=True, db_comment="time-ordered, so that retention walks the primary key")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    operation = AsciiField(max_length=16, choices=Operation.choices, db_comment="the space of keys")
    idempotency_key = AsciiField(max_length=128, db_comment="the caller's key")
    digest = DigestField(max_length=32, db_comment="SHA-256 of the normalised request")
    task_id = IdField(null=True, db_comment="receipt: the task; NULL for a selection")
    queue_id = IdField(null=True, db_comment="receipt: its queue")
    selection = LongTextField(null=True, db_comment="tasks.replay: the frozen selection, JSON list of task ids")
    created_at = InstantField(db_comment="receipt: when the task was accepted")

    class Meta:
        db_table = "orbit_idempotency_record"
        constraints = [
            models.UniqueConstraint(
                fields=["namespace", "operation", "idempotency_key"], name="idempotency_key_unique"
            ),
            is_member("idempotency_operation_known", "operation", Operation.values),
            models.CheckConstraint(
                name="idempotency_record_has_receipt_or_selection",
                condition=models.Q(task_id__isnull=False, queue_id__isnull=False, selection__isnull=True)
                | models.Q(task_id__isnull=True, selection__isnull=False),
            ),
        ]


class Event(models.Model):
    """What happened to a task, written in the transaction in which it happened. Never changed but for its position."""

    event_id = IdField(primary_key=True, db_comment="32 hex digits, time-ordered by the database's clock")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    task_id = IdField(db_comment="of which task")
    queue_id = IdField(db_comment="its queue")
    type = AsciiField(max_length=16, choices=EventType.choices, db_comment="what happened")
    revision = models.BigIntegerField(db_comment="revision of the task after it")
    state = AsciiField(max_length=9, choices=TaskState.choices, db_comment="state of the task after it")
    created_at = InstantField(db_comment="the database's clock in that transaction")
    data = LongTextField(null=True, db_comment="JSON object, by type")
    position = models.BigIntegerField(
        null=True, db_comment="place in the namespace's feed, given after commit (docs/decisions/event-feed.md)"
    )

    class Meta:
        db_table = "orbit_event"
        constraints = [
            is_member("event_type_known", "type", EventType.values),
            is_member("event_state_known", "state", TaskState.values),
            at_least("event_revision_positive", "revision", 1),
            models.UniqueConstraint(fields=["namespace", "position"], name="event_position_unique"),
        ]
        indexes = [models.Index(fields=["task_id", "event_id"], name="event_of_task")]


class EventHead(models.Model):
    """The last position that was given in a namespace's feed. Its row lock makes giving positions one at a time."""

    namespace = models.OneToOneField(
        Namespace, primary_key=True, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="whose feed"
    )
    position = models.BigIntegerField(default=0, db_comment="last position given")

    class Meta:
        db_table = "orbit_event_head"


class ActorKind(models.TextChoices):
    CREDENTIAL = "CREDENTIAL", "Credential"
    USER = "USER", "User of the admin site"
    COMMAND = "COMMAND", "Management command"
    SYSTEM = "SYSTEM", "Orbit itself"


class AuditEntry(models.Model):
    """Who did what to which object and why. Written in the transaction that did it; never changed."""

    audit_id = IdField(primary_key=True, db_comment="32 hex digits, time-ordered")
    namespace = models.ForeignKey(
        Namespace,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant; NULL: above namespaces",
    )
    actor_kind = AsciiField(max_length=10, choices=ActorKind.choices, db_comment="what kind of actor")
    actor = ExactTextField(max_length=150, db_comment="credential id, user name or command")
    action = AsciiField(max_length=64, db_comment="verb, such as task.submit")
    object_type = AsciiField(max_length=32, db_comment="task, queue, plan, credential, operation, …")
    object_id = ExactTextField(max_length=64, db_comment="id of the object")
    request_id = IdField(null=True, db_comment="the request that did it")
    reason = models.CharField(max_length=1000, null=True, db_comment="as given by the actor")
    revision_before = models.BigIntegerField(null=True, db_comment="revision that was seen")
    revision_after = models.BigIntegerField(null=True, db_comment="revision that it made")
    data = LongTextField(null=True, db_comment="JSON object: what changed; no payloads, no secrets")
    created_at = InstantField(db_comment="the database's clock in that transaction")

    class Meta:
        db_table = "orbit_audit_entry"
        permissions = [
            ("export_audit", "Can export the audit trail"),
        ]
        constraints = [is_member("audit_actor_kind_known", "actor_kind", ActorKind.values)]
        indexes = [models.Index(fields=["object_id", "audit_id"], name="audit_of_object")]
