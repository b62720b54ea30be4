"""A submission as text that can be committed, and back, without losing a digit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from orbit_sdk.errors import InvalidRequest
from orbit_sdk.instants import format_instant, parse_instant
from orbit_sdk.jsoncodec import InvalidJson, Numbers, decode, encode_text
from orbit_sdk.limits import PAYLOAD_BYTES_MAX
from orbit_sdk.models.tasks import RetryPolicy, SubmitTask
from orbit_sdk.states import RetryMode


def encode_request(task: SubmitTask) -> str:
    """The committed form. Raises InvalidRequest for what cannot be sent."""
    members: dict[str, Any] = {}
    for field in fields(task):
        value = getattr(task, field.name)
        if field.name == "payload" or value is None:
            continue
        if field.name == "available_at":
            try:
                value = format_instant(value)
            except ValueError as error:
                raise InvalidRequest("task.available_at", str(error)) from None
        members[field.name] = value.as_json() if isinstance(value, RetryPolicy) else value
    try:
        if len(encode_text(task.payload).encode()) > PAYLOAD_BYTES_MAX:
            raise InvalidRequest("task.payload", f"must be at most {PAYLOAD_BYTES_MAX} bytes")
        return encode_text({**members, "payload": task.payload})
    except InvalidJson as error:
        raise InvalidRequest("task", str(error)) from None


def decode_request(text: str) -> SubmitTask:
    """What `encode_request` was given; numbers in the payload are the text that was committed."""
    members = decode(text)
    members["payload"] = decode(text, numbers=Numbers.LITERAL)["payload"]
    if "available_at" in members:
        members["available_at"] = parse_instant(members["available_at"])
    if "retry" in members:
        members["retry"] = RetryPolicy(**{**members["retry"], "mode": RetryMode(members["retry"]["mode"])})
    return SubmitTask(**members)
