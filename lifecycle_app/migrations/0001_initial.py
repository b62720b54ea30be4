import django.db.models.deletion
from django.db import migrations, models

import tasks_app.fields


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("tasks_app", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="RecoveryRun",
            fields=[
                (
                    "orbit_node_id",
                    tasks_app.fields.ExactTextField(
                        db_comment="ORBIT_NODE_ID", max_length=64, primary_key=True, serialize=False
                    ),
                ),
                ("incarnation", tasks_app.fields.IdField(db_comment="of that node")),
                ("error", models.CharField(db_comment="why it failed; NULL: it is done", max_length=1000, null=True)),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
            ],
            options={
                "db_table": "orbit_recovery_run",
            },
        ),
        migrations.CreateModel(
            name="StorageNode",
            fields=[
                (
                    "storage_node_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered", primary_key=True, serialize=False
                    ),
                ),
                (
                    "name",
                    tasks_app.fields.ExactTextField(db_comment="printable, unique in the namespace", max_length=128),
                ),
                (
                    "protocol",
                    tasks_app.fields.AsciiField(
                        choices=[("NEGOTIATING", "Negotiating"), ("V2", "Version 2"), ("LEGACY", "Legacy")],
                        db_comment="negotiated on its last connection",
                        max_length=11,
                    ),
                ),
                (
                    "connection_id",
                    tasks_app.fields.IdField(db_comment="its newest connection; NULL: not connected", null=True),
                ),
                (
                    "orbit_node_id",
                    tasks_app.fields.ExactTextField(
                        db_comment="Orbit node that holds, or held, the connection", max_length=64
                    ),
                ),
                ("orbit_incarnation", tasks_app.fields.IdField(db_comment="incarnation of that node")),
                (
                    "connected_at",
                    tasks_app.fields.InstantField(db_comment="when its newest connection was authenticated"),
                ),
                ("last_seen_at", tasks_app.fields.InstantField(db_comment="last frame, report or sign of life")),
                (
                    "disconnected_at",
                    tasks_app.fields.InstantField(db_comment="when its last connection was seen to end", null=True),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "credential",
                    models.ForeignKey(
                        db_comment="what it authenticated with last",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.credential",
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_storage_node",
                "indexes": [models.Index(fields=["orbit_node_id", "connection_id"], name="storage_node_of_orbit_node")],
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "name"), name="storage_node_name_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("protocol__in", ["NEGOTIATING", "V2", "LEGACY"])),
                        name="storage_node_protocol_known",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ReportReceipt",
            fields=[
                (
                    "receipt_id",
                    tasks_app.fields.IdField(
                        db_comment="time-ordered, so that retention walks the primary key",
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "report_id",
                    tasks_app.fields.ExactTextField(db_comment="the node's own id of the report", max_length=128),
                ),
                (
                    "result",
                    tasks_app.fields.AsciiField(
                        choices=[("APPLIED", "Applied"), ("IGNORED", "Ignored"), ("DUPLICATE", "Duplicate")],
                        db_comment="what was answered first",
                        max_length=9,
                    ),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "storage_node",
                    models.ForeignKey(
                        db_comment="who reported",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="lifecycle_app.storagenode",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_report_receipt",
                "constraints": [
                    models.UniqueConstraint(fields=("storage_node", "report_id"), name="report_receipt_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("result__in", ["APPLIED", "IGNORED"])), name="report_receipt_result_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LifecycleTask",
            fields=[
                (
                    "task_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered", primary_key=True, serialize=False
                    ),
                ),
                ("gid", models.BigIntegerField(db_comment="what is downloaded; positive")),
                ("name", tasks_app.fields.ExactTextField(db_comment="printable, for people and nodes", max_length=256)),
                (
                    "requester",
                    tasks_app.fields.ExactTextField(db_comment="who asked for it, printable", max_length=128),
                ),
                (
                    "status",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("SUBMITTING", "Submitting"),
                            ("SUBMITTED", "Submitted"),
                            ("DOWNLOADING", "Downloading"),
                            ("WAITING_COMPRESSION", "Waiting for compression"),
                            ("COMPRESSING", "Compressing"),
                            ("COMPLETE", "Complete"),
                            ("SUBMIT_UNKNOWN", "Submission unknown"),
                            ("DELETE_PENDING", "Waiting for deletion"),
                            ("DELETE_FAILED", "Deletion failed"),
                        ],
                        db_comment="shown to people",
                        max_length=19,
                    ),
                ),
                (
                    "progress",
                    models.SmallIntegerField(db_comment="percent, as the storage node reported it", default=0),
                ),
                (
                    "delivery",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("NONE", "Nothing to deliver"),
                            ("WAITING", "To be delivered"),
                            ("SETTLED", "Answered by the node"),
                        ],
                        db_comment="is the node to be told something",
                        default="NONE",
                        max_length=7,
                    ),
                ),
                (
                    "sent_connection_id",
                    tasks_app.fields.IdField(db_comment="the connection on which the command was sent last", null=True),
                ),
                ("sent_at", tasks_app.fields.InstantField(db_comment="when it was sent last", null=True)),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                ("updated_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
                (
                    "storage_node",
                    models.ForeignKey(
                        db_comment="whose row it is; chosen once",
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="lifecycle_app.storagenode",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_lifecycle_task",
                "indexes": [
                    models.Index(fields=["delivery", "storage_node"], name="lifecycle_task_to_deliver"),
                    models.Index(fields=["storage_node", "status"], name="lifecycle_task_of_node"),
                    models.Index(fields=["namespace", "requester", "status"], name="lifecycle_task_of_requester"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "gid"), name="lifecycle_task_gid_unique"),
                    models.CheckConstraint(condition=models.Q(("gid__gte", 1)), name="lifecycle_task_gid_positive"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "status__in",
                                [
                                    "SUBMITTING",
                                    "SUBMITTED",
                                    "DOWNLOADING",
                                    "WAITING_COMPRESSION",
                                    "COMPRESSING",
                                    "COMPLETE",
                                    "SUBMIT_UNKNOWN",
                                    "DELETE_PENDING",
                                    "DELETE_FAILED",
                                ],
                            )
                        ),
                        name="lifecycle_task_status_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("progress__gte", 0), ("progress__lte", 100)),
                        name="lifecycle_task_progress_is_percent",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("delivery__in", ["NONE", "WAITING", "SETTLED"])),
                        name="lifecycle_task_delivery_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status__in", ["SUBMITTING", "SUBMIT_UNKNOWN"]), _negated=True),
                            ("delivery", "NONE"),
                            _connector="OR",
                        ),
                        name="lifecycle_task_uncertain_is_not_delivered",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("sent_at__isnull", True), ("sent_connection_id__isnull", True)),
                            models.Q(("sent_at__isnull", False), ("sent_connection_id__isnull", False)),
                            _connector="OR",
                        ),
                        name="lifecycle_task_sent_together",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageEntry",
            fields=[
                (
                    "entry_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered", primary_key=True, serialize=False
                    ),
                ),
                (
                    "operation_id",
                    tasks_app.fields.IdField(db_comment="the generation; unique, so that nothing is metered twice"),
                ),
                ("gid", models.BigIntegerField(db_comment="what was submitted")),
                ("requester", tasks_app.fields.ExactTextField(db_comment="whose usage it is", max_length=128)),
                ("week", tasks_app.fields.AsciiField(db_comment="ISO week in UTC, such as 2026-W48", max_length=8)),
                (
                    "quantity",
                    models.BigIntegerField(db_comment="what the upstream called its size; 1 where it said none"),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_usage_entry",
                "indexes": [models.Index(fields=["namespace", "requester", "week"], name="usage_entry_of_week")],
                "constraints": [
                    models.UniqueConstraint(fields=("operation_id",), name="usage_entry_operation_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("quantity__gte", 0), ("quantity__lte", 9007199254740991)),
                        name="usage_entry_quantity_in_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WeeklyUsage",
            fields=[
                (
                    "usage_id",
                    models.BigAutoField(
                        db_comment="no meaning outside the database", primary_key=True, serialize=False
                    ),
                ),
                ("requester", tasks_app.fields.ExactTextField(db_comment="whose usage it is", max_length=128)),
                ("week", tasks_app.fields.AsciiField(db_comment="ISO week in UTC, such as 2026-W48", max_length=8)),
                ("quantity", models.BigIntegerField(db_comment="sum of the week's entries", default=0)),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_weekly_usage",
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "requester", "week"), name="weekly_usage_unique"),
                    models.CheckConstraint(condition=models.Q(("quantity__gte", 0)), name="weekly_usage_not_negative"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Favorite",
            fields=[
                (
                    "favorite_id",
                    models.BigAutoField(
                        db_comment="no meaning outside the database", primary_key=True, serialize=False
                    ),
                ),
                ("gid", models.BigIntegerField(db_comment="what is liked")),
                ("requester", tasks_app.fields.ExactTextField(db_comment="who likes it", max_length=128)),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_favorite",
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "gid", "requester"), name="favorite_unique")
                ],
            },
        ),
        migrations.CreateModel(
            name="Notification",
            fields=[
                (
                    "notification_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered; the receiver's id", primary_key=True, serialize=False
                    ),
                ),
                ("gid", models.BigIntegerField(db_comment="about which gid")),
                ("operation_id", tasks_app.fields.IdField(db_comment="about which generation")),
                (
                    "status",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("SUBMITTED", "Submitted"),
                            ("DOWNLOADING", "Downloading"),
                            ("WAITING_COMPRESSION", "Waiting for compression"),
                            ("COMPRESSING", "Compressing"),
                            ("COMPLETE", "Complete"),
                            ("SUBMIT_UNKNOWN", "Submission unknown"),
                            ("DELETE_PENDING", "Waiting for deletion"),
                            ("DELETE_FAILED", "Deletion failed"),
                            ("DELETED", "Deleted"),
                        ],
                        db_comment="what is told",
                        max_length=19,
                    ),
                ),
                ("attempts", models.IntegerField(db_comment="how often it was sent", default=0)),
                (
                    "next_attempt_at",
                    tasks_app.fields.InstantField(db_comment="when to send it (again); NULL: received", null=True),
                ),
                (
                    "delivered_at",
                    tasks_app.fields.InstantField(db_comment="when the receiver said that it has it", null=True),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_notification",
                "indexes": [models.Index(fields=["next_attempt_at"], name="notification_to_send")],
                "constraints": [
                    models.UniqueConstraint(fields=("operation_id", "status"), name="notification_told_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "status__in",
                                [
                                    "SUBMITTED",
                                    "DOWNLOADING",
                                    "WAITING_COMPRESSION",
                                    "COMPRESSING",
                                    "COMPLETE",
                                    "SUBMIT_UNKNOWN",
                                    "DELETE_PENDING",
                                    "DELETE_FAILED",
                                    "DELETED",
                                ],
                            )
                        ),
                        name="notification_status_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("attempts__gte", 0)), name="notification_attempts_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("next_attempt_at__isnull", True), ("delivered_at__isnull", True), _connector="OR"
                        ),
                        name="notification_received_or_to_send",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="OperationIntent",
            fields=[
                (
                    "intent_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered", primary_key=True, serialize=False
                    ),
                ),
                ("gid", models.BigIntegerField(db_comment="positive 63-bit integer, unique in the namespace")),
                (
                    "operation_id",
                    tasks_app.fields.IdField(
                        db_comment="one per generation; time-ordered unless adopted from a report"
                    ),
                ),
                (
                    "state",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("RESERVED", "Reserved"),
                            ("SUBMITTING", "Submitting"),
                            ("SUBMITTED", "Submitted"),
                            ("UNKNOWN", "Unknown"),
                            ("DELETE_PENDING", "Delete pending"),
                            ("DELETED", "Deleted"),
                        ],
                        db_comment="changed by domain/transitions.py only",
                        max_length=14,
                    ),
                ),
                (
                    "delete_operation_id",
                    tasks_app.fields.IdField(db_comment="stable through every retry of the delete", null=True),
                ),
                (
                    "last_revision",
                    models.BigIntegerField(db_comment="newest revision that a storage node reported", default=0),
                ),
                (
                    "legacy",
                    models.BooleanField(
                        db_comment="no v2 generation: reports without operation id apply", default=False
                    ),
                ),
                (
                    "quantity",
                    models.BigIntegerField(db_comment="what is metered once it is certainly submitted", default=1),
                ),
                (
                    "owner_node_id",
                    tasks_app.fields.ExactTextField(db_comment="Orbit node that makes the one call", max_length=64),
                ),
                (
                    "owner_incarnation",
                    tasks_app.fields.IdField(db_comment="its incarnation; another one cannot know the outcome"),
                ),
                (
                    "evidence",
                    tasks_app.fields.LongTextField(
                        db_comment="JSON array: what an operator needs to decide; no secrets", null=True
                    ),
                ),
                (
                    "tombstone",
                    tasks_app.fields.LongTextField(
                        db_comment="JSON: the generation before, until this one is certain", null=True
                    ),
                ),
                (
                    "created_at",
                    tasks_app.fields.InstantField(db_comment="of this generation; microseconds since the epoch, UTC"),
                ),
                ("updated_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "submitted_at",
                    tasks_app.fields.InstantField(db_comment="when it became certain that it was submitted", null=True),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
                (
                    "task",
                    models.ForeignKey(
                        db_comment="the visible row; NULL exactly for a tombstone",
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="lifecycle_app.lifecycletask",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_operation_intent",
                "indexes": [
                    models.Index(fields=["namespace", "operation_id"], name="intent_newest"),
                    models.Index(fields=["namespace", "state", "operation_id"], name="intent_newest_of_state"),
                    models.Index(fields=["state", "updated_at"], name="intent_waiting"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "gid"), name="intent_gid_unique"),
                    models.UniqueConstraint(fields=("operation_id",), name="intent_operation_id_unique"),
                    models.UniqueConstraint(fields=("delete_operation_id",), name="intent_delete_operation_id_unique"),
                    models.CheckConstraint(condition=models.Q(("gid__gte", 1)), name="intent_gid_positive"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["RESERVED", "SUBMITTING", "SUBMITTED", "UNKNOWN", "DELETE_PENDING", "DELETED"],
                            )
                        ),
                        name="intent_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("delete_operation_id__isnull", False), ("state__in", ["DELETED", "DELETE_PENDING"])
                            ),
                            models.Q(
                                models.Q(("delete_operation_id__isnull", False), _negated=True),
                                models.Q(("state__in", ["DELETED", "DELETE_PENDING"]), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="intent_delete_operation_id_iff_deleting",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("task__isnull", False),
                                ("state__in", ["DELETE_PENDING", "RESERVED", "SUBMITTED", "SUBMITTING", "UNKNOWN"]),
                            ),
                            models.Q(
                                models.Q(("task__isnull", False), _negated=True),
                                models.Q(
                                    ("state__in", ["DELETE_PENDING", "RESERVED", "SUBMITTED", "SUBMITTING", "UNKNOWN"]),
                                    _negated=True,
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="intent_task_iff_not_deleted",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("submitted_at__isnull", True),
                            models.Q(("state__in", ["RESERVED", "SUBMITTING", "UNKNOWN"]), _negated=True),
                            _connector="OR",
                        ),
                        name="intent_submitted_at_only_if_certain",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state__in", ["DELETE_PENDING", "SUBMITTED"]), _negated=True),
                            ("submitted_at__isnull", False),
                            _connector="OR",
                        ),
                        name="intent_submitted_at_if_submitted",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("tombstone__isnull", True),
                            ("state__in", ["RESERVED", "SUBMITTING", "UNKNOWN"]),
                            _connector="OR",
                        ),
                        name="intent_tombstone_only_if_uncertain",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("last_revision__gte", 0)), name="intent_last_revision_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("quantity__gte", 0), ("quantity__lte", 9007199254740991)),
                        name="intent_quantity_in_range",
                    ),
                ],
            },
        ),
    ]
