"""The audit trail: who did what to which object and why; searched, and exported as CSV or JSON Lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any, Final

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET

from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.admin.verbs import operator_of_request
from tasks_app.domain.operators import Right
from tasks_app.models import AuditEntry

EXPORTED_COLUMNS: Final = tuple(field.attname for field in AuditEntry._meta.fields)
_PAGE: Final = 500
_SPREADSHEET_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@admin.register(AuditEntry)
class AuditEntryAdmin(OrbitModelAdmin):
    list_display = ("created_at", "actor_kind", "actor", "action", "object_type", "object_id", "reason")
    list_filter = ("actor_kind",)
    search_fields = ("=object_id", "=actor", "=action", "=request_id")
    ordering = ("-audit_id",)
    list_before_template = "orbit/audit_export.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_GET(self.export_view))
        return [path("export/<slug:form>/", view, name="tasks_app_auditentry_export"), *super().get_urls()]

    def export_view(self, request: HttpRequest, form: str) -> HttpResponse | StreamingHttpResponse:
        """Everything that the query string narrows the list to, oldest first, in pages by primary key."""
        if not operator_of_request(request).may(Right.EXPORT_AUDIT):
            raise PermissionDenied
        writer = {"csv": _csv_lines, "jsonl": _json_lines}.get(form)
        if writer is None:
            raise Http404
        narrowed = {name: request.GET[name] for name in ("actor", "action", "object_id") if request.GET.get(name)}
        response = StreamingHttpResponse(
            writer(_rows(narrowed)),
            content_type="text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson",
        )
        response["Content-Disposition"] = f'attachment; filename="orbit-audit.{form}"'
        return response


def _rows(narrowed: dict[str, str]) -> Iterator[dict[str, Any]]:
    last = ""
    while True:
        page = AuditEntry.objects.filter(audit_id__gt=last, **narrowed).order_by("audit_id")
        rows = list(page.values(*EXPORTED_COLUMNS)[:_PAGE])
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1]["audit_id"]


class _Line:
    """What `csv` writes into: each line is handed on at once."""

    def write(self, line: str) -> str:
        return line


def _csv_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    writer: Any = csv.writer(_Line())
    yield writer.writerow(EXPORTED_COLUMNS)
    for row in rows:
        yield writer.writerow([_safe_cell(row[name]) for name in EXPORTED_COLUMNS])


def _safe_cell(value: Any) -> str:
    """Text that a spreadsheet would run as a formula is marked as text: reasons come from people and programs."""
    text = "" if value is None else value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f"'{text}" if text.startswith(_SPREADSHEET_FORMULA) else text


def _json_lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row, ensure_ascii=False, default=lambda value: value.isoformat()) + "\n"
