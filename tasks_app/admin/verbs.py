"""A verb of the operators' site: a named action with a right, words, a form and the domain function that it runs.

A verb has a page of its own. GET draws what would happen beside the evidence and changes nothing; POST acts. What the
operator saw goes along in `seen`: if the object is different by then, nothing is done and the page is drawn again with
what changed. `key` is made when the page is drawn, so that a form sent twice acts once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog
from django import forms
from django.db.models import Model
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminTextareaWidget

from tasks_app.domain.operators import Operator, Right
from tasks_app.limits import REASON_LENGTH_MAX

Words = str | Promise


def operator_of_request(request: HttpRequest) -> Operator:
    """The user of a request with the rights that they have at this moment."""
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    user: Any = request.user
    return Operator(user.get_username(), frozenset(user.get_all_permissions()), request_id)


class VerbForm(forms.Form):
    """What every verb's form carries."""

    seen = forms.CharField(widget=forms.HiddenInput, required=False)
    key = forms.CharField(widget=forms.HiddenInput, max_length=64)

    def __init__(self, *args: Any, target: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.target = target
        self.initial.setdefault("key", str(uuid.uuid4()))


class ReasonForm(VerbForm):
    """For what is not reversible, or what the next person must understand."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_LENGTH_MAX,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("Stays in the audit trail, with your name."),
    )


@dataclass(frozen=True)
class Outcome:
    """What to tell the operator; `secret` is shown once, in the answer to this POST alone."""

    message: Words
    secret: str | None = None


@dataclass(frozen=True)
class Verb:
    """`run(operator, object, cleaned form)` calls the domain; `seen` gives what is guarded, as text for people."""

    name: str
    title: Words
    effect: Words
    right: Right
    run: Callable[[Operator, Any, dict[str, Any]], Outcome]
    form: type[VerbForm] = ReasonForm
    fits: Callable[[Any], bool] = field(default=lambda target: True)
    seen: Callable[[Any], str] = field(default=lambda target: "")
    is_dangerous: bool = False

    def fits_and_may(self, operator: Operator, target: Model) -> bool:
        return operator.may(self.right) and self.fits(target)
