"""`Authorization: Bearer <token>`: from a header to a principal, or to 401, or to 429 for those who keep failing."""

from __future__ import annotations

import functools
import re
import time
from typing import Final

from django.conf import settings
from django.http import HttpRequest

from tasks_app.api.auth_failures import AuthFailures
from tasks_app.api.context import header_values
from tasks_app.api.errors import Challenge
from tasks_app.domain import tenancy
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import RateLimited, Unauthenticated

_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9\-._~+/]{1,512}=*)", re.ASCII | re.IGNORECASE)


@functools.cache
def failures() -> AuthFailures:
    """This process's memory of who failed."""
    return AuthFailures(per_minute=settings.ORBIT.auth_failures_per_minute, clock=time.monotonic)


def authenticate(request: HttpRequest) -> Principal:
    """Raises a Challenge with Unauthenticated, or RateLimited past so many failures from one address."""
    values = header_values(request, "authorization")
    match = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    try:
        if match is None:
            raise Unauthenticated()
        return tenancy.authenticate(match[1])
    except Unauthenticated as error:
        blocked_ms = failures().count(request.META.get("REMOTE_ADDR", ""))
        if blocked_ms is not None:
            raise RateLimited(retry_after_ms=blocked_ms) from None
        # RFC 6750: no error code where no credential was given at all.
        challenge = 'Bearer error="invalid_token"' if values else "Bearer"
        raise Challenge(error, {"WWW-Authenticate": challenge}) from None
