"""One read-only page per model, so that one can look."""

from __future__ import annotations

from django.contrib import admin

from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.models import (
    Application,
    Attempt,
    AuditEntry,
    Credential,
    CredentialQueue,
    Event,
    EventHead,
    Handler,
    IdempotencyRecord,
    Namespace,
    Node,
    Plan,
    PlanFiring,
    PlanVersion,
    Queue,
    ResourceKey,
    Task,
)


@admin.register(Application)
class ApplicationAdmin(OrbitModelAdmin):
    list_display = ("name", "unfinished", "max_unfinished", "running", "max_running", "created_at")
    search_fields = ("=name", "=application_id")


@admin.register(Namespace)
class NamespaceAdmin(OrbitModelAdmin):
    list_display = ("name", "application", "environment", "policy", "resource_limit", "created_at")
    list_select_related = ("application",)
    search_fields = ("=name", "=namespace_id")


@admin.register(Queue)
class QueueAdmin(OrbitModelAdmin):
    list_display = ("name", "namespace", "paused", "unfinished", "max_unfinished", "running", "max_running", "weight")
    list_select_related = ("namespace",)
    list_filter = ("paused",)
    search_fields = ("=name", "=queue_id")


@admin.register(Credential)
class CredentialAdmin(OrbitModelAdmin):
    list_display = ("token_prefix", "namespace", "actions", "expires_at", "revoked_at", "last_used_at", "created_at")
    list_select_related = ("namespace",)
    search_fields = ("=credential_id", "^token_prefix")
    hidden_fields = ("token_digest",)


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


@admin.register(Task)
class TaskAdmin(OrbitModelAdmin):
    list_display = ("task_id", "state", "queue", "handler", "priority", "attempts", "available_at", "updated_at")
    list_select_related = ("queue", "handler")
    list_filter = ("state",)
    search_fields = ("=task_id",)
    ordering = ("-task_id",)


@admin.register(Attempt)
class AttemptAdmin(OrbitModelAdmin):
    list_display = ("attempt_id", "task_id", "number", "state", "worker_name", "started_at", "finished_at")
    list_filter = ("state",)
    search_fields = ("=attempt_id", "=task__task_id")
    ordering = ("-attempt_id",)
    hidden_fields = ("report_digest",)


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(OrbitModelAdmin):
    list_display = ("idempotency_key", "operation", "namespace", "task_id", "created_at")
    list_select_related = ("namespace",)
    search_fields = ("=idempotency_key", "=task_id")
    ordering = ("-record_id",)
    hidden_fields = ("digest",)


@admin.register(Event)
class EventAdmin(OrbitModelAdmin):
    list_display = ("event_id", "type", "task_id", "revision", "state", "created_at")
    list_filter = ("type",)
    search_fields = ("=task_id",)
    ordering = ("-event_id",)


@admin.register(EventHead)
class EventHeadAdmin(OrbitModelAdmin):
    list_display = ("namespace", "position")
    list_select_related = ("namespace",)


@admin.register(AuditEntry)
class AuditEntryAdmin(OrbitModelAdmin):
    list_display = ("created_at", "actor_kind", "actor", "action", "object_type", "object_id", "reason")
    search_fields = ("=object_id",)
    ordering = ("-audit_id",)


@admin.register(Plan)
class PlanAdmin(OrbitModelAdmin):
    list_display = ("name", "namespace", "active_version", "paused", "next_fire_at", "last_fired_at", "missed")
    list_select_related = ("namespace",)
    search_fields = ("=name", "=plan_id")


@admin.register(PlanVersion)
class PlanVersionAdmin(OrbitModelAdmin):
    list_display = ("plan", "version", "created_at")
    list_select_related = ("plan",)


@admin.register(PlanFiring)
class PlanFiringAdmin(OrbitModelAdmin):
    list_display = ("plan", "fire_time", "status", "version", "task_id")
    list_select_related = ("plan",)
    list_filter = ("status",)


@admin.register(Node)
class NodeAdmin(OrbitModelAdmin):
    list_display = ("node_id", "state", "roles", "version", "connections", "started_at", "heartbeat_at")
