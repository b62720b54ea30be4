"""Dead letters as a place: grouped by queue, handler and error code; a whole group is replayed in one operation.

The selection is frozen under a key before anything is replayed, and the key stands in the address: the same address
goes on where it stopped, shows what became of each task, and replays none of them twice, however often it is sent.
"""

from __future__ import annotations

import time
import uuid
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextareaWidget

from tasks_app.admin.tasks import TaskAdmin
from tasks_app.admin.verbs import operator_of_request
from tasks_app.domain import attention, operators
from tasks_app.domain.batches import Verdict
from tasks_app.domain.operators import Operator, Right
from tasks_app.domain.replays import SelectionOrder
from tasks_app.errors import OrbitError
from tasks_app.limits import REASON_LENGTH_MAX, REPLAY_LIMIT_MAX, REPLAY_LIMIT_MIN
from tasks_app.models import Queue, Task
from tasks_app.states import Policy
from tasks_app.submission_request import priority_range

STEP_SECONDS: Final = 1.0  # one request replays for so long, then the page goes on by itself or is stopped
SALT: Final = "orbit.admin.replay-many"


class SelectionForm(forms.Form):
    field_order = ("limit", "priority", "reason")

    limit = forms.IntegerField(
        label=_("At most so many, the oldest first"),
        min_value=REPLAY_LIMIT_MIN,
        max_value=REPLAY_LIMIT_MAX,
        initial=REPLAY_LIMIT_MAX,
        widget=UnfoldAdminIntegerFieldWidget,
    )
    reason = forms.CharField(
        label=_("Reason"), max_length=REASON_LENGTH_MAX, widget=UnfoldAdminTextareaWidget(attrs={"rows": 2})
    )

    def __init__(self, *args: Any, queue: Queue, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        lowest, highest = priority_range(Policy(queue.namespace.policy))
        self.fields["priority"] = forms.IntegerField(
            label=_("Priority"),
            required=False,
            min_value=lowest,
            max_value=highest,
            widget=UnfoldAdminIntegerFieldWidget,
            help_text=_("Empty: the priority that each had."),
        )
        self.order_fields(self.field_order)


def _urls(pages: TaskAdmin) -> list[URLPattern]:
    view = pages.admin_site.admin_view
    return [
        path("dead-letters/", view(lambda request: groups_view(pages, request)), name="tasks_app_dead_letters"),
        path(
            "dead-letters/replay/<str:queue_id>/",
            view(lambda request, queue_id: select_view(pages, request, queue_id)),
            name="tasks_app_dead_letters_select",
        ),
        path(
            "dead-letters/operation/<str:token>/",
            view(lambda request, token: operation_view(pages, request, token)),
            name="tasks_app_dead_letters_operation",
        ),
    ]


TaskAdmin.more_urls = staticmethod(_urls)


def _operator(pages: TaskAdmin, request: HttpRequest) -> Operator:
    operator = operator_of_request(request)
    if not operator.may(Right.REPLAY_MANY) or not pages.has_view_permission(request):
        raise PermissionDenied
    return operator


def groups_view(pages: TaskAdmin, request: HttpRequest) -> HttpResponse:
    if not pages.has_view_permission(request):
        raise PermissionDenied
    groups, is_cut = attention.dead_groups()
    return _page(
        pages,
        request,
        "orbit/dead_letters.html",
        title=_("Dead letters"),
        groups=groups,
        is_cut=is_cut,
        grouped_max=attention.GROUPED_MAX,
        may_replay=operator_of_request(request).may(Right.REPLAY_MANY),
    )


def select_view(pages: TaskAdmin, request: HttpRequest, queue_id: str) -> HttpResponse:
    """GET asks for limit, priority and reason. POST freezes the selection and goes to its page; nothing is replayed."""
    operator = _operator(pages, request)
    queue = Queue.objects.select_related("namespace").filter(queue_id=queue_id).first()
    if queue is None:
        raise Http404
    handler = request.GET.get("handler") or None
    form = SelectionForm(request.POST or None, queue=queue)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        key = str(uuid.uuid4())
        order = SelectionOrder(queue_id, handler=handler, limit=said["limit"], priority=said["priority"])
        try:
            operators.freeze_selection(operator, queue.namespace_id, order, key=key, reason=said["reason"])
        except OrbitError as error:
            messages.error(request, error.message)
        else:
            token = signing.dumps(
                [queue.namespace_id, queue_id, handler, said["limit"], said["priority"], key, said["reason"]], salt=SALT
            )
            return redirect("admin:tasks_app_dead_letters_operation", token)
    return _page(
        pages, request, "orbit/select.html", title=_("Replay many"), form=form, queue=queue, handler=handler,
        back=reverse("admin:tasks_app_dead_letters"),
    )  # fmt: skip


def operation_view(pages: TaskAdmin, request: HttpRequest, token: str) -> HttpResponse:
    """GET shows the frozen selection and how far it is. POST replays for a second, then shows the same."""
    operator = _operator(pages, request)
    try:
        namespace_id, queue_id, handler, limit, priority, key, reason = signing.loads(token, salt=SALT)
    except signing.BadSignature:
        raise Http404 from None
    order = SelectionOrder(queue_id, handler=handler, limit=limit, priority=priority)
    refusals: dict[str, str] = {}
    goes_on = False
    try:
        selection = operators.freeze_selection(operator, namespace_id, order, key=key, reason=reason)
        if request.method == "POST":
            until = time.monotonic() + STEP_SECONDS
            items = operators.replay_selection(
                operator, namespace_id, order, key=key, is_over=lambda: time.monotonic() >= until
            )
            refusals = {
                item.source_task_id: item.result.error.message
                for item in items
                if item.result.verdict in (Verdict.REJECTED, Verdict.UNKNOWN) and item.result.error is not None
            }
            goes_on = any(item.result.verdict is Verdict.NOT_ATTEMPTED for item in items)
    except OrbitError as error:
        messages.error(request, error.message)
        return redirect("admin:tasks_app_dead_letters")
    became = dict(Task.objects.filter(task_id__in=selection).values_list("task_id", "replayed_as"))
    done = sum(1 for task_id in selection if became.get(task_id))
    rows = [(task_id, became.get(task_id), refusals.get(task_id)) for task_id in selection]
    return _page(
        pages, request, "orbit/operation.html", title=_("Replay many"), selection=selection, done=done,
        share=round(100 * done / len(selection)) if selection else 100, reason=reason, goes_on=goes_on,
        refused=len(refusals), rows=rows, has_run=request.method == "POST",
        is_complete=done == len(selection), back=reverse("admin:tasks_app_dead_letters"),
    )  # fmt: skip


def _page(pages: TaskAdmin, request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    everything = {**pages.admin_site.each_context(request), "opts": Task._meta, **context}
    return TemplateResponse(request, template, everything)
