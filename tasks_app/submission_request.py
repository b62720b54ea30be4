"""What a submit asks for (design 1.2 and 1.3): read from a document, judged, and digested. Pure.

Faults come in three kinds, judged at three moments:
- *structural* (`read_task`, `read_batch`): members, JSON types, `null`, encodings. They refuse a whole batch.
- *semantic* (`semantic_fault`): ranges, lengths, characters, enums, rules across fields. They refuse one item.
- *of time* (`time_fault`): what depends on now. Judged after the receipt was looked up, so that a repeat is answered
  with its receipt however late it comes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tasks_app.errors import Detail, InvalidArgument, OrbitError, PayloadTooLarge
from tasks_app.instants import US_PER_MS
from tasks_app.json_fields import Fields, read_object, read_string, refusal
from tasks_app.limits import (
    AGED_PRIORITY_MAX,
    AGED_PRIORITY_MIN,
    ATTEMPT_TIMEOUT_MS_MAX,
    ATTEMPT_TIMEOUT_MS_MIN,
    BATCH_ITEMS_MAX,
    BATCH_ITEMS_MIN,
    HORIZON_MS_MAX,
    NAME_LENGTH_MAX,
    PAYLOAD_BYTES_MAX,
    REQUEST_HEADER_KEY_LENGTH_MAX,
    RETRY_ATTEMPTS_MAX,
    RETRY_BACKOFF_MS_MAX,
    RETRY_MULTIPLIER_MAX,
    RETRY_MULTIPLIER_MIN,
    STRICT_PRIORITY_MAX,
    STRICT_PRIORITY_MIN,
)
from tasks_app.printable import printable_fault
from tasks_app.retries import NEVER, RetryPolicy
from tasks_app.states import Policy, RetryMode
from tasks_app.strict_json import Node, canonical, child_path, parse_document

REQUIRED: Final = ("queue_id", "handler", "handler_version", "payload_version", "payload")
OPTIONAL: Final = (
    "priority",
    "available_at",
    "delay_ms",
    "expires_in_ms",
    "attempt_timeout_ms",
    "retry",
    "resource_key",
    "parent_task_id",
    "parent_fencing_token",
)
_RETRY_OPTIONAL: Final = ("max_attempts", "initial_backoff_ms", "max_backoff_ms", "multiplier")
_NAMES: Final = ("handler", "handler_version", "payload_version", "resource_key")
_KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{REQUEST_HEADER_KEY_LENGTH_MAX}}}")
_KEY_RULE: Final = f"must be 1 to {REQUEST_HEADER_KEY_LENGTH_MAX} printable ASCII characters without blanks"
_DIGEST_FORM: Final = b"orbit submit 1\n"  # a change of the normal form would need another name


@dataclass(frozen=True)
class SubmitRequest:
    """A task object as it was asked for. `None` means omitted; instants are microseconds, durations milliseconds.

    `payload` is the JSON text exactly as sent. `path` is where the object stood in its document; `payload_digest` is
    the digest of the payload's canonical form (computed from `payload` where it was not given).
    """

    queue_id: str
    handler: str
    handler_version: str
    payload_version: str
    payload: str
    priority: int | None = None
    available_at: int | None = None
    delay_ms: int | None = None
    expires_in_ms: int | None = None
    attempt_timeout_ms: int | None = None
    retry: RetryPolicy = NEVER
    resource_key: str | None = None
    parent_task_id: str | None = None
    parent_fencing_token: str | None = None
    path: str = field(default="", compare=False)
    payload_digest: bytes = field(default=b"", compare=False, repr=False)


def read_task(node: Node, *, without: Collection[str] = ()) -> SubmitRequest:
    """The task object at `node`; `without` names members that this place does not know. Raises InvalidArgument for
    structural faults only."""
    fields = read_object(node, required=REQUIRED, optional=[name for name in OPTIONAL if name not in without])
    payload = fields.required_node("payload")
    return SubmitRequest(
        queue_id=fields.required_identity("queue_id"),
        handler=fields.required_string("handler"),
        handler_version=fields.required_string("handler_version"),
        payload_version=fields.required_string("payload_version"),
        payload=payload.raw,
        priority=fields.integer("priority"),
        available_at=fields.instant("available_at"),
        delay_ms=fields.integer("delay_ms"),
        expires_in_ms=fields.integer("expires_in_ms"),
        attempt_timeout_ms=fields.integer("attempt_timeout_ms"),
        retry=_read_retry(fields.object("retry", required=("mode",), optional=_RETRY_OPTIONAL)),
        resource_key=fields.string("resource_key"),
        parent_task_id=fields.identity("parent_task_id"),
        parent_fencing_token=fields.string("parent_fencing_token"),
        path=node.path,
        payload_digest=hashlib.sha256(canonical(payload)).digest(),
    )


def read_batch(document: Node) -> list[tuple[str, SubmitRequest]]:
    """(idempotency key, request) of each item of `POST /v1/tasks:batch`, in order; every structural rule of 1.3."""
    items = read_object(document, required=("items",)).required_elements(
        "items", at_least=BATCH_ITEMS_MIN, at_most=BATCH_ITEMS_MAX
    )
    requests: list[tuple[str, SubmitRequest]] = []
    first_with: dict[str, int] = {}
    for index, item in enumerate(items):
        fields = read_object(item, required=("idempotency_key", "task"))
        key = read_string(fields.required_node("idempotency_key"))
        place = fields.path("idempotency_key")
        if _KEY.fullmatch(key) is None:
            raise InvalidArgument.field(place, _KEY_RULE)
        if key in first_with:
            raise InvalidArgument.field(place, f"is the key of items[{first_with[key]}] too", first=first_with[key])
        first_with[key] = index
        requests.append((key, read_task(fields.required_node("task"))))
    return requests


def check_idempotency_key(values: Sequence[str]) -> str:
    """The one value of the `Idempotency-Key` header, quotes included. Raises InvalidArgument."""
    if len(values) != 1:
        raise InvalidArgument.field("Idempotency-Key", "is required" if not values else "must be sent exactly once")
    if _KEY.fullmatch(values[0]) is None:
        raise InvalidArgument.field("Idempotency-Key", _KEY_RULE)
    return values[0]


def semantic_fault(request: SubmitRequest, policy: Policy) -> OrbitError | None:
    """What is wrong with the request in a namespace of that policy, whatever the time; every fault in one refusal."""
    if len(request.payload.encode("utf-8")) > PAYLOAD_BYTES_MAX:
        return PayloadTooLarge(
            f"payload: must be at most {PAYLOAD_BYTES_MAX} bytes as sent",
            details=[
                {
                    "field": child_path(request.path, "payload"),
                    "reason": f"must be at most {PAYLOAD_BYTES_MAX} bytes as sent",
                    "limit": PAYLOAD_BYTES_MAX,
                }
            ],
        )
    faults = _Faults(request.path)
    for name in _NAMES:
        value: str | None = getattr(request, name)
        reason = None if value is None else printable_fault(value, length_max=NAME_LENGTH_MAX)
        if reason is not None:
            faults.add(name, reason)
    lowest, highest = priority_range(policy)
    faults.range("priority", request.priority, lowest, highest)
    faults.range("delay_ms", request.delay_ms, 0, HORIZON_MS_MAX)
    faults.range("expires_in_ms", request.expires_in_ms, 1, HORIZON_MS_MAX)
    faults.range("attempt_timeout_ms", request.attempt_timeout_ms, ATTEMPT_TIMEOUT_MS_MIN, ATTEMPT_TIMEOUT_MS_MAX)
    if request.available_at is not None and request.delay_ms is not None:
        faults.add("delay_ms", "must not be given together with available_at")
    if (request.parent_task_id is None) != (request.parent_fencing_token is None):
        missing = "parent_task_id" if request.parent_task_id is None else "parent_fencing_token"
        faults.add(missing, "parent_task_id and parent_fencing_token go together")
    _judge_retry(request.retry, _Faults(child_path(request.path, "retry"), faults.found))
    return refusal(faults.found) if faults.found else None


def time_fault(request: SubmitRequest, now_us: int) -> InvalidArgument | None:
    """What is wrong with the times of an otherwise sound request that would be accepted at `now_us`."""
    faults = _Faults(request.path)
    if request.available_at is not None and request.available_at > now_us + HORIZON_MS_MAX * US_PER_MS:
        faults.add("available_at", "must be at most 31 days ahead")
    available_at, deadline_at = resolve_times(request, now_us)
    if deadline_at is not None and deadline_at <= available_at:
        faults.add("expires_in_ms", "must end after the task is available")
    return refusal(faults.found) if faults.found else None


def resolve_times(request: SubmitRequest, now_us: int) -> tuple[int, int | None]:
    """(`available_at`, `deadline_at`) of the task if it is accepted at `now_us`. A time in the past means now."""
    available_at = now_us + (request.delay_ms or 0) * US_PER_MS
    if request.available_at is not None:
        available_at = max(request.available_at, now_us)
    deadline_at = None if request.expires_in_ms is None else now_us + request.expires_in_ms * US_PER_MS
    return available_at, deadline_at


def digest(request: SubmitRequest, policy: Policy) -> bytes:
    """SHA-256 (32 bytes) of the request's normal form: two requests with one digest ask for the same (1.2,
    *Digest*)."""
    payload_digest = request.payload_digest or hashlib.sha256(canonical(parse_document(request.payload))).digest()
    normal = {
        "queue_id": request.queue_id,
        "handler": request.handler,
        "handler_version": request.handler_version,
        "payload_version": request.payload_version,
        "payload": payload_digest.hex(),
        "priority": _normal_priority(request, policy),
        "available_at": request.available_at,
        "delay_ms": request.delay_ms or None,  # 0 is what an omitted one stands for: now
        "expires_in_ms": request.expires_in_ms,
        "attempt_timeout_ms": request.attempt_timeout_ms,
        "retry": [
            request.retry.mode,
            request.retry.max_attempts,
            request.retry.initial_backoff_ms,
            request.retry.max_backoff_ms,
            request.retry.multiplier,
        ],
        "resource_key": request.resource_key,
        "parent_task_id": request.parent_task_id,
    }
    return hashlib.sha256(_DIGEST_FORM + json.dumps(normal, sort_keys=True).encode("ascii")).digest()


def priority_range(policy: Policy) -> tuple[int, int]:
    if policy == Policy.STRICT:
        return STRICT_PRIORITY_MIN, STRICT_PRIORITY_MAX
    return AGED_PRIORITY_MIN, AGED_PRIORITY_MAX


def _normal_priority(request: SubmitRequest, policy: Policy) -> int | None:
    """Omitted means 0 in an AGED namespace, for ever. Elsewhere it means what the queue, the namespace or the parent
    says, which may change: then omitted and 0 are two requests."""
    if policy == Policy.AGED and request.parent_task_id is None:
        return request.priority or 0
    return request.priority


def _read_retry(fields: Fields | None) -> RetryPolicy:
    if fields is None:
        return NEVER
    mode = fields.required_string("mode")
    numbers = {name: fields.integer(name) for name in _RETRY_OPTIONAL}
    filled = NEVER if mode == RetryMode.NEVER else RetryPolicy.safe(**numbers)
    return RetryPolicy(
        mode=mode,
        max_attempts=filled.max_attempts if numbers["max_attempts"] is None else numbers["max_attempts"],
        initial_backoff_ms=filled.initial_backoff_ms,
        max_backoff_ms=filled.max_backoff_ms,
        multiplier=filled.multiplier,
        written=fields.names(),
    )


def _judge_retry(retry: RetryPolicy, faults: _Faults) -> None:
    if retry.mode == RetryMode.NEVER:
        for name in sorted(retry.written - {"mode", "max_attempts"}):
            faults.add(name, "must not be given with mode NEVER")
        faults.range("max_attempts", retry.max_attempts, 1, 1)
        return
    if retry.mode != RetryMode.SAFE:
        faults.add("mode", "must be NEVER or SAFE", allowed=[RetryMode.NEVER.value, RetryMode.SAFE.value])
        return
    faults.range("max_attempts", retry.max_attempts, 1, RETRY_ATTEMPTS_MAX)
    faults.range("initial_backoff_ms", retry.initial_backoff_ms, 0, RETRY_BACKOFF_MS_MAX)
    faults.range("multiplier", retry.multiplier, RETRY_MULTIPLIER_MIN, RETRY_MULTIPLIER_MAX)
    if retry.initial_backoff_ms <= RETRY_BACKOFF_MS_MAX:
        faults.range("max_backoff_ms", retry.max_backoff_ms, max(retry.initial_backoff_ms, 0), RETRY_BACKOFF_MS_MAX)


class _Faults:
    """Collects details, each with its place."""

    def __init__(self, path: str, found: list[Detail] | None = None) -> None:
        self._path = path
        self.found: list[Detail] = [] if found is None else found

    def add(self, name: str, reason: str, **variables: object) -> None:
        self.found.append({"field": child_path(self._path, name), "reason": reason, **variables})

    def range(self, name: str, value: int | None, lowest: int, highest: int) -> None:
        if value is not None and not lowest <= value <= highest:
            reason = f"must be {lowest}" if lowest == highest else f"must be {lowest} to {highest}"
            self.add(name, reason, minimum=lowest, maximum=highest)
