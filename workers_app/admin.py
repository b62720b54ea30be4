"""Worker sessions in the operators' site: who is connected, with what capacity, and what each holds right now."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from tasks_app.admin import start_page
from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.domain.attention import SILENT_NODE_SECONDS, Need
from tasks_app.domain.operators import Operator
from tasks_app.instants import US_PER_SECOND, from_datetime
from tasks_app.models import Queue, Task
from tasks_app.states import LEASED
from tasks_app.transactions import reading
from workers_app.models import WorkerSession

HELD_SHOWN_MAX = 200


def _now_us() -> int:
    with reading() as tx:
        return tx.now_us


def _silent_workers() -> Need:
    """Sessions that count as connected although their node gave no sign for some time."""
    before = _now_us() - SILENT_NODE_SECONDS * US_PER_SECOND
    silent = WorkerSession.objects.filter(connection_id__isnull=False, seen_at__lt=before)
    oldest = silent.order_by("seen_at").values_list("seen_at", flat=True).first()
    return Need(silent.count(), None if oldest is None else from_datetime(oldest))


start_page.register(
    start_page.Tile(
        "workers",
        _("Silent workers"),
        _silent_workers,
        "admin:workers_app_workersession_changelist",
        "workers_app.view_workersession",
    )
)


class ConnectedFilter(admin.SimpleListFilter):
    title = _("connected")
    parameter_name = "connected"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [("1", _("Yes")), ("0", _("No"))]

    def queryset(self, request: Any, queryset: Any) -> Any:
        if self.value() is None:
            return queryset
        return queryset.filter(connection_id__isnull=self.value() == "0")


@admin.register(WorkerSession)
class WorkerSessionAdmin(OrbitModelAdmin):
    list_display = ("worker_name", "namespace", "node_id", "is_connected", "capacity", "draining", "sdk", "seen_at")
    list_select_related = ("namespace",)
    list_filter = (ConnectedFilter, "draining")
    search_fields = ("=session_id", "=worker_name", "=node_id")
    ordering = ("-session_id",)
    panel_template = "orbit/session.html"

    @admin.display(description=_("connected"), boolean=True)
    def is_connected(self, session: WorkerSession) -> bool:
        return session.connection_id is not None

    def panel(self, target: WorkerSession, operator: Operator) -> dict[str, Any]:
        queue_ids = json.loads(target.queue_ids)
        names = Queue.objects.filter(namespace_id=target.namespace_id, queue_id__in=queue_ids).order_by("name")
        # By queue and state: the claim index answers it, whatever else the queues hold.
        held = Task.objects.filter(
            queue_id__in=queue_ids, state__in=sorted(LEASED), session_id=target.session_id
        ).select_related("handler", "queue")
        return {
            "queues": list(names),
            "handlers": json.loads(target.handlers),
            "held": list(held.order_by("task_id")[:HELD_SHOWN_MAX]),
            "is_connected": target.connection_id is not None,
            "silent_seconds": max(0, (_now_us() - from_datetime(target.seen_at)) // US_PER_SECOND),
        }
