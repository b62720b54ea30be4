import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models

import tasks_app.fields
import tasks_app.models.generated


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Namespace",
            fields=[
                (
                    "namespace_id",
                    tasks_app.fields.IdField(db_comment="32 hex digits", primary_key=True, serialize=False),
                ),
                (
                    "name",
                    tasks_app.fields.ExactTextField(db_comment="printable, unique in the application", max_length=128),
                ),
                (
                    "environment",
                    tasks_app.fields.ExactTextField(
                        db_comment="label for people, such as production or test", max_length=128
                    ),
                ),
                (
                    "policy",
                    tasks_app.fields.AsciiField(
                        choices=[("AGED", "Aged"), ("STRICT", "Strict")],
                        db_comment="AGED or STRICT, fixed when made",
                        max_length=6,
                    ),
                ),
                (
                    "default_priority",
                    models.SmallIntegerField(db_comment="STRICT: priority where nothing else says one", default=0),
                ),
                (
                    "resource_limit",
                    models.IntegerField(db_comment="how many tasks may hold one resource key at once", default=1),
                ),
                (
                    "weekly_limit",
                    models.BigIntegerField(
                        db_comment="operations per requester and ISO week; NULL: no limit", null=True
                    ),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
            ],
            options={
                "db_table": "orbit_namespace",
            },
        ),
        migrations.CreateModel(
            name="Application",
            fields=[
                (
                    "application_id",
                    tasks_app.fields.IdField(db_comment="32 hex digits", primary_key=True, serialize=False),
                ),
                (
                    "name",
                    tasks_app.fields.ExactTextField(db_comment="printable, compared byte for byte", max_length=128),
                ),
                (
                    "max_unfinished",
                    models.BigIntegerField(db_comment="most unfinished tasks; NULL: no limit", null=True),
                ),
                (
                    "max_running",
                    models.BigIntegerField(db_comment="most tasks reserved or running; NULL: no limit", null=True),
                ),
                (
                    "start_rate_starts",
                    models.BigIntegerField(
                        db_comment="start budget: `start_rate_starts` starts, refilled evenly over `start_rate_per_ms`",
                        null=True,
                    ),
                ),
                (
                    "start_rate_per_ms",
                    models.BigIntegerField(
                        db_comment="start budget: `start_rate_starts` starts, refilled evenly over `start_rate_per_ms`",
                        null=True,
                    ),
                ),
                (
                    "start_level",
                    models.BigIntegerField(
                        db_comment="start budget left at start_level_at, in starts x per_us", default=0
                    ),
                ),
                (
                    "start_level_at",
                    tasks_app.fields.InstantField(
                        db_comment="when start_level was true (microseconds since the epoch)", default=0
                    ),
                ),
                ("unfinished", models.BigIntegerField(db_comment="tasks in an unfinished state", default=0)),
                (
                    "running",
                    models.BigIntegerField(db_comment="tasks reserved or running: running permits held", default=0),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
            ],
            options={
                "db_table": "orbit_application",
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="application_name_unique"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("max_unfinished__gte", 0), ("max_unfinished__isnull", True), _connector="OR"
                        ),
                        name="application_max_unfinished_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("max_running__gte", 0), ("max_running__isnull", True), _connector="OR"),
                        name="application_max_running_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("unfinished__gte", 0)), name="application_unfinished_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("running__gte", 0)), name="application_running_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("start_rate_per_ms__isnull", True), ("start_rate_starts__isnull", True)),
                            models.Q(
                                ("start_rate_per_ms__gte", 1),
                                ("start_rate_per_ms__isnull", False),
                                ("start_rate_per_ms__lte", 2678400000),
                                ("start_rate_starts__gte", 1),
                                ("start_rate_starts__isnull", False),
                                ("start_rate_starts__lte", 1000000),
                            ),
                            _connector="OR",
                        ),
                        name="application_start_rate_is_whole",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EventHead",
            fields=[
                (
                    "namespace",
                    models.OneToOneField(
                        db_comment="whose feed",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        serialize=False,
                        to="tasks_app.namespace",
                    ),
                ),
                ("position", models.BigIntegerField(db_comment="last position given", default=0)),
            ],
            options={
                "db_table": "orbit_event_head",
            },
        ),
        migrations.AddField(
            model_name="namespace",
            name="application",
            field=models.ForeignKey(
                db_comment="owner",
                db_constraint=False,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="namespaces",
                to="tasks_app.application",
            ),
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                (
                    "event_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered by the database's clock",
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("task_id", tasks_app.fields.IdField(db_comment="of which task")),
                ("queue_id", tasks_app.fields.IdField(db_comment="its queue")),
                (
                    "type",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("ACCEPTED", "Accepted"),
                            ("STARTED", "Started"),
                            ("PROGRESS", "Progress"),
                            ("YIELDED", "Yielded"),
                            ("RETRY_SCHEDULED", "Retry Scheduled"),
                            ("CANCEL_REQUESTED", "Cancel Requested"),
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("CANCELED", "Canceled"),
                            ("EXPIRED", "Expired"),
                            ("UNKNOWN", "Unknown"),
                            ("RECONCILED", "Reconciled"),
                            ("REPLAYED", "Replayed"),
                            ("DISMISSED", "Dismissed"),
                        ],
                        db_comment="what happened",
                        max_length=16,
                    ),
                ),
                ("revision", models.BigIntegerField(db_comment="revision of the task after it")),
                (
                    "state",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("SCHEDULED", "Scheduled"),
                            ("READY", "Ready"),
                            ("RESERVED", "Reserved"),
                            ("RUNNING", "Running"),
                            ("UNKNOWN", "Unknown"),
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("CANCELED", "Canceled"),
                            ("EXPIRED", "Expired"),
                        ],
                        db_comment="state of the task after it",
                        max_length=9,
                    ),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="the database's clock in that transaction")),
                ("data", tasks_app.fields.LongTextField(db_comment="JSON object, by type", null=True)),
                (
                    "position",
                    models.BigIntegerField(
                        db_comment="place in the namespace's feed, given after commit (docs/decisions/event-feed.md)",
                        null=True,
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
                "db_table": "orbit_event",
                "indexes": [models.Index(fields=["task_id", "event_id"], name="event_of_task")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "type__in",
                                [
                                    "ACCEPTED",
                                    "STARTED",
                                    "PROGRESS",
                                    "YIELDED",
                                    "RETRY_SCHEDULED",
                                    "CANCEL_REQUESTED",
                                    "SUCCEEDED",
                                    "FAILED",
                                    "CANCELED",
                                    "EXPIRED",
                                    "UNKNOWN",
                                    "RECONCILED",
                                    "REPLAYED",
                                    "DISMISSED",
                                ],
                            )
                        ),
                        name="event_type_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "SCHEDULED",
                                    "READY",
                                    "RESERVED",
                                    "RUNNING",
                                    "UNKNOWN",
                                    "SUCCEEDED",
                                    "FAILED",
                                    "CANCELED",
                                    "EXPIRED",
                                ],
                            )
                        ),
                        name="event_state_known",
                    ),
                    models.CheckConstraint(condition=models.Q(("revision__gte", 1)), name="event_revision_positive"),
                    models.UniqueConstraint(fields=("namespace", "position"), name="event_position_unique"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Credential",
            fields=[
                (
                    "credential_id",
                    tasks_app.fields.IdField(db_comment="32 hex digits", primary_key=True, serialize=False),
                ),
                ("token_digest", tasks_app.fields.DigestField(db_comment="SHA-256 of the token", max_length=32)),
                (
                    "token_prefix",
                    tasks_app.fields.AsciiField(db_comment="first characters, to recognise a token by", max_length=16),
                ),
                ("actions", tasks_app.fields.AsciiField(db_comment="space-separated actions, sorted", max_length=512)),
                ("all_queues", models.BooleanField(db_comment="scope: every queue of the namespace", default=True)),
                (
                    "expires_at",
                    tasks_app.fields.InstantField(db_comment="no longer valid from then on; NULL: never", null=True),
                ),
                ("revoked_at", tasks_app.fields.InstantField(db_comment="when it was revoked", null=True)),
                ("rotated_to", tasks_app.fields.IdField(db_comment="the credential that takes its place", null=True)),
                ("last_used_at", tasks_app.fields.InstantField(db_comment="to the minute", null=True)),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="what it belongs to",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_credential",
                "indexes": [models.Index(fields=["namespace"], name="credential_by_namespace")],
                "constraints": [
                    models.UniqueConstraint(fields=("token_digest",), name="credential_token_digest_unique"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("expires_at__isnull", True), ("expires_at__gt", models.F("created_at")), _connector="OR"
                        ),
                        name="credential_expires_after_creation",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "audit_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered", primary_key=True, serialize=False
                    ),
                ),
                (
                    "actor_kind",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("CREDENTIAL", "Credential"),
                            ("USER", "User of the admin site"),
                            ("COMMAND", "Management command"),
                            ("SYSTEM", "Orbit itself"),
                        ],
                        db_comment="what kind of actor",
                        max_length=10,
                    ),
                ),
                (
                    "actor",
                    tasks_app.fields.ExactTextField(db_comment="credential id, user name or command", max_length=150),
                ),
                ("action", tasks_app.fields.AsciiField(db_comment="verb, such as task.submit", max_length=64)),
                (
                    "object_type",
                    tasks_app.fields.AsciiField(
                        db_comment="task, queue, plan, credential, operation, …", max_length=32
                    ),
                ),
                ("object_id", tasks_app.fields.ExactTextField(db_comment="id of the object", max_length=64)),
                ("request_id", tasks_app.fields.IdField(db_comment="the request that did it", null=True)),
                ("reason", models.CharField(db_comment="as given by the actor", max_length=1000, null=True)),
                ("revision_before", models.BigIntegerField(db_comment="revision that was seen", null=True)),
                ("revision_after", models.BigIntegerField(db_comment="revision that it made", null=True)),
                (
                    "data",
                    tasks_app.fields.LongTextField(
                        db_comment="JSON object: what changed; no payloads, no secrets", null=True
                    ),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="the database's clock in that transaction")),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant; NULL: above namespaces",
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_audit_entry",
                "indexes": [models.Index(fields=["object_id", "audit_id"], name="audit_of_object")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("actor_kind__in", ["CREDENTIAL", "USER", "COMMAND", "SYSTEM"])),
                        name="audit_actor_kind_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Handler",
            fields=[
                (
                    "handler_ref",
                    models.BigAutoField(
                        db_comment="stands for the handler in the claim index", primary_key=True, serialize=False
                    ),
                ),
                (
                    "handler",
                    tasks_app.fields.ExactTextField(db_comment="printable, compared byte for byte", max_length=128),
                ),
                (
                    "handler_version",
                    tasks_app.fields.ExactTextField(db_comment="printable, compared byte for byte", max_length=128),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="whose handler",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_handler",
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "handler", "handler_version"), name="handler_unique")
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyRecord",
            fields=[
                (
                    "record_id",
                    tasks_app.fields.IdField(
                        db_comment="time-ordered, so that retention walks the primary key",
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "operation",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("task.submit", "Task Submit"),
                            ("task.replay", "Task Replay"),
                            ("tasks.replay", "Tasks Replay"),
                            ("plan.trigger", "Plan Trigger"),
                            ("plan.fire", "Plan Fire"),
                        ],
                        db_comment="the space of keys",
                        max_length=16,
                    ),
                ),
                ("idempotency_key", tasks_app.fields.AsciiField(db_comment="the caller's key", max_length=128)),
                ("digest", tasks_app.fields.DigestField(db_comment="SHA-256 of the normalised request", max_length=32)),
                ("task_id", tasks_app.fields.IdField(db_comment="receipt: the task; NULL for a selection", null=True)),
                ("queue_id", tasks_app.fields.IdField(db_comment="receipt: its queue", null=True)),
                (
                    "selection",
                    tasks_app.fields.LongTextField(
                        db_comment="tasks.replay: the frozen selection, JSON list of task ids", null=True
                    ),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="receipt: when the task was accepted")),
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
                "db_table": "orbit_idempotency_record",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("namespace", "operation", "idempotency_key"), name="idempotency_key_unique"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "operation__in",
                                ["task.submit", "task.replay", "tasks.replay", "plan.trigger", "plan.fire"],
                            )
                        ),
                        name="idempotency_operation_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("queue_id__isnull", False), ("selection__isnull", True), ("task_id__isnull", False)
                            ),
                            models.Q(("selection__isnull", False), ("task_id__isnull", True)),
                            _connector="OR",
                        ),
                        name="idempotency_record_has_receipt_or_selection",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                (
                    "node_id",
                    tasks_app.fields.ExactTextField(
                        db_comment="ORBIT_NODE_ID", max_length=64, primary_key=True, serialize=False
                    ),
                ),
                ("incarnation", tasks_app.fields.IdField(db_comment="one per process start")),
                (
                    "state",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("STARTING", "Starting"),
                            ("SERVING", "Serving"),
                            ("DRAINING", "Draining"),
                            ("STOPPED", "Stopped"),
                        ],
                        db_comment="of this incarnation",
                        max_length=8,
                    ),
                ),
                ("roles", tasks_app.fields.AsciiField(db_comment="space-separated roles", max_length=128)),
                ("version", tasks_app.fields.AsciiField(db_comment="Orbit version", max_length=32)),
                ("connections", models.IntegerField(db_comment="worker connections at the last heartbeat", default=0)),
                ("started_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "heartbeat_at",
                    tasks_app.fields.InstantField(db_comment="last sign of life, by the database's clock"),
                ),
            ],
            options={
                "db_table": "orbit_node",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["STARTING", "SERVING", "DRAINING", "STOPPED"])),
                        name="node_state_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Plan",
            fields=[
                ("plan_id", tasks_app.fields.IdField(db_comment="32 hex digits", primary_key=True, serialize=False)),
                (
                    "name",
                    tasks_app.fields.ExactTextField(db_comment="printable, unique in the namespace", max_length=128),
                ),
                ("active_version", models.IntegerField(db_comment="the version that fires", default=1)),
                ("versions", models.IntegerField(db_comment="how many versions there are", default=1)),
                ("paused", models.BooleanField(db_comment="times that pass while paused never count", default=False)),
                ("note", models.CharField(db_comment="said when pausing or resuming", max_length=1000, null=True)),
                ("revision", models.BigIntegerField(db_comment="grows with every change", default=1)),
                ("activated_at", tasks_app.fields.InstantField(db_comment="intervals count from here")),
                (
                    "next_fire_at",
                    tasks_app.fields.InstantField(
                        db_comment="next instant to fire; NULL: paused or never again", null=True
                    ),
                ),
                ("last_fired_at", tasks_app.fields.InstantField(db_comment="last instant that was fired", null=True)),
                ("missed", models.BigIntegerField(db_comment="firings counted as missed", default=0)),
                (
                    "created_by",
                    tasks_app.fields.IdField(db_comment="credential whose rights the plan was made with", null=True),
                ),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                ("updated_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="tenant",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_plan",
                "indexes": [models.Index(fields=["next_fire_at"], name="plan_to_fire")],
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "name"), name="plan_name_unique"),
                    models.CheckConstraint(condition=models.Q(("revision__gte", 1)), name="plan_revision_positive"),
                    models.CheckConstraint(
                        condition=models.Q(("active_version__gte", 1), ("active_version__lte", models.F("versions"))),
                        name="plan_active_version_exists",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("paused", False), ("next_fire_at__isnull", True), _connector="OR"),
                        name="plan_paused_fires_nothing",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PlanFiring",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.IntegerField(db_comment="the version that fired")),
                ("fire_time", tasks_app.fields.InstantField(db_comment="the planned instant")),
                (
                    "status",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("ACCEPTED", "Accepted"),
                            ("REFUSED", "Refused"),
                            ("SKIPPED", "Skipped"),
                            ("MISSED", "Missed"),
                        ],
                        db_comment="what became of it",
                        max_length=8,
                    ),
                ),
                ("task_id", tasks_app.fields.IdField(db_comment="the task it submitted", null=True)),
                ("error", tasks_app.fields.LongTextField(db_comment="JSON error of a refused firing", null=True)),
                ("created_at", tasks_app.fields.InstantField(db_comment="when it was noticed")),
                (
                    "plan",
                    models.ForeignKey(
                        db_comment="of",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="firings",
                        to="tasks_app.plan",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_plan_firing",
                "constraints": [
                    models.UniqueConstraint(fields=("plan", "fire_time"), name="plan_firing_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("status__in", ["ACCEPTED", "REFUSED", "SKIPPED", "MISSED"])),
                        name="plan_firing_status_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("task_id__isnull", False), ("status", "ACCEPTED")),
                            models.Q(
                                models.Q(("task_id__isnull", False), _negated=True),
                                models.Q(("status", "ACCEPTED"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="plan_firing_accepted_has_task",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("error__isnull", False), ("status", "REFUSED")),
                            models.Q(
                                models.Q(("error__isnull", False), _negated=True),
                                models.Q(("status", "REFUSED"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="plan_firing_refused_has_error",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PlanVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.IntegerField(db_comment="1 for the first")),
                ("definition", tasks_app.fields.LongTextField(db_comment="JSON as sent")),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "plan",
                    models.ForeignKey(
                        db_comment="of",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="version_set",
                        to="tasks_app.plan",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_plan_version",
                "constraints": [
                    models.UniqueConstraint(fields=("plan", "version"), name="plan_version_unique"),
                    models.CheckConstraint(condition=models.Q(("version__gte", 1)), name="plan_version_positive"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("queue_id", tasks_app.fields.IdField(db_comment="32 hex digits", primary_key=True, serialize=False)),
                (
                    "name",
                    tasks_app.fields.ExactTextField(db_comment="printable, unique in the namespace", max_length=128),
                ),
                ("paused", models.BooleanField(db_comment="paused: accepts, starts nothing", default=False)),
                ("pause_reason", models.CharField(db_comment="why it was paused", max_length=1000, null=True)),
                (
                    "max_unfinished",
                    models.BigIntegerField(db_comment="most unfinished tasks; NULL: no limit", null=True),
                ),
                (
                    "max_running",
                    models.BigIntegerField(db_comment="most tasks reserved or running; NULL: no limit", null=True),
                ),
                (
                    "start_rate_starts",
                    models.BigIntegerField(
                        db_comment="start budget: `start_rate_starts` starts, refilled evenly over `start_rate_per_ms`",
                        null=True,
                    ),
                ),
                (
                    "start_rate_per_ms",
                    models.BigIntegerField(
                        db_comment="start budget: `start_rate_starts` starts, refilled evenly over `start_rate_per_ms`",
                        null=True,
                    ),
                ),
                (
                    "start_level",
                    models.BigIntegerField(
                        db_comment="start budget left at start_level_at, in starts x per_us", default=0
                    ),
                ),
                (
                    "start_level_at",
                    tasks_app.fields.InstantField(
                        db_comment="when start_level was true (microseconds since the epoch)", default=0
                    ),
                ),
                (
                    "weight",
                    models.SmallIntegerField(db_comment="STRICT: share among queues of one priority tier", default=1),
                ),
                (
                    "default_priority",
                    models.SmallIntegerField(db_comment="STRICT: priority where the submit says none", null=True),
                ),
                (
                    "retry_priority",
                    tasks_app.fields.AsciiField(
                        choices=[("KEEP", "Keep"), ("LOWER", "Lower")],
                        db_comment="KEEP or LOWER (STRICT)",
                        default="KEEP",
                        max_length=5,
                    ),
                ),
                ("unfinished", models.BigIntegerField(db_comment="tasks in an unfinished state", default=0)),
                (
                    "running",
                    models.BigIntegerField(db_comment="tasks reserved or running: running permits held", default=0),
                ),
                ("revision", models.BigIntegerField(db_comment="grows with every change of the settings", default=1)),
                ("created_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                ("updated_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                (
                    "application",
                    models.ForeignKey(
                        db_comment="owner of the namespace",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.application",
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="owner",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="queues",
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_queue",
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "name"), name="queue_name_unique"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("max_unfinished__gte", 0), ("max_unfinished__isnull", True), _connector="OR"
                        ),
                        name="queue_max_unfinished_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("max_running__gte", 0), ("max_running__isnull", True), _connector="OR"),
                        name="queue_max_running_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("unfinished__gte", 0)), name="queue_unfinished_not_negative"
                    ),
                    models.CheckConstraint(condition=models.Q(("running__gte", 0)), name="queue_running_not_negative"),
                    models.CheckConstraint(condition=models.Q(("revision__gte", 1)), name="queue_revision_positive"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("start_rate_per_ms__isnull", True), ("start_rate_starts__isnull", True)),
                            models.Q(
                                ("start_rate_per_ms__gte", 1),
                                ("start_rate_per_ms__isnull", False),
                                ("start_rate_per_ms__lte", 2678400000),
                                ("start_rate_starts__gte", 1),
                                ("start_rate_starts__isnull", False),
                                ("start_rate_starts__lte", 1000000),
                            ),
                            _connector="OR",
                        ),
                        name="queue_start_rate_is_whole",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("weight__gte", 1), ("weight__lte", 100)), name="queue_weight_in_range"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("default_priority__isnull", True),
                            models.Q(("default_priority__gte", -9), ("default_priority__lte", 9)),
                            _connector="OR",
                        ),
                        name="queue_default_priority_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("retry_priority__in", ["KEEP", "LOWER"])), name="queue_retry_priority_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("paused", True), ("pause_reason__isnull", True), _connector="OR"),
                        name="queue_pause_reason_only_when_paused",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CredentialQueue",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "credential",
                    models.ForeignKey(
                        db_comment="whose scope",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="queue_scope",
                        to="tasks_app.credential",
                    ),
                ),
                (
                    "queue",
                    models.ForeignKey(
                        db_comment="what it may touch",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.queue",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_credential_queue",
                "constraints": [
                    models.UniqueConstraint(fields=("credential", "queue"), name="credential_queue_unique")
                ],
            },
        ),
        migrations.CreateModel(
            name="ResourceKey",
            fields=[
                (
                    "resource_ref",
                    models.BigAutoField(
                        db_comment="stands for the key in task rows", primary_key=True, serialize=False
                    ),
                ),
                (
                    "resource_key",
                    tasks_app.fields.ExactTextField(db_comment="printable, compared byte for byte", max_length=128),
                ),
                ("held", models.IntegerField(db_comment="permits held: tasks RESERVED, RUNNING or UNKNOWN", default=0)),
                (
                    "recheck_at",
                    tasks_app.fields.InstantField(
                        db_comment="waiters were passed over because locked: look again; NULL: no need", null=True
                    ),
                ),
                (
                    "namespace",
                    models.ForeignKey(
                        db_comment="whose key",
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.namespace",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_resource_key",
                "indexes": [models.Index(fields=["recheck_at"], name="resource_key_to_recheck")],
                "constraints": [
                    models.UniqueConstraint(fields=("namespace", "resource_key"), name="resource_key_unique"),
                    models.CheckConstraint(condition=models.Q(("held__gte", 0)), name="resource_key_held_not_negative"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                (
                    "task_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits, time-ordered", primary_key=True, serialize=False
                    ),
                ),
                ("payload_version", tasks_app.fields.ExactTextField(db_comment="printable", max_length=128)),
                ("payload", tasks_app.fields.LongTextField(db_comment="JSON exactly as sent")),
                ("priority", models.SmallIntegerField(db_comment="AGED 0..9, STRICT -9..9")),
                (
                    "tier",
                    models.SmallIntegerField(
                        db_comment="STRICT: minus the priority, so that ascending is urgent first; AGED: 0"
                    ),
                ),
                (
                    "state",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("SCHEDULED", "Scheduled"),
                            ("READY", "Ready"),
                            ("RESERVED", "Reserved"),
                            ("RUNNING", "Running"),
                            ("UNKNOWN", "Unknown"),
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("CANCELED", "Canceled"),
                            ("EXPIRED", "Expired"),
                        ],
                        db_comment="see states.py",
                        max_length=9,
                    ),
                ),
                (
                    "lane",
                    models.SmallIntegerField(
                        choices=[
                            (0, "open"),
                            (1, "open, with a resource key that has a free permit"),
                            (2, "held: its resource key has no free permit"),
                            (3, "yielded: to be seen again at `visible_at`"),
                        ],
                        db_comment="READY: 0 open, 1 open keyed, 2 held by its key, 3 yielded",
                        default=0,
                    ),
                ),
                (
                    "revision",
                    models.BigIntegerField(db_comment="grows by one with every change that has an event", default=1),
                ),
                ("attempts", models.IntegerField(db_comment="starts so far", default=0)),
                ("max_attempts", models.IntegerField(db_comment="most starts")),
                ("losses", models.IntegerField(db_comment="leases that ran out on a started attempt", default=0)),
                (
                    "retry_mode",
                    tasks_app.fields.AsciiField(
                        choices=[("NEVER", "Never"), ("SAFE", "Safe")], db_comment="NEVER or SAFE", max_length=5
                    ),
                ),
                (
                    "initial_backoff_ms",
                    models.BigIntegerField(db_comment="SAFE: wait before the second start", default=0),
                ),
                ("max_backoff_ms", models.BigIntegerField(db_comment="SAFE: longest wait", default=0)),
                ("multiplier", models.SmallIntegerField(db_comment="SAFE: growth of the wait", default=1)),
                (
                    "available_at",
                    tasks_app.fields.InstantField(db_comment="earliest start (microseconds since the epoch, UTC)"),
                ),
                (
                    "dispatch_at",
                    models.GeneratedField(
                        db_comment="order within a queue: available_at - priority x 30 s (AGED), available_at (STRICT)",
                        db_persist=True,
                        expression=tasks_app.models.generated.ColumnSql(
                            "available_at - (priority + tier) * 30000000", output_field=tasks_app.fields.InstantField()
                        ),
                        output_field=tasks_app.fields.InstantField(),
                    ),
                ),
                (
                    "visible_at",
                    tasks_app.fields.InstantField(
                        db_comment="a yielded task is not claimed before; leaves its place in line alone", null=True
                    ),
                ),
                ("deadline_at", tasks_app.fields.InstantField(db_comment="total deadline", null=True)),
                ("attempt_timeout_ms", models.BigIntegerField(db_comment="longest single attempt", null=True)),
                ("fencing_token", models.BigIntegerField(db_comment="grows with every reservation", default=0)),
                ("attempt_id", tasks_app.fields.IdField(db_comment="the current reservation or attempt", null=True)),
                ("session_id", tasks_app.fields.IdField(db_comment="worker session that holds it", null=True)),
                (
                    "lease_until",
                    tasks_app.fields.InstantField(
                        db_comment="when the reservation or the running lease ends", null=True
                    ),
                ),
                ("started_at", tasks_app.fields.InstantField(db_comment="start of the running attempt", null=True)),
                (
                    "cancel_requested_at",
                    tasks_app.fields.InstantField(
                        db_comment="when the cancel of a running task was asked for", null=True
                    ),
                ),
                ("yields", models.IntegerField(db_comment="reservations given way so far", default=0)),
                ("yieldable", models.BooleanField(db_comment="false once max_yields is reached", default=True)),
                ("result", tasks_app.fields.LongTextField(db_comment="JSON exactly as reported", null=True)),
                ("error", tasks_app.fields.LongTextField(db_comment='JSON {"code","message","details"?}', null=True)),
                (
                    "error_code",
                    tasks_app.fields.ExactTextField(db_comment="error.code, to group by", max_length=128, null=True),
                ),
                ("replayed_from", tasks_app.fields.IdField(db_comment="the task this one replays", null=True)),
                ("replayed_as", tasks_app.fields.IdField(db_comment="the task that replays this one", null=True)),
                ("dismissed_at", tasks_app.fields.InstantField(db_comment="taken out of the dead letters", null=True)),
                ("plan_id", tasks_app.fields.IdField(db_comment="the plan that fired it", null=True)),
                (
                    "parent_task_id",
                    tasks_app.fields.IdField(db_comment="the running task that submitted it", null=True),
                ),
                (
                    "traceparent",
                    tasks_app.fields.AsciiField(db_comment="W3C trace context of the submit", max_length=55, null=True),
                ),
                (
                    "created_at",
                    tasks_app.fields.InstantField(db_comment="acceptance (microseconds since the epoch, UTC)"),
                ),
                ("updated_at", tasks_app.fields.InstantField(db_comment="last change that has an event")),
                ("finished_at", tasks_app.fields.InstantField(db_comment="end", null=True)),
                (
                    "wake_at",
                    models.GeneratedField(
                        db_comment="when maintenance must look at the row; NULL: never",
                        db_persist=True,
                        expression=tasks_app.models.generated.ColumnSql(
                            "CASE WHEN state = 'SCHEDULED' THEN (CASE WHEN deadline_at < available_at THEN deadline_at ELSE available_at END) WHEN state = 'READY' AND lane = 3 THEN (CASE WHEN deadline_at < visible_at THEN deadline_at ELSE visible_at END) WHEN state = 'READY' THEN deadline_at WHEN state = 'RESERVED' THEN (CASE WHEN deadline_at < lease_until THEN deadline_at ELSE lease_until END) WHEN state = 'RUNNING' THEN lease_until END",
                            output_field=tasks_app.fields.InstantField(null=True),
                        ),
                        output_field=tasks_app.fields.InstantField(null=True),
                    ),
                ),
                (
                    "attention",
                    models.GeneratedField(
                        db_comment="UNKNOWN or DEAD: waits for a person; NULL otherwise",
                        db_persist=True,
                        expression=tasks_app.models.generated.ColumnSql(
                            "CASE WHEN state = 'UNKNOWN' THEN 'UNKNOWN' WHEN state = 'FAILED' AND replayed_as IS NULL AND dismissed_at IS NULL THEN 'DEAD' END",
                            output_field=tasks_app.fields.AsciiField(max_length=7, null=True),
                        ),
                        output_field=tasks_app.fields.AsciiField(max_length=7, null=True),
                    ),
                ),
                (
                    "application",
                    models.ForeignKey(
                        db_comment="owner of the namespace",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.application",
                    ),
                ),
                (
                    "handler",
                    models.ForeignKey(
                        db_column="handler_ref",
                        db_comment="handler and version as a small integer",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.handler",
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
                (
                    "queue",
                    models.ForeignKey(
                        db_comment="the line it stands in",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.queue",
                    ),
                ),
                (
                    "resource",
                    models.ForeignKey(
                        db_column="resource_ref",
                        db_comment="resource key as an integer",
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="tasks_app.resourcekey",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_task",
                "indexes": [
                    models.Index(
                        fields=["queue", "state", "lane", "handler", "tier", "dispatch_at", "available_at", "task_id"],
                        name="task_to_claim",
                    ),
                    models.Index(fields=["wake_at"], name="task_to_wake"),
                    models.Index(
                        fields=[
                            "resource",
                            "state",
                            "lane",
                            "queue",
                            "handler",
                            "tier",
                            "dispatch_at",
                            "available_at",
                            "task_id",
                        ],
                        name="task_waiting_for_resource",
                    ),
                    models.Index(fields=["namespace", "task_id"], name="task_in_namespace"),
                    models.Index(fields=["namespace", "attention", "task_id"], name="task_needing_attention"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "SCHEDULED",
                                    "READY",
                                    "RESERVED",
                                    "RUNNING",
                                    "UNKNOWN",
                                    "SUCCEEDED",
                                    "FAILED",
                                    "CANCELED",
                                    "EXPIRED",
                                ],
                            )
                        ),
                        name="task_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("retry_mode__in", ["NEVER", "SAFE"])), name="task_retry_mode_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("lane__gte", 0), ("lane__lte", 3)), name="task_lane_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__gte", -9), ("priority__lte", 9)), name="task_priority_in_range"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("priority__gte", 0), ("tier", 0)),
                            (
                                "tier",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("priority"), "*", models.Value(-1)
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="task_tier_is_zero_or_minus_priority",
                    ),
                    models.CheckConstraint(condition=models.Q(("revision__gte", 1)), name="task_revision_positive"),
                    models.CheckConstraint(condition=models.Q(("attempts__gte", 0)), name="task_attempts_not_negative"),
                    models.CheckConstraint(condition=models.Q(("losses__gte", 0)), name="task_losses_not_negative"),
                    models.CheckConstraint(condition=models.Q(("yields__gte", 0)), name="task_yields_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(("fencing_token__gte", 0)), name="task_fencing_token_not_negative"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("attempts__lte", models.F("max_attempts")), ("max_attempts__gte", 1)),
                        name="task_attempts_within_max",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("losses__lte", models.F("attempts"))), name="task_losses_within_attempts"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("initial_backoff_ms__gte", 0),
                            ("max_backoff_ms__gte", models.F("initial_backoff_ms")),
                            ("max_backoff_ms__lte", 86400000),
                            ("multiplier__gte", 1),
                            ("multiplier__lte", 10),
                        ),
                        name="task_back_off_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("attempt_timeout_ms__gte", 100), ("attempt_timeout_ms__lte", 86400000)),
                            ("attempt_timeout_ms__isnull", True),
                            _connector="OR",
                        ),
                        name="task_attempt_timeout_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("lease_until__isnull", False), ("state__in", ["RESERVED", "RUNNING"])),
                            models.Q(
                                models.Q(("lease_until__isnull", False), _negated=True),
                                models.Q(("state__in", ["RESERVED", "RUNNING"]), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="task_lease_iff_leased",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("attempt_id__isnull", False), ("state__in", ["RESERVED", "RUNNING"])),
                            models.Q(
                                models.Q(("attempt_id__isnull", False), _negated=True),
                                models.Q(("state__in", ["RESERVED", "RUNNING"]), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="task_attempt_id_iff_leased",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("session_id__isnull", False), ("state__in", ["RESERVED", "RUNNING"])),
                            models.Q(
                                models.Q(("session_id__isnull", False), _negated=True),
                                models.Q(("state__in", ["RESERVED", "RUNNING"]), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="task_session_iff_leased",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("started_at__isnull", False), ("state", "RUNNING")),
                            models.Q(
                                models.Q(("started_at__isnull", False), _negated=True),
                                models.Q(("state", "RUNNING"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="task_started_at_iff_running",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("finished_at__isnull", False),
                                ("state__in", ["CANCELED", "EXPIRED", "FAILED", "SUCCEEDED"]),
                            ),
                            models.Q(
                                models.Q(("finished_at__isnull", False), _negated=True),
                                models.Q(("state__in", ["CANCELED", "EXPIRED", "FAILED", "SUCCEEDED"]), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="task_finished_at_iff_ended",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("visible_at__isnull", False), ("lane", 3), ("state", "READY")),
                            models.Q(
                                models.Q(("visible_at__isnull", False), _negated=True),
                                models.Q(("lane", 3), ("state", "READY"), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="task_visible_at_iff_yielded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("lane", 0), ("state", "READY"), _connector="OR"),
                        name="task_lane_only_when_ready",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("lane__in", [0, 3]), ("resource__isnull", False), _connector="OR"),
                        name="task_keyed_lane_needs_resource",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("resource__isnull", True),
                            models.Q(("state", "READY"), _negated=True),
                            ("lane__in", [1, 2, 3]),
                            _connector="OR",
                        ),
                        name="task_ready_with_resource_is_not_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cancel_requested_at__isnull", True),
                            ("state", "RUNNING"),
                            ("state", "UNKNOWN"),
                            ("state__in", ["CANCELED", "EXPIRED", "FAILED", "SUCCEEDED"]),
                            _connector="OR",
                        ),
                        name="task_cancel_requested_only_once_started",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("result__isnull", True), ("state", "SUCCEEDED"), _connector="OR"),
                        name="task_result_only_when_succeeded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("error_code__isnull", False), ("error__isnull", False)),
                            models.Q(
                                models.Q(("error_code__isnull", False), _negated=True),
                                models.Q(("error__isnull", False), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="task_error_code_iff_error",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "FAILED"), _negated=True), ("error__isnull", False), _connector="OR"
                        ),
                        name="task_failed_has_error",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("replayed_as__isnull", True),
                            ("state__in", ["FAILED", "EXPIRED", "CANCELED"]),
                            _connector="OR",
                        ),
                        name="task_replayed_only_from_an_unsuccessful_end",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("dismissed_at__isnull", True), ("state", "FAILED"), _connector="OR"),
                        name="task_dismissed_only_when_failed",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                (
                    "attempt_id",
                    tasks_app.fields.IdField(
                        db_comment="32 hex digits; the reservation's id", primary_key=True, serialize=False
                    ),
                ),
                ("number", models.IntegerField(db_comment="1 for the first start of the task")),
                ("fencing_token", models.BigIntegerField(db_comment="the token it holds or held")),
                ("session_id", tasks_app.fields.IdField(db_comment="worker session that started it")),
                (
                    "worker_name",
                    tasks_app.fields.ExactTextField(db_comment="as announced by the worker", max_length=128),
                ),
                (
                    "node_id",
                    tasks_app.fields.ExactTextField(db_comment="Orbit node that granted the start", max_length=64),
                ),
                (
                    "state",
                    tasks_app.fields.AsciiField(
                        choices=[
                            ("RUNNING", "Running"),
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("CANCELED", "Canceled"),
                            ("LOST", "Lost"),
                        ],
                        db_comment="RUNNING until reported or lost",
                        max_length=9,
                    ),
                ),
                ("started_at", tasks_app.fields.InstantField(db_comment="microseconds since the epoch, UTC")),
                ("finished_at", tasks_app.fields.InstantField(db_comment="report or loss", null=True)),
                ("progress_percent", models.SmallIntegerField(db_comment="last reported progress, 0..100", null=True)),
                ("progress_message", models.CharField(db_comment="last reported progress", max_length=1000, null=True)),
                (
                    "report_digest",
                    tasks_app.fields.DigestField(
                        db_comment="SHA-256 of the accepted report, to know a repeat", max_length=32, null=True
                    ),
                ),
                (
                    "result",
                    tasks_app.fields.LongTextField(
                        db_comment="reported result, where the task did not keep it", null=True
                    ),
                ),
                ("error", tasks_app.fields.LongTextField(db_comment="reported error", null=True)),
                (
                    "late_report",
                    tasks_app.fields.LongTextField(
                        db_comment="a report that came too late: kept as evidence, changes nothing", null=True
                    ),
                ),
                ("late_report_at", tasks_app.fields.InstantField(db_comment="when the late report came", null=True)),
                (
                    "task",
                    models.ForeignKey(
                        db_comment="of what",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="starts",
                        to="tasks_app.task",
                    ),
                ),
            ],
            options={
                "db_table": "orbit_attempt",
                "constraints": [
                    models.UniqueConstraint(fields=("task", "number"), name="attempt_number_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["RUNNING", "SUCCEEDED", "FAILED", "CANCELED", "LOST"])),
                        name="attempt_state_known",
                    ),
                    models.CheckConstraint(condition=models.Q(("number__gte", 1)), name="attempt_number_positive"),
                    models.CheckConstraint(
                        condition=models.Q(("fencing_token__gte", 1)), name="attempt_fencing_token_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("finished_at__isnull", False), models.Q(("state", "RUNNING"), _negated=True)),
                            models.Q(models.Q(("finished_at__isnull", False), _negated=True), ("state", "RUNNING")),
                            _connector="OR",
                        ),
                        name="attempt_finished_at_iff_over",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("progress_percent__gte", 0), ("progress_percent__lte", 100)),
                            ("progress_percent__isnull", True),
                            _connector="OR",
                        ),
                        name="attempt_progress_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("late_report_at__isnull", False), ("late_report__isnull", False)),
                            models.Q(
                                models.Q(("late_report_at__isnull", False), _negated=True),
                                models.Q(("late_report__isnull", False), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="attempt_late_report_has_time",
                    ),
                ],
            },
        ),
        migrations.AddConstraint(
            model_name="namespace",
            constraint=models.UniqueConstraint(fields=("application", "name"), name="namespace_name_unique"),
        ),
        migrations.AddConstraint(
            model_name="namespace",
            constraint=models.CheckConstraint(
                condition=models.Q(("policy__in", ["AGED", "STRICT"])), name="namespace_policy_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="namespace",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("default_priority", 0), ("policy", "AGED")),
                    models.Q(("default_priority__gte", -9), ("default_priority__lte", 9), ("policy", "STRICT")),
                    _connector="OR",
                ),
                name="namespace_default_priority_fits_policy",
            ),
        ),
        migrations.AddConstraint(
            model_name="namespace",
            constraint=models.CheckConstraint(
                condition=models.Q(("resource_limit__gte", 1), ("resource_limit__lte", 10000)),
                name="namespace_resource_limit_in_range",
            ),
        ),
        migrations.AddConstraint(
            model_name="namespace",
            constraint=models.CheckConstraint(
                condition=models.Q(("weekly_limit__gte", 0), ("weekly_limit__isnull", True), _connector="OR"),
                name="namespace_weekly_limit_not_negative",
            ),
        ),
    ]
