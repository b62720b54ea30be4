"""Queues and applications: what stands in them, pause, resume, limits."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from tasks_app.admin import reasons
from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.admin.verbs import Outcome, ReasonForm, Verb, VerbForm
from tasks_app.domain import attention, fairness, operators, statistics, waiting
from tasks_app.domain.operators import Operator, Right
from tasks_app.domain.tenancy import operator_of
from tasks_app.instants import to_datetime
from tasks_app.limits import (
    QUEUE_WEIGHT_MAX,
    QUEUE_WEIGHT_MIN,
    QUOTA_MAX,
    START_RATE_PER_MS_MAX,
    START_RATE_STARTS_MAX,
)
from tasks_app.models import Application, Queue
from tasks_app.states import Policy


def _limit(label: Any, highest: int, lowest: int = 0, **more: Any) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        required=False,
        min_value=lowest,
        max_value=highest,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=more.pop("help_text", _("Empty: no limit. What is held already is not taken away.")),
        **more,
    )


class QueueLimitsForm(VerbForm):
    max_unfinished = _limit(_("Most unfinished tasks"), QUOTA_MAX)
    max_running = _limit(_("Most running tasks"), QUOTA_MAX)
    starts = _limit(_("Starts"), START_RATE_STARTS_MAX, 1, help_text=_("Empty: starts are not limited."))
    per_ms = _limit(_("in so many milliseconds"), START_RATE_PER_MS_MAX, 1, help_text="")
    weight = forms.IntegerField(
        label=_("Weight"),
        min_value=QUEUE_WEIGHT_MIN,
        max_value=QUEUE_WEIGHT_MAX,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=_("Share of its turns in a STRICT namespace; 1 in an AGED one."),
    )

    def __init__(self, *args: Any, target: Queue | None = None, **kwargs: Any) -> None:
        if target is not None and not args:
            now = {
                "max_unfinished": target.max_unfinished,
                "max_running": target.max_running,
                "starts": target.start_rate_starts,
                "per_ms": target.start_rate_per_ms,
                "weight": target.weight,
            }
            kwargs["initial"] = {**now, **kwargs.get("initial", {})}
        super().__init__(*args, target=target, **kwargs)
        if target is not None and target.namespace.policy == Policy.AGED:
            self.fields["weight"].widget = forms.HiddenInput()
        if target is not None:
            effect = _("%(running)s run and %(unfinished)s are unfinished now.")
            self.fields["max_running"].help_text = effect % {
                "running": target.running,
                "unfinished": target.unfinished,
            }

    def clean(self) -> dict[str, Any]:
        said = super().clean() or self.cleaned_data
        if (said.get("starts") is None) != (said.get("per_ms") is None):
            self.add_error("per_ms", _("Starts and milliseconds go together."))
        return said


class ApplicationQuotasForm(VerbForm):
    max_unfinished = _limit(_("Most unfinished tasks"), QUOTA_MAX)
    max_running = _limit(_("Most running tasks"), QUOTA_MAX)

    def __init__(self, *args: Any, target: Application | None = None, **kwargs: Any) -> None:
        if target is not None and not args:
            now = {"max_unfinished": target.max_unfinished, "max_running": target.max_running}
            kwargs["initial"] = {**now, **kwargs.get("initial", {})}
        super().__init__(*args, target=target, **kwargs)


class ResumeForm(VerbForm):
    """Nothing to say: resuming takes nothing from anybody."""


def _pause(operator: Operator, queue: Queue, said: dict[str, Any]) -> Outcome:
    operators.pause_queue(operator, queue.queue_id, reason=said["reason"])
    return Outcome(_("The queue is paused."))


def _resume(operator: Operator, queue: Queue, said: dict[str, Any]) -> Outcome:
    operators.resume_queue(operator, queue.queue_id)
    return Outcome(_("The queue is resumed."))


def _set_limits(operator: Operator, queue: Queue, said: dict[str, Any]) -> Outcome:
    rate = None if said["starts"] is None else (said["starts"], said["per_ms"])
    changes = {
        "max_unfinished": said["max_unfinished"],
        "max_running": said["max_running"],
        "start_rate": rate,
        "weight": said["weight"],
    }
    operators.change_queue(operator, queue.queue_id, changes, revision=int(said["seen"]))
    return Outcome(_("The limits are in force."))


def _set_quotas(operator: Operator, application: Application, said: dict[str, Any]) -> Outcome:
    changes = {name: said[name] for name in ("max_unfinished", "max_running")}
    seen = {name: getattr(application, name) for name in changes}
    operators.change_application(operator, application.application_id, changes, seen=seen)
    return Outcome(_("The quotas are in force."))


@admin.register(Queue)
class QueueAdmin(OrbitModelAdmin):
    list_display = ("name", "namespace", "paused", "unfinished", "max_unfinished", "running", "max_running", "weight")
    list_select_related = ("namespace",)
    list_filter = ("paused",)
    search_fields = ("=name", "=queue_id")
    panel_template = "orbit/queue.html"
    verbs = (
        Verb(
            name="pause",
            title=_("Pause"),
            effect=_("Nothing of this queue is started any more. What runs goes on, and the queue still accepts."),
            right=Right.PAUSE_QUEUE,
            form=ReasonForm,
            run=_pause,
            fits=lambda queue: not queue.paused,
            seen=lambda queue: str(queue.revision),
            is_dangerous=True,
        ),
        Verb(
            name="resume",
            title=_("Resume"),
            effect=_("Tasks of this queue are started again, in their order."),
            right=Right.PAUSE_QUEUE,
            form=ResumeForm,
            run=_resume,
            fits=lambda queue: queue.paused,
            seen=lambda queue: str(queue.revision),
        ),
        Verb(
            name="limits",
            title=_("Set limits"),
            effect=_("The limits hold for the next task that is accepted or started; nothing is taken away."),
            right=Right.SET_QUEUE_LIMITS,
            form=QueueLimitsForm,
            run=_set_limits,
            seen=lambda queue: str(queue.revision),
        ),
    )

    def panel(self, target: Queue, operator: Operator) -> dict[str, Any]:
        found = statistics.of_queue(operator_of(target.namespace_id), target.queue_id)
        why = None if found.head_task_id is None else waiting.why(found.head_task_id)
        share = None
        if target.max_running:
            share = min(100, round(100 * (found.running + found.reserved) / target.max_running))
        return {
            "statistics": found,
            "backlog": [
                (priority, count, found.oldest_waiting_ms[priority] // 1000)
                for priority, count in found.backlog.items()
            ],
            "head_why": None if why is None else reasons.sentence(why),
            "share": share,
        }

    def get_urls(self) -> list[URLPattern]:
        matrix = path("backlog/", self.admin_site.admin_view(self.backlog_view), name="tasks_app_queue_backlog")
        return [matrix, *super().get_urls()]

    def backlog_view(self, request: HttpRequest) -> HttpResponse:
        """Queue by priority, with the oldest wait."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        lines = attention.backlog()
        context = {
            **self.admin_site.each_context(request),
            "title": _("Backlog by priority"),
            "opts": self.model._meta,
            "priorities": sorted({cell.priority for line in lines for cell in line.cells}, reverse=True),
            "lines": lines,
        }
        return TemplateResponse(request, "orbit/backlog.html", context)


@admin.register(Application)
class ApplicationAdmin(OrbitModelAdmin):
    list_display = ("name", "unfinished", "max_unfinished", "running", "max_running", "created_at")
    search_fields = ("=name", "=application_id")
    verbs = (
        Verb(
            name="quotas",
            title=_("Set quotas"),
            effect=_("The quotas hold for all its namespaces together. Nothing that is held is taken away."),
            right=Right.SET_APPLICATION_QUOTAS,
            form=ApplicationQuotasForm,
            run=_set_quotas,
            seen=lambda application: f"{application.max_unfinished} · {application.max_running}",
        ),
    )

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.fairness_view)
        return [path("fairness/", view, name="tasks_app_fairness"), *super().get_urls()]

    def fairness_view(self, request: HttpRequest) -> HttpResponse:
        """Who gets what, and when the whole database was last checked."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        check = fairness.last_check()
        context = {
            **self.admin_site.each_context(request),
            "title": _("Fairness and health"),
            "opts": self.model._meta,
            "shares": fairness.shares(),
            "starts_looked_at": fairness.STARTS_LOOKED_AT,
            "check": check,
            "checked_at": None if check is None else to_datetime(check.at),
        }
        return TemplateResponse(request, "orbit/fairness.html", context)
