"""Every verb of the operators' site, walked: rights, POST only, what was seen, the reason, the audit, one effect."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User

from tasks_app.admin.base import OrbitModelAdmin
from tasks_app.admin.verbs import ReasonForm
from tasks_app.domain import operators
from tasks_app.domain.operators import Operator, Right
from tasks_app.domain.reconciliation import Decision, Verdict
from tasks_app.domain.replays import SelectionOrder
from tasks_app.errors import PermissionDenied
from tasks_app.models import Credential, Task
from tests.admin.world import CASES, GROUPS, World, address, detail, form_of, pages, task, verbs
from tests.tasks_app.factories import reconcile, rows_of, snapshot

OUTSIDE = {"auth"}  # users and groups: Django's own


def audited(action: str) -> list[Any]:
    return rows_of("orbit_audit_entry", "action = %s AND actor_kind = 'USER'", [action])


def everything() -> dict[str, list[Any]]:
    return snapshot() | {"plans": rows_of("orbit_plan"), "credentials": rows_of("orbit_credential")}


class TestTheWalk:
    def test_every_verb_has_a_case_here(self):
        assert set(verbs()) == set(CASES)

    def test_every_page_of_the_site_is_read_only_by_its_base_class(self):
        for model, page in admin.site._registry.items():
            if model._meta.app_label in OUTSIDE:
                continue
            assert isinstance(page, OrbitModelAdmin), model
            assert not page.list_editable and not page.inlines and page.actions is None, model
            for name in ("actions_list", "actions_row", "actions_detail", "actions_submit_line"):
                assert not getattr(page, name, ()), f"{model}: {name} would act by GET"
            for name in ("has_add_permission", "has_change_permission", "has_delete_permission"):
                assert getattr(type(page), name) is getattr(OrbitModelAdmin, name), model

    def test_every_right_is_a_permission_that_exists(self, database: None):
        boss = User(username="boss", is_superuser=True, is_active=True)
        assert {right.value for right in Right} <= boss.get_all_permissions()

    @pytest.mark.parametrize("name", sorted(CASES))
    def test_every_verb_has_words(self, name: str):
        _, verb = verbs()[name]
        assert str(verb.title) and len(str(verb.effect)) > 20

    def test_what_is_dangerous_asks_for_a_reason(self):
        for name, (_, verb) in verbs().items():
            assert not verb.is_dangerous or issubclass(verb.form, ReasonForm), name


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", sorted(CASES))
class TestEveryVerbAndEveryGroup:
    def test_who_may_does_it_and_is_named_and_who_may_not_changes_nothing(self, world: World, client_of, name, group):
        case = CASES[name]
        target = case.make(world)
        client = client_of(group)
        if group in case.groups:
            response = client.post(address(name, target), form_of(client, name, target))
            assert response.status_code in (200, 302), response.content
            entries = audited(case.audited_as)
            assert [entry.actor for entry in entries] == [client.user.username]
            if "reason" in case.said:
                assert entries[0].reason == case.said["reason"]
            return
        before = everything()
        allowed = client_of("admin")
        said = form_of(allowed, name, target)
        for response in (client.get(address(name, target)), client.post(address(name, target), said)):
            assert response.status_code == 403
        assert everything() == before

    def test_the_button_is_shown_to_who_may_and_to_nobody_else(self, world: World, client_of, name, group):
        target = CASES[name].make(world)
        response = client_of(group).get(detail(target))
        if group == "viewer" and response.status_code == 403:
            return  # not even the page
        shown = response.status_code == 200 and address(name, target) in response.content.decode()
        assert shown == (group in CASES[name].groups)


@pytest.mark.parametrize("name", sorted(CASES))
class TestEveryVerb:
    def test_a_get_changes_nothing(self, world: World, client_of, name):
        target = CASES[name].make(world)
        client = client_of("admin")
        before = everything()
        assert client.get(address(name, target), CASES[name].said).status_code == 200
        assert everything() == before

    def test_without_the_csrf_token_nothing_happens(self, world: World, client_of, name):
        target = CASES[name].make(world)
        strict = client_of("admin", enforce_csrf_checks=True)
        said = form_of(strict, name, target)
        before = everything()
        assert strict.post(address(name, target), said).status_code == 403
        assert everything() == before

    def test_without_its_reason_nothing_happens(self, world: World, client_of, name):
        if "reason" not in CASES[name].said:
            return
        target = CASES[name].make(world)
        client = client_of("admin")
        said = form_of(client, name, target)
        before = everything()
        for reason in ("", "   ", "x" * 1001):
            assert client.post(address(name, target), {**said, "reason": reason}).status_code == 200
        assert everything() == before

    def test_what_was_seen_and_is_no_more_is_drawn_again(self, world: World, client_of, name):
        _, verb = verbs()[name]
        target = CASES[name].make(world)
        if not verb.seen(target):
            return
        client = client_of("admin")
        said = form_of(client, name, target)
        before = everything()
        page = client.post(address(name, target), {**said, "seen": "something else · 99"})
        assert "It changed while you were looking" in page.content.decode()
        assert everything() == before

    def test_sent_twice_it_acts_once(self, world: World, client_of, name):
        if name in ("namespace.issue-credential", "credential.rotate"):
            return  # each POST gives a token of its own: there is nothing to show again; see below
        target = CASES[name].make(world)
        client = client_of("admin")
        said = form_of(client, name, target)
        client.post(address(name, target), said)
        entries = len(audited(CASES[name].audited_as))
        tasks = Task.objects.count()
        client.post(address(name, target), said)
        assert len(audited(CASES[name].audited_as)) == entries
        assert Task.objects.count() == tasks


class TestReconcile:
    def test_a_decision_on_an_older_view_is_refused_by_the_locked_row(self, world: World, client_of):
        seen = world.unknown()
        operator = Operator("ana", frozenset({Right.RECONCILE.value}))
        reconcile(world.tenant, seen.task_id, Decision.SUCCEEDED)
        with pytest.raises(Exception, match="UNKNOWN"):
            operators.reconcile_task(operator, seen.task_id, Verdict(Decision.RETRY, "late"), revision=seen.revision)
        assert task(seen.task_id).state == "SUCCEEDED"

    def test_the_result_is_kept_digit_by_digit(self, world: World, client_of):
        client = client_of("operator")
        seen = world.unknown()
        said = form_of(client, "task.reconcile", seen)
        raw = '{"n": 12345678901234567890.10}'
        client.post(address("task.reconcile", seen), {**said, "decision": "SUCCEEDED", "result": raw})
        assert task(seen.task_id).result == raw

    @pytest.mark.parametrize("result", ['{"a": 1, "a": 2}', "{", "NaN"])
    def test_a_result_that_is_no_strict_json_is_refused(self, world: World, client_of, result):
        client = client_of("operator")
        seen = world.unknown()
        said = form_of(client, "task.reconcile", seen)
        client.post(address("task.reconcile", seen), {**said, "decision": "SUCCEEDED", "result": result})
        assert task(seen.task_id).state == "UNKNOWN"

    def test_the_evidence_stands_beside_the_form(self, world: World, client_of):
        page = client_of("operator").get(address("task.reconcile", world.unknown())).content.decode()
        assert "Attempts" in page and "Lost" in page and "LOST" not in page


class TestTokens:
    def test_a_token_is_shown_once_and_kept_nowhere(self, world: World, client_of):
        client = client_of("admin")
        target = world.namespace()
        name = "namespace.issue-credential"
        response = client.post(address(name, target), form_of(client, name, target))
        token = re.search(r"orbit_[\w-]{20,}", response.content.decode())
        assert token is not None
        assert "no-store" in response["Cache-Control"]
        assert token[0] not in client.get(detail(target)).content.decode()
        assert token[0] not in "".join(map(repr, rows_of("django_session") + rows_of("orbit_audit_entry")))

    def test_a_rotated_credential_is_not_rotated_again(self, world: World, client_of):
        client = client_of("admin")
        target = world.credential()
        said = form_of(client, "credential.rotate", target)
        client.post(address("credential.rotate", target), said)
        client.post(address("credential.rotate", target), said)
        assert Credential.objects.filter(rotated_to__isnull=False).count() == 1
        assert len(audited("credential.rotate")) == 1


ORDERS = {
    "cancel": lambda who, w: operators.cancel_task(who, w.ready().task_id, revision=1, reason="r"),
    "reconcile": lambda who, w: operators.reconcile_task(
        who, w.unknown().task_id, Verdict(Decision.FAILED, "r"), revision=1
    ),
    "replay": lambda who, w: operators.replay_task(who, w.failed().task_id, key="k"),
    "dismiss": lambda who, w: operators.dismiss_task(who, w.failed().task_id, revision=1, reason="r"),
    "freeze": lambda who, w: operators.freeze_selection(
        who, w.tenant.namespace_id, SelectionOrder(w.tenant.queue_id), key="k", reason="r"
    ),
    "replay many": lambda who, w: operators.replay_selection(
        who, w.tenant.namespace_id, SelectionOrder(w.tenant.queue_id), key="k", is_over=lambda: False
    ),
    "pause": lambda who, w: operators.pause_queue(who, w.tenant.queue_id, reason="r"),
    "resume": lambda who, w: operators.resume_queue(who, w.tenant.queue_id),
    "limits": lambda who, w: operators.change_queue(who, w.tenant.queue_id, {}, revision=1),
    "quotas": lambda who, w: operators.change_application(who, w.tenant.application_id, {}, seen={}),
    "pause plan": lambda who, w: operators.pause_plan(who, w.tenant.namespace_id, "p", reason="r"),
    "resume plan": lambda who, w: operators.resume_plan(who, w.tenant.namespace_id, "p", reason="r"),
    "trigger plan": lambda who, w: operators.trigger_plan(who, w.tenant.namespace_id, "p", key="k"),
    "issue": lambda who, w: operators.issue(
        who, w.tenant.namespace_id, actions=["tasks:read"], queue_ids=None, expires_in=None
    ),
    "rotate": lambda who, w: operators.rotate(who, w.tenant.credential_id, overlap_seconds=1),
    "revoke": lambda who, w: operators.revoke(who, w.tenant.credential_id, reason="r"),
}


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_the_domain_refuses_an_operator_without_the_right(world: World, order: str):
    nobody = Operator("nobody", frozenset())
    with pytest.raises(PermissionDenied, match="groups"):
        ORDERS[order](nobody, world)
    assert not rows_of("orbit_audit_entry", "actor = 'nobody'")


def test_pages_exist_for_every_model_of_tasks_app():
    from django.apps import apps

    assert {page.model for page in pages()} >= set(apps.get_app_config("tasks_app").get_models())
