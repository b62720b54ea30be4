"""The one base class of every page about rows: they are looked at, never edited, never counted over millions.

Nothing can be added, changed or deleted through a form; what an operator may do is a named action (to come with the
operators' site) that runs the domain function.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator


class OrbitModelAdmin(ModelAdmin):
    list_per_page = 50
    show_full_result_count = False
    paginator = InfinitePaginator
    list_fullwidth = True
    actions = None
    hidden_fields: tuple[str, ...] = ()  # columns that nobody needs to see, such as digests

    def get_readonly_fields(self, request: HttpRequest, obj: models.Model | None = None) -> list[str]:
        return self.get_fields(request, obj)

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> list[str]:
        return [field.name for field in self.model._meta.fields if field.name not in self.hidden_fields]

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False
