"""Operation intents: what waits for a decision, oldest first, the evidence, and the decisions (design 4.8).

A decision is a page of its own: it shows the evidence and what will happen, asks for a tick and a reason, and acts by
POST only. What the operator saw goes along; if it does not hold any more the page is drawn again with what changed.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget

from lifecycle_app import evidence
from lifecycle_app.admin.decisions import WORDS
from lifecycle_app.admin.pages import status_shown
from lifecycle_app.composition import configured_upstream
from lifecycle_app.domain.reconciliation import Verdict, reconcile
from lifecycle_app.models import OperationIntent
from lifecycle_app.states import DECISIONS, Decision, IntentState
from tasks_app.admin import start_page
from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.domain.attention import COUNTED_MAX, Need
from tasks_app.domain.audit import Actor
from tasks_app.errors import OrbitError, RevisionConflict
from tasks_app.instants import from_datetime
from tasks_app.limits import REASON_LENGTH_MAX
from tasks_app.models import ActorKind


def _unknown_intents() -> Need:
    unknown = OperationIntent.objects.filter(state=IntentState.UNKNOWN)
    oldest = unknown.order_by("updated_at").values_list("updated_at", flat=True).first()
    count = unknown[: COUNTED_MAX + 1].count()
    return Need(count, None if oldest is None else from_datetime(oldest))


start_page.register(
    start_page.Tile(
        "intents",
        _("Operations with an unknown outcome"),
        _unknown_intents,
        "admin:lifecycle_app_operationintent_changelist",
        "lifecycle_app.view_operationintent",
    )
)
RECONCILE = "lifecycle_app.reconcile_operationintent"
WAITING = (IntentState.UNKNOWN, IntentState.DELETE_PENDING)
_BUTTON = "border border-base-200 dark:border-base-700 font-medium inline-block mb-1 px-3 py-2 rounded-default"
_LINK = f'<a class="{_BUTTON}" href="{{}}">{{}}</a> '


class WaitingFilter(admin.SimpleListFilter):
    """What waits for a person is what the list shows unless it is asked for more."""

    title = gettext_lazy("waits for a decision")
    parameter_name = "waiting"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("all", gettext_lazy("All operations"))]

    def choices(self, changelist: Any) -> Any:
        yield {
            "selected": self.value() is None,
            "query_string": changelist.get_query_string(remove=[self.parameter_name]),
            "display": gettext("Waiting for a decision"),
        }
        yield {
            "selected": self.value() == "all",
            "query_string": changelist.get_query_string({self.parameter_name: "all"}),
            "display": gettext("All operations"),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet[OperationIntent]) -> QuerySet[OperationIntent]:
        if self.value() == "all" or "state__exact" in request.GET:
            return queryset
        return queryset.filter(state__in=[state.value for state in WAITING])


class DecisionForm(forms.Form):
    """What the operator says, and what they saw when they said it."""

    operation_id = forms.CharField(widget=forms.HiddenInput)
    state = forms.ChoiceField(choices=IntentState.choices, widget=forms.HiddenInput)
    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_LENGTH_MAX,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("Stays in the audit trail, with your name."),
    )
    checked = forms.BooleanField(required=True)

    def __init__(self, decision: Decision, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        words = WORDS[decision]
        if words.check:
            self.fields["checked"].label = str(words.check)
        else:
            del self.fields["checked"]


@admin.register(OperationIntent)
class OperationIntentAdmin(OrbitModelAdmin):
    list_display = ("gid", "state", "shown_status", "name", "requester", "storage_node", "namespace", "created_at")
    list_select_related = ("namespace", "task", "task__storage_node")
    list_filter = (WaitingFilter, "state")
    search_fields = ("=gid", "=operation_id", "=task__requester")
    ordering = ("operation_id",)  # time-ordered: looking at one, or asking the upstream, does not move it
    _SHOWN = (
        *("gid", "state", "shown_status", "decisions", "shown_evidence", "name", "requester", "storage_node"),
        *("operation_id", "delete_operation_id", "last_revision", "legacy", "quantity", "namespace"),
        *("owner_node_id", "owner_incarnation", "created_at", "submitted_at", "updated_at"),
    )

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return list(self._SHOWN)

    # -- Columns

    @admin.display(description=_("status"))
    def shown_status(self, intent: OperationIntent) -> str:
        return "–" if intent.task is None else status_shown(intent.task.status)

    @admin.display(description=_("name"))
    def name(self, intent: OperationIntent) -> str:
        return "–" if intent.task is None else intent.task.name

    @admin.display(description=_("requester"))
    def requester(self, intent: OperationIntent) -> str:
        return "–" if intent.task is None else intent.task.requester

    @admin.display(description=_("storage node"))
    def storage_node(self, intent: OperationIntent) -> str:
        task = intent.task
        return "–" if task is None or task.storage_node is None else task.storage_node.name

    @admin.display(description=_("evidence"))
    def shown_evidence(self, intent: OperationIntent) -> SafeString | str:
        entries = evidence.entries_of(intent.evidence)
        if not entries:
            return "–"
        return format_html_join("", "<div>{} · <strong>{}</strong>{}</div>", (_line(entry) for entry in entries))

    @admin.display(description=_("decisions"))
    def decisions(self, intent: OperationIntent) -> SafeString | str:
        choices = [(self._address(intent, decision), WORDS[decision].title) for decision in _choices(intent)]
        if not choices:
            return "–"
        return format_html_join("", _LINK, choices)

    # -- The decision page

    def get_urls(self) -> list[URLPattern]:
        decide = path(
            "<str:object_id>/decide/<str:decision>/",
            self.admin_site.admin_view(self.decide_view),
            name="lifecycle_app_operationintent_decide",
        )
        return [decide, *super().get_urls()]

    def decide_view(self, request: HttpRequest, object_id: str, decision: str) -> HttpResponse:
        """GET shows what would happen and changes nothing. POST decides."""
        if decision not in Decision.values:
            raise Http404
        if not request.user.has_perm(RECONCILE):
            raise PermissionDenied
        chosen = Decision(decision)
        intent = self.get_queryset(request).filter(intent_id=object_id).first()
        if intent is None:
            messages.warning(request, _("This operation is not there any more: somebody else has settled it."))
            return redirect("admin:lifecycle_app_operationintent_changelist")
        form = DecisionForm(chosen, request.POST or None, initial=_seen(intent))
        if request.method == "POST" and form.is_valid():
            return self._decide(request, intent, chosen, form)
        return self._page(request, intent, chosen, form)

    def _decide(
        self, request: HttpRequest, intent: OperationIntent, decision: Decision, form: DecisionForm
    ) -> HttpResponse:
        said = form.cleaned_data
        verdict = Verdict(said["operation_id"], IntentState(said["state"]), decision, said["reason"])
        actor = Actor(ActorKind.USER, request.user.get_username())
        try:
            looked_up = reconcile(intent.namespace_id, intent.gid, verdict, upstream=configured_upstream(), actor=actor)
        except RevisionConflict:
            return self._draw_again(request, intent, decision, verdict)
        except OrbitError as error:
            messages.error(request, error.message)
            return self._page(request, intent, decision, form)
        if looked_up is not None:
            found = (
                gettext("The upstream knows this gid.")
                if looked_up.found
                else gettext("The upstream does not know this gid.")
            )
            messages.info(request, found)
        else:
            messages.success(request, gettext("Decided: %(decision)s.") % {"decision": WORDS[decision].title})
        if OperationIntent.objects.filter(intent_id=intent.intent_id).exists():
            return redirect("admin:lifecycle_app_operationintent_change", intent.intent_id)
        return redirect("admin:lifecycle_app_operationintent_changelist")

    def _draw_again(
        self, request: HttpRequest, intent: OperationIntent, decision: Decision, verdict: Verdict
    ) -> HttpResponse:
        """Somebody or something was faster: nothing was done, and the page says what is different now."""
        now = self.get_queryset(request).filter(intent_id=intent.intent_id).first()
        if now is None:
            messages.warning(request, _("This operation is not there any more: somebody else has settled it."))
            return redirect("admin:lifecycle_app_operationintent_changelist")
        changed = gettext("It changed while you were looking: it was %(seen)s and is %(now)s now. Nothing was done.")
        messages.warning(request, changed % {"seen": verdict.seen_state.label, "now": IntentState(now.state).label})
        form = DecisionForm(decision, initial={**_seen(now), "reason": verdict.reason})
        return self._page(request, now, decision, form)

    def _page(
        self, request: HttpRequest, intent: OperationIntent, decision: Decision, form: DecisionForm
    ) -> HttpResponse:
        fits = decision in DECISIONS[IntentState(intent.state)]
        context = {
            **self.admin_site.each_context(request),
            "title": WORDS[decision].title,
            "opts": self.model._meta,
            "intent": intent,
            "status": self.shown_status(intent),
            "node": self.storage_node(intent),
            "entries": [_line(entry) for entry in evidence.entries_of(intent.evidence)],
            "contradiction": decision is Decision.NOT_SUBMITTED and _was_found(intent),
            "words": WORDS[decision],
            "form": form,
            "fits": fits,
            "back": reverse("admin:lifecycle_app_operationintent_change", args=[intent.intent_id]),
        }
        return TemplateResponse(request, "admin/lifecycle_app/operationintent/decide.html", context)

    def _address(self, intent: OperationIntent, decision: Decision) -> str:
        return reverse("admin:lifecycle_app_operationintent_decide", args=[intent.intent_id, decision.value])


def _choices(intent: OperationIntent) -> list[Decision]:
    """In the order of `Decision`: what fits the state that the intent is in."""
    fitting = DECISIONS[IntentState(intent.state)]
    asks_first = [Decision.LOOKUP] if Decision.LOOKUP in fitting else []
    return [*asks_first, *(decision for decision in Decision if decision in fitting and decision not in asks_first)]


def _seen(intent: OperationIntent) -> dict[str, str]:
    return {"operation_id": intent.operation_id, "state": intent.state}


def _was_found(intent: OperationIntent) -> bool:
    """The latest look-up says that the upstream does know it."""
    lookups = [e for e in evidence.entries_of(intent.evidence) if e["kind"] == evidence.Kind.LOOKUP.value]
    return bool(lookups) and bool(lookups[-1].get("found"))


_KINDS = {
    "SUBMIT": _("the call to the upstream"),
    "RECOVERED": _("found after its process was gone"),
    "LOOKUP": _("the upstream was asked"),
    "REPORT": _("a storage node reported"),
    "NODE_ERROR": _("a storage node failed"),
}


def _line(entry: dict[str, Any]) -> tuple[str, Any, SafeString]:
    """When, what, and the facts."""
    facts = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in entry.items()
        if key not in ("kind", "at")
    }
    shown = format_html_join("", " · {}: <code>{}</code>", facts.items()) if facts else format_html("")
    return entry["at"], _KINDS.get(entry["kind"], entry["kind"]), shown
