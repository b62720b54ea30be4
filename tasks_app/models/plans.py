"""Plans: schedules that submit tasks. A version never changes; a firing happens once per plan and instant."""

from __future__ import annotations

from django.db import models

from tasks_app.fields import AsciiField, ExactTextField, IdField, InstantField, LongTextField
from tasks_app.models.constraints import at_least, exactly_when, is_member
from tasks_app.models.tenancy import Namespace


class FiringStatus(models.TextChoices):
    ACCEPTED = "ACCEPTED", "Accepted"
    REFUSED = "REFUSED", "Refused"
    SKIPPED = "SKIPPED", "Skipped"
    MISSED = "MISSED", "Missed"


class Plan(models.Model):
    plan_id = IdField(primary_key=True, db_comment="32 hex digits")
    namespace = models.ForeignKey(Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_comment="tenant")
    name = ExactTextField(max_length=128, db_comment="printable, unique in the namespace")
    active_version = models.IntegerField(default=1, db_comment="the version that fires")
    versions = models.IntegerField(default=1, db_comment="how many versions there are")
    paused = models.BooleanField(default=False, db_comment="times that pass while paused never count")
    note = models.CharField(max_length=1000, null=True, db_comment="said when pausing or resuming")
    revision = models.BigIntegerField(default=1, db_comment="grows with every change")
    activated_at = InstantField(db_comment="intervals count from here")
    next_fire_at = InstantField(null=True, db_comment="next instant to fire; NULL: paused or never again")
    last_fired_at = InstantField(null=True, db_comment="last instant that was fired")
    missed = models.BigIntegerField(default=0, db_comment="firings counted as missed")
    created_by = IdField(null=True, db_comment="credential whose rights the plan was made with")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")
    updated_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_plan"
        permissions = [
            ("operate_plan", "Can pause, resume and trigger plans"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="plan_name_unique"),
            at_least("plan_revision_positive", "revision", 1),
            models.CheckConstraint(
                name="plan_active_version_exists",
                condition=models.Q(active_version__gte=1, active_version__lte=models.F("versions")),
            ),
            models.CheckConstraint(
                name="plan_paused_fires_nothing", condition=models.Q(paused=False) | models.Q(next_fire_at__isnull=True)
            ),
        ]
        indexes = [models.Index(fields=["next_fire_at"], name="plan_to_fire")]

    def __str__(self) -> str:
        return self.name


class PlanVersion(models.Model):
    plan = models.ForeignKey(
        Plan,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="version_set",
        db_comment="of",
    )
    version = models.IntegerField(db_comment="1 for the first")
    definition = LongTextField(db_comment="JSON as sent")
    created_at = InstantField(db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_plan_version"
        constraints = [
            models.UniqueConstraint(fields=["plan", "version"], name="plan_version_unique"),
            at_least("plan_version_positive", "version", 1),
        ]


class PlanFiring(models.Model):
    plan = models.ForeignKey(
        Plan, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="firings", db_comment="of"
    )
    version = models.IntegerField(db_comment="the version that fired")
    fire_time = InstantField(db_comment="the planned instant")
    status = AsciiField(max_length=8, choices=FiringStatus.choices, db_comment="what became of it")
    task_id = IdField(null=True, db_comment="the task it submitted")
    error = LongTextField(null=True, db_comment="JSON error of a refused firing")
    created_at = InstantField(db_comment="when it was noticed")

    class Meta:
        db_table = "orbit_plan_firing"
        constraints = [
            models.UniqueConstraint(fields=["plan", "fire_time"], name="plan_firing_unique"),
            is_member("plan_firing_status_known", "status", FiringStatus.values),
            exactly_when("plan_firing_accepted_has_task", "task_id", condition=models.Q(status=FiringStatus.ACCEPTED)),
            exactly_when("plan_firing_refused_has_error", "error", condition=models.Q(status=FiringStatus.REFUSED)),
        ]
