"""Credentials: what they may do in words, when they were used; issue (shown once), rotate, revoke."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminIntegerFieldWidget

from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.admin.pages import NamespaceAdmin
from tasks_app.admin.verbs import Outcome, ReasonForm, Verb, VerbForm
from tasks_app.domain import operators
from tasks_app.domain.operators import Operator, Right
from tasks_app.models import Credential, Namespace, Queue
from tasks_app.states import Action

OVERLAP_SECONDS_DEFAULT = 24 * 3600
OVERLAP_SECONDS_MAX = 90 * 24 * 3600


class IssueForm(VerbForm):
    actions = forms.MultipleChoiceField(
        label=_("Actions"),
        choices=[(action, action) for action in Action.values],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )
    queues = forms.MultipleChoiceField(
        label=_("Queues"),
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=_("None chosen: every queue of the namespace, also those that are made later."),
    )
    expires_in_days = forms.IntegerField(
        label=_("Valid for so many days"),
        required=False,
        min_value=1,
        max_value=3650,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=_("Empty: until it is revoked."),
    )

    def __init__(self, *args: Any, target: Namespace | None = None, **kwargs: Any) -> None:
        super().__init__(*args, target=target, **kwargs)
        if target is not None:
            found = Queue.objects.filter(namespace_id=target.namespace_id).order_by("name")
            scope: Any = self.fields["queues"]
            scope.choices = list(found.values_list("queue_id", "name"))


class RotateForm(VerbForm):
    overlap_seconds = forms.IntegerField(
        label=_("Overlap in seconds"),
        min_value=0,
        max_value=OVERLAP_SECONDS_MAX,
        initial=OVERLAP_SECONDS_DEFAULT,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=_("So long the old token stays valid beside the new one."),
    )


def _issue(operator: Operator, namespace: Namespace, said: dict[str, Any]) -> Outcome:
    days = said["expires_in_days"]
    issued = operators.issue(
        operator,
        namespace.namespace_id,
        actions=said["actions"],
        queue_ids=said["queues"] or None,
        expires_in=None if days is None else days * 24 * 3600,
    )
    return Outcome(_("Credential %(id)s was issued.") % {"id": issued.credential_id}, issued.token)


def _rotate(operator: Operator, credential: Credential, said: dict[str, Any]) -> Outcome:
    issued = operators.rotate(operator, credential.credential_id, overlap_seconds=said["overlap_seconds"])
    return Outcome(_("Credential %(id)s takes its place.") % {"id": issued.credential_id}, issued.token)


def _revoke(operator: Operator, credential: Credential, said: dict[str, Any]) -> Outcome:
    operators.revoke(operator, credential.credential_id, reason=said["reason"])
    return Outcome(_("Revoked. Nobody gets in with it any more."))


def _is_usable(credential: Credential) -> bool:
    return credential.revoked_at is None and credential.rotated_to is None


def _seen(credential: Credential) -> str:
    state = "revoked" if credential.revoked_at else "rotated" if credential.rotated_to else "valid"
    return f"{credential.token_prefix} · {state}"


NamespaceAdmin.verbs = (
    Verb(
        name="issue-credential",
        title=_("Issue a credential"),
        effect=_("Whoever holds the token may do what is chosen here, in this namespace alone."),
        right=Right.MANAGE_CREDENTIALS,
        form=IssueForm,
        run=_issue,
    ),
)


@admin.register(Credential)
class CredentialAdmin(OrbitModelAdmin):
    list_display = ("token_prefix", "namespace", "actions", "expires_at", "revoked_at", "last_used_at", "created_at")
    list_select_related = ("namespace",)
    search_fields = ("=credential_id", "^token_prefix")
    hidden_fields = ("token_digest",)
    panel_template = "orbit/credential.html"
    verbs = (
        Verb(
            name="rotate",
            title=_("Rotate"),
            effect=_("A new token with the same rights is issued. The old one ends after the overlap."),
            right=Right.MANAGE_CREDENTIALS,
            form=RotateForm,
            run=_rotate,
            fits=_is_usable,
            seen=_seen,
        ),
        Verb(
            name="revoke",
            title=_("Revoke"),
            effect=_("The token stops working at once, for clients and workers alike. This cannot be undone."),
            right=Right.MANAGE_CREDENTIALS,
            form=ReasonForm,
            run=_revoke,
            fits=lambda credential: credential.revoked_at is None,
            seen=_seen,
            is_dangerous=True,
        ),
    )

    def panel(self, target: Credential, operator: Operator) -> dict[str, Any]:
        scope = Queue.objects.filter(credentialqueue__credential_id=target.credential_id).order_by("name")
        return {"scope": None if target.all_queues else list(scope), "allowed": target.actions.split()}
