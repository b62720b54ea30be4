"""The columns that the hot verbs write by plain SQL, in the order in which they write them."""

TASK_INSERT_COLUMNS = (
    "task_id", "namespace_id", "application_id", "queue_id", "handler_ref", "payload_version", "payload", "priority",
    "tier", "state", "lane", "revision", "attempts", "max_attempts", "losses", "retry_mode", "initial_backoff_ms",
    "max_backoff_ms", "multiplier", "available_at", "deadline_at", "attempt_timeout_ms", "resource_ref",
    "fencing_token", "yields", "yieldable", "replayed_from", "plan_id", "parent_task_id", "traceparent", "created_at",
    "updated_at",
)  # fmt: skip
RECORD_COLUMNS = (
    "record_id", "namespace_id", "operation", "idempotency_key", "digest", "task_id", "queue_id", "created_at",
)  # fmt: skip
EVENT_COLUMNS = ("event_id", "namespace_id", "task_id", "queue_id", "type", "revision", "state", "created_at", "data")
AUDIT_COLUMNS = (
    "audit_id", "namespace_id", "actor_kind", "actor", "action", "object_type", "object_id", "request_id", "reason",
    "revision_before", "revision_after", "data", "created_at",
)  # fmt: skip
ATTEMPT_COLUMNS = (
    "attempt_id", "task_id", "number", "fencing_token", "session_id", "worker_name", "node_id", "state", "started_at",
)  # fmt: skip
