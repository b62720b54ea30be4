"""The published description of `orbit.worker.v1`: JSON Schema 2020-12 and AsyncAPI 3.1 (design, chapter 2).

`worker_schema()` is what `/v1/worker-schema.json` serves, `worker_asyncapi()` what `/v1/worker-asyncapi.json` serves.
Both are made from the limits and enums that the codec uses; the tests validate every message of the suite against them.

The schema of a client message says what is right. Where an item breaks a length, a size or a combination, the message
still reaches its items and that item alone is refused; everything else that does not validate ends the connection with
4400.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final

from tasks_app import limits
from tasks_app.states import LEASED, Policy, TaskState
from workers_app.protocol.client_messages import PROTOCOL_VERSION, SEQ_MAX, Outcome
from workers_app.protocol.closing import CLOSE_CODES, ERROR_CODES, CloseCode
from workers_app.protocol.server_messages import CancelReason, RevokeReason, StartRefusal

Schema = dict[str, Any]

SCHEMA_URI: Final = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_ID: Final = "urn:orbit:worker:v1"
CHANNEL_ADDRESS: Final = "/v1/workers/connect"

# What answers what; the drain has a second, later answer that answers nothing by itself.
ANSWERS: Final[dict[str, str]] = {
    "hello": "welcome",
    "heartbeat": "heartbeat_ack",
    "resize": "resized",
    "drain": "draining",
    "start": "started",
    "renew": "renewed",
    "finish": "finished",
    "release": "released",
}
UNASKED: Final = ("offer", "revoke", "cancel", "node_drain", "drained", "error")


def client_message_names() -> tuple[str, ...]:
    return tuple(ANSWERS)


def server_message_names() -> tuple[str, ...]:
    return (*ANSWERS.values(), *UNASKED)


def worker_schema() -> Schema:
    """The JSON Schema of every message, both directions; one message is one of `$defs`."""
    return {
        "$schema": SCHEMA_URI,
        "$id": SCHEMA_ID,
        "title": "orbit.worker.v1",
        "description": (
            f"Messages of the WebSocket subprotocol orbit.worker.v1 at {CHANNEL_ADDRESS}: text frames of one JSON "
            f"object, at most {limits.FRAME_BYTES_MAX} bytes. Worker messages are strict JSON: no duplicate keys, no "
            f"unknown members, at most {limits.JSON_DEPTH_MAX} levels."
        ),
        "oneOf": [{"$ref": "#/$defs/worker_message"}, {"$ref": "#/$defs/server_message"}],
        "$defs": {
            "worker_message": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in client_message_names()]},
            "server_message": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in server_message_names()]},
            **_values(),
            **_client_messages(),
            **_server_messages(),
        },
    }


def worker_asyncapi() -> Schema:
    """The AsyncAPI 3.1 document of the same messages, seen from the server: it receives `worker`, it sends `server`."""
    defs = worker_schema()["$defs"]
    client, server = client_message_names(), server_message_names()
    return {
        "asyncapi": "3.1.0",
        "info": {
            "title": "Orbit worker protocol",
            "version": "1.0.0",
            "description": (
                "Workers pull tasks over one WebSocket, subprotocol `orbit.worker.v1`. Every worker message but "
                "`hello` carries `seq` and gets exactly one answer with the same number in `re`. Close codes: "
                + ", ".join(f"{code.value} {code.name.lower()}" for code in CloseCode)
                + "."
            ),
        },
        "defaultContentType": "application/json",
        "channels": {
            "worker": _channel("What a worker sends.", client),
            "server": _channel("What the server sends.", server),
        },
        "operations": {
            **{f"receive_{name}": _receive(name, ANSWERS[name]) for name in client},
            **{f"send_{name}": _send(name) for name in UNASKED},
        },
        "components": {
            "messages": {name: _message(name) for name in (*client, *server)},
            "schemas": {name: _moved(schema) for name, schema in defs.items()},
            "correlationIds": {
                "seq": {"description": "The number of a worker's message.", "location": "$message.payload#/seq"},
                "re": {
                    "description": "The number of the message that is answered.",
                    "location": "$message.payload#/re",
                },
            },
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A credential with `workers:connect` and `workers:consume`, sent in the handshake.",
                }
            },
        },
    }


def _values() -> dict[str, Schema]:
    return {
        "id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "instant": {
            "type": "string",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{6})?Z$",
            "description": "RFC 3339 in UTC; six fractional digits or none.",
        },
        "decimal": {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "description": "A positive integer, as text."},
        "seq": {"type": "integer", "minimum": 1, "maximum": SEQ_MAX},
        "name": {**_text(limits.NAME_LENGTH_MAX, at_least=1), "description": "Printable; no blank at either end."},
        "held_item": _object({"attempt_id": _ref("id"), "fencing_token": _ref("decimal")}),
        "error_report": _object(
            {
                "code": _text(limits.ERROR_CODE_LENGTH_MAX, at_least=1),
                "message": _text(limits.ERROR_MESSAGE_LENGTH_MAX),
            },
            {"details": {"description": f"Any JSON value of at most {limits.ERROR_DETAILS_BYTES_MAX} bytes."}},
        ),
        "lost": _item("LOST"),
    }


def _client_messages() -> dict[str, Schema]:
    held = _items(_ref("held_item"))
    return {
        "hello": _object(
            {
                "type": {"const": "hello"},
                "protocol": {"const": PROTOCOL_VERSION},
                "worker_name": _ref("name"),
                "capacity": _integer(limits.CAPACITY_MIN, limits.CAPACITY_MAX),
                "queues": _array(_ref("id"), limits.HELLO_QUEUES_MAX, unique=True),
                "handlers": _array(
                    _object({"handler": _ref("name"), "handler_version": _ref("name")}),
                    limits.HELLO_HANDLERS_MAX,
                    unique=True,
                ),
            },
            {
                "resource_keys": {"type": "boolean", "default": False},
                "normal_reserved_slots": {
                    **_integer(0, limits.CAPACITY_MAX - 1),
                    "default": 0,
                    "description": "0 in an AGED namespace, less than `capacity` in a STRICT one.",
                },
                "session_id": _ref("id"),
                "sdk": _text(limits.SDK_NAME_LENGTH_MAX),
            },
            description="The first message, within 5 seconds. `session_id` resumes an earlier session.",
        ),
        "heartbeat": _asked("heartbeat"),
        "resize": _asked("resize", {"capacity": _integer(0, limits.CAPACITY_MAX)}),
        "drain": _asked("drain"),
        "start": _asked("start", {"items": held}),
        "release": _asked("release", {"items": held}),
        "renew": _asked("renew", {"items": _items(_renew_item())}),
        "finish": _asked("finish", {"items": _items({"oneOf": _finish_items()})}),
    }


def _renew_item() -> Schema:
    progress = _object({"percent": _integer(0, 100)}, {"message": _text(limits.PROGRESS_MESSAGE_LENGTH_MAX)})
    return _object({"attempt_id": _ref("id"), "fencing_token": _ref("decimal")}, {"progress": progress})


def _finish_items() -> list[Schema]:
    result = {"description": f"Any JSON value of at most {limits.RESULT_BYTES_MAX} bytes.", "default": None}
    retry_after = _integer(0, limits.HORIZON_MS_MAX)
    report = _ref("error_report")

    def item(outcome: Outcome, required: Schema, optional: Schema) -> Schema:
        named = {"attempt_id": _ref("id"), "fencing_token": _ref("decimal"), "outcome": {"const": outcome.value}}
        return _object({**named, **required}, optional)

    retry = {"retryable": {"type": "boolean", "default": True}, "retry_after_ms": retry_after}
    return [
        item(Outcome.SUCCEEDED, {}, {"result": result}),
        item(Outcome.FAILED, {"error": report}, retry),
        item(Outcome.CANCELED, {}, {"error": report}),
    ]


def _server_messages() -> dict[str, Schema]:
    lease = {"lease_until": _ref("instant")}
    task_end = {"state": _enum(TaskState), "revision": _ref("decimal")}
    why = {"code": {"type": "string"}, "message": {"type": "string"}}
    renewed = _item("RENEWED", {**lease, "cancel_requested": {"type": "boolean"}})
    renewed["properties"] |= {
        name: {**schema, "description": "Why a progress was not taken."} for name, schema in why.items()
    }
    renewed["dependentRequired"] = {"code": ["message"], "message": ["code"]}
    return {
        "welcome": _object(
            {
                "type": {"const": "welcome"},
                "session_id": _ref("id"),
                "node_id": {"type": "string"},
                "server_time": _ref("instant"),
                "scan_cycle_ms": _integer(1),
                "reservation_ms": _integer(1),
                "lease_ms": _integer(1),
                "max_message_bytes": _integer(1),
                "namespace_policy": _enum(Policy),
                "resumed": {"type": "boolean"},
                "held": {"type": "array", "items": _held_attempt(), "maxItems": limits.CAPACITY_MAX},
            }
        ),
        "heartbeat_ack": _answer("heartbeat_ack", {"server_time": _ref("instant")}),
        "resized": _answer("resized", {"capacity": _integer(0, limits.CAPACITY_MAX)}),
        "draining": _answer("draining", {"running": _integer(0)}),
        "drained": _object({"type": {"const": "drained"}}),
        "started": _answers("started", _item("STARTED", lease), _item("REFUSED", {"code": _enum(StartRefusal)})),
        "renewed": _answers("renewed", renewed, _ref("lost")),
        "finished": _answers(
            "finished", _item("COMMITTED", task_end), _item("ALREADY", task_end), _ref("lost"), _item("INVALID", why)
        ),
        "released": _answers("released", _item("RELEASED"), _ref("lost")),
        "offer": _object(
            {
                "type": {"const": "offer"},
                "attempt_id": _ref("id"),
                "fencing_token": _ref("decimal"),
                "reserved_until": _ref("instant"),
                "task": _offered_task(),
            },
            description="An offer is not a right to run: only STARTED is.",
        ),
        "revoke": _object({"type": {"const": "revoke"}, "attempt_id": _ref("id"), "reason": _enum(RevokeReason)}),
        "cancel": _object({"type": {"const": "cancel"}, "attempt_id": _ref("id"), "reason": _enum(CancelReason)}),
        "node_drain": _object(
            {"type": {"const": "drain"}}, description="The node goes down: finish or let go, reconnect elsewhere."
        ),
        "error": _object(
            {
                "type": {"const": "error"},
                "code": {
                    "type": "string",
                    "pattern": "^[A-Z][A-Z_]{0,62}$",
                    "examples": sorted({*ERROR_CODES.values(), *CLOSE_CODES, "UNAVAILABLE"}),
                },
                "message": {"type": "string"},
            },
            {"re": _ref("seq")},
        ),
    }


def _held_attempt() -> Schema:
    return _object(
        {
            "attempt_id": _ref("id"),
            "fencing_token": _ref("decimal"),
            "task_id": _ref("id"),
            "state": {"enum": sorted(state.value for state in LEASED)},
            "lease_until": _ref("instant"),
        }
    )


def _offered_task() -> Schema:
    return _object(
        {
            "task_id": _ref("id"),
            "queue_id": _ref("id"),
            "handler": _ref("name"),
            "handler_version": _ref("name"),
            "payload_version": _ref("name"),
            "payload": {"description": "Any JSON value, digit for digit as it was submitted."},
            "attempt": {**_integer(1), "description": "The number that this start would have."},
            "available_at": _ref("instant"),
        },
        {
            "priority": {
                **_integer(limits.STRICT_PRIORITY_MIN, limits.STRICT_PRIORITY_MAX),
                "description": "Left out when 0 in an AGED namespace.",
            },
            "deadline_at": _ref("instant"),
            "attempt_timeout_ms": _integer(limits.ATTEMPT_TIMEOUT_MS_MIN, limits.ATTEMPT_TIMEOUT_MS_MAX),
            "resource_key": _ref("name"),
            "parent_task_id": _ref("id"),
            "traceparent": {"type": "string"},
        },
    )


def _object(required: Schema, optional: Schema | None = None, *, description: str | None = None) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }
    return schema if description is None else {"description": description, **schema}


def _asked(name: str, required: Schema | None = None) -> Schema:
    return _object({"type": {"const": name}, "seq": _ref("seq"), **(required or {})})


def _answer(name: str, required: Schema) -> Schema:
    return _object({"type": {"const": name}, "re": _ref("seq"), **required})


def _answers(name: str, *items: Schema) -> Schema:
    return _answer(name, {"items": _items({"oneOf": list(items)})})


def _item(status: str, required: Schema | None = None) -> Schema:
    # An id that was none is echoed, cut short: the answer must not be stricter than the question.
    return _object({"attempt_id": {"type": "string"}, "status": {"const": status}, **(required or {})})


def _items(item: Schema) -> Schema:
    return _array(item, limits.MESSAGE_ITEMS_MAX)


def _array(item: Schema, at_most: int, *, unique: bool = False) -> Schema:
    schema: Schema = {"type": "array", "items": item, "minItems": 1, "maxItems": at_most}
    return {**schema, "uniqueItems": True} if unique else schema


def _integer(minimum: int, maximum: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": minimum}
    return schema if maximum is None else {**schema, "maximum": maximum}


def _text(length_max: int, *, at_least: int = 0) -> Schema:
    schema: Schema = {"type": "string", "maxLength": length_max}
    return {**schema, "minLength": at_least} if at_least else schema


def _enum(words: Iterable[Enum]) -> Schema:
    return {"enum": [word.value for word in words]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _channel(description: str, names: Sequence[str]) -> Schema:
    return {
        "address": CHANNEL_ADDRESS,
        "description": description,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {
            "ws": {
                "method": "GET",
                "headers": {
                    "type": "object",
                    "properties": {
                        "Authorization": {"type": "string"},
                        "Sec-WebSocket-Protocol": {"const": "orbit.worker.v1"},
                    },
                    "required": ["Authorization", "Sec-WebSocket-Protocol"],
                },
            }
        },
    }


def _receive(name: str, answer: str) -> Schema:
    return {
        "action": "receive",
        "channel": {"$ref": "#/channels/worker"},
        "messages": [{"$ref": f"#/channels/worker/messages/{name}"}],
        "reply": {
            "channel": {"$ref": "#/channels/server"},
            "messages": [{"$ref": f"#/channels/server/messages/{word}"} for word in (answer, "error")],
        },
        "security": [{"$ref": "#/components/securitySchemes/bearer"}],
    }


def _send(name: str) -> Schema:
    return {
        "action": "send",
        "channel": {"$ref": "#/channels/server"},
        "messages": [{"$ref": f"#/channels/server/messages/{name}"}],
    }


def _message(name: str) -> Schema:
    message: Schema = {"name": name, "payload": {"$ref": f"#/components/schemas/{name}"}}
    if name in ANSWERS and name != "hello":
        message["correlationId"] = {"$ref": "#/components/correlationIds/seq"}
    elif name in ANSWERS.values() and name != "welcome":
        message["correlationId"] = {"$ref": "#/components/correlationIds/re"}
    return message


def _moved(schema: Any) -> Any:
    """The same schema with its references pointing into an AsyncAPI document."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _moved(value)
            for key, value in schema.items()
        }
    return [_moved(item) for item in schema] if isinstance(schema, list) else schema
