"""From errors to answers: the one table of codes and HTTP statuses (design 1.1), and what becomes of foreign
exceptions."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.views import defaults

from tasks_app import telemetry
from tasks_app.api.context import context_of
from tasks_app.api.envelope import failure
from tasks_app.errors import (
    Internal,
    InvalidArgument,
    MethodNotAllowed,
    NotFound,
    OrbitError,
    PayloadTooLarge,
    PermissionDenied,
    Unavailable,
)
from tasks_app.transactions import CommitOutcomeUnknown

logger = logging.getLogger("orbit.api")

JSON: Final = "application/json"
API_ROOT: Final = "/v1"

STATUS: Final[Mapping[str, int]] = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "IDEMPOTENCY_CONFLICT": 409,
    "REVISION_CONFLICT": 409,
    "FAILED_PRECONDITION": 409,
    "ALREADY_EXISTS": 409,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "QUEUE_FULL": 429,
    "APPLICATION_FULL": 429,
    "QUOTA_EXCEEDED": 429,
    "RATE_LIMITED": 429,
    "INTERNAL": 500,
    "UPSTREAM_FAILED": 502,
    "UNAVAILABLE": 503,
}


class Challenge(Exception):
    """Not a situation of its own: an error with the headers that HTTP wants beside it (`WWW-Authenticate`, `Allow`)."""

    def __init__(self, error: OrbitError, headers: Mapping[str, str]) -> None:
        super().__init__(error.message)
        self.error = error
        self.headers = headers


def refuse(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The answer to a request that ended in `exception`, whatever that is. Only INTERNAL is logged with a traceback."""
    challenge = exception if isinstance(exception, Challenge) else None
    error = _translated(exception) if challenge is None else challenge.error
    if isinstance(error, Internal):
        logger.error("a request failed", exc_info=exception, extra={"request_id": context_of(request).request_id})
    telemetry.api_refused(error.code)
    return refusal_response(request, error, None if challenge is None else challenge.headers)


def refusal_response(request: HttpRequest, error: OrbitError, headers: Mapping[str, str] | None = None) -> HttpResponse:
    context = context_of(request)
    status = STATUS[error.code]
    response = HttpResponse(failure(context.request_id, error), status=status, content_type=JSON)
    response["Cache-Control"] = "no-store"
    response._has_been_logged = True  # type: ignore[attr-defined]  # a refusal is an answer, not a warning of ours
    if error.retry_after_ms is not None and status in (429, 503):
        response["Retry-After"] = str(-(-error.retry_after_ms // 1000))
    if status == 415:
        response["Accept"] = JSON
    for name, value in (headers or {}).items():
        response[name] = value
    return response


def _translated(exception: Exception) -> OrbitError:
    if isinstance(exception, OrbitError):
        return exception
    if isinstance(exception, CommitOutcomeUnknown):
        return Unavailable()
    if isinstance(exception, OperationalError | InterfaceError):
        return Unavailable("the database did not answer; repeat the same request")
    if isinstance(exception, RequestDataTooBig):
        return PayloadTooLarge()
    if isinstance(exception, UnreadablePostError):
        return InvalidArgument("the body ended before its length")
    if isinstance(exception, Http404):
        return NotFound()
    if isinstance(exception, SuspiciousOperation):
        return InvalidArgument("the request is not acceptable")
    return Internal()


def is_api(request: HttpRequest) -> bool:
    return request.path == API_ROOT or request.path.startswith(f"{API_ROOT}/")


def method_not_allowed(allowed: str) -> Challenge:
    return Challenge(
        MethodNotAllowed(details=[{"field": "", "reason": "unknown method", "allowed": allowed.split(", ")}]),
        {"Allow": allowed},
    )


# -- Django's own error pages, for what never reaches a view: `handler400` … `handler500` of the project's addresses


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return refuse(request, exception) if is_api(request) else defaults.bad_request(request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_api(request):
        return refusal_response(request, PermissionDenied())
    return defaults.permission_denied(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if is_api(request):
        return refusal_response(request, NotFound("no such path"))
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    # Django has logged the exception before it asks for this page.
    return refusal_response(request, Internal()) if is_api(request) else defaults.server_error(request)
