"""Rows that are only looked at."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.models import CredentialQueue, EventHead, Handler, Namespace, Node, PlanFiring, PlanVersion, ResourceKey


@admin.register(Namespace)
class NamespaceAdmin(OrbitModelAdmin):
    list_display = ("name", "application", "environment", "policy", "resource_limit", "created_at")
    list_select_related = ("application",)
    search_fields = ("=name", "=namespace_id")


@admin.register(CredentialQueue)
class CredentialQueueAdmin(OrbitModelAdmin):
    list_display = ("credential", "queue")
    list_select_related = ("credential", "queue")


@admin.register(Handler)
class HandlerAdmin(OrbitModelAdmin):
    list_display = ("handler", "handler_version", "namespace")
    list_select_related = ("namespace",)
    search_fields = ("^handler",)


@admin.register(ResourceKey)
class ResourceKeyAdmin(OrbitModelAdmin):
    list_display = ("resource_key", "namespace", "held", "recheck_at")
    list_select_related = ("namespace",)
    search_fields = ("=resource_key",)


@admin.register(EventHead)
class EventHeadAdmin(OrbitModelAdmin):
    list_display = ("namespace", "position")
    list_select_related = ("namespace",)


@admin.register(PlanVersion)
class PlanVersionAdmin(OrbitModelAdmin):
    list_display = ("plan", "version", "created_at")
    list_select_related = ("plan",)
    payload_fields = ("definition",)


@admin.register(PlanFiring)
class PlanFiringAdmin(OrbitModelAdmin):
    list_display = ("plan", "fire_time", "status", "version", "task_id")
    list_select_related = ("plan",)
    list_filter = ("status",)


@admin.register(Node)
class NodeAdmin(OrbitModelAdmin):
    list_display = ("node_id", "state", "roles", "version", "connections", "started_at", "heartbeat_at")
