"""Read-only pages of everything beside the intents."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from lifecycle_app.models import (
    Favorite,
    LifecycleTask,
    Notification,
    RecoveryRun,
    ReportReceipt,
    StorageNode,
    UsageEntry,
    WeeklyUsage,
)
from lifecycle_app.statuses import TEXTS, DisplayStatus
from tasks_app.admin.base import OrbitModelAdmin


def status_shown(status: str) -> str:
    """The text of a display status in the reader's language, from the one mapping."""
    texts = TEXTS[DisplayStatus(status)]
    return texts.zh if (get_language() or "").startswith("zh") else texts.en


@admin.register(LifecycleTask)
class LifecycleTaskAdmin(OrbitModelAdmin):
    list_display = ("gid", "name", "shown_status", "progress", "requester", "storage_node", "delivery", "updated_at")
    list_select_related = ("storage_node",)
    list_filter = ("delivery",)
    search_fields = ("=gid", "=requester")
    ordering = ("-task_id",)

    @admin.display(description=_("status"), ordering="status")
    def shown_status(self, row: LifecycleTask) -> str:
        return status_shown(row.status)


@admin.register(StorageNode)
class StorageNodeAdmin(OrbitModelAdmin):
    list_display = (
        *("name", "namespace", "protocol", "is_connected", "orbit_node_id"),
        *("connected_at", "last_seen_at", "disconnected_at"),
    )
    list_select_related = ("namespace",)
    list_filter = ("protocol",)
    search_fields = ("=name",)

    @admin.display(description=_("connected"), boolean=True)
    def is_connected(self, row: StorageNode) -> bool:
        return row.connection_id is not None


@admin.register(RecoveryRun)
class RecoveryRunAdmin(OrbitModelAdmin):
    list_display = ("orbit_node_id", "succeeded", "error", "created_at")

    @admin.display(description=_("recovered"), boolean=True)
    def succeeded(self, row: RecoveryRun) -> bool:
        return row.error is None


@admin.register(Notification)
class NotificationAdmin(OrbitModelAdmin):
    list_display = ("created_at", "gid", "status", "attempts", "next_attempt_at", "delivered_at")
    search_fields = ("=gid", "=operation_id")
    ordering = ("-notification_id",)


@admin.register(UsageEntry)
class UsageEntryAdmin(OrbitModelAdmin):
    list_display = ("created_at", "requester", "week", "gid", "quantity", "operation_id")
    search_fields = ("=requester", "=operation_id")
    ordering = ("-entry_id",)


@admin.register(WeeklyUsage)
class WeeklyUsageAdmin(OrbitModelAdmin):
    list_display = ("requester", "week", "quantity", "namespace")
    list_select_related = ("namespace",)
    search_fields = ("=requester",)
    ordering = ("-usage_id",)


@admin.register(Favorite)
class FavoriteAdmin(OrbitModelAdmin):
    list_display = ("gid", "requester", "created_at")
    search_fields = ("=gid", "=requester")
    ordering = ("-favorite_id",)


@admin.register(ReportReceipt)
class ReportReceiptAdmin(OrbitModelAdmin):
    list_display = ("created_at", "storage_node", "report_id", "result")
    list_select_related = ("storage_node",)
    search_fields = ("=report_id",)
    ordering = ("-receipt_id",)
