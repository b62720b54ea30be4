"""The worker protocol as documents: JSON Schema and AsyncAPI, open, and the same for as long as a node runs."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.http import parse_etags
from django.views.decorators.csrf import csrf_exempt

from tasks_app.api.errors import refusal_response
from tasks_app.errors import MethodNotAllowed
from workers_app.protocol.schema import worker_asyncapi, worker_schema


@functools.cache
def _encoded(document: Callable[[], Any]) -> tuple[bytes, str]:
    body = json.dumps(document(), ensure_ascii=False, separators=(",", ":")).encode()
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def _answer(request: HttpRequest, document: Callable[[], Any], content_type: str) -> HttpResponse:
    if request.method not in ("GET", "HEAD"):
        return refusal_response(request, MethodNotAllowed(), {"Allow": "GET, HEAD"})
    body, etag = _encoded(document)
    if etag in parse_etags(request.headers.get("If-None-Match", "")):
        return HttpResponse(status=304, headers={"ETag": etag})
    return HttpResponse(body, content_type=content_type, headers={"ETag": etag, "Cache-Control": "no-cache"})


@csrf_exempt
def worker_json_schema(request: HttpRequest) -> HttpResponse:
    """`/v1/worker-schema.json`: every message, both directions."""
    return _answer(request, worker_schema, "application/schema+json")


@csrf_exempt
def worker_asyncapi_document(request: HttpRequest) -> HttpResponse:
    """`/v1/worker-asyncapi.json`: the channel, and which message answers which."""
    return _answer(request, worker_asyncapi, "application/json")
