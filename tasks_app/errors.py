"""The errors of Orbit: situations with a stable code, no status number.

    OrbitError
    ├── InvalidArgument            INVALID_ARGUMENT
    ├── PayloadTooLarge            PAYLOAD_TOO_LARGE
    ├── UnsupportedMediaType       UNSUPPORTED_MEDIA_TYPE
    ├── Unauthenticated            UNAUTHENTICATED
    ├── PermissionDenied           PERMISSION_DENIED
    ├── NotFound                   NOT_FOUND
    ├── MethodNotAllowed           METHOD_NOT_ALLOWED
    ├── Conflict
    │   ├── IdempotencyConflict    IDEMPOTENCY_CONFLICT
    │   ├── RevisionConflict       REVISION_CONFLICT
    │   ├── FailedPrecondition     FAILED_PRECONDITION
    │   └── AlreadyExists          ALREADY_EXISTS
    ├── Exhausted
    │   ├── QueueFull              QUEUE_FULL
    │   ├── ApplicationFull        APPLICATION_FULL
    │   ├── QuotaExceeded          QUOTA_EXCEEDED
    │   └── RateLimited            RATE_LIMITED
    ├── UpstreamFailed             UPSTREAM_FAILED
    ├── Unavailable                UNAVAILABLE   (the outcome may be unknown: ask again with the same identity)
    └── Internal                   INTERNAL

`api/errors.py` maps codes to HTTP, `workers_app/protocol/messages.py` to close codes; the SDK mirrors the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tasks_app.limits import RETRY_AFTER_MS

Detail = dict[str, Any]  # {"field": "items[3].task.priority", "reason": "…", …}


class OrbitError(Exception):
    """A situation that a caller can be told about. `details` names the field and the rule wherever there is one."""

    code: ClassVar[str] = "INTERNAL"
    default_message: ClassVar[str] = "something went wrong inside Orbit"
    default_retry_after_ms: ClassVar[int | None] = None

    def __init__(
        self, message: str | None = None, *, details: Sequence[Detail] = (), retry_after_ms: int | None = None
    ) -> None:
        self.message = message or self.default_message
        self.details: list[Detail] = list(details)
        self.retry_after_ms = self.default_retry_after_ms if retry_after_ms is None else retry_after_ms
        super().__init__(self.message)

    def as_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.retry_after_ms is not None:
            body["retry_after_ms"] = self.retry_after_ms
        if self.details:
            body["details"] = self.details
        return body


class InvalidArgument(OrbitError):
    code = "INVALID_ARGUMENT"
    default_message = "the request is not valid"

    @classmethod
    def field(cls, field: str, reason: str, **variables: Any) -> InvalidArgument:
        """One field broke one rule."""
        return cls(f"{field}: {reason}" if field else reason, details=[{"field": field, "reason": reason, **variables}])


class PayloadTooLarge(OrbitError):
    code = "PAYLOAD_TOO_LARGE"
    default_message = "the request is larger than the limit"


class UnsupportedMediaType(OrbitError):
    code = "UNSUPPORTED_MEDIA_TYPE"
    default_message = "the body must be application/json, without a content encoding"


class Unauthenticated(OrbitError):
    code = "UNAUTHENTICATED"
    default_message = "a valid bearer token is required"


class PermissionDenied(OrbitError):
    code = "PERMISSION_DENIED"
    default_message = "the credential does not allow this"


class NotFound(OrbitError):
    code = "NOT_FOUND"
    default_message = "no such object"


class MethodNotAllowed(OrbitError):
    code = "METHOD_NOT_ALLOWED"
    default_message = "the path does not know this method"


class Conflict(OrbitError):
    code = "FAILED_PRECONDITION"


class IdempotencyConflict(Conflict):
    code = "IDEMPOTENCY_CONFLICT"
    default_message = "the idempotency key was used with other content"


class RevisionConflict(Conflict):
    code = "REVISION_CONFLICT"
    default_message = "the object changed since the revision that was seen"


class FailedPrecondition(Conflict):
    code = "FAILED_PRECONDITION"
    default_message = "the object is not in a state that allows this"


class AlreadyExists(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "it exists already"


class Exhausted(OrbitError):
    code = "RATE_LIMITED"


class QueueFull(Exhausted):
    code = "QUEUE_FULL"
    default_message = "queue unfinished task limit reached; retry later using the original identity"
    default_retry_after_ms = RETRY_AFTER_MS


class ApplicationFull(Exhausted):
    code = "APPLICATION_FULL"
    default_message = "application unfinished task limit reached; retry later using the original identity"
    default_retry_after_ms = RETRY_AFTER_MS


class QuotaExceeded(Exhausted):
    code = "QUOTA_EXCEEDED"
    default_message = "the quota of this period is used up"
    default_retry_after_ms = RETRY_AFTER_MS


class RateLimited(Exhausted):
    code = "RATE_LIMITED"
    default_message = "too many failing requests from this address"
    default_retry_after_ms = RETRY_AFTER_MS


class UpstreamFailed(OrbitError):
    code = "UPSTREAM_FAILED"
    default_message = "the upstream did not do what was asked"


class Unavailable(OrbitError):
    code = "UNAVAILABLE"
    default_message = "the outcome could not be learned; repeat the same request with the same identity"
    default_retry_after_ms = RETRY_AFTER_MS


class Internal(OrbitError):
    code = "INTERNAL"
