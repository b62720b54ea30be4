"""Tasks and their attempts. Every rule that a row can break is a named CHECK."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from tasks_app import limits
from tasks_app.fields import AsciiField, DigestField, ExactTextField, IdField, InstantField, LongTextField
from tasks_app.models.constraints import at_least, exactly_when, in_range, is_member, only_when
from tasks_app.models.generated import ATTENTION, DISPATCH_AT, WAKE_AT, computed
from tasks_app.models.tenancy import Application, Handler, Namespace, Queue, ResourceKey
from tasks_app.states import ENDS, LEASED, AttemptState, Lane, RetryMode, TaskState

_LEASED = Q(state__in=sorted(LEASED))
_ENDED = Q(state__in=sorted(ENDS))


class Task(models.Model):
    """One unit of work. `domain/transitions.py` moves it; nothing else writes its state."""

    task_id = IdField(primary_key=True, db_comment="32 hex digits, time-ordered")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    application = models.ForeignKey(
        Application,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="owner of the namespace",
    )
    queue = models.ForeignKey(
        Queue, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="the line it stands in"
    )
    handler = models.ForeignKey(
        Handler,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_column="handler_ref",
        db_comment="handler and version as a small integer",
    )
    payload_version = ExactTextField(max_length=128, db_comment="printable")
    payload = LongTextField(db_comment="JSON exactly as sent")
    priority = models.SmallIntegerField(db_comment="AGED 0..9, STRICT -9..9")
    tier = models.SmallIntegerField(db_comment="STRICT: minus the priority, so that ascending is urgent first; AGED: 0")
    state = AsciiField(max_length=9, choices=TaskState.choices, db_comment="see states.py")
    lane = models.SmallIntegerField(
        choices=Lane.choices, default=Lane.OPEN, db_comment="READY: 0 open, 1 open keyed, 2 held by its key, 3 yielded"
    )
    revision = models.BigIntegerField(default=1, db_comment="grows by one with every change that has an event")
    attempts = models.IntegerField(default=0, db_comment="starts so far")
    max_attempts = models.IntegerField(db_comment="most starts")
    losses = models.IntegerField(default=0, db_comment="leases that ran out on a started attempt")
    retry_mode = AsciiField(max_length=5, choices=RetryMode.choices, db_comment="NEVER or SAFE")
    initial_backoff_ms = models.BigIntegerField(default=0, db_comment="SAFE: wait before the second start")
    max_backoff_ms = models.BigIntegerField(default=0, db_comment="SAFE: longest wait")
    multiplier = models.SmallIntegerField(default=1, db_comment="SAFE: growth of the wait")
    available_at = InstantField(db_comment="earliest start (microseconds since the epoch, UTC)")
    dispatch_at = computed(
        DISPATCH_AT,
        output_field=InstantField(),
        db_comment="order within a queue: available_at - priority x 30 s (AGED), available_at (STRICT)",
    )
    visible_at = InstantField(
        null=True, db_comment="a yielded task is not claimed before; leaves its place in line alone"
    )
    deadline_at = InstantField(null=True, db_comment="total deadline")
    attempt_timeout_ms = models.BigIntegerField(null=True, db_comment="longest single attempt")
    resource = models.ForeignKey(
        ResourceKey,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_column="resource_ref",
        db_comment="resource key as an integer",
    )
    fencing_token = models.BigIntegerField(default=0, db_comment="grows with every reservation")
    attempt_id = IdField(null=True, db_comment="the current reservation or attempt")
    session_id = IdField(null=True, db_comment="worker session that holds it")
    lease_until = InstantField(null=True, db_comment="when the reservation or the running lease ends")
    started_at = InstantField(null=True, db_comment="start of the running attempt")
    cancel_requested_at = InstantField(null=True, db_comment="when the cancel of a running task was asked for")
    yields = models.IntegerField(default=0, db_comment="reservations given way so far")
    yieldable = models.BooleanField(default=True, db_comment="false once max_yields is reached")
    result = LongTextField(null=True, db_comment="JSON exactly as reported")
    error = LongTextField(null=True, db_comment='JSON {"code","message","details"?}')
    error_code = ExactTextField(max_length=128, null=True, db_comment="error.code, to group by")
    replayed_from = IdField(null=True, db_comment="the task this one replays")
    replayed_as = IdField(null=True, db_comment="the task that replays this one")
    dismissed_at = InstantField(null=True, db_comment="taken out of the dead letters")
    plan_id = IdField(null=True, db_comment="the plan that fired it")
    parent_task_id = IdField(null=True, db_comment="the running task that submitted it")
    traceparent = AsciiField(max_length=55, null=True, db_comment="W3C trace context of the submit")
    created_at = InstantField(db_comment="acceptance (microseconds since the epoch, UTC)")
    updated_at = InstantField(db_comment="last change that has an event")
    finished_at = InstantField(null=True, db_comment="end")
    wake_at = computed(
        WAKE_AT, output_field=InstantField(null=True), db_comment="when maintenance must look at the row; NULL: never"
    )
    attention = computed(
        ATTENTION,
        output_field=AsciiField(max_length=7, null=True),
        db_comment="UNKNOWN or DEAD: waits for a person; NULL otherwise",
    )

    class Meta:
        db_table = "orbit_task"
        permissions = [
            ("read_payload", "Can read payloads, results and errors"),
            ("cancel_task", "Can cancel tasks"),
            ("reconcile_task", "Can reconcile tasks with an unknown outcome"),
            ("replay_task", "Can replay one task"),
            ("replay_tasks", "Can replay many tasks at once"),
            ("dismiss_task", "Can dismiss dead letters"),
        ]
        constraints = [
            is_member("task_state_known", "state", TaskState.values),
            is_member("task_retry_mode_known", "retry_mode", RetryMode.values),
            in_range("task_lane_known", "lane", min(Lane.values), max(Lane.values)),
            in_range("task_priority_in_range", "priority", limits.STRICT_PRIORITY_MIN, limits.STRICT_PRIORITY_MAX),
            models.CheckConstraint(
                name="task_tier_is_zero_or_minus_priority",
                condition=Q(tier=0, priority__gte=0) | Q(tier=F("priority") * -1),
            ),
            at_least("task_revision_positive", "revision", 1),
            at_least("task_attempts_not_negative", "attempts", 0),
            at_least("task_losses_not_negative", "losses", 0),
            at_least("task_yields_not_negative", "yields", 0),
            at_least("task_fencing_token_not_negative", "fencing_token", 0),
            models.CheckConstraint(
                name="task_attempts_within_max", condition=Q(max_attempts__gte=1, attempts__lte=F("max_attempts"))
            ),
            models.CheckConstraint(name="task_losses_within_attempts", condition=Q(losses__lte=F("attempts"))),
            models.CheckConstraint(
                name="task_back_off_in_range",
                condition=Q(
                    initial_backoff_ms__gte=0,
                    max_backoff_ms__gte=F("initial_backoff_ms"),
                    max_backoff_ms__lte=limits.RETRY_BACKOFF_MS_MAX,
                    multiplier__gte=limits.RETRY_MULTIPLIER_MIN,
                    multiplier__lte=limits.RETRY_MULTIPLIER_MAX,
                ),
            ),
            in_range(
                "task_attempt_timeout_in_range",
                "attempt_timeout_ms",
                limits.ATTEMPT_TIMEOUT_MS_MIN,
                limits.ATTEMPT_TIMEOUT_MS_MAX,
                null=True,
            ),
            # A lease, its holder and its attempt exist exactly while the task is reserved or running.
            exactly_when("task_lease_iff_leased", "lease_until", condition=_LEASED),
            exactly_when("task_attempt_id_iff_leased", "attempt_id", condition=_LEASED),
            exactly_when("task_session_iff_leased", "session_id", condition=_LEASED),
            exactly_when("task_started_at_iff_running", "started_at", condition=Q(state=TaskState.RUNNING)),
            exactly_when("task_finished_at_iff_ended", "finished_at", condition=_ENDED),
            exactly_when(
                "task_visible_at_iff_yielded", "visible_at", condition=Q(state=TaskState.READY, lane=Lane.YIELDED)
            ),
            # A lane other than OPEN means something only in the line; a key is what a lane of the key is about.
            models.CheckConstraint(
                name="task_lane_only_when_ready", condition=Q(lane=Lane.OPEN) | Q(state=TaskState.READY)
            ),
            models.CheckConstraint(
                name="task_keyed_lane_needs_resource",
                condition=Q(lane__in=[Lane.OPEN, Lane.YIELDED]) | Q(resource__isnull=False),
            ),
            models.CheckConstraint(
                name="task_ready_with_resource_is_not_open",
                condition=Q(resource__isnull=True)
                | ~Q(state=TaskState.READY)
                | Q(lane__in=[Lane.KEYED, Lane.HELD, Lane.YIELDED]),
            ),
            only_when(
                "task_cancel_requested_only_once_started",
                "cancel_requested_at",
                condition=Q(state=TaskState.RUNNING) | Q(state=TaskState.UNKNOWN) | _ENDED,
            ),
            only_when("task_result_only_when_succeeded", "result", condition=Q(state=TaskState.SUCCEEDED)),
            exactly_when("task_error_code_iff_error", "error_code", condition=Q(error__isnull=False)),
            models.CheckConstraint(
                name="task_failed_has_error", condition=~Q(state=TaskState.FAILED) | Q(error__isnull=False)
            ),
            only_when(
                "task_replayed_only_from_an_unsuccessful_end",
                "replayed_as",
                condition=Q(state__in=[TaskState.FAILED, TaskState.EXPIRED, TaskState.CANCELED]),
            ),
            only_when("task_dismissed_only_when_failed", "dismissed_at", condition=Q(state=TaskState.FAILED)),
        ]
        indexes = [
            # Claims: one seek per (queue, lane, handler) that gives tasks in order. See docs/decisions/claim-index.md.
            models.Index(
                fields=["queue", "state", "lane", "handler", "tier", "dispatch_at", "available_at", "task_id"],
                name="task_to_claim",
            ),
            # Sweeps: everything whose time has come, oldest first.
            models.Index(fields=["wake_at"], name="task_to_wake"),
            # Waiters of one resource key, grouped by queue and handler, in order.
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
            # Lists: newest first in a namespace or a queue; what waits for a person.
            models.Index(fields=["namespace", "task_id"], name="task_in_namespace"),
            models.Index(fields=["namespace", "attention", "task_id"], name="task_needing_attention"),
        ]

    def __str__(self) -> str:
        return self.task_id


class Attempt(models.Model):
    """One start of a task, and what was reported of it."""

    attempt_id = IdField(primary_key=True, db_comment="32 hex digits; the reservation's id")
    task = models.ForeignKey(
        Task,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="starts",
        db_comment="of what",
    )
    number = models.IntegerField(db_comment="1 for the first start of the task")
    fencing_token = models.BigIntegerField(db_comment="the token it holds or held")
    session_id = IdField(db_comment="worker session that started it")
    worker_name = ExactTextField(max_length=128, db_comment="as announced by the worker")
    node_id = ExactTextField(max_length=64, db_comment="Orbit node that granted the start")
    state = AsciiField(max_length=9, choices=AttemptState.choices, db_comment="RUNNING until reported or lost")
    started_at = InstantField(db_comment="microseconds since the epoch, UTC")
    finished_at = InstantField(null=True, db_comment="report or loss")
    progress_percent = models.SmallIntegerField(null=True, db_comment="last reported progress, 0..100")
    progress_message = models.CharField(max_length=1000, null=True, db_comment="last reported progress")
    report_digest = DigestField(max_length=32, null=True, db_comment="SHA-256 of the accepted report, to know a repeat")
    result = LongTextField(null=True, db_comment="reported result, where the task did not keep it")
    error = LongTextField(null=True, db_comment="reported error")
    late_report = LongTextField(null=True, db_comment="a report that came too late: kept as evidence, changes nothing")
    late_report_at = InstantField(null=True, db_comment="when the late report came")

    class Meta:
        db_table = "orbit_attempt"
        constraints = [
            models.UniqueConstraint(fields=["task", "number"], name="attempt_number_unique"),
            is_member("attempt_state_known", "state", AttemptState.values),
            at_least("attempt_number_positive", "number", 1),
            at_least("attempt_fencing_token_positive", "fencing_token", 1),
            exactly_when("attempt_finished_at_iff_over", "finished_at", condition=~Q(state=AttemptState.RUNNING)),
            in_range("attempt_progress_in_range", "progress_percent", 0, 100, null=True),
            exactly_when("attempt_late_report_has_time", "late_report_at", condition=Q(late_report__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.task_id} #{self.number}"
