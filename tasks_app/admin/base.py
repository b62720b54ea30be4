"""The one base class of every page about rows: they are looked at, never edited, never counted over millions.

Nothing can be added, changed or deleted through a form. What an operator may do is a `Verb`: a page of its own that
checks the right, shows what would happen, and acts by POST only (see `verbs.py`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator

from tasks_app.admin.verbs import Outcome, Verb, VerbForm, operator_of_request
from tasks_app.admin.words import name_model
from tasks_app.domain.operators import Operator, Right
from tasks_app.errors import OrbitError, RevisionConflict
from tasks_app.errors import PermissionDenied as RightMissing


class OrbitModelAdmin(ModelAdmin):
    list_per_page = 50
    show_full_result_count = False
    paginator = InfinitePaginator
    list_fullwidth = True
    actions = None
    hidden_fields: tuple[str, ...] = ()  # columns that nobody needs to see, such as digests
    payload_fields: tuple[str, ...] = ()  # columns that only the right to read payloads shows
    change_form_outer_before_template = "orbit/panel.html"

    verbs: ClassVar[tuple[Verb, ...]] = ()
    panel_template: str | None = None  # what stands above the columns of one object
    evidence_template: str | None = None  # what stands beside the form of a verb; the panel, unless there is one

    def __init__(self, model: type[models.Model], admin_site: admin.AdminSite) -> None:
        name_model(model)
        super().__init__(model, admin_site)

    # -- Rows are read-only

    def get_readonly_fields(self, request: HttpRequest, obj: models.Model | None = None) -> list[str]:
        return self.get_fields(request, obj)

    def get_fields(self, request: HttpRequest, obj: models.Model | None = None) -> list[str]:
        hidden = set(self.hidden_fields)
        if self.payload_fields and not operator_of_request(request).may(Right.READ_PAYLOAD):
            hidden |= set(self.payload_fields)
        return [field.name for field in self.model._meta.fields if field.name not in hidden]

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    # -- One object: its panel and the verbs that fit it

    def panel(self, target: Any, operator: Operator) -> dict[str, Any]:
        """What the panel's template needs; pages override it."""
        return {}

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        target = None if object_id is None else self.get_object(request, object_id)
        more: dict[str, Any] = {}
        if target is not None and self.has_view_permission(request, target):
            operator = operator_of_request(request)
            buttons = [
                (verb, self.verb_address(target, verb)) for verb in self.verbs if verb.fits_and_may(operator, target)
            ]
            more = {
                "target": target,
                "verb_buttons": buttons,
                "panel_template": self.panel_template,
                **self.panel(target, operator),
            }
        return super().changeform_view(request, object_id, form_url, {**more, **(extra_context or {})})

    def verb_address(self, target: models.Model, verb: Verb) -> str:
        return reverse(f"admin:{self._verb_url_name}", args=[target.pk, verb.name])

    def address_of(self, target: models.Model) -> str:
        meta = self.model._meta
        return reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[target.pk])

    @property
    def _verb_url_name(self) -> str:
        return f"{self.model._meta.app_label}_{self.model._meta.model_name}_verb"

    def get_urls(self) -> list[URLPattern]:
        verb = path(
            "<path:object_id>/do/<slug:verb>/", self.admin_site.admin_view(self.verb_view), name=self._verb_url_name
        )
        return [verb, *super().get_urls()]

    # -- The page of a verb

    def verb_view(self, request: HttpRequest, object_id: str, verb: str) -> HttpResponse:
        """GET shows what would happen and changes nothing. POST acts."""
        chosen = next((one for one in self.verbs if one.name == verb), None)
        if chosen is None:
            raise Http404
        operator = operator_of_request(request)
        if not operator.may(chosen.right) or not self.has_view_permission(request):
            raise PermissionDenied
        target: Any = self.get_object(request, object_id)
        if target is None:
            messages.warning(request, _("It is not there any more."))
            return redirect(f"admin:{self.model._meta.app_label}_{self.model._meta.model_name}_changelist")
        if request.method != "POST":
            return self._verb_page(request, operator, target, chosen, self._fresh_form(chosen, target))
        form = chosen.form(request.POST, target=target)
        if not form.is_valid():
            return self._verb_page(request, operator, target, chosen, form)
        return self._act(request, operator, target, chosen, form)

    def _act(self, request: HttpRequest, operator: Operator, target: Any, verb: Verb, form: VerbForm) -> HttpResponse:
        seen, now = form.cleaned_data["seen"], verb.seen(target)
        if seen != now:
            return self._draw_verb_again(request, operator, target, verb, form, seen)
        try:
            outcome = verb.run(operator, target, form.cleaned_data)
        except RevisionConflict:
            current = self.get_object(request, str(target.pk))
            return self._draw_verb_again(request, operator, current or target, verb, form, seen)
        except RightMissing as error:
            raise PermissionDenied from error
        except OrbitError as error:
            messages.error(request, error.message)
            return self._verb_page(request, operator, target, verb, form)
        if outcome.secret is not None:
            return self._secret_page(request, target, verb, outcome)
        messages.success(request, str(outcome.message))
        return redirect(self.address_of(target))

    def _fresh_form(self, verb: Verb, target: Any, **said: Any) -> VerbForm:
        return verb.form(initial={**said, "seen": verb.seen(target)}, target=target)

    def _draw_verb_again(
        self, request: HttpRequest, operator: Operator, target: Any, verb: Verb, form: VerbForm, seen: str
    ) -> HttpResponse:
        """Somebody or something was faster: nothing was done, and the page says what is different now."""
        changed = gettext(
            "It changed while you were looking: it was “%(seen)s” and is “%(now)s” now. Nothing was done."
        )
        messages.warning(request, changed % {"seen": seen, "now": verb.seen(target)})
        said = {name: value for name, value in form.cleaned_data.items() if name not in ("seen", "key")}
        return self._verb_page(request, operator, target, verb, self._fresh_form(verb, target, **said))

    def _verb_page(
        self, request: HttpRequest, operator: Operator, target: Any, verb: Verb, form: VerbForm
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": verb.title,
            "opts": self.model._meta,
            "target": target,
            "verb": verb,
            "form": form,
            "fits": verb.fits(target),
            "back": self.address_of(target),
            "evidence_template": self.evidence_template or self.panel_template,
            **self.panel(target, operator),
        }
        return TemplateResponse(request, "orbit/verb.html", context)

    def _secret_page(self, request: HttpRequest, target: Any, verb: Verb, outcome: Outcome) -> HttpResponse:
        """The secret stands in this answer alone: no message, no session, nothing that a cache may keep."""
        context = {
            **self.admin_site.each_context(request),
            "title": verb.title,
            "opts": self.model._meta,
            "outcome": outcome,
            "back": self.address_of(target),
        }
        # The site marks every page `no-store`, this one above all.
        return TemplateResponse(request, "orbit/secret.html", context)
