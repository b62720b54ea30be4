"""The shapes of the API as JSON Schema (2020-12, the dialect of OpenAPI 3.1), each once, by name.

Written by hand: the answers are written by hand too (`documents.py`), and tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tasks_app import limits
from tasks_app.api.errors import STATUS
from tasks_app.domain.waiting import Reason
from tasks_app.states import REPLAYABLE, EventType, RetryPriority, TaskState

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def integer(minimum: int, maximum: int, **more: Any) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def text(minimum: int, maximum: int, **more: Any) -> Schema:
    return {"type": "string", "minLength": minimum, "maxLength": maximum, **more}


def closed(properties: Mapping[str, Schema], required: Sequence[str] = (), **more: Any) -> Schema:
    """An object of a request: other members are refused."""
    return {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
        **more,
    }


def shown(properties: Mapping[str, Schema], optional: Sequence[str] = (), **more: Any) -> Schema:
    """An object of an answer: every member is there but the optional ones. Later versions may add members."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required, **more}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def page(items: Schema) -> Schema:
    return shown({"items": listed(items), "next_cursor": nullable({"type": "string"})})


def envelope(data: Schema) -> Schema:
    return shown({"request_id": ref("Id"), "data": data})


_ANY: Final[Schema] = {"description": "Any JSON value, kept digit for digit."}
_STATE: Final[Schema] = {"type": "string", "enum": TaskState.values}
_KEY: Final[Schema] = text(1, limits.REQUEST_HEADER_KEY_LENGTH_MAX, pattern="^[!-~]+$")
_LIMIT: Final[Schema] = nullable(integer(0, limits.QUOTA_MAX))
_START_RATE: Final[Schema] = closed(
    {"starts": integer(1, limits.START_RATE_STARTS_MAX), "per_ms": integer(1, limits.START_RATE_PER_MS_MAX)},
    required=["starts", "per_ms"],
)
_BACKOFF: Final[Schema] = integer(0, limits.RETRY_BACKOFF_MS_MAX)
_HORIZON: Final = limits.HORIZON_MS_MAX

_QUEUE_SETTINGS: Final[Mapping[str, Schema]] = {
    "max_unfinished": _LIMIT,
    "max_running": _LIMIT,
    "start_rate": nullable(_START_RATE),
    "weight": integer(limits.QUEUE_WEIGHT_MIN, limits.QUEUE_WEIGHT_MAX),
    "default_priority": nullable(integer(limits.STRICT_PRIORITY_MIN, limits.STRICT_PRIORITY_MAX)),
    "retry_priority": {"type": "string", "enum": RetryPriority.values},
}

_TASK_REQUEST: Final[Mapping[str, Schema]] = {
    "queue_id": ref("Id"),
    "handler": ref("Name"),
    "handler_version": ref("Name"),
    "payload_version": ref("Name"),
    "payload": {**_ANY, "description": f"Any JSON value, at most {limits.PAYLOAD_BYTES_MAX} bytes as sent."},
    "priority": integer(
        limits.STRICT_PRIORITY_MIN,
        limits.STRICT_PRIORITY_MAX,
        description="Higher is more urgent. 0 to 9 in an AGED namespace, -9 to 9 in a STRICT one; never clamped.",
    ),
    "available_at": {**ref("Instant"), "description": "Earliest start, at most 31 days ahead; a past time means now."},
    "delay_ms": integer(0, _HORIZON, description="Instead of `available_at`: counted from acceptance."),
    "expires_in_ms": integer(1, _HORIZON, description="Total deadline, counted from acceptance."),
    "attempt_timeout_ms": integer(limits.ATTEMPT_TIMEOUT_MS_MIN, limits.ATTEMPT_TIMEOUT_MS_MAX),
    "retry": ref("Retry"),
    "resource_key": ref("Name"),
    "parent_task_id": {**ref("Id"), "description": "Together with `parent_fencing_token`."},
    "parent_fencing_token": {"type": "string"},
}

_SHOWN_TASK: Final[Mapping[str, Schema]] = {
    "task_id": ref("Id"),
    "queue_id": ref("Id"),
    "handler": ref("Name"),
    "handler_version": ref("Name"),
    "payload_version": ref("Name"),
    "payload": _ANY,
    "priority": integer(limits.STRICT_PRIORITY_MIN, limits.STRICT_PRIORITY_MAX),
    "state": _STATE,
    "revision": ref("Revision"),
    "attempts": {"type": "integer", "minimum": 0},
    "max_attempts": {"type": "integer", "minimum": 1},
    "losses": {"type": "integer", "minimum": 1},
    "available_at": ref("Instant"),
    "deadline_at": ref("Instant"),
    "attempt_timeout_ms": {"type": "integer"},
    "resource_key": ref("Name"),
    "created_at": ref("Instant"),
    "updated_at": ref("Instant"),
    "finished_at": ref("Instant"),
    "result": _ANY,
    "error": ref("TaskError"),
    "cancel_requested": {"type": "boolean"},
    "replayed_from": ref("Id"),
    "replayed_as": ref("Id"),
    "plan_id": ref("Id"),
    "parent_task_id": ref("Id"),
    "yields": {"type": "integer", "minimum": 1},
    "retry": ref("Retry"),
    "waiting": ref("Waiting"),
}
_OPTIONAL_OF_TASK: Final = (
    "priority losses deadline_at attempt_timeout_ms resource_key finished_at result error cancel_requested"
    " replayed_from replayed_as plan_id parent_task_id yields waiting"
).split()
_LEFT_OUT_OF_SUMMARIES: Final = ("payload", "result", "waiting")

_WAITING: Final[Mapping[str, Schema]] = {
    "reason": {"type": "string", "enum": [reason.value for reason in Reason]},
    "detail": {"type": "object", "description": "Who holds the permit, when the budget frees, how many are ahead, …"},
}
_BATCH_STATUSES: Final = ("ACCEPTED", "REJECTED", "UNKNOWN", "NOT_ATTEMPTED")
_BATCH_ITEM: Final[Mapping[str, Schema]] = {
    "index": {"type": "integer", "minimum": 0},
    "status": {"type": "string", "enum": list(_BATCH_STATUSES)},
    "receipt": ref("Receipt"),
    "error": ref("Error"),
}
_BATCH_SUMMARY: Final = shown({status.lower(): {"type": "integer"} for status in _BATCH_STATUSES})
_REPLAYABLE: Final = sorted(state.value for state in REPLAYABLE)

COMPONENTS: Final[Mapping[str, Schema]] = {
    "Id": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "32 lower-case hex digits."},
    "Instant": {
        "type": "string",
        "format": "date-time",
        "description": "RFC 3339 with at most 6 fractional digits; shown in UTC.",
    },
    "Revision": {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "description": "A decimal number as a string."},
    "Name": text(
        1,
        limits.NAME_LENGTH_MAX,
        description="Letters, marks, numbers, punctuation, symbols and inner blanks; compared byte for byte.",
    ),
    "Error": shown(
        {
            "code": {"type": "string", "enum": [*STATUS, "BATCH_STOPPED"]},
            "message": {"type": "string"},
            "retry_after_ms": {"type": "integer", "minimum": 0},
            "details": listed(
                {
                    "type": "object",
                    "properties": {"field": {"type": "string"}, "reason": {"type": "string"}},
                    "required": ["field", "reason"],
                }
            ),
        },
        optional=["retry_after_ms", "details"],
    ),
    "Failure": shown({"request_id": ref("Id"), "error": ref("Error")}),
    "Retry": closed(
        {
            "mode": {"type": "string", "enum": ["NEVER", "SAFE"]},
            "max_attempts": integer(1, limits.RETRY_ATTEMPTS_MAX),
            "initial_backoff_ms": _BACKOFF,
            "max_backoff_ms": _BACKOFF,
            "multiplier": integer(limits.RETRY_MULTIPLIER_MIN, limits.RETRY_MULTIPLIER_MAX),
        },
        required=["mode"],
    ),
    "TaskRequest": closed(
        _TASK_REQUEST, required=["queue_id", "handler", "handler_version", "payload_version", "payload"]
    ),
    "BatchRequest": closed(
        {
            "items": {
                **listed(
                    closed({"idempotency_key": _KEY, "task": ref("TaskRequest")}, required=["idempotency_key", "task"])
                ),
                "minItems": limits.BATCH_ITEMS_MIN,
                "maxItems": limits.BATCH_ITEMS_MAX,
            }
        },
        required=["items"],
    ),
    "TaskError": shown(
        {"code": {"type": "string"}, "message": {"type": "string"}, "details": _ANY}, optional=["details"]
    ),
    "Waiting": shown(_WAITING),
    "Task": shown(_SHOWN_TASK, optional=_OPTIONAL_OF_TASK),
    "TaskSummary": shown(
        {name: schema for name, schema in _SHOWN_TASK.items() if name not in _LEFT_OUT_OF_SUMMARIES},
        optional=_OPTIONAL_OF_TASK,
    ),
    "Receipt": shown(
        {
            "task_id": ref("Id"),
            "queue_id": ref("Id"),
            "revision": ref("Revision"),
            "created_at": ref("Instant"),
            "deduplicated": {"type": "boolean"},
        }
    ),
    "Accepted": shown({"task": nullable(ref("Task")), "receipt": ref("Receipt")}),
    "BatchItem": shown(_BATCH_ITEM, optional=["receipt", "error"]),
    "BatchResult": shown({"items": listed(ref("BatchItem")), "summary": _BATCH_SUMMARY}),
    "ReplayRequest": closed(
        {
            "priority": integer(limits.STRICT_PRIORITY_MIN, limits.STRICT_PRIORITY_MAX),
            "delay_ms": integer(0, _HORIZON),
        }
    ),
    "ReplaySelection": closed(
        {
            "queue_id": ref("Id"),
            "states": {**listed({"type": "string", "enum": _REPLAYABLE}), "minItems": 1, "maxItems": len(_REPLAYABLE)},
            "handler": {"type": "string"},
            "limit": integer(limits.REPLAY_LIMIT_MIN, limits.REPLAY_LIMIT_MAX),
            "priority": integer(limits.STRICT_PRIORITY_MIN, limits.STRICT_PRIORITY_MAX),
        },
        required=["queue_id", "limit"],
    ),
    "ReplayResult": shown(
        {
            "items": listed(shown({**_BATCH_ITEM, "source_task_id": ref("Id")}, optional=["receipt", "error"])),
            "summary": _BATCH_SUMMARY,
        }
    ),
    "DismissRequest": closed(
        {"revision": ref("Revision"), "reason": text(1, limits.REASON_LENGTH_MAX)}, required=["revision", "reason"]
    ),
    "Event": shown(
        {
            "cursor": {"type": "string"},
            "type": {"type": "string", "enum": EventType.values},
            "task_id": ref("Id"),
            "queue_id": ref("Id"),
            "revision": ref("Revision"),
            "state": _STATE,
            "created_at": ref("Instant"),
            "data": {"type": "object"},
        }
    ),
    "Feed": shown({"items": listed(ref("Event")), "next_cursor": {"type": "string"}}),
    "CancelRequest": closed(
        {"revision": ref("Revision"), "reason": text(1, limits.REASON_LENGTH_MAX)}, required=["revision"]
    ),
    "ReconcileRequest": closed(
        {
            "revision": ref("Revision"),
            "decision": {"type": "string", "enum": ["SUCCEEDED", "FAILED", "RETRY"]},
            "reason": text(1, limits.REASON_LENGTH_MAX),
            "result": _ANY,
            "error": closed(
                {
                    "code": text(1, limits.ERROR_CODE_LENGTH_MAX),
                    "message": text(0, limits.ERROR_MESSAGE_LENGTH_MAX),
                    "details": _ANY,
                },
                required=["code", "message"],
            ),
        },
        required=["revision", "decision", "reason"],
    ),
    "QueueRequest": closed({"name": ref("Name"), **_QUEUE_SETTINGS}, required=["name"]),
    "QueueChange": closed({"revision": ref("Revision"), **_QUEUE_SETTINGS}, required=["revision"]),
    "PauseRequest": closed({"reason": text(1, limits.REASON_LENGTH_MAX)}),
    "Empty": closed({}),
    "Queue": shown(
        {
            "queue_id": ref("Id"),
            "name": ref("Name"),
            "paused": {"type": "boolean"},
            "pause_reason": nullable({"type": "string"}),
            **_QUEUE_SETTINGS,
            "revision": ref("Revision"),
            "created_at": ref("Instant"),
            "updated_at": ref("Instant"),
        }
    ),
    "QueueStatistics": shown(
        {
            "counts": shown({state: {"type": "integer"} for state in TaskState.values}),
            "backlog_by_priority": {"type": "object", "additionalProperties": {"type": "integer"}},
            "oldest_waiting_ms_by_priority": {"type": "object", "additionalProperties": {"type": "integer"}},
            "running": {"type": "integer"},
            "reserved": {"type": "integer"},
            "start_budget": nullable(shown({"left": {"type": "integer"}, "next_at": ref("Instant")})),
            "head_waiting": nullable(
                shown({"task_id": ref("Id"), **_WAITING}, description="Why the first task that is due is not claimed.")
            ),
        }
    ),
}
