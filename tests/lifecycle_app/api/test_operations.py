"""/v1/operations over HTTP (design 4.8). Every answer is held against the OpenAPI document by the caller."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lifecycle_app.composition import configured_upstream
from lifecycle_app.models import LifecycleTask
from lifecycle_app.states import IntentState
from tasks_app import ids
from tasks_app.instants import process_now_us
from tasks_app.states import Action
from tests.lifecycle_app.site import Site, confirm, failure, make_site, progress, rows_of
from tests.tasks_app.api.callers import Answer, Caller
from tests.tasks_app.factories import make_tenant

GID = 7
NEW_ID = "0" * 32


def create(caller: Caller, gid: int = GID, **members: Any) -> Answer:
    return caller.post("/v1/operations", {"gid": gid, "name": f"gallery {gid}", "requester": "ana", **members})


def shown(caller: Caller, gid: int = GID) -> dict[str, Any]:
    return dict(caller.get(f"/v1/operations/{gid}").expect(200).data["operation"])


def reconcile(caller: Caller, gid: int = GID, **members: Any) -> Answer:
    seen = shown(caller, gid)
    body = {"operation_id": seen["operation_id"], "state": seen["state"], "reason": "looked at it", **members}
    return caller.post(f"/v1/operations/{gid}:reconcile", body)


class TestCreate:
    def test_a_submitted_operation_is_201_with_everything_shown(self, caller: Caller):
        answer = create(caller).expect(201)
        assert answer.headers["Location"] == "/v1/operations/7"
        operation = answer.data["operation"]
        assert operation == {
            "gid": 7,
            "name": "gallery 7",
            "requester": "ana",
            "operation_id": operation["operation_id"],
            "state": "SUBMITTED",
            "status": "SUBMITTED",
            "status_text": {"zh": "已提交", "en": "Submitted"},
            "progress": 0,
            "last_revision": 0,
            "legacy": False,
            "created_at": operation["created_at"],
            "updated_at": operation["updated_at"],
            "submitted_at": operation["submitted_at"],
        }
        assert shown(caller) == operation

    def test_an_unknown_outcome_is_202_with_its_evidence_and_again_409(self, caller: Caller, site: Site):
        site.play.script("submit", GID, "drop_after_effect")
        answer = create(caller).expect(202)
        operation = answer.data["operation"]
        assert (operation["state"], operation["status"]) == ("UNKNOWN", "SUBMIT_UNKNOWN")
        assert operation["status_text"] == {"zh": "提交未知", "en": "Submission unknown"}
        assert operation["evidence"][0]["kind"] == "SUBMIT"
        again = create(caller).expect(409, "ALREADY_EXISTS")
        assert again.error["details"][0]["state"] == "UNKNOWN"
        assert site.play.submits(GID) == 1

    @pytest.mark.parametrize("step", ["prepare", "submit"])
    def test_a_refusal_is_502_with_the_upstreams_word_and_leaves_nothing(self, caller: Caller, site: Site, step):
        site.play.script(step, GID, "refuse")
        answer = create(caller).expect(502, "UPSTREAM_FAILED")
        detail = answer.error["details"][0]
        assert detail["step"] == step
        assert detail["status"] in (404, 422)
        assert "error" in detail["answer"]
        caller.get("/v1/operations/7").expect(404, "NOT_FOUND")

    def test_without_an_upstream_it_is_503(self, caller: Caller, settings):
        settings.ORBIT = dataclasses.replace(settings.ORBIT, upstream_url=None)
        configured_upstream.cache_clear()
        answer = create(caller).expect(503, "UNAVAILABLE")
        assert answer.headers["Retry-After"]

    def test_over_the_weekly_limit_it_is_429(self, caller: Caller, site: Site):
        site.limit(0)
        answer = create(caller).expect(429, "QUOTA_EXCEEDED")
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.error["details"][0]["limit"] == 0

    @pytest.mark.parametrize("gid", [1, 2**63 - 1])
    def test_gids_reach_from_one_to_the_largest_of_63_bits(self, caller: Caller, gid):
        assert create(caller, gid).expect(201).data["operation"]["gid"] == gid
        assert shown(caller, gid)["gid"] == gid

    @pytest.mark.parametrize(
        ("members", "field"),
        [
            ({"gid": 0}, "gid"),
            ({"gid": -1}, "gid"),
            ({"gid": 2**63}, "gid"),
            ({"gid": 1.0}, "gid"),
            ({"gid": "7"}, "gid"),
            ({"gid": True}, "gid"),
            ({"gid": None}, "gid"),
            ({"name": ""}, "name"),
            ({"name": "n" * 257}, "name"),
            ({"name": " n"}, "name"),
            ({"name": "a\u200db"}, "name"),
            ({"name": 1}, "name"),
            ({"requester": ""}, "requester"),
            ({"requester": "r" * 129}, "requester"),
            ({"requester": "a\nb"}, "requester"),
            ({"more": 1}, "more"),
            ({"Gid": 7}, "Gid"),
        ],
    )
    def test_what_is_not_valid_is_400_and_asks_nobody(self, caller: Caller, site: Site, members, field):
        answer = create(caller, **members).expect(400, "INVALID_ARGUMENT")
        assert answer.fields == [field]
        assert site.play.asked() == []

    @pytest.mark.parametrize("missing", ["gid", "name", "requester"])
    def test_every_member_is_required(self, caller: Caller, missing):
        body = {"gid": 7, "name": "n", "requester": "r"}
        del body[missing]
        assert caller.post("/v1/operations", body).expect(400).fields == [missing]

    def test_the_longest_names_are_taken(self, caller: Caller):
        operation = create(caller, name="图" * 256, requester="ä" * 128).expect(201).data["operation"]
        assert operation["name"] == "图" * 256
        assert operation["requester"] == "ä" * 128


class TestRead:
    @pytest.mark.parametrize("gid", ["0", "-1", "07", "1.0", "1e3", "abc", "9223372036854775808", "９", "+7"])
    @pytest.mark.parametrize("method", ["GET", "DELETE"])
    def test_a_gid_in_a_path_is_plain_decimal_else_400(self, caller: Caller, method, gid):
        caller.call(method, f"/v1/operations/{gid}").expect(400, "INVALID_ARGUMENT")

    def test_what_was_never_asked_for_is_404(self, caller: Caller):
        for method in ("GET", "DELETE"):
            caller.call(method, "/v1/operations/99").expect(404, "NOT_FOUND")

    def test_another_namespaces_gid_is_the_same_404(self, caller: Caller, site: Site):
        make_site(site.play).submitted(GID)
        foreign = caller.get("/v1/operations/7").expect(404)
        absent = caller.get("/v1/operations/8").expect(404)
        assert foreign.error == absent.error

    def test_a_deleted_one_is_shown_with_its_state_and_without_its_row(self, caller: Caller, site: Site):
        site.deleted(GID)
        operation = shown(caller)
        assert operation["state"] == "DELETED"
        assert operation["delete_operation_id"]
        assert not {"name", "requester", "status", "status_text", "progress", "storage_node"} & set(operation)

    def test_the_storage_node_is_named(self, caller: Caller, site: Site):
        site.submitted(GID)
        site.told(site.connect("node-α"))
        assert shown(caller)["storage_node"] == "node-α"

    def test_a_row_from_before_is_shown_without_operation_id_and_state(self, caller: Caller, site: Site):
        LifecycleTask.objects.create(
            task_id=ids.new_id(process_now_us()), namespace_id=site.namespace_id, gid=GID, name="old", requester="ana",
            status="COMPLETE", progress=100, created_at=process_now_us(), updated_at=process_now_us(),
        )  # fmt: skip
        operation = shown(caller)
        assert (operation["operation_id"], operation["state"], operation["legacy"]) == (None, None, True)
        create(caller).expect(409, "ALREADY_EXISTS")


class TestList:
    def gids(self, caller: Caller, query: str = "") -> list[int]:
        return [item["gid"] for item in caller.get(f"/v1/operations{query}").expect(200).data["items"]]

    def test_newest_generation_first_without_evidence(self, caller: Caller, site: Site):
        site.submitted(1)
        site.unknown(2)
        site.submitted(3)
        assert self.gids(caller) == [3, 2, 1]
        items = caller.get("/v1/operations").data["items"]
        assert all("evidence" not in item for item in items)

    def test_by_state_and_requester(self, caller: Caller, site: Site):
        site.submitted(1, requester="ana")
        site.unknown(2, requester="ana")
        site.submitted(3, requester="bob")
        assert self.gids(caller, "?state=UNKNOWN") == [2]
        assert self.gids(caller, "?state=UNKNOWN&state=SUBMITTED") == [3, 2, 1]
        assert self.gids(caller, "?requester=ana") == [2, 1]
        assert self.gids(caller, "?requester=ana&state=SUBMITTED") == [1]
        assert self.gids(caller, "?requester=Ana") == []

    def test_pages_are_bound_to_their_filters(self, caller: Caller, site: Site):
        for gid in range(1, 6):
            site.submitted(gid)
        first = caller.get("/v1/operations?limit=2").expect(200).data
        assert [item["gid"] for item in first["items"]] == [5, 4]
        second = caller.get(f"/v1/operations?limit=2&cursor={first['next_cursor']}").expect(200).data
        assert [item["gid"] for item in second["items"]] == [3, 2]
        third = caller.get(f"/v1/operations?limit=2&cursor={second['next_cursor']}").expect(200).data
        assert [item["gid"] for item in third["items"]] == [1]
        assert third["next_cursor"] is None
        caller.get(f"/v1/operations?state=UNKNOWN&cursor={first['next_cursor']}").expect(400)

    def test_another_namespaces_operations_are_not_there(self, caller: Caller, site: Site):
        make_site(site.play).submitted(1)
        assert self.gids(caller) == []

    @pytest.mark.parametrize(
        "query", ["?state=unknown", "?state=", "?limit=0", "?limit=201", "?limit=x", "?cursor=x", "?gid=7",
                  "?requester=a&requester=b", "?requester="],
    )  # fmt: skip
    def test_what_is_not_valid_is_400(self, caller: Caller, query):
        caller.get(f"/v1/operations{query}").expect(400, "INVALID_ARGUMENT")


class TestDelete:
    def test_it_is_202_with_a_stable_id_until_the_node_confirms(self, caller: Caller, site: Site):
        create(caller).expect(201)
        node = site.connect()
        site.told(node)
        first = caller.call("DELETE", "/v1/operations/7").expect(202).data["operation"]
        assert (first["state"], first["status"]) == ("DELETE_PENDING", "DELETE_PENDING")
        again = caller.call("DELETE", "/v1/operations/7").expect(202).data["operation"]
        assert again["delete_operation_id"] == first["delete_operation_id"]
        site.report(node, failure(GID, first["delete_operation_id"]))
        failed = shown(caller)
        assert (failed["state"], failed["status"]) == ("DELETE_PENDING", "DELETE_FAILED")
        assert failed["evidence"][-1] | {"at": ""} == {
            "kind": "NODE_ERROR", "at": "", "storage_node": "node-1", "error": "the files are in use",
        }  # fmt: skip
        site.report(node, confirm(GID, first["delete_operation_id"]))
        caller.call("DELETE", "/v1/operations/7").expect(404, "NOT_FOUND")
        assert create(caller).expect(201).data["operation"]["operation_id"] != first["operation_id"]

    def test_what_is_unknown_is_409(self, caller: Caller, site: Site):
        site.unknown(GID)
        answer = caller.call("DELETE", "/v1/operations/7").expect(409, "FAILED_PRECONDITION")
        assert answer.error["details"][0]["state"] == "UNKNOWN"

    def test_it_takes_no_body(self, caller: Caller, site: Site):
        site.submitted(GID)
        caller.call("DELETE", "/v1/operations/7", {}).expect(400)


class TestReconcile:
    def test_unknown_becomes_submitted(self, caller: Caller, site: Site):
        site.unknown(GID)
        operation = reconcile(caller, decision="SUBMITTED").expect(200).data["operation"]
        assert (operation["state"], operation["status"]) == ("SUBMITTED", "SUBMITTED")
        assert site.used() == 1

    def test_not_submitted_leaves_nothing_to_show(self, caller: Caller, site: Site):
        site.unknown(GID)
        assert reconcile(caller, decision="NOT_SUBMITTED").expect(200).data == {"operation": None}
        caller.get("/v1/operations/7").expect(404)

    def test_lookup_answers_what_the_upstream_said(self, caller: Caller, site: Site):
        site.unknown(GID)
        data = reconcile(caller, decision="LOOKUP").expect(200).data
        assert data["lookup"]["found"] is True
        assert data["lookup"]["request"] == "GET /submissions/7"
        assert data["operation"]["state"] == "UNKNOWN"

    def test_a_decision_that_does_not_fit_is_409(self, caller: Caller, site: Site):
        site.submitted(GID)
        answer = reconcile(caller, decision="NOT_SUBMITTED").expect(409, "FAILED_PRECONDITION")
        assert answer.error["details"][0]["allowed"] == ["REASSIGN"]

    @pytest.mark.parametrize("stale", [{"operation_id": NEW_ID}, {"state": "SUBMITTED", "decision": "REASSIGN"}])
    def test_what_was_seen_must_still_hold(self, caller: Caller, site: Site, stale):
        site.unknown(GID)
        answer = reconcile(caller, **{"decision": "SUBMITTED", **stale}).expect(409, "REVISION_CONFLICT")
        assert "UNKNOWN" in [detail["current"] for detail in answer.error["details"]]
        assert site.state(GID) == "UNKNOWN"

    @pytest.mark.parametrize(
        ("members", "field"),
        [
            ({"decision": "submitted"}, "decision"),
            ({"decision": "RETRY"}, "decision"),
            ({"state": "LOST", "decision": "SUBMITTED"}, "state"),
            ({"operation_id": "x", "decision": "SUBMITTED"}, "operation_id"),
            ({"reason": "", "decision": "SUBMITTED"}, "reason"),
            ({"reason": "x" * 1001, "decision": "SUBMITTED"}, "reason"),
            ({}, "decision"),
        ],
    )
    def test_what_is_not_valid_is_400(self, caller: Caller, site: Site, members, field):
        site.unknown(GID)
        assert field in reconcile(caller, **members).expect(400, "INVALID_ARGUMENT").fields
        assert site.state(GID) == "UNKNOWN"

    def test_the_audit_entry_names_the_credential_the_request_and_the_reason(self, caller: Caller, site: Site):
        site.unknown(GID)
        answer = reconcile(caller, decision="SUBMITTED", reason="the invoice says so")
        (entry,) = rows_of("orbit_audit_entry", "action = 'operation.reconcile'")
        assert entry.actor == site.tenant.credential_id
        assert entry.request_id == answer.json["request_id"]
        assert entry.reason == "the invoice says so"


class TestFavorites:
    def test_mark_and_take_back(self, caller: Caller, site: Site):
        site.submitted(GID)
        first = caller.post("/v1/operations/7/favorites/ana").expect(201).data["favorite"]
        assert (first["gid"], first["requester"]) == (7, "ana")
        assert caller.post("/v1/operations/7/favorites/ana", {}).expect(200).data["favorite"] == first
        assert caller.call("DELETE", "/v1/operations/7/favorites/ana").expect(200).data == {"favorite": None}
        caller.call("DELETE", "/v1/operations/7/favorites/ana").expect(200)

    @pytest.mark.parametrize("requester", ["a/b", "ä ö", "a:b", "喜"])
    def test_a_requester_may_be_any_printable_name(self, caller: Caller, site: Site, requester):
        from urllib.parse import quote

        site.submitted(GID)
        path = f"/v1/operations/7/favorites/{quote(requester, safe='')}"
        assert caller.post(path).expect(201).data["favorite"]["requester"] == requester

    def test_what_is_not_there_cannot_be_liked(self, caller: Caller):
        caller.post("/v1/operations/99/favorites/ana").expect(404)

    @pytest.mark.parametrize("requester", ["%20a", "a%00b", "r" * 129])
    def test_what_is_not_printable_is_400(self, caller: Caller, site: Site, requester):
        site.submitted(GID)
        caller.post(f"/v1/operations/7/favorites/{requester}").expect(400)


ROUTES = [
    ("POST", "/v1/operations", Action.OPERATIONS_WRITE),
    ("GET", "/v1/operations", Action.OPERATIONS_READ),
    ("GET", "/v1/operations/7", Action.OPERATIONS_READ),
    ("DELETE", "/v1/operations/7", Action.OPERATIONS_WRITE),
    ("POST", "/v1/operations/7:reconcile", Action.OPERATIONS_WRITE),
    ("POST", "/v1/operations/7/favorites/ana", Action.OPERATIONS_WRITE),
    ("DELETE", "/v1/operations/7/favorites/ana", Action.OPERATIONS_WRITE),
]


@pytest.mark.parametrize(("method", "path", "action"), ROUTES)
class TestAccess:
    def test_without_a_credential_401(self, site: Site, method, path, action):
        Caller(None).call(method, path).expect(401, "UNAUTHENTICATED")

    def test_without_the_action_403(self, site: Site, method, path, action):
        others = [value for value in Action.values if value != action.value]
        Caller.of(site.tenant, actions=others).call(method, path).expect(403, "PERMISSION_DENIED")

    def test_of_another_namespace_nothing_is_there(self, site: Site, method, path, action):
        site.submitted(GID)
        before = rows_of("orbit_operation_intent"), rows_of("orbit_favorite")
        stranger = Caller.of(make_tenant(), actions=[action.value])
        answer = stranger.call(method, path)
        assert answer.status in (200, 400, 404)
        assert b"gallery" not in answer.body
        assert (rows_of("orbit_operation_intent"), rows_of("orbit_favorite")) == before


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PATCH", "/v1/operations", "GET, HEAD, POST"),
        ("POST", "/v1/operations/7", "GET, HEAD, DELETE"),
        ("GET", "/v1/operations/7:reconcile", "POST"),
        ("GET", "/v1/operations/7/favorites/ana", "POST, DELETE"),
    ],
)
def test_other_methods_are_405(caller: Caller, method, path, allow):
    answer = caller.call(method, path).expect(405, "METHOD_NOT_ALLOWED")
    assert answer.headers["Allow"] == allow


@pytest.mark.parametrize("path", ["/v1/operations/", "/v1/operations/7:delete", "/v1/operations/7/favorites/"])
def test_unknown_paths_are_404_in_the_envelope(caller: Caller, path):
    caller.get(path).expect(404, "NOT_FOUND")


def test_a_report_moves_what_is_shown(caller: Caller, site: Site):
    operation_id = create(caller).expect(201).data["operation"]["operation_id"]
    node = site.connect()
    site.told(node)
    site.report(node, progress(GID, operation_id, 1, 42), revision=3)
    operation = shown(caller)
    assert (operation["status"], operation["progress"], operation["last_revision"]) == ("DOWNLOADING", 42, 3)
    assert operation["status_text"]["zh"] == "下载中"
    assert operation["state"] == IntentState.SUBMITTED
