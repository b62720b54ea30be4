"""Security headers of every answer: the content policy of its path, and what a page may not ask a browser for.

Three policies. JSON may load nothing. Pages load only what this node serves. The operators' site adds what its theme
cannot do without: `'unsafe-eval'` for its scripts' expressions and inline style attributes, never inline scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from csp.utils import build_policy
from django.http import HttpRequest, HttpResponse

_PAGES: Final[dict[str, Any]] = {
    "default-src": [SELF],
    "img-src": [SELF, "data:"],
    "object-src": [NONE],
    "base-uri": [SELF],
    "form-action": [SELF],
    "frame-ancestors": [NONE],
}
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "/v1/": {"default-src": [NONE], "frame-ancestors": [NONE]},
    "/admin/": {**_PAGES, "script-src": [SELF, UNSAFE_EVAL], "style-src": [SELF, UNSAFE_INLINE]},
    "/": _PAGES,
}
PERMISSIONS: Final = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


class PageHeadersMiddleware:
    """Adds Content-Security-Policy and Permissions-Policy; built once, since every answer of the API passes here."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response
        self._policies = [(prefix, str(build_policy(config=policy))) for prefix, policy in POLICIES.items()]

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        for prefix, policy in self._policies:
            if request.path_info.startswith(prefix):
                response.setdefault("Content-Security-Policy", policy)
                break
        response.setdefault("Permissions-Policy", PERMISSIONS)
        return response
