"""The outermost layer of every request: its id in the answer and in every log line, its trace continued."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse

from tasks_app.api.context import context_of
from tasks_app.api.errors import is_api, refusal_response
from tasks_app.errors import InvalidArgument


class RequestContextMiddleware:
    """Stands first in MIDDLEWARE."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        context = context_of(request)
        logged = {
            "request_id": context.request_id,
            "trace_id": context.trace and context.trace.trace_id,
            "client_request_id": context.client_request_id,
        }
        with structlog.contextvars.bound_contextvars(**{name: value for name, value in logged.items() if value}):
            response = self._answer(request)
        response["X-Request-Id"] = context.request_id
        if context.traceparent is not None:
            response["traceparent"] = context.traceparent
        return response

    def _answer(self, request: HttpRequest) -> HttpResponse:
        if is_api(request):
            try:
                request.get_host()
            except DisallowedHost:
                return refusal_response(request, InvalidArgument("the Host header names no host of this service"))
        return self._get_response(request)
