"""What the pages of the operators' site show, and to whom."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from tasks_app.admin import json_viewer, start_page, time_line
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.fairness import quantile
from tasks_app.domain.invariants import record_run
from tests.admin.world import World, detail, pages, task
from tests.tasks_app.factories import change_queue, due, make_queue, make_tenant, rows_of, set_columns, snapshot, submit
from workers_app.models import WorkerSession

PAYLOAD = '{"amount": 12345678901234567890.10, "text": "a\\u0000b<script>"}'


def text(response: Any) -> str:
    assert response.status_code == 200, response.content
    return response.content.decode()


class TestEveryPage:
    @pytest.mark.parametrize("language", ["en", "zh-hans"])
    def test_every_list_and_every_row_opens(self, world: World, client_of, language: str):
        world.unknown(), world.failed(), world.plan(), world.credential(), world.ready(resource_key="k")
        client = client_of("admin", language=language)
        for page in pages():
            meta = page.model._meta
            text(client.get(reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")))
            row = page.model._default_manager.first()
            if row is not None:
                text(client.get(detail(row)))

    def test_lists_count_nothing(self, world: World, client_of, django_assert_max_num_queries):
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        world.failed()
        client = client_of("viewer")
        for name in ("task", "attempt", "event", "auditentry", "idempotencyrecord"):
            with CaptureQueriesContext(
                connection,
            ) as captured:
                text(client.get(reverse(f"admin:tasks_app_{name}_changelist")))
            counting = [q["sql"] for q in captured if "COUNT(" in q["sql"].upper() and "LIMIT" not in q["sql"].upper()]
            assert not [sql for sql in counting if f"orbit_{name}" in sql], name

    def test_no_form_changes_a_row(self, world: World, client_of):
        seen = world.failed()
        client = client_of("admin")
        before = snapshot()
        for page in pages():
            meta = page.model._meta
            name = f"admin:{meta.app_label}_{meta.model_name}"
            row = page.model._default_manager.first()
            assert client.post(reverse(f"{name}_add"), {}).status_code == 403
            if row is not None and meta.model_name != "operationintent":
                assert client.post(reverse(f"{name}_change", args=[row.pk]), {"state": "READY"}).status_code == 403
                assert client.post(reverse(f"{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
            client.post(reverse(f"{name}_changelist"), {"action": "delete_selected", "_selected_action": [seen.pk]})
        assert snapshot() == before

    def test_nothing_is_loaded_from_outside_and_no_script_is_inline(self, world: World, client_of):
        client = client_of("admin")
        for address in (reverse("admin:index"), detail(world.failed()), reverse("admin:tasks_app_dead_letters")):
            response = client.get(address)
            page = text(response)
            assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
            policy = response["Content-Security-Policy"]
            assert "script-src 'self' 'unsafe-eval'" in policy and "'unsafe-inline'" not in policy.split("style-src")[0]
            own = page.split("<main")[-1] if "<main" in page else page
            assert not re.findall(r"\son\w+=", own)

    def test_strangers_get_the_login_page_alone(self, world: World):
        for address in (
            reverse("admin:index"), reverse("admin:tasks_app_dead_letters"), reverse("admin:tasks_app_queue_backlog"),
            reverse("admin:tasks_app_auditentry_export", args=["csv"]), detail(world.ready()),
        ):  # fmt: skip
            response = Client().get(address)
            assert response.status_code == 302 and "/login/" in response["Location"]


class TestStartPage:
    def tiles(self, client: Client) -> dict[str, str]:
        cache.clear()
        return {tile["name"]: tile["count"] for tile in client.get(reverse("admin:index")).context["needs"]}

    def test_it_says_what_needs_a_person_and_links_to_it(self, world: World, client_of):
        client = client_of("viewer")
        assert set(self.tiles(client).values()) == {"0"}
        assert "Everything goes on by itself" in text(client.get(reverse("admin:index")))
        world.unknown(), world.failed(), world.failed(), world.paused_queue()
        change_queue(world.tenant, max_unfinished=1)
        found = self.tiles(client)
        assert (found["unknown"], found["dead"], found["paused"], found["full"]) == ("1", "2", "1", "1")
        needs = client.get(reverse("admin:index")).context["needs"]
        for need in needs:
            text(client.get(need["address"]))
        unknown = next(need for need in needs if need["name"] == "unknown")
        assert unknown["oldest_at"] is not None

    def test_a_starving_priority_is_seen(self, world: World, client_of):
        seen = world.ready()
        client = client_of("viewer")
        assert self.tiles(client)["starving"] == "0"
        due(seen.task_id, seconds_ago=700)
        assert self.tiles(client)["starving"] == "1"
        assert "starving" in text(client.get(reverse("admin:tasks_app_queue_backlog")))

    def test_a_silent_worker_is_seen(self, world: World, client_of):
        session = make_session(world)
        client = client_of("viewer")
        WorkerSession.objects.update(seen_at=1)
        assert self.tiles(client)["workers"] == "1"
        assert "seconds ago" in text(client.get(detail(session)))
        WorkerSession.objects.all().delete()

    def test_who_may_not_look_is_not_told(self, world: World, client_of):
        world.unknown()
        assert self.tiles(client_of(rights=("view_queue",))).keys() == {"starving", "full", "paused"}

    def test_counts_stop(self, world: World, monkeypatch):
        monkeypatch.setattr("tasks_app.domain.attention.COUNTED_MAX", 1)
        world.failed(), world.failed(), world.failed()
        need = start_page.attention.tasks_needing("DEAD")
        assert need.count == 2 and need.has_more


def make_session(world: World) -> WorkerSession:
    return WorkerSession.objects.create(
        session_id="a" * 32, namespace_id=world.tenant.namespace_id, credential_id=world.tenant.credential_id,
        worker_name="w1", capacity=4, queue_ids=json.dumps([world.tenant.queue_id]), handlers='[["h", "1"]]',
        resource_keys=True, node_id="n1", connection_id="b" * 32, opened_at=1, connected_at=1, seen_at=1,
    )  # fmt: skip


class TestTaskPage:
    def test_it_says_why_it_waits(self, world: World, client_of):
        seen = world.ready()
        world.paused_queue()
        assert "Its queue is paused" in text(client_of("viewer").get(detail(seen)))

    def test_the_payload_is_shown_digit_by_digit_and_as_text(self, world: World, client_of):
        page = text(client_of("operator").get(detail(world.ready(payload=PAYLOAD))))
        assert "12345678901234567890.10" in page
        assert "a\\u0000b&lt;script&gt;" in page and "b<script>" not in page

    def test_the_payload_is_hidden_from_who_may_not_read_it(self, world: World, client_of):
        seen = world.failed(payload='{"secret": "canary-4711"}')
        pages_of_it = [detail(seen), *(detail(one) for one in seen.starts.all())]
        plan = world.plan()
        pages_of_it += [detail(plan), *(detail(one) for one in plan.version_set.all())]
        for address in pages_of_it:
            page = text(client_of("viewer").get(address))
            assert "canary-4711" not in page and "it broke" not in page and "payload_version&quot;" not in page
        assert "canary-4711" in text(client_of("operator").get(detail(seen)))

    @pytest.mark.parametrize("by", ["task_id", "key", "resource_key"])
    def test_it_is_found_by_what_people_have_in_their_hands(self, world: World, client_of, by: str):
        from tests.tasks_app.factories import accept

        accepted = accept(world.tenant, key="order-4711", resource_key="customer-1").receipt.task_id
        submit(world.tenant)
        term = {"task_id": accepted, "key": "order-4711", "resource_key": "customer-1"}[by]
        found = client_of("viewer").get(reverse("admin:tasks_app_task_changelist"), {"q": term})
        assert [row.task_id for row in found.context["cl"].result_list] == [accepted]

    def test_it_links_to_its_replay(self, world: World, client_of):
        seen = world.failed()
        new = submit(world.tenant)
        set_columns(seen.task_id, replayed_as=new)
        assert reverse("admin:tasks_app_task_change", args=[new]) in text(client_of("viewer").get(detail(seen)))


class TestDeadLetters:
    def prepare(self, client: Client, world: World, **said: Any) -> str:
        address = reverse("admin:tasks_app_dead_letters_select", args=[world.tenant.queue_id])
        response = client.post(f"{address}?handler=h", {"limit": "500", "priority": "", "reason": "fixed", **said})
        assert response.status_code == 302, response.content
        return response["Location"]

    def test_they_are_grouped_by_what_went_wrong(self, world: World, client_of):
        world.failed(), world.failed()
        (group,) = client_of("viewer").get(reverse("admin:tasks_app_dead_letters")).context["groups"]
        assert (group.count, group.handler, group.error_code) == (2, "h", "BROKEN")

    def test_a_selection_is_frozen_before_anything_is_replayed(self, world: World, client_of):
        first, second = world.failed(), world.failed()
        client = client_of("operator")
        address = self.prepare(client, world)
        third = world.failed()
        page = text(client.get(address))
        assert first.task_id in page and second.task_id in page and third.task_id not in page
        assert "0 of 2 replayed" in page
        assert task(first.task_id).replayed_as is None
        assert "2 of 2 replayed" in text(client.post(address))
        assert task(third.task_id).replayed_as is None

    def test_sent_again_it_replays_none_twice_and_leaves_one_entry(self, world: World, client_of):
        world.failed(), world.failed()
        client = client_of("operator")
        address = self.prepare(client, world)
        for _ in range(3):
            client.post(address)
        (entry,) = rows_of("orbit_audit_entry", "action = 'tasks.replay' AND object_type = 'queue'")
        assert (entry.actor, entry.reason) == (client.user.username, "fixed")
        assert len(rows_of("orbit_task")) == 4

    def test_stopped_half_way_it_goes_on_later(self, world: World, client_of, monkeypatch):
        world.failed(), world.failed(), world.failed()
        client = client_of("operator")
        address = self.prepare(client, world)
        monkeypatch.setattr("tasks_app.admin.dead_letters.STEP_SECONDS", -1.0)
        page = text(client.post(address))
        assert "0 of 3 replayed" in page and "data-orbit-follow" in page and ">Stop<" in page
        monkeypatch.undo()
        page = text(client.post(address))
        assert "3 of 3 replayed" in page and "data-orbit-follow" not in page

    def test_each_task_has_its_result(self, world: World, client_of):
        world.failed(), world.failed()
        client = client_of("operator")
        address = self.prepare(client, world)
        change_queue(world.tenant, max_unfinished=1)
        page = text(client.post(address))
        assert "1 of 2 replayed" in page and "1 refused" in page and "limit reached" in page

    @pytest.mark.parametrize("lacking", [{"reason": " "}, {"limit": "0"}, {"limit": "501"}, {"priority": "10"}])
    def test_what_is_wrong_freezes_nothing(self, world: World, client_of, lacking: dict[str, str]):
        world.failed()
        address = reverse("admin:tasks_app_dead_letters_select", args=[world.tenant.queue_id])
        before = snapshot()
        said = {"limit": "5", "priority": "", "reason": "r", **lacking}
        assert client_of("operator").post(address, said).status_code == 200
        assert snapshot() == before

    def test_a_viewer_replays_nothing(self, world: World, client_of):
        world.failed()
        address = self.prepare(client_of("operator"), world)
        viewer = client_of("viewer")
        assert viewer.post(address).status_code == viewer.get(address).status_code == 403
        assert "Replay many" not in text(viewer.get(reverse("admin:tasks_app_dead_letters")))

    def test_an_address_that_nobody_made_is_not_found(self, world: World, client_of):
        address = reverse("admin:tasks_app_dead_letters_operation", args=["made:up:by-hand"])
        assert client_of("admin").post(address).status_code == 404


class TestFairness:
    def test_it_shows_shares_of_starts_and_slots_waits_and_losses(self, world: World, client_of):
        other = World(make_tenant())
        other.started()
        world.started(), world.failed(), world.unknown()
        found = {share.application_id: share for share in self.shares(client_of)}
        mine, theirs = found[world.tenant.application_id], found[other.tenant.application_id]
        assert (mine.starts, mine.start_share, mine.running, mine.running_share, mine.lost) == (3, 75, 1, 50, 1)
        assert (theirs.starts, theirs.start_share, theirs.running_share, theirs.lost) == (1, 25, 50, 0)
        assert mine.wait_p50_ms is not None and mine.wait_p95_ms >= mine.wait_p50_ms

    def shares(self, client_of) -> Any:
        return client_of("viewer").get(reverse("admin:tasks_app_fairness")).context["shares"]

    def test_it_says_when_the_database_was_checked(self, world: World, client_of):
        client = client_of("viewer")
        assert "not checked yet" in text(client.get(reverse("admin:tasks_app_fairness")))
        record_run(faults=2, notes=0, repaired=1, seconds=0.5, actor=SYSTEM)
        assert "2 faults, 1 repaired" in text(client.get(reverse("admin:tasks_app_fairness")))

    @pytest.mark.parametrize(
        ("ordered", "percent", "value"), [([], 50, None), ([7], 95, 7), ([1, 2, 3, 4], 50, 2), ([1, 2, 3, 4], 95, 4)]
    )
    def test_a_quantile_is_one_of_the_values(self, ordered: list[int], percent: int, value: int | None):
        assert quantile(ordered, percent) == value


class TestAudit:
    def export(self, client: Client, form: str, **query: str) -> Any:
        return client.get(reverse("admin:tasks_app_auditentry_export", args=[form]), query)

    def test_it_is_exported_whole_as_csv_and_json_lines(self, world: World, client_of):
        client = client_of("admin")
        rows = rows_of("orbit_audit_entry")
        lines = b"".join(self.export(client, "jsonl").streaming_content).decode().splitlines()
        assert {json.loads(line)["audit_id"] for line in lines} == {row.audit_id for row in rows}
        csv_lines = b"".join(self.export(client, "csv").streaming_content).decode().splitlines()
        assert len(csv_lines) == len(rows) + 1

    def test_a_reason_is_no_formula(self, world: World, client_of):
        client = client_of("admin")
        seen = world.ready()
        from tests.tasks_app.factories import cancel

        cancel(world.tenant, seen.task_id, reason="=HYPERLINK(1)")
        content = b"".join(self.export(client, "csv", object_id=seen.task_id).streaming_content).decode()
        assert "'=HYPERLINK(1)" in content

    def test_pages_of_the_export_join_without_a_gap(self, world: World, client_of, monkeypatch):
        monkeypatch.setattr("tasks_app.admin.audit._PAGE", 2)
        lines = b"".join(self.export(client_of("admin"), "jsonl").streaming_content).decode().splitlines()
        assert len(lines) == len(rows_of("orbit_audit_entry")) > 2

    @pytest.mark.parametrize("group", ["viewer", "operator"])
    def test_only_who_may_exports(self, world: World, client_of, group: str):
        assert self.export(client_of(group), "csv").status_code == 403

    def test_an_unknown_form_is_not_found_and_a_post_is_refused(self, world: World, client_of):
        client = client_of("admin")
        assert self.export(client, "xml").status_code == 404
        assert client.post(reverse("admin:tasks_app_auditentry_export", args=["csv"])).status_code == 405


class TestLogin:
    def test_guessing_is_slowed_down_for_that_user_and_address_alone(self, database: None, settings: Any):
        from axes.models import AccessAttempt, AccessLog

        user = User.objects.create_user("guessed", password="right-password-1", is_staff=True)
        other = User.objects.create_user("other", password="right-password-2", is_staff=True)
        address = reverse("admin:login")
        try:
            for _ in range(settings.AXES_FAILURE_LIMIT - 1):
                assert Client().post(address, {"username": "guessed", "password": "wrong"}).status_code == 200
            assert Client().post(address, {"username": "guessed", "password": "wrong"}).status_code == 429
            assert Client().post(address, {"username": "guessed", "password": "right-password-1"}).status_code == 429
            assert Client().post(address, {"username": "other", "password": "right-password-2"}).status_code == 302
            elsewhere = Client(REMOTE_ADDR="203.0.113.9")
            assert elsewhere.post(address, {"username": "guessed", "password": "right-password-1"}).status_code == 302
        finally:
            AccessAttempt.objects.all().delete()
            AccessLog.objects.all().delete()
            user.delete(), other.delete()


class TestJsonViewer:
    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            ("1e400", "1e400"),
            ("[]", "[]"),
            ('{"a":{}}', '{\n  "a": {}\n}'),
            ('{"a":[1.0,-0],"b":"x, y"}', '{\n  "a": [\n    1.0,\n    -0\n  ],\n  "b": "x, y"\n}'),
            ('"\\u00e9 \\" {"', '"\\u00e9 \\" {"'),
            ("  null ", "null"),
        ],
    )
    def test_only_white_space_between_tokens_is_chosen_anew(self, raw: str, shown: str):
        assert json_viewer.laid_out(raw) == shown


class TestTimeLine:
    def test_waiting_and_running_are_to_scale(self):
        run = time_line.Run(25, 50, "#1")
        found = time_line.phases(created_at=0, ended_at=100, runs=[run])
        assert [(phase.kind, phase.x, phase.width) for phase in found] == [
            ("waiting", 0, 250), ("running", 250, 250), ("waiting", 500, 500),
        ]  # fmt: skip

    def test_a_running_attempt_goes_on_to_the_end_and_nothing_leaves_the_drawing(self):
        found = time_line.phases(created_at=0, ended_at=10_000_000, runs=[time_line.Run(9_999_999, None, "#1")])
        assert all(phase.x + phase.width <= time_line.WIDTH for phase in found)
        assert time_line.places([-5, 20_000_000], created_at=0, ended_at=10_000_000) == [0, time_line.WIDTH]


def test_a_queue_page_says_what_its_head_waits_for(world: World, client_of):
    world.ready(delay_ms=None)
    make_queue(world.tenant)
    page = text(client_of("viewer").get(detail(world.queue())))
    assert "First in line" in page and "Oldest wait" in page


def test_every_model_of_orbit_has_a_page():
    wanted = {
        model
        for app in ("tasks_app", "workers_app", "lifecycle_app")
        for model in apps.get_app_config(app).get_models()
    }
    assert {page.model for page in pages()} == wanted


def test_the_runbook_names_only_metrics_and_settings_that_exist():
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    runbook = (root / "docs/operations.md").read_text(encoding="utf-8")
    sources = "".join(
        (root / app / "telemetry.py").read_text() for app in ("tasks_app", "workers_app", "lifecycle_app")
    )
    sources += (root / "orbit_project/configuration.py").read_text()
    named = set(re.findall(r"`(orbit_\w+_(?:total|seconds|saturation)|ORBIT_\w+)`", runbook))
    assert len(named) > 6
    assert {name for name in named if name not in sources} == set()
