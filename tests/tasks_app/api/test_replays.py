"""Replay and dismiss over HTTP (design 1.4)."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.endings import Report
from tests.tasks_app import factories
from tests.tasks_app.api.callers import Answer, Caller
from tests.tasks_app.factories import Tenant


def failed(tenant: Tenant, **fields: Any) -> str:
    task_id = factories.submit(tenant, **fields)
    factories.finish(factories.run_one(tenant, handlers=(fields.get("handler", "h"),)), Report.FAILED)
    return task_id


def replay(caller: Caller, task_id: str, body: Any = None, *, key: str = "r") -> Answer:
    return caller.post(f"/v1/tasks/{task_id}:replay", body, key=key)


def replay_many(caller: Caller, tenant: Tenant, *, key: str = "m", **members: Any) -> Answer:
    return caller.post("/v1/tasks:replay", {"queue_id": tenant.queue_id, "limit": 500, **members}, key=key)


# -- one


def test_a_dead_letter_is_submitted_again_as_a_new_task_and_both_name_each_other(caller: Caller, tenant: Tenant):
    source = failed(tenant, priority=3)
    answer = replay(caller, source).expect(201)
    task, receipt = answer.data["task"], answer.data["receipt"]
    assert answer.headers["Location"] == f"/v1/tasks/{task['task_id']}"
    assert (task["replayed_from"], task["priority"], task["state"], task["payload"]) == (source, 3, "READY", {"n": 1})
    assert receipt["task_id"] == task["task_id"]
    assert caller.task(source)["replayed_as"] == task["task_id"]
    assert caller.get("/v1/tasks?dead=true").data["items"] == []
    shown = caller.task(task["task_id"])
    assert {name: shown[name] for name in task} == task


def test_the_same_key_again_is_200_with_the_same_receipt(caller: Caller, tenant: Tenant):
    source = failed(tenant)
    first = replay(caller, source).expect(201).data["receipt"]
    assert replay(caller, source).expect(200).data["receipt"] == {**first, "deduplicated": True}
    replay(caller, source, {"delay_ms": 5}).expect(409, "IDEMPOTENCY_CONFLICT")


def test_a_task_is_replayed_once_and_another_key_names_the_new_task(caller: Caller, tenant: Tenant):
    source = failed(tenant)
    new = replay(caller, source).expect(201).data["receipt"]["task_id"]
    answer = replay(caller, source, key="other").expect(409, "ALREADY_EXISTS")
    assert answer.error["details"][0]["task_id"] == new


def test_priority_and_delay_may_be_given(caller: Caller, tenant: Tenant):
    task = replay(caller, failed(tenant, priority=3), {"priority": 9, "delay_ms": 60_000}).expect(201).data["task"]
    assert (task["priority"], task["state"]) == (9, "SCHEDULED")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"priority": 10}, "priority"),
        ({"priority": None}, "priority"),
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": "1"}, "delay_ms"),
        ({"payload": 1}, "payload"),
    ],
)
def test_a_replay_that_breaks_a_rule_is_400(body: dict[str, Any], field: str, caller: Caller, tenant: Tenant):
    assert replay(caller, failed(tenant), body).expect(400).fields == [field]


def test_a_replay_needs_a_key(caller: Caller, tenant: Tenant):
    source = failed(tenant)
    assert caller.post(f"/v1/tasks/{source}:replay").expect(400).fields == ["Idempotency-Key"]
    body = {"queue_id": tenant.queue_id, "limit": 1}
    assert caller.post("/v1/tasks:replay", body).expect(400).fields == ["Idempotency-Key"]


def test_only_what_ended_without_success_is_replayed(caller: Caller, tenant: Tenant):
    replay(caller, factories.submit(tenant)).expect(409, "FAILED_PRECONDITION")


def test_a_full_queue_refuses_a_replay_like_a_submit(caller: Caller, tenant: Tenant):
    source = failed(tenant)
    factories.change_queue(tenant, max_unfinished=0)
    assert replay(caller, source).expect(429, "QUEUE_FULL").headers["Retry-After"] == "1"
    factories.change_queue(tenant, max_unfinished=1)
    replay(caller, source).expect(201)


# -- many


def test_a_selection_is_replayed_oldest_first_with_one_result_each(caller: Caller, tenant: Tenant):
    sources = [failed(tenant) for _ in range(3)]
    answer = replay_many(caller, tenant).expect(200)
    items = answer.data["items"]
    assert [item["source_task_id"] for item in items] == sources
    assert [(item["index"], item["status"]) for item in items] == [(n, "ACCEPTED") for n in range(3)]
    assert answer.data["summary"] == {"accepted": 3, "rejected": 0, "unknown": 0, "not_attempted": 0}
    assert [caller.task(source)["replayed_as"] for source in sources] == [item["receipt"]["task_id"] for item in items]


def test_the_same_key_covers_the_same_tasks_and_tries_again_what_was_refused(caller: Caller, tenant: Tenant):
    sources = [failed(tenant) for _ in range(3)]
    factories.change_queue(tenant, max_unfinished=2)
    first = replay_many(caller, tenant).expect(200).data["items"]
    assert [item["status"] for item in first] == ["ACCEPTED", "ACCEPTED", "REJECTED"]
    assert first[2]["error"]["code"] == "QUEUE_FULL"
    factories.change_queue(tenant, max_unfinished=None)
    late = failed(tenant, handler="other")
    again = replay_many(caller, tenant).expect(200).data["items"]
    assert [item["source_task_id"] for item in again] == sources
    assert [item["receipt"]["deduplicated"] for item in again] == [True, True, False]
    other = replay_many(caller, tenant, key="later").expect(200).data["items"]
    assert [item["source_task_id"] for item in other] == [late]


def test_a_selection_is_narrowed_by_states_handler_and_limit(caller: Caller, tenant: Tenant):
    first, second = failed(tenant), failed(tenant, handler="other")
    canceled = factories.submit(tenant)
    factories.cancel(tenant, canceled)

    def sources(key: str, **members: Any) -> list[str]:
        return [i["source_task_id"] for i in replay_many(caller, tenant, key=key, **members).expect(200).data["items"]]

    assert sources("a", states=["CANCELED"]) == [canceled]
    assert sources("b", handler="other") == [second]
    assert sources("c", limit=1, states=["FAILED", "CANCELED", "EXPIRED"]) == [first]
    assert sources("d") == []


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 501}, "limit"),
        ({"limit": None}, "limit"),
        ({"states": []}, "states"),
        ({"states": ["SUCCEEDED"]}, "states"),
        ({"states": ["failed"]}, "states"),
        ({"states": "FAILED"}, "states"),
        ({"states": [1]}, "states[0]"),
        ({"priority": 10}, "priority"),
        ({"queue_id": "x"}, "queue_id"),
        ({"reason": "x"}, "reason"),
    ],
)
def test_a_selection_that_breaks_a_rule_is_400(members: dict[str, Any], field: str, caller: Caller, tenant: Tenant):
    assert replay_many(caller, tenant, **members).expect(400).fields == [field]


def test_a_selection_needs_its_limit(caller: Caller, tenant: Tenant):
    assert caller.post("/v1/tasks:replay", {"queue_id": tenant.queue_id}, key="k").expect(400).fields == ["limit"]


def test_the_queue_of_a_selection_is_found_or_refused(caller: Caller, tenant: Tenant, foreign_caller: Caller):
    assert foreign_caller.tenant is not None
    replay_many(caller, foreign_caller.tenant).expect(404, "NOT_FOUND")
    replay_many(Caller.of(tenant, queue_ids=[tenant.queue()]), tenant).expect(403, "PERMISSION_DENIED")


# -- dismiss


def test_a_dismissed_task_is_no_dead_letter_and_dismissing_again_is_200(caller: Caller, tenant: Tenant):
    source = failed(tenant)
    body = {"revision": "3", "reason": "known"}
    task = caller.post(f"/v1/tasks/{source}:dismiss", body).expect(200).data["task"]
    assert (task["state"], task["revision"]) == ("FAILED", "4")
    assert caller.post(f"/v1/tasks/{source}:dismiss", body).expect(200).data["task"] == task
    assert caller.get("/v1/tasks?dead=true").data["items"] == []


def test_a_dismissal_is_guarded_and_needs_a_reason(caller: Caller, tenant: Tenant):
    source = failed(tenant)
    path = f"/v1/tasks/{source}:dismiss"
    assert caller.post(path, {"revision": "3"}).expect(400).fields == ["reason"]
    assert caller.post(path, {"revision": "3", "reason": ""}).expect(400).fields == ["reason"]
    answer = caller.post(path, {"revision": "2", "reason": "x"}).expect(409, "REVISION_CONFLICT")
    assert answer.error["details"][0]["current"] == "3"
    waiting = factories.submit(tenant)
    body = {"revision": "9", "reason": "x"}
    caller.post(f"/v1/tasks/{waiting}:dismiss", body).expect(409, "FAILED_PRECONDITION")
