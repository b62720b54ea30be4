"""`@operation`: what one method of the API is, said once: what it needs (checked before its view runs) and how the
OpenAPI 3.1 document describes it, with every status that it can answer.

drf-spectacular finds the operations by the project's addresses; `complete` adds what they share. Other apps describe
theirs in the same way and name their shapes by `add_components`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drf_spectacular.utils import extend_schema

from tasks_app import limits
from tasks_app.api.bodies import Body
from tasks_app.api.endpoints import Contract, Handler, declare
from tasks_app.api.schema_components import COMPONENTS, Schema, envelope, integer, ref
from tasks_app.states import Action

BEARER: Final = "bearer"
# Whatever a method does: a request may be malformed, unknown, forbidden, too large, of the wrong type, too slow, too
# early.
_ALWAYS: Final = (400, 401, 403, 408, 413, 415, 429, 500, 503)
_REFUSAL_WORDS: Final[Mapping[int, str]] = {
    400: "INVALID_ARGUMENT: `details` name the field and the rule.",
    401: "UNAUTHENTICATED: no credential, or one that is unknown, expired or revoked.",
    403: "PERMISSION_DENIED: the credential lacks the action, or the queue is outside its scope.",
    404: "NOT_FOUND: no such object in this namespace.",
    408: "INVALID_ARGUMENT: the request did not arrive in time.",
    409: "IDEMPOTENCY_CONFLICT, REVISION_CONFLICT, FAILED_PRECONDITION or ALREADY_EXISTS.",
    413: "PAYLOAD_TOO_LARGE.",
    415: "UNSUPPORTED_MEDIA_TYPE: a body is `application/json` without a content encoding.",
    429: "RATE_LIMITED, QUEUE_FULL, APPLICATION_FULL or QUOTA_EXCEEDED; `Retry-After` says when.",
    500: "INTERNAL.",
    502: "UPSTREAM_FAILED.",
    503: "UNAVAILABLE: repeat the same request with the same identity.",
}


@dataclass(frozen=True)
class Parameter:
    """A query parameter, or a header."""

    name: str
    schema: Schema
    description: str = ""
    required: bool = False
    repeats: bool = False
    place: str = "query"

    def document(self) -> Schema:
        schema = {"type": "array", "items": self.schema} if self.repeats else self.schema
        return {
            "name": self.name,
            "in": self.place,
            "required": self.required,
            "schema": schema,
            **({"description": self.description} if self.description else {}),
        }


@dataclass(frozen=True)
class Returns:
    """One successful answer: the schema of its `data` (None: no body), and what else it carries."""

    data: Schema | None
    description: str
    headers: Mapping[str, str] | None = None

    def document(self) -> Schema:
        document: Schema = {"description": self.description}
        if self.headers:
            document["headers"] = {
                name: {"description": words, "schema": {"type": "string"}} for name, words in self.headers.items()
            }
        if self.data is not None:
            document["content"] = {"application/json": {"schema": envelope(self.data)}}
        return document


LIMIT: Final = Parameter(
    "limit",
    integer(limits.PAGE_LIMIT_MIN, limits.PAGE_LIMIT_MAX, default=limits.PAGE_LIMIT_DEFAULT),
    "How many items at most; anything outside the range is refused, never clamped.",
)
CURSOR: Final = Parameter("cursor", {"type": "string"}, "`next_cursor` of the page before, with the same filters.")
WAIT_MS: Final = Parameter(
    "wait_ms", integer(0, limits.WAIT_MS_MAX), "How long the answer may be kept back until there is something new."
)
IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": limits.REQUEST_HEADER_KEY_LENGTH_MAX, "pattern": "^[!-~]+$"},
    "The caller's own identity of this request, stored before it is sent; kept 90 days. Quotes are part of the key.",
    required=True,
    place="header",
)


def operation(
    operation_id: str,
    *,
    action: Action,
    tag: str,
    summary: str,
    answers: Mapping[int, Returns],
    description: str = "",
    body: Body = Body.NONE,
    body_schema: str | None = None,
    body_bytes_max: int = limits.BODY_BYTES_MAX,
    path: Sequence[str] = (),
    parameters: Sequence[Parameter] = (),
    refusals: Sequence[int] = (),
) -> Callable[[Handler], Handler]:
    """Declares a method of an `Endpoint`. `path` names the ids in its address; `refusals` adds to the common ones."""
    query = [parameter for parameter in parameters if parameter.place == "query"]
    contract = Contract(
        operation_id=operation_id,
        action=action,
        body=body,
        body_bytes_max=body_bytes_max,
        query=frozenset(parameter.name for parameter in query),
        repeatable=frozenset(parameter.name for parameter in query if parameter.repeats),
    )
    document: Schema = {
        "operationId": operation_id,
        "tags": [tag],
        "summary": summary,
        "description": f"{description}\n\nAction `{action.value}`.".strip(),
        "security": [{BEARER: []}],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": ref("Id")} for name in path),
            *(parameter.document() for parameter in parameters),
        ],
        "responses": _responses(answers, refusals),
    }
    if body_schema is not None:
        document["requestBody"] = {
            "required": body is Body.REQUIRED,
            "content": {"application/json": {"schema": ref(body_schema)}},
        }

    def decorate(handler: Handler) -> Handler:
        return extend_schema(operation=document)(declare(handler, contract))

    return decorate


def _responses(answers: Mapping[int, Returns], refusals: Sequence[int]) -> Schema:
    failure = {"application/json": {"schema": ref("Failure")}}
    responses = {status: returns.document() for status, returns in answers.items()}
    for status in {*_ALWAYS, *refusals}:
        responses[status] = {"description": _REFUSAL_WORDS[status], "content": failure}
        if status in (429, 503):
            responses[status]["headers"] = {
                "Retry-After": {"description": "Whole seconds.", "schema": {"type": "string"}}
            }
    return {str(status): responses[status] for status in sorted(responses)}


_components: dict[str, Schema] = dict(COMPONENTS)


def add_components(components: Mapping[str, Schema]) -> None:
    """Names further shapes, for operations of other apps. A name stands for one shape."""
    for name, schema in components.items():
        if _components.setdefault(name, schema) != schema:
            raise ValueError(f"the component {name} is defined already, differently")


def complete(result: Schema, generator: Any = None, request: Any = None, public: bool = True) -> Schema:
    """drf-spectacular's last step: the shapes, the credential, and the words above it all."""
    result["info"]["description"] = (
        "Orbit accepts tasks and gives receipts that survive any crash. Every answer stands in one envelope: "
        "`request_id` with `data`, or with `error` (`code`, `message`, `retry_after_ms`, `details`)."
    )
    components = result.setdefault("components", {})
    components["schemas"] = dict(sorted(_components.items()))
    components["securitySchemes"] = {
        BEARER: {"type": "http", "scheme": "bearer", "description": "A credential of one namespace."}
    }
    return result
