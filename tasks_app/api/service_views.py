"""Probes and metrics (design 1.8). A node answers `/healthz`, and `/readyz` while it drains, before they come here."""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tasks_app import readiness
from tasks_app.api.errors import refusal_response
from tasks_app.errors import NotFound


@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """The process is up. Never asks the database: a node whose database hangs is slow, not dead."""
    return _status({"status": "ok"}, 200)


@require_safe
def ready(request: HttpRequest) -> HttpResponse:
    """Requests may be sent here; else 503 and why. `?verbose` lists every check."""
    found = readiness.findings()
    reasons = [f"{finding.name}: {finding.problem}" for finding in found if finding.problem is not None]
    document: dict[str, Any] = {"status": "unavailable", "reasons": reasons} if reasons else {"status": "ok"}
    if "verbose" in request.GET:
        document["checks"] = {finding.name: finding.problem or "ok" for finding in found}
    return _status(document, 503 if reasons else 200)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus: open on loopback, elsewhere only with the token; without it the page does not exist."""
    if not _is_loopback(request.META.get("REMOTE_ADDR", "")) and not _has_token(request):
        return refusal_response(request, NotFound("no such path"))
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


def _status(document: dict[str, Any], status: int) -> HttpResponse:
    return JsonResponse(document, status=status, headers={"Cache-Control": "no-store"})


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _has_token(request: HttpRequest) -> bool:
    token: str | None = settings.ORBIT.metrics_token
    sent = request.headers.get("Authorization", "")
    return token is not None and hmac.compare_digest(sent.encode(), f"Bearer {token}".encode())
