"""Tasks, their attempts and their events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern, reverse
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import RelatedDropdownFilter

from tasks_app.admin import reasons, time_line
from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.admin.json_viewer import SHOWN_CHARACTERS_MAX, highlighted
from tasks_app.admin.task_verbs import TASK_VERBS
from tasks_app.domain import waiting
from tasks_app.domain.operators import Operator, Right
from tasks_app.ids import is_id
from tasks_app.instants import from_datetime
from tasks_app.models import Attempt, Event, IdempotencyRecord, Namespace, ResourceKey, Task
from tasks_app.states import ENDS, TaskState
from tasks_app.transactions import reading

EVENTS_SHOWN_MAX = 200
ATTEMPTS_SHOWN_MAX = 50
_FOUND_MAX = 200


class AttentionFilter(admin.SimpleListFilter):
    """What needs a person: answered from the index of exactly those tasks, whatever else there is."""

    title = _("needs a person")
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("UNKNOWN", _("Outcome unknown")), ("DEAD", _("Dead letters"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Task]) -> QuerySet[Task]:
        if self.value() is None:
            return queryset
        # The index begins with the namespace.
        namespaces = list(Namespace.objects.values_list("namespace_id", flat=True))
        return queryset.filter(namespace_id__in=namespaces, attention=self.value())


@admin.register(Task)
class TaskAdmin(OrbitModelAdmin):
    list_display = ("task_id", "state", "queue", "handler", "priority", "attempts", "available_at", "updated_at")
    list_select_related = ("queue", "handler")
    list_filter = (
        AttentionFilter,
        "state",
        ("namespace", RelatedDropdownFilter),
        ("queue", RelatedDropdownFilter),
    )
    list_filter_submit = True
    search_fields = ("=task_id",)
    search_help_text = _("A task id, an idempotency key or a resource key, whole")
    ordering = ("-task_id",)
    hidden_fields = ("payload", "result", "error", "traceparent", "lane", "tier", "wake_at")  # see the panel
    verbs = TASK_VERBS
    panel_template = "orbit/task.html"
    more_urls: ClassVar[Callable[[TaskAdmin], list[URLPattern]]]  # the pages of dead letters

    def get_urls(self) -> list[URLPattern]:
        return [*type(self).more_urls(self), *super().get_urls()]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Task], search_term: str
    ) -> tuple[QuerySet[Task], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if is_id(term):
            return queryset.filter(task_id=term), False
        namespaces = list(Namespace.objects.values_list("namespace_id", flat=True))
        receipts = IdempotencyRecord.objects.filter(namespace_id__in=namespaces, idempotency_key=term)
        found = list(receipts.exclude(task_id=None).values_list("task_id", flat=True)[:_FOUND_MAX])
        keys = ResourceKey.objects.filter(namespace_id__in=namespaces, resource_key=term)
        for key in keys:
            with_key = Task.objects.filter(resource=key).order_by("-task_id")
            found += list(with_key.values_list("task_id", flat=True)[:_FOUND_MAX])
        return queryset.filter(task_id__in=found), False

    def panel(self, target: Task, operator: Operator) -> dict[str, Any]:
        attempts = list(Attempt.objects.filter(task_id=target.task_id).order_by("number")[:ATTEMPTS_SHOWN_MAX])
        events = list(Event.objects.filter(task_id=target.task_id).order_by("event_id")[:EVENTS_SHOWN_MAX])
        why = waiting.why(target.task_id)
        may_read = operator.may(Right.READ_PAYLOAD)
        created_at = from_datetime(target.created_at)
        ended_at = _now_us() if target.finished_at is None else from_datetime(target.finished_at)
        runs = [
            time_line.Run(
                from_datetime(one.started_at),
                None if one.finished_at is None else from_datetime(one.finished_at),
                f"#{one.number} {one.worker_name}",
            )
            for one in attempts
        ]
        moments = [from_datetime(event.created_at) for event in events]
        return {
            "attempts": attempts,
            "events": events,
            "why": None if why is None else reasons.sentence(why),
            "holders": [] if why is None else why.detail.get("holders", []),
            "is_unknown": target.state == TaskState.UNKNOWN,
            "has_ended": TaskState(target.state) in ENDS,
            "may_read": may_read,
            "documents": _documents(target) if may_read else [],
            "phases": time_line.phases(created_at=created_at, ended_at=ended_at, runs=runs),
            "marks": time_line.places(moments, created_at=created_at, ended_at=ended_at),
            "links": _links(target),
            "late_reports": [one for one in attempts if one.late_report is not None] if may_read else [],
        }


def _now_us() -> int:
    with reading() as tx:
        return tx.now_us


def _documents(task: Task) -> list[dict[str, Any]]:
    found = [
        ("payload", _("Payload"), task.payload),
        ("result", _("Result"), task.result),
        ("error", _("Error"), task.error),
    ]
    return [
        {
            "name": name,
            "title": title,
            "html": highlighted(text[:SHOWN_CHARACTERS_MAX]),
            "is_cut": len(text) > SHOWN_CHARACTERS_MAX,
            "characters": len(text),
        }
        for name, title, text in found
        if text is not None
    ]


def _links(task: Task) -> list[tuple[Any, str, str]]:
    tasks = (
        (_("Replays"), task.replayed_from),
        (_("Replayed as"), task.replayed_as),
        (_("Submitted by"), task.parent_task_id),
    )
    found = [
        (words, task_id, reverse("admin:tasks_app_task_change", args=[task_id])) for words, task_id in tasks if task_id
    ]
    if task.plan_id:
        found.append((_("Fired by plan"), task.plan_id, reverse("admin:tasks_app_plan_change", args=[task.plan_id])))
    return found


@admin.register(Attempt)
class AttemptAdmin(OrbitModelAdmin):
    list_display = ("attempt_id", "task_id", "number", "state", "worker_name", "started_at", "finished_at")
    list_filter = ("state",)
    search_fields = ("=attempt_id", "=task__task_id")
    ordering = ("-attempt_id",)
    hidden_fields = ("report_digest",)
    payload_fields = ("result", "error", "late_report")


@admin.register(Event)
class EventAdmin(OrbitModelAdmin):
    list_display = ("event_id", "type", "task_id", "revision", "state", "created_at")
    list_filter = ("type",)
    search_fields = ("=task_id",)
    ordering = ("-event_id",)


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(OrbitModelAdmin):
    list_display = ("idempotency_key", "operation", "namespace", "task_id", "created_at")
    list_select_related = ("namespace",)
    search_fields = ("=idempotency_key", "=task_id")
    ordering = ("-record_id",)
    hidden_fields = ("digest",)
