"""Frames for the protocol tests: right as they stand, to be spoiled in one place; the published schema to judge by."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from workers_app.protocol.messages import ClientMessage, ProtocolError, parse_client_message
from workers_app.protocol.schema import worker_schema

ATTEMPT_ID = "0190f3a1b2c37d4e8f5061728394a5b6"
OTHER_ATTEMPT_ID = "0190f3a1b2c37d4e8f5061728394a5b7"
QUEUE_ID = "0190f3a1b2c37d4e8f5061728394a5b8"
SESSION_ID = "0190f3a1b2c37d4e8f5061728394a5b9"
TASK_ID = "0190f3a1b2c37d4e8f5061728394a5ba"
NOON = 1_790_000_000_123_456  # 2026-09-21T14:13:20.123456Z
NOON_TEXT = "2026-09-21T14:13:20.123456Z"

_schema = worker_schema()
_VALIDATORS = {
    side: Draft202012Validator({**_schema, "oneOf": [{"$ref": f"#/$defs/{side}"}]})
    for side in ("worker_message", "server_message")
}

Frame = dict[str, Any]


def hello(**changes: Any) -> Frame:
    frame = {
        "type": "hello",
        "protocol": 1,
        "worker_name": "reports-1",
        "capacity": 8,
        "queues": [QUEUE_ID],
        "handlers": [{"handler": "object.prepare", "handler_version": "v1"}],
    }
    return frame | changes


def held(**changes: Any) -> Frame:
    return {"attempt_id": ATTEMPT_ID, "fencing_token": "7"} | changes


def with_items(kind: str, *items: Frame) -> Frame:
    return {"type": kind, "seq": 5, "items": list(items)}


def succeeded(**changes: Any) -> Frame:
    return held(outcome="SUCCEEDED") | changes


def failed(**changes: Any) -> Frame:
    return held(outcome="FAILED", error={"code": "DISK_FULL", "message": "no space left"}) | changes


def canceled(**changes: Any) -> Frame:
    return held(outcome="CANCELED") | changes


CLIENT_FRAMES: dict[str, Frame] = {
    "hello": hello(),
    "heartbeat": {"type": "heartbeat", "seq": 5},
    "resize": {"type": "resize", "seq": 5, "capacity": 4},
    "drain": {"type": "drain", "seq": 5},
    "start": with_items("start", held()),
    "renew": with_items("renew", held(progress={"percent": 50, "message": "half way"})),
    "finish": with_items("finish", succeeded(result={"a": 1}), failed(), canceled()),
    "release": with_items("release", held()),
}


def parse(frame: Frame) -> ClientMessage:
    return parse_client_message(json.dumps(frame))


def refusal(frame: Frame | str) -> ProtocolError:
    """The protocol error that this frame is; the test fails if it is none."""
    text = frame if isinstance(frame, str) else json.dumps(frame)
    try:
        message = parse_client_message(text)
    except ProtocolError as error:
        return error
    raise AssertionError(f"was taken as {message}")


def fits_schema(frame: Frame, side: str = "worker_message") -> bool:
    return _VALIDATORS[side].is_valid(frame)


def sent(text: str) -> Frame:
    """The server's frame as a worker reads it; the test fails if it is not one of the published messages."""
    frame: Frame = json.loads(text)
    _VALIDATORS["server_message"].validate(frame)
    return frame
