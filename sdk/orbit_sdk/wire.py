"""The sans-I/O core of both clients: what a request is, and what an answer must be before it is believed.

A `Call` is one request together with the function that verifies its answer. A client only moves bytes: it sends
`call.request` and gives what comes back to `conclude`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from orbit_sdk.credentials import is_id
from orbit_sdk.errors import InvalidRequest, UnverifiableResponse, api_error
from orbit_sdk.jsoncodec import InvalidJson, Numbers, decode, encode
from orbit_sdk.limits import BODY_BYTES_MAX

T = TypeVar("T")
SUBMIT_STATUSES = frozenset({200, 201})
_OK = frozenset({200})
_KEY = re.compile(r"[\x21-\x7e]{1,128}", re.ASCII)


@dataclass(frozen=True)
class Request:
    """One HTTP request below the base URL. `wait_seconds` is how long the server may hold its answer back."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True)
class Answer:
    """The opened envelope of a success."""

    status: int
    request_id: str
    data: Any


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, the statuses that mean success, and how the data of a success becomes a value.

    `verify` raises UnverifiableResponse.
    """

    request: Request
    verify: Callable[[Answer], T]
    statuses: frozenset[int] = _OK


def conclude(call: Call[T], response: Response, *, numbers: Numbers = Numbers.EXACT) -> T:
    """The value of a verified success. Raises ApiError (Orbit refused) or UnverifiableResponse."""
    answer = open_envelope(response, numbers=numbers)
    if answer.status not in call.statuses:
        raise UnverifiableResponse(
            f"{call.request.method} {call.request.path} does not answer with this status",
            status=answer.status,
            request_id=answer.request_id,
        )
    try:
        return call.verify(answer)
    except UnverifiableResponse as error:
        raise UnverifiableResponse(error.reason, status=answer.status, request_id=answer.request_id) from None


def open_envelope(response: Response, *, numbers: Numbers = Numbers.EXACT) -> Answer:
    """The data of a success. Raises ApiError for a failure envelope, UnverifiableResponse for anything else."""
    status = response.status
    content_type = response.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise UnverifiableResponse(f"it is {content_type or 'of no type'}, not application/json", status=status)
    try:
        envelope = decode(response.body, numbers=numbers)
    except InvalidJson as error:
        raise UnverifiableResponse(f"the body {error}", status=status) from None
    if not isinstance(envelope, dict) or not is_id(envelope.get("request_id")):
        raise UnverifiableResponse("there is no request_id", status=status)
    request_id = envelope["request_id"]
    if 200 <= status < 300 and "data" in envelope and "error" not in envelope:
        return Answer(status=status, request_id=request_id, data=envelope["data"])
    refusal = envelope.get("error")
    if status >= 400 and "data" not in envelope and isinstance(refusal, dict):
        code, message = refusal.get("code"), refusal.get("message")
        details, retry_after_ms = refusal.get("details", []), refusal.get("retry_after_ms")
        if (
            isinstance(code, str)
            and isinstance(message, str)
            and isinstance(details, list)
            and all(isinstance(detail, dict) for detail in details)
            and (retry_after_ms is None or type(retry_after_ms) is int)
        ):
            raise api_error(
                code=code,
                status=status,
                message=message,
                details=details,
                retry_after_ms=retry_after_ms,
                request_id=request_id,
            )
    raise UnverifiableResponse("the envelope does not fit the status", status=status, request_id=request_id)


# -- Requests


def check_key(key: str, *, place: str = "key") -> str:
    """An idempotency key: 1 to 128 printable ASCII characters without blanks. Raises InvalidRequest."""
    if not isinstance(key, str) or _KEY.fullmatch(key) is None:
        raise InvalidRequest(place, "must be 1 to 128 printable ASCII characters without blanks")
    return key


def check_id(value: str, *, place: str) -> str:
    """Raises InvalidRequest unless `value` is 32 lower-case hex digits."""
    if not is_id(value):
        raise InvalidRequest(place, "must be 32 lower-case hex digits")
    return value


def get(path: str, *, query: tuple[tuple[str, str], ...] = (), wait_seconds: float = 0.0) -> Request:
    return Request(method="GET", path=path, query=query, wait_seconds=wait_seconds)


def send_json(
    method: str, path: str, document: Mapping[str, Any], *, key: str | None = None, bytes_max: int = BODY_BYTES_MAX
) -> Request:
    """A request with a JSON body. Raises InvalidRequest for what cannot be written as JSON and for too many bytes."""
    try:
        body = encode(document)
    except InvalidJson as error:
        raise InvalidRequest("", f"the request {error}") from None
    if len(body) > bytes_max:
        raise InvalidRequest("", f"the request has {len(body)} bytes; at most {bytes_max} are allowed")
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Idempotency-Key"] = check_key(key)
    return Request(method=method, path=path, headers=headers, body=body)


def post(path: str, document: Mapping[str, Any], *, key: str | None = None, bytes_max: int = BODY_BYTES_MAX) -> Request:
    return send_json("POST", path, document, key=key, bytes_max=bytes_max)


def without_none(document: Mapping[str, Any]) -> dict[str, Any]:
    """`document` without the members that were not given."""
    return {name: value for name, value in document.items() if value is not None}
