"""Who owns what: applications, namespaces, queues, credentials."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from tasks_app import limits
from tasks_app.fields import AsciiField, DigestField, ExactTextField, IdField, InstantField
from tasks_app.models.constraints import at_least, bucket_is_whole, is_member
from tasks_app.states import Policy, RetryPriority

START_RATE_HELP = "start budget: `start_rate_starts` starts, refilled evenly over `start_rate_per_ms`"


class Application(models.Model):
    """A tenant. Its quotas and their counters stand in one row, which is locked last of all
    (docs/decisions/locks.md).
    """

    application_id = IdField(primary_key=True, db_comment="32 hex digits")
    name = ExactTextField(max_length=128, db_comment="printable, compared byte for byte")
    max_unfinished = models.BigIntegerField(null=True, db_comment="most unfinished tasks; NULL: no limit")
    max_running = models.BigIntegerField(null=True, db_comment="most tasks reserved or running; NULL: no limit")
    start_rate_starts = models.BigIntegerField(null=True, db_comment=START_RATE_HELP)
    start_rate_per_ms = models.BigIntegerField(null=True, db_comment=START_RATE_HELP)
    start_level = models.BigIntegerField(
        default=0, db_comment="start budget left at start_level_at, in starts x per_us"
    )
    start_level_at = InstantField(default=0, db_comment="when start_level was true (microseconds since the epoch)")
    unfinished = models.BigIntegerField(default=0, db_comment="tasks in an unfinished state")
    running = models.BigIntegerField(default=0, db_comment="tasks reserved or running: running permits held")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_application"
        permissions = [
            ("set_application_quotas", "Can change the quotas of applications"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["name"], name="application_name_unique"),
            at_least("application_max_unfinished_not_negative", "max_unfinished", 0, null=True),
            at_least("application_max_running_not_negative", "max_running", 0, null=True),
            at_least("application_unfinished_not_negative", "unfinished", 0),
            at_least("application_running_not_negative", "running", 0),
            bucket_is_whole("application_start_rate_is_whole"),
        ]

    def __str__(self) -> str:
        return self.name


class Namespace(models.Model):
    """A part of an application with its own names, keys and ordering policy. The policy never changes."""

    namespace_id = IdField(primary_key=True, db_comment="32 hex digits")
    application = models.ForeignKey(
        Application, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="owner", related_name="namespaces"
    )
    name = ExactTextField(max_length=128, db_comment="printable, unique in the application")
    environment = ExactTextField(max_length=128, db_comment="label for people, such as production or test")
    policy = AsciiField(max_length=6, choices=Policy.choices, db_comment="AGED or STRICT, fixed when made")
    default_priority = models.SmallIntegerField(default=0, db_comment="STRICT: priority where nothing else says one")
    resource_limit = models.IntegerField(default=1, db_comment="how many tasks may hold one resource key at once")
    weekly_limit = models.BigIntegerField(null=True, db_comment="operations per requester and ISO week; NULL: no limit")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_namespace"
        constraints = [
            models.UniqueConstraint(fields=["application", "name"], name="namespace_name_unique"),
            is_member("namespace_policy_known", "policy", Policy.values),
            models.CheckConstraint(
                name="namespace_default_priority_fits_policy",
                condition=Q(policy=Policy.AGED, default_priority=0)
                | Q(
                    policy=Policy.STRICT,
                    default_priority__gte=limits.STRICT_PRIORITY_MIN,
                    default_priority__lte=limits.STRICT_PRIORITY_MAX,
                ),
            ),
            models.CheckConstraint(
                name="namespace_resource_limit_in_range",
                condition=Q(resource_limit__gte=1, resource_limit__lte=limits.RESOURCE_LIMIT_MAX),
            ),
            at_least("namespace_weekly_limit_not_negative", "weekly_limit", 0, null=True),
        ]

    def __str__(self) -> str:
        return self.name


class Queue(models.Model):
    """A line of tasks. Limits and their counters stand in one row, locked after tasks and resource keys."""

    queue_id = IdField(primary_key=True, db_comment="32 hex digits")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="owner", related_name="queues"
    )
    application = models.ForeignKey(
        Application, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="owner of the namespace"
    )
    name = ExactTextField(max_length=128, db_comment="printable, unique in the namespace")
    paused = models.BooleanField(default=False, db_comment="paused: accepts, starts nothing")
    pause_reason = models.CharField(max_length=1000, null=True, db_comment="why it was paused")
    max_unfinished = models.BigIntegerField(null=True, db_comment="most unfinished tasks; NULL: no limit")
    max_running = models.BigIntegerField(null=True, db_comment="most tasks reserved or running; NULL: no limit")
    start_rate_starts = models.BigIntegerField(null=True, db_comment=START_RATE_HELP)
    start_rate_per_ms = models.BigIntegerField(null=True, db_comment=START_RATE_HELP)
    start_level = models.BigIntegerField(
        default=0, db_comment="start budget left at start_level_at, in starts x per_us"
    )
    start_level_at = InstantField(default=0, db_comment="when start_level was true (microseconds since the epoch)")
    weight = models.SmallIntegerField(default=1, db_comment="STRICT: share among queues of one priority tier")
    default_priority = models.SmallIntegerField(null=True, db_comment="STRICT: priority where the submit says none")
    retry_priority = AsciiField(
        max_length=5, choices=RetryPriority.choices, default=RetryPriority.KEEP, db_comment="KEEP or LOWER (STRICT)"
    )
    unfinished = models.BigIntegerField(default=0, db_comment="tasks in an unfinished state")
    running = models.BigIntegerField(default=0, db_comment="tasks reserved or running: running permits held")
    revision = models.BigIntegerField(default=1, db_comment="grows with every change of the settings")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")
    updated_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_queue"
        permissions = [
            ("pause_queue", "Can pause and resume queues"),
            ("set_queue_limits", "Can change the limits of queues"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="queue_name_unique"),
            at_least("queue_max_unfinished_not_negative", "max_unfinished", 0, null=True),
            at_least("queue_max_running_not_negative", "max_running", 0, null=True),
            at_least("queue_unfinished_not_negative", "unfinished", 0),
            at_least("queue_running_not_negative", "running", 0),
            at_least("queue_revision_positive", "revision", 1),
            bucket_is_whole("queue_start_rate_is_whole"),
            models.CheckConstraint(
                name="queue_weight_in_range",
                condition=Q(weight__gte=limits.QUEUE_WEIGHT_MIN, weight__lte=limits.QUEUE_WEIGHT_MAX),
            ),
            models.CheckConstraint(
                name="queue_default_priority_in_range",
                condition=Q(default_priority__isnull=True)
                | Q(default_priority__gte=limits.STRICT_PRIORITY_MIN, default_priority__lte=limits.STRICT_PRIORITY_MAX),
            ),
            is_member("queue_retry_priority_known", "retry_priority", RetryPriority.values),
            models.CheckConstraint(
                name="queue_pause_reason_only_when_paused", condition=Q(paused=True) | Q(pause_reason__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Credential(models.Model):
    """A bearer token of one namespace. Only its SHA-256 is kept; the token itself was shown once."""

    credential_id = IdField(primary_key=True, db_comment="32 hex digits")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="what it belongs to"
    )
    token_digest = DigestField(max_length=32, db_comment="SHA-256 of the token")
    token_prefix = AsciiField(max_length=16, db_comment="first characters, to recognise a token by")
    actions = AsciiField(max_length=512, db_comment="space-separated actions, sorted")
    all_queues = models.BooleanField(default=True, db_comment="scope: every queue of the namespace")
    expires_at = InstantField(null=True, db_comment="no longer valid from then on; NULL: never")
    revoked_at = InstantField(null=True, db_comment="when it was revoked")
    rotated_to = IdField(null=True, db_comment="the credential that takes its place")
    last_used_at = InstantField(null=True, db_comment="to the minute")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_credential"
        permissions = [
            ("manage_credentials", "Can issue, rotate and revoke credentials"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["token_digest"], name="credential_token_digest_unique"),
            models.CheckConstraint(
                name="credential_expires_after_creation",
                condition=Q(expires_at__isnull=True) | Q(expires_at__gt=F("created_at")),
            ),
        ]
        indexes = [models.Index(fields=["namespace"], name="credential_by_namespace")]

    def __str__(self) -> str:
        return f"{self.token_prefix}…"


class CredentialQueue(models.Model):
    """One queue in the scope of a credential that is not for all queues."""

    credential = models.ForeignKey(
        Credential,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        related_name="queue_scope",
        db_comment="whose scope",
    )
    queue = models.ForeignKey(Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="what it may touch")

    class Meta:
        db_table = "orbit_credential_queue"
        constraints = [models.UniqueConstraint(fields=["credential", "queue"], name="credential_queue_unique")]


class Handler(models.Model):
    """A handler of a namespace as a small integer: it leads the claim index, so that foreign work is never scanned."""

    handler_ref = models.BigAutoField(primary_key=True, db_comment="stands for the handler in the claim index")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="whose handler"
    )
    handler = ExactTextField(max_length=128, db_comment="printable, compared byte for byte")
    handler_version = ExactTextField(max_length=128, db_comment="printable, compared byte for byte")

    class Meta:
        db_table = "orbit_handler"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "handler", "handler_version"], name="handler_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.handler} {self.handler_version}"


class ResourceKey(models.Model):
    """A key that at most `resource_limit` tasks of the namespace hold at once. Its row is the lock of its waiters."""

    resource_ref = models.BigAutoField(primary_key=True, db_comment="stands for the key in task rows")
    namespace = models.ForeignKey(Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="whose key")
    resource_key = ExactTextField(max_length=128, db_comment="printable, compared byte for byte")
    held = models.IntegerField(default=0, db_comment="permits held: tasks RESERVED, RUNNING or UNKNOWN")
    recheck_at = InstantField(
        null=True, db_comment="waiters were passed over because locked: look again; NULL: no need"
    )

    class Meta:
        db_table = "orbit_resource_key"
        constraints = [
            models.UniqueConstraint(fields=["namespace", "resource_key"], name="resource_key_unique"),
            at_least("resource_key_held_not_negative", "held", 0),
        ]
        indexes = [models.Index(fields=["recheck_at"], name="resource_key_to_recheck")]

    def __str__(self) -> str:
        return self.resource_key
