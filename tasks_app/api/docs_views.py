"""The documents of the API: OpenAPI as JSON, a page to browse it, a page of errors. All open, nothing from outside."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import parse_etags
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.views import SpectacularSwaggerSplitView

from tasks_app.api.errors import STATUS

OPENAPI_PATH: Final = "/v1/openapi.json"

# code: (what it means, what to do)
_GUIDE: Final = {
    "INVALID_ARGUMENT": ("The request breaks a rule.", "Read `details`; mend the request; do not repeat it as it is."),
    "UNAUTHENTICATED": ("No credential, or one that is unknown, expired or revoked.", "Send a valid bearer token."),
    "PERMISSION_DENIED": (
        "The credential lacks the action, or the queue is outside its scope.",
        "Use a credential that may; `details` name the action or the queue.",
    ),
    "NOT_FOUND": ("No such object in this namespace.", "Check the id and the namespace of the credential."),
    "METHOD_NOT_ALLOWED": ("The path does not know this method.", "See `Allow`."),
    "IDEMPOTENCY_CONFLICT": (
        "The idempotency key was used with other content.",
        "Nothing was written. Find out which request was the first; a new key makes a new task.",
    ),
    "REVISION_CONFLICT": ("The object changed since the revision that was seen.", "Look again, decide again."),
    "FAILED_PRECONDITION": ("The object is not in a state that allows this.", "Look at the object."),
    "ALREADY_EXISTS": ("It exists already.", "`details` name what exists."),
    "PAYLOAD_TOO_LARGE": ("The body, or a document in it, is larger than its limit.", "Keep large data elsewhere."),
    "UNSUPPORTED_MEDIA_TYPE": ("A body is JSON, without a content encoding.", "Send `Content-Type: application/json`."),
    "QUEUE_FULL": (
        "The queue has as many unfinished tasks as it may.",
        "Repeat the same request with the same key after `retry_after_ms`.",
    ),
    "APPLICATION_FULL": (
        "The application has as many unfinished tasks as it may.",
        "Repeat the same request with the same key after `retry_after_ms`.",
    ),
    "QUOTA_EXCEEDED": ("The quota of this period is used up.", "Repeat after `retry_after_ms`."),
    "RATE_LIMITED": ("Too many failing authentications from this address.", "Mend the credential; then go on at once."),
    "INTERNAL": ("A fault of Orbit's.", "Repeat the same request with the same key; report `request_id`."),
    "UPSTREAM_FAILED": ("The upstream did not do what was asked.", "Look at the operation."),
    "UNAVAILABLE": (
        "The outcome could not be learned, or the node cannot answer now.",
        "Repeat the same request with the same key: the answer tells what happened.",
    ),
}


@functools.cache
def openapi_document() -> bytes:
    """The OpenAPI 3.1 document of this process; the addresses never change while it runs."""
    document = SchemaGenerator().get_schema(request=None, public=True)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    body = openapi_document()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if etag in parse_etags(request.headers.get("If-None-Match", "")):
        return HttpResponse(status=304, headers={"ETag": etag})
    return HttpResponse(body, content_type="application/json", headers={"ETag": etag, "Cache-Control": "no-cache"})


class SwaggerPage(SpectacularSwaggerSplitView):
    """Scripts and styles come from this server's own static files, none stands in the page itself."""

    url = OPENAPI_PATH
    template_name = "tasks_app/docs/swagger.html"


@require_safe
def errors_page(request: HttpRequest) -> HttpResponse:
    rows = [
        {"code": code, "status": STATUS[code], "meaning": meaning, "advice": advice}
        for code, (meaning, advice) in _GUIDE.items()
    ]
    return render(request, "tasks_app/docs/errors.html", {"rows": rows})
