"""The operators' pages of the lifecycle: what they show, and that a wrong click can do no harm (design 4.8, 5.4)."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from lifecycle_app.composition import configured_upstream
from lifecycle_app.domain import favorites
from lifecycle_app.models import OperationIntent
from lifecycle_app.states import DECISIONS, Decision, IntentState
from tests.lifecycle_app.site import Site, progress, rows_of

GID = 7
LIST = "admin:lifecycle_app_operationintent_changelist"
_names = itertools.count(1)


@pytest.fixture(autouse=True)
def configured(site: Site, settings: Any) -> Iterator[None]:
    configured_upstream.cache_clear()
    settings.ORBIT = dataclasses.replace(settings.ORBIT, upstream_url=site.play.adapter.url)
    yield
    configured_upstream.cache_clear()
    User.objects.filter(username__startswith="lifecycle-").delete()


def user(*permissions: str, superuser: bool = False) -> User:
    one = User.objects.create_user(f"lifecycle-{next(_names)}", is_staff=True, is_superuser=superuser)
    one.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return one


def client_of(one: User, *, language: str = "en", **more: Any) -> Client:
    client = Client(headers={"accept-language": language}, **more)
    client.force_login(one)
    return client


@pytest.fixture
def operator(site: Site) -> User:
    return user("view_operationintent", "reconcile_operationintent")


@pytest.fixture
def client(operator: User) -> Client:
    return client_of(operator)


def decide_address(intent: OperationIntent, decision: Decision) -> str:
    return reverse("admin:lifecycle_app_operationintent_decide", args=[intent.intent_id, decision.value])


def detail_address(intent: OperationIntent) -> str:
    return reverse("admin:lifecycle_app_operationintent_change", args=[intent.intent_id])


def said(intent: OperationIntent, **more: Any) -> dict[str, Any]:
    return {
        "operation_id": intent.operation_id, "state": intent.state, "reason": "I looked", "checked": "on", **more,
    }  # fmt: skip


def text(response: Any) -> str:
    return response.content.decode()


class TestLooking:
    def test_the_list_shows_what_waits_for_a_decision_oldest_first(self, site: Site, client: Client):
        for gid in (3, 1):
            site.unknown(gid)
        site.submitted(2)
        site.submitted(4)
        site.delete(4)
        shown = re.findall(r'class="field-gid[^>]*>.*?>(\d+)<', text(client.get(reverse(LIST))), re.S)
        assert shown == ["3", "1", "4"]
        everything = text(client.get(reverse(LIST), {"waiting": "all"}))
        assert len(re.findall(r'class="field-gid', everything)) == 4

    def test_an_intent_is_shown_with_its_evidence_and_the_decisions_that_fit(self, site: Site, client: Client):
        intent = site.unknown(GID, "error_after_effect")
        site.report(site.connect(), progress(GID, intent.operation_id, 4), revision=3)
        page = text(client.get(detail_address(intent)))
        assert "POST /submissions" in page and "503" in page
        assert "a storage node reported" in page
        for decision in Decision:
            assert (decide_address(intent, decision) in page) == (decision in DECISIONS[IntentState.UNKNOWN])

    @pytest.mark.parametrize(("language", "word"), [("en", "Submission unknown"), ("zh-hans", "提交未知")])
    def test_statuses_are_shown_in_the_readers_language(self, site: Site, operator: User, language, word):
        site.unknown(GID)
        assert word in text(client_of(operator, language=language).get(reverse(LIST)))

    def test_evidence_is_text_whatever_the_upstream_or_a_node_said(self, site: Site, client: Client):
        intent = site.submitted(GID)
        node = site.connect("<b>node</b>")
        site.told(node)
        from tests.lifecycle_app.site import failure

        site.report(node, failure(GID, site.delete(GID).delete_operation_id, "<script>alert(1)</script>"))
        page = text(client.get(detail_address(intent)))
        assert "<script>alert(1)" not in page and "&lt;script&gt;" in page
        assert "<b>node</b>" not in page

    def test_every_page_of_every_model_opens(self, site: Site):
        everything = client_of(user(superuser=True))
        site.limit(5)
        intent = site.submitted(GID)
        favorites.add(site.namespace_id, GID, "ana")
        node = site.connect()
        site.told(node)
        site.report(node, progress(GID, intent.operation_id, 1))
        for model in apps.get_app_config("lifecycle_app").get_models():
            name = f"admin:lifecycle_app_{model._meta.model_name}"
            assert everything.get(reverse(f"{name}_changelist")).status_code == 200
            row = model._default_manager.first()
            if row is not None:
                assert everything.get(reverse(f"{name}_change", args=[row.pk])).status_code == 200


class TestNothingElseTouchesTheRows:
    @pytest.mark.parametrize("model", [m.__name__ for m in apps.get_app_config("lifecycle_app").get_models()])
    def test_no_form_adds_changes_or_deletes(self, site: Site, model: str):
        site.unknown(GID)
        site.connect()
        everything = client_of(user(superuser=True))
        kind = apps.get_model("lifecycle_app", model)
        name = f"admin:lifecycle_app_{kind._meta.model_name}"
        assert everything.post(reverse(f"{name}_add"), {}).status_code == 403
        row = kind._default_manager.first()
        if row is None:
            return
        before = rows_of(kind._meta.db_table)
        assert everything.post(reverse(f"{name}_change", args=[row.pk]), {"state": "DELETED"}).status_code == 403
        assert everything.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
        everything.post(reverse(f"{name}_changelist"), {"action": "delete_selected", "_selected_action": [row.pk]})
        assert rows_of(kind._meta.db_table) == before


class TestDeciding:
    @pytest.mark.parametrize("decision", list(Decision))
    def test_a_get_changes_nothing(self, site: Site, client: Client, decision: Decision):
        intent = site.unknown(GID)
        before = rows_of("orbit_operation_intent"), rows_of("orbit_lifecycle_task"), site.play.asked()
        page = text(client.get(decide_address(intent, decision)))
        assert (rows_of("orbit_operation_intent"), rows_of("orbit_lifecycle_task"), site.play.asked()) == before
        assert ('<form method="post" novalidate' in page) == (decision in DECISIONS[IntentState.UNKNOWN])

    def test_without_the_csrf_token_nothing_happens(self, site: Site, operator: User):
        intent = site.unknown(GID)
        strict = client_of(operator, enforce_csrf_checks=True)
        assert strict.post(decide_address(intent, Decision.NOT_SUBMITTED), said(intent)).status_code == 403
        assert site.state(GID) == "UNKNOWN"

    @pytest.mark.parametrize("lacking", [{"reason": ""}, {"reason": "   "}, {"checked": ""}, {"reason": "x" * 1001}])
    @pytest.mark.parametrize("decision", [Decision.SUBMITTED, Decision.NOT_SUBMITTED])
    def test_without_a_reason_and_a_tick_nothing_happens(self, site: Site, client: Client, decision, lacking):
        intent = site.unknown(GID)
        sent = {key: value for key, value in said(intent, **lacking).items() if value != "" or key != "checked"}
        response = client.post(decide_address(intent, decision), sent)
        assert response.status_code == 200
        assert site.state(GID) == "UNKNOWN"
        assert site.used() == 0

    def test_submitted_meters_once_however_often_the_button_is_pressed(
        self, site: Site, client: Client, operator: User
    ):
        intent = site.unknown(GID)
        for _ in range(3):
            client.post(decide_address(intent, Decision.SUBMITTED), said(intent), follow=True)
        assert site.state(GID) == "SUBMITTED"
        assert site.used() == 1
        assert site.play.submits(GID) == 1
        (entry,) = rows_of("orbit_audit_entry", "action = 'operation.reconcile'")
        assert (entry.actor_kind, entry.actor, entry.reason) == ("USER", operator.username, "I looked")

    def test_not_submitted_forgets_it_and_goes_back_to_the_list(self, site: Site, client: Client):
        intent = site.unknown(GID)
        response = client.post(decide_address(intent, Decision.NOT_SUBMITTED), said(intent))
        assert response.status_code == 302 and response["Location"] == reverse(LIST)
        assert not site.has_intent(GID)
        late = client.post(decide_address(intent, Decision.NOT_SUBMITTED), said(intent), follow=True)
        assert "not there any more" in text(late)

    def test_a_look_up_shows_what_the_upstream_said_and_warns_before_forgetting(self, site: Site, client: Client):
        intent = site.unknown(GID, "drop_after_effect")
        sent = {key: value for key, value in said(intent).items() if key != "checked"}
        page = text(client.post(decide_address(intent, Decision.LOOKUP), sent, follow=True))
        assert "The upstream knows this gid." in page
        assert site.state(GID) == "UNKNOWN"
        assert "it does know this gid" in text(client.get(decide_address(intent, Decision.NOT_SUBMITTED)))
        assert "it does know this gid" not in text(client.get(decide_address(intent, Decision.SUBMITTED)))

    def test_a_stale_view_is_drawn_again_with_what_changed(self, site: Site, client: Client):
        intent = site.unknown(GID)
        site.reconcile(GID, Decision.SUBMITTED)
        page = text(client.post(decide_address(intent, Decision.NOT_SUBMITTED), said(intent)))
        assert "it was Unknown and is Submitted now. Nothing was done." in page
        assert "does not fit the state" in page
        assert site.state(GID) == "SUBMITTED"

    def test_a_later_generation_is_not_decided_by_a_view_of_an_earlier_one(self, site: Site, client: Client):
        site.deleted(GID)
        first = site.unknown(GID)
        site.reconcile(GID, Decision.NOT_SUBMITTED)
        second = site.unknown(GID)
        assert first.intent_id == second.intent_id
        page = text(client.post(decide_address(first, Decision.NOT_SUBMITTED), said(first)))
        assert "Nothing was done" in page
        assert second.operation_id in page
        assert site.state(GID) == "UNKNOWN"
        client.post(decide_address(second, Decision.NOT_SUBMITTED), said(second))
        assert site.state(GID) == "DELETED"

    def test_what_the_domain_refuses_is_said(self, site: Site, client: Client):
        intent = site.submitted(GID)
        page = text(client.post(decide_address(intent, Decision.REASSIGN), said(intent)))
        assert "no other storage node" in page

    def test_an_unknown_decision_is_not_found(self, site: Site, client: Client):
        intent = site.unknown(GID)
        address = decide_address(intent, Decision.LOOKUP).replace("LOOKUP", "FORGET")
        assert client.get(address).status_code == 404


class TestRights:
    def test_who_may_only_look_decides_nothing(self, site: Site):
        intent = site.unknown(GID)
        viewer = client_of(user("view_operationintent"))
        assert viewer.get(reverse(LIST)).status_code == 200
        for method in (viewer.get, viewer.post):
            assert method(decide_address(intent, Decision.NOT_SUBMITTED), said(intent)).status_code == 403
        assert site.state(GID) == "UNKNOWN"

    def test_who_may_not_look_sees_nothing(self, site: Site):
        intent = site.unknown(GID)
        stranger = client_of(user())
        assert stranger.get(reverse(LIST)).status_code == 403
        assert stranger.get(detail_address(intent)).status_code in (302, 403)

    def test_without_a_login_there_is_only_the_login_page(self, site: Site):
        intent = site.unknown(GID)
        response = Client().post(decide_address(intent, Decision.NOT_SUBMITTED), said(intent))
        assert response.status_code == 302 and "/login/" in response["Location"]
        assert site.state(GID) == "UNKNOWN"


@pytest.mark.parametrize("decision", list(Decision))
def test_every_decision_is_explained_in_chinese_too(site: Site, operator: User, decision: Decision):
    from django.utils import translation

    from lifecycle_app.admin.decisions import WORDS

    intent = site.unknown(GID)
    client = client_of(operator, language="zh-hans")
    page = text(client.get(decide_address(intent, decision)))
    for words in (WORDS[decision].title, WORDS[decision].effect):
        with translation.override("en"):
            english = str(words)
        with translation.override("zh-hans"):
            chinese = str(words)
        assert chinese != english
        assert english not in page
    with translation.override("zh-hans"):
        assert str(WORDS[decision].title) in page
