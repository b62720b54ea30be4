"""Plans: what fires next in their zone and in UTC, what fired, pause, resume, trigger."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.admin.json_viewer import highlighted
from tasks_app.admin.verbs import Outcome, ReasonForm, Verb, VerbForm
from tasks_app.domain import operators, plans
from tasks_app.domain.operators import Operator, Right
from tasks_app.domain.plan_definitions import stored_definition
from tasks_app.domain.tenancy import operator_of
from tasks_app.instants import to_datetime
from tasks_app.models import Plan, PlanFiring, PlanVersion

VERSIONS_SHOWN_MAX = 10
FIRINGS_SHOWN_MAX = 20


class TriggerForm(VerbForm):
    """Nothing to say: one firing, under the key of this page."""


def _pause(operator: Operator, plan: Plan, said: dict[str, Any]) -> Outcome:
    operators.pause_plan(operator, plan.namespace_id, plan.plan_id, reason=said["reason"])
    return Outcome(_("The plan is paused."))


def _resume(operator: Operator, plan: Plan, said: dict[str, Any]) -> Outcome:
    operators.resume_plan(operator, plan.namespace_id, plan.plan_id, reason=said["reason"])
    return Outcome(_("The plan fires again from its next time on."))


def _trigger(operator: Operator, plan: Plan, said: dict[str, Any]) -> Outcome:
    accepted = operators.trigger_plan(operator, plan.namespace_id, plan.plan_id, key=said["key"])
    return Outcome(_("Fired: task %(task)s.") % {"task": accepted.receipt.task_id})


@admin.register(Plan)
class PlanAdmin(OrbitModelAdmin):
    list_display = ("name", "namespace", "active_version", "paused", "next_fire_at", "last_fired_at", "missed")
    list_select_related = ("namespace",)
    list_filter = ("paused",)
    search_fields = ("=name", "=plan_id")
    panel_template = "orbit/plan.html"
    verbs = (
        Verb(
            name="pause",
            title=_("Pause"),
            effect=_("Nothing fires until the plan is resumed. Times that pass meanwhile never count."),
            right=Right.OPERATE_PLAN,
            form=ReasonForm,
            run=_pause,
            fits=lambda plan: not plan.paused,
            seen=lambda plan: str(_("paused") if plan.paused else _("active")),
            is_dangerous=True,
        ),
        Verb(
            name="resume",
            title=_("Resume"),
            effect=_("The plan fires again from its next time on."),
            right=Right.OPERATE_PLAN,
            form=ReasonForm,
            run=_resume,
            fits=lambda plan: plan.paused,
            seen=lambda plan: str(_("paused") if plan.paused else _("active")),
        ),
        Verb(
            name="trigger",
            title=_("Trigger now"),
            effect=_("The active version fires once, now, also beside an unfinished task of it."),
            right=Right.OPERATE_PLAN,
            form=TriggerForm,
            run=_trigger,
        ),
    )

    def panel(self, target: Plan, operator: Operator) -> dict[str, Any]:
        view = plans.get(operator_of(target.namespace_id), target.plan_id)
        definition = stored_definition(view.definition)
        zone = ZoneInfo(definition.timezone) if definition.timezone else None
        versions = PlanVersion.objects.filter(plan_id=target.plan_id).order_by("-version")[:VERSIONS_SHOWN_MAX]
        may_read = operator.may(Right.READ_PAYLOAD)
        return {
            "cron": definition.cron,
            "interval_seconds": None if definition.interval_ms is None else definition.interval_ms / 1000,
            "timezone_name": definition.timezone,
            "next_times": [
                (to_datetime(at), None if zone is None else to_datetime(at).astimezone(zone).isoformat(" ", "seconds"))
                for at in view.next_fire_times
            ],
            "firings": PlanFiring.objects.filter(plan_id=target.plan_id).order_by("-fire_time")[:FIRINGS_SHOWN_MAX],
            "may_read": may_read,
            "plan_versions": [(one, highlighted(one.definition)) for one in versions] if may_read else [],
        }
