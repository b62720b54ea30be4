"""The errors of the SDK. The branch below `ApiError` mirrors the server's tree; a test compares them.

    OrbitError
    ├── ConfigError                    this program is set up wrongly; nothing was sent
    ├── InvalidRequest                 refused by the SDK before anything was sent
    ├── WaitTimeout                    the time to wait is over; the task goes on
    ├── OutcomeUnknown                 keep the identity, ask again with the same key and content
    │   ├── ConnectionLost             no answer came
    │   └── UnverifiableResponse       an answer came that cannot be what was asked for
    ├── BatchItemError                 what is wrong with one item of a batch (inside results; raised by nobody)
    └── ApiError                       Orbit refused; one class for each code
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
        ├── Exhausted                  (each with `retry_after`)
        │   ├── QueueFull              QUEUE_FULL
        │   ├── ApplicationFull        APPLICATION_FULL
        │   ├── QuotaExceeded          QUOTA_EXCEEDED
        │   └── RateLimited            RATE_LIMITED
        ├── UpstreamFailed             UPSTREAM_FAILED
        ├── Unavailable                UNAVAILABLE
        └── Internal                   INTERNAL

`outcome_unknown` tells whether the request may have taken effect. Where it is true, repeat it with the same key and the
same content; never make a new key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

Detail = Mapping[str, Any]  # {"field": "items[3].task.priority", "reason": "…", …}


class OrbitError(Exception):
    """Base of everything that the SDK raises on purpose."""

    outcome_unknown: ClassVar[bool] = False


class ConfigError(OrbitError, ValueError):
    """A setting, a handler or a value of the App facade is not valid. Raised while the program is being built."""


class InvalidRequest(OrbitError, ValueError):
    """The request breaks a rule that the SDK checks itself; nothing was sent. `field` names the place."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}" if field else reason)


class WaitTimeout(OrbitError, TimeoutError):
    """The task did not end in the time given. It goes on; `state` is the last one seen."""

    def __init__(self, task_id: str, state: str, seconds: float) -> None:
        self.task_id = task_id
        self.state = state
        super().__init__(f"task {task_id} is {state} after {seconds:g} s")


class OutcomeUnknown(OrbitError):
    """Whether the request took effect is not known. Keep its identity and ask again with the same content."""

    outcome_unknown: ClassVar[bool] = True


class ConnectionLost(OutcomeUnknown):
    """No complete answer came: refused, timed out or cut. The cause is the transport's own error."""


class UnverifiableResponse(OutcomeUnknown):
    """The answer does not fit the request (shape, order, count, ownership), so that nothing can be concluded from
    it.
    """

    def __init__(self, reason: str, *, status: int | None = None, request_id: str | None = None) -> None:
        self.reason = reason
        self.status = status
        self.request_id = request_id
        place = f" (status {status})" if status is not None else ""
        super().__init__(f"the answer cannot be verified{place}: {reason}")


class _Refusal(OrbitError):
    """What an error object of the API says."""

    code: str
    message: str
    details: tuple[Detail, ...]
    retry_after_ms: int | None

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before the next attempt, if Orbit said so."""
        return None if self.retry_after_ms is None else self.retry_after_ms / 1000


class BatchItemError(_Refusal):
    """Why one item of a batch was not accepted. Not an `ApiError`: the request as a whole was answered."""

    def __init__(
        self, code: str, message: str, *, details: Sequence[Detail] = (), retry_after_ms: int | None = None
    ) -> None:
        self.code = code
        self.message = message
        self.details = tuple(details)
        self.retry_after_ms = retry_after_ms
        super().__init__(f"{code}: {message}")


class ApiError(_Refusal):
    """Orbit refused the request. `code` is for programs, `message` for people, `details` name fields and rules.

    `docs` is the anchor of the code in the server's table of errors.
    """

    code_of_class: ClassVar[str | None] = None

    def __init__(
        self,
        *,
        code: str,
        status: int,
        message: str,
        details: Sequence[Detail] = (),
        retry_after_ms: int | None = None,
        request_id: str | None = None,
    ) -> None:
        self.code = code
        self.status = status
        self.message = message
        self.details = tuple(details)
        self.retry_after_ms = retry_after_ms
        self.request_id = request_id
        trace = f" [request {request_id}, {self.docs}]" if request_id else f" [{self.docs}]"
        super().__init__(f"{code} ({status}): {message}{trace}")

    @property
    def docs(self) -> str:
        return f"/docs/errors/#{self.code}"

    def detail(self, name: str) -> Any:
        """The first value of `name` in `details`, or None."""
        return next((detail[name] for detail in self.details if name in detail), None)


class InvalidArgument(ApiError):
    code_of_class = "INVALID_ARGUMENT"


class PayloadTooLarge(ApiError):
    code_of_class = "PAYLOAD_TOO_LARGE"


class UnsupportedMediaType(ApiError):
    code_of_class = "UNSUPPORTED_MEDIA_TYPE"


class Unauthenticated(ApiError):
    code_of_class = "UNAUTHENTICATED"


class PermissionDenied(ApiError):
    code_of_class = "PERMISSION_DENIED"


class NotFound(ApiError):
    code_of_class = "NOT_FOUND"


class MethodNotAllowed(ApiError):
    code_of_class = "METHOD_NOT_ALLOWED"


class Conflict(ApiError):
    """The object or the key is in a state that does not allow this."""


class IdempotencyConflict(Conflict):
    """The key was used with other content. A new key is not the cure: find out which content is right."""

    code_of_class = "IDEMPOTENCY_CONFLICT"


class RevisionConflict(Conflict):
    code_of_class = "REVISION_CONFLICT"


class FailedPrecondition(Conflict):
    code_of_class = "FAILED_PRECONDITION"


class AlreadyExists(Conflict):
    code_of_class = "ALREADY_EXISTS"


class Exhausted(ApiError):
    """A limit is reached. Wait `retry_after` seconds or make room, then repeat with the same key."""


class QueueFull(Exhausted):
    code_of_class = "QUEUE_FULL"


class ApplicationFull(Exhausted):
    code_of_class = "APPLICATION_FULL"


class QuotaExceeded(Exhausted):
    code_of_class = "QUOTA_EXCEEDED"


class RateLimited(Exhausted):
    code_of_class = "RATE_LIMITED"


class UpstreamFailed(ApiError):
    code_of_class = "UPSTREAM_FAILED"


class Unavailable(ApiError):
    """Orbit could not learn the outcome, or is going down. The request may have taken effect."""

    code_of_class = "UNAVAILABLE"
    outcome_unknown: ClassVar[bool] = True


class Internal(ApiError):
    """Orbit failed in a way that it did not foresee. The request may have taken effect."""

    code_of_class = "INTERNAL"
    outcome_unknown: ClassVar[bool] = True


def _leaves(parent: type[ApiError]) -> dict[str, type[ApiError]]:
    found: dict[str, type[ApiError]] = {}
    for child in parent.__subclasses__():
        if child.code_of_class is not None:
            found[child.code_of_class] = child
        found |= _leaves(child)
    return found


ERROR_CLASSES: Mapping[str, type[ApiError]] = _leaves(ApiError)


def api_error(
    *,
    code: str,
    status: int,
    message: str,
    details: Sequence[Detail] = (),
    retry_after_ms: int | None = None,
    request_id: str | None = None,
) -> ApiError:
    """The error of `code`: its own class, or `ApiError` for a code that this SDK does not know."""
    return ERROR_CLASSES.get(code, ApiError)(
        code=code,
        status=status,
        message=message,
        details=details,
        retry_after_ms=retry_after_ms,
        request_id=request_id,
    )
