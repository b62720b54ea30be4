"""What the in-memory Orbit accepts: the semantic rules of a submit, and the digest that makes two of them the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from orbit_sdk.instants import parse_instant
from orbit_sdk.jsoncodec import Literal, encode
from orbit_sdk.limits import (
    AGED_PRIORITY_MAX,
    AGED_PRIORITY_MIN,
    HORIZON_MS_MAX,
    NAME_LENGTH_MAX,
    PAYLOAD_BYTES_MAX,
    STRICT_PRIORITY_MAX,
    STRICT_PRIORITY_MIN,
)
from orbit_sdk.states import Policy

_MS_PER_DAY = 86_400_000
_RETRY_RANGES = {
    "max_attempts": (1, 100),
    "initial_backoff_ms": (0, _MS_PER_DAY),
    "max_backoff_ms": (0, _MS_PER_DAY),
    "multiplier": (1, 10),
}


class Refused(Exception):
    """An answer of the in-memory Orbit that is a refusal."""

    def __init__(self, code: str, status: int, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.message = message
        self.detail = detail

    def as_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.status == 429:
            body["retry_after_ms"] = 1000
        if self.detail:
            body["details"] = [self.detail]
        return body


def invalid(field: str, reason: str) -> Refused:
    return Refused("INVALID_ARGUMENT", 400, f"{field}: {reason}", field=field, reason=reason)


@dataclass(frozen=True)
class Submission:
    """A submit with its defaults written out. `available_at_us` None: now plus `delay_ms`."""

    document: dict[str, Any]
    priority: int | None
    available_at_us: int | None
    delay_ms: int
    expires_in_ms: int | None
    retry: dict[str, Any]
    digest: str


def read_submission(document: dict[str, Any], policy: Policy) -> Submission:
    """`document` as decoded with literal numbers. Raises Refused for what Orbit would refuse."""
    for name in ("handler", "handler_version", "payload_version"):
        _check_name(document, name)
    if "resource_key" in document:
        _check_name(document, "resource_key")
    if len(encode(document["payload"])) > PAYLOAD_BYTES_MAX:
        raise Refused("PAYLOAD_TOO_LARGE", 413, "payload: must be at most 256 KiB", field="payload")
    low, high = (
        (STRICT_PRIORITY_MIN, STRICT_PRIORITY_MAX)
        if policy is Policy.STRICT
        else (AGED_PRIORITY_MIN, AGED_PRIORITY_MAX)
    )
    priority = _integer(document, "priority", low, high)
    delay_ms = _integer(document, "delay_ms", 0, HORIZON_MS_MAX)
    expires_in_ms = _integer(document, "expires_in_ms", 1, HORIZON_MS_MAX)
    attempt_timeout_ms = _integer(document, "attempt_timeout_ms", 100, _MS_PER_DAY)
    available_at_us = None
    if "available_at" in document:
        available_at_us = round(parse_instant(document["available_at"]).timestamp() * 1_000_000)
    if expires_in_ms is not None and delay_ms is not None and expires_in_ms <= delay_ms:
        raise invalid("expires_in_ms", "must lie after the earliest start")
    retry = _retry(document.get("retry", {"mode": "NEVER"}))
    # In an AGED namespace 0 and nothing are the same; in a STRICT one nothing stands for a default that may change.
    written = priority if policy is Policy.STRICT or "parent_task_id" in document else priority or 0
    normal = {
        **{name: value for name, value in document.items() if name not in _NORMALISED},
        "priority": written,
        "delay_ms": delay_ms or 0,
        "expires_in_ms": expires_in_ms,
        "attempt_timeout_ms": attempt_timeout_ms,
        "available_at": available_at_us,
        "retry": retry,
    }
    digest = hashlib.sha256(encode(_sorted(normal))).hexdigest()
    return Submission(document, priority, available_at_us, delay_ms or 0, expires_in_ms, retry, digest)


_NORMALISED = {
    "priority",
    "delay_ms",
    "expires_in_ms",
    "attempt_timeout_ms",
    "available_at",
    "retry",
    "parent_fencing_token",
}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _check_name(document: dict[str, Any], name: str) -> None:
    text = document[name]
    if not 1 <= len(text) <= NAME_LENGTH_MAX or not text.isprintable() or text != text.strip(" "):
        raise invalid(name, f"must be 1 to {NAME_LENGTH_MAX} printable characters without a blank at either end")


def _integer(document: dict[str, Any], name: str, low: int, high: int) -> int | None:
    if name not in document:
        return None
    value = document[name]
    number = int(value) if isinstance(value, Literal | int) else None
    if number is None or not low <= number <= high:
        raise invalid(name, f"must be {low} to {high}")
    return number


def _retry(document: dict[str, Any]) -> dict[str, Any]:
    mode = document["mode"]
    given = {name: _integer(document, name, *limits) for name, limits in _RETRY_RANGES.items() if name in document}
    if mode == "NEVER":
        if given not in ({}, {"max_attempts": 1}):
            raise invalid("retry", "NEVER takes no other member but max_attempts 1")
        return {"mode": "NEVER", "max_attempts": 1}
    initial = given.get("initial_backoff_ms", 1000) or 0
    longest = given.get("max_backoff_ms", max(60_000, initial)) or 0
    if longest < initial:
        raise invalid("retry.max_backoff_ms", "must not be less than initial_backoff_ms")
    return {
        "mode": "SAFE",
        "max_attempts": given.get("max_attempts", 3),
        "initial_backoff_ms": initial,
        "max_backoff_ms": longest,
        "multiplier": given.get("multiplier", 2),
    }
