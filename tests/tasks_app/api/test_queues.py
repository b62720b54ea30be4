"""Queues over HTTP (design 1.5)."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app import hints
from tasks_app.instants import format_rfc3339, parse_rfc3339
from tasks_app.transactions import unit
from tests.tasks_app import factories
from tests.tasks_app.api.callers import Answer, Caller
from tests.tasks_app.factories import Tenant


def make(caller: Caller, **members: Any) -> dict[str, Any]:
    answer = caller.post("/v1/queues", {"name": "reports", **members}).expect(201)
    return dict(answer.data["queue"])


def change(caller: Caller, queue: dict[str, Any], **members: Any) -> Answer:
    return caller.patch(f"/v1/queues/{queue['queue_id']}", {"revision": queue["revision"], **members})


# -- making


def test_a_queue_is_made_with_no_limits_and_the_neutral_settings(caller: Caller):
    answer = caller.post("/v1/queues", {"name": "reports"}).expect(201)
    queue = answer.data["queue"]
    assert answer.headers["Location"] == f"/v1/queues/{queue['queue_id']}"
    assert queue == {
        "queue_id": queue["queue_id"],
        "name": "reports",
        "paused": False,
        "pause_reason": None,
        "max_unfinished": None,
        "max_running": None,
        "start_rate": None,
        "weight": 1,
        "default_priority": None,
        "retry_priority": "KEEP",
        "revision": "1",
        "created_at": queue["created_at"],
        "updated_at": queue["created_at"],
    }
    assert caller.get(f"/v1/queues/{queue['queue_id']}").expect(200).data == {"queue": queue}


def test_a_queue_is_made_with_everything_that_was_given(strict_caller: Caller):
    wanted = {
        "name": "a queue",
        "max_unfinished": 0,
        "max_running": 2**53 - 1,
        "start_rate": {"starts": 10, "per_ms": 60_000},
        "weight": 100,
        "default_priority": -9,
        "retry_priority": "LOWER",
    }
    queue = make(strict_caller, **wanted)
    assert {name: queue[name] for name in wanted} == wanted


def test_null_is_no_limit(caller: Caller):
    queue = make(caller, max_unfinished=None, max_running=None, start_rate=None, default_priority=None)
    assert queue["max_unfinished"] is queue["max_running"] is queue["start_rate"] is queue["default_priority"] is None


def test_a_name_is_taken_once_in_a_namespace_byte_for_byte(caller: Caller, foreign_caller: Caller):
    queue = make(caller)
    answer = caller.post("/v1/queues", {"name": "reports"}).expect(409, "ALREADY_EXISTS")
    assert answer.error["details"][0]["queue_id"] == queue["queue_id"]
    for name in ("Reports", "réports", "re\u0301ports", "reports."):
        make(caller, name=name)
    make(foreign_caller)


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"name": " x"}, "name"),
        ({"name": "a\u200db"}, "name"),
        ({"name": None}, "name"),
        ({"max_unfinished": -1}, "max_unfinished"),
        ({"max_unfinished": 2**53}, "max_unfinished"),
        ({"max_unfinished": "1"}, "max_unfinished"),
        ({"max_running": 1.0}, "max_running"),
        ({"start_rate": {"starts": 0, "per_ms": 1}}, "start_rate.starts"),
        ({"start_rate": {"starts": 1, "per_ms": 0}}, "start_rate.per_ms"),
        ({"start_rate": {"starts": 1}}, "start_rate.per_ms"),
        ({"start_rate": {"starts": 1, "per_ms": 1, "burst": 1}}, "start_rate.burst"),
        ({"start_rate": 5}, "start_rate"),
        ({"weight": 0}, "weight"),
        ({"weight": 101}, "weight"),
        ({"weight": None}, "weight"),
        ({"default_priority": 10}, "default_priority"),
        ({"retry_priority": "lower"}, "retry_priority"),
        ({"retry_priority": None}, "retry_priority"),
        ({"Name": "x"}, "Name"),
        ({"paused": True}, "paused"),
        ({"revision": "1"}, "revision"),
    ],
)
def test_a_queue_that_breaks_a_rule_is_400(members: dict[str, Any], field: str, strict_caller: Caller):
    answer = strict_caller.post("/v1/queues", {"name": "reports", **members})
    assert answer.expect(400, "INVALID_ARGUMENT").fields == [field]
    assert len(strict_caller.get("/v1/queues").data["items"]) == 1


@pytest.mark.parametrize("members", [{"weight": 2}, {"default_priority": 0}, {"retry_priority": "LOWER"}])
def test_what_means_nothing_in_an_aged_namespace_is_refused_there_not_ignored(
    members: dict[str, Any], caller: Caller, strict_caller: Caller
):
    (name,) = members
    assert caller.post("/v1/queues", {"name": "q", **members}).expect(400).fields == [name]
    queue = make(caller)
    assert change(caller, queue, **members).expect(400).fields == [name]
    make(strict_caller, **members)


def test_a_credential_for_a_list_of_queues_cannot_make_another(tenant: Tenant):
    caller = Caller.of(tenant, queue_ids=[tenant.queue_id])
    caller.post("/v1/queues", {"name": "q"}).expect(403, "PERMISSION_DENIED")


# -- changing


def test_a_change_sets_what_is_given_lifts_what_is_null_and_leaves_the_rest(caller: Caller):
    queue = make(caller, max_unfinished=5, max_running=6)
    changed = change(caller, queue, max_unfinished=None, start_rate={"starts": 1, "per_ms": 1}).expect(200)
    expected = {
        **queue,
        "max_unfinished": None,
        "start_rate": {"starts": 1, "per_ms": 1},
        "revision": "2",
        "updated_at": changed.data["queue"]["updated_at"],
    }
    assert changed.data["queue"] == expected
    assert parse_rfc3339(expected["updated_at"]) > parse_rfc3339(queue["updated_at"])


def test_a_change_that_changes_nothing_keeps_the_revision(caller: Caller):
    queue = make(caller, max_running=6)
    assert change(caller, queue, max_running=6).expect(200).data["queue"] == queue
    assert change(caller, queue).expect(200).data["queue"] == queue


def test_a_stale_revision_is_409_with_the_current_one_and_changes_nothing(caller: Caller):
    queue = make(caller)
    change(caller, queue, max_running=1).expect(200)
    answer = change(caller, queue, max_running=2).expect(409, "REVISION_CONFLICT")
    assert answer.error["details"][0]["current"] == "2"
    assert caller.get(f"/v1/queues/{queue['queue_id']}").data["queue"]["max_running"] == 1


def test_a_change_needs_a_revision_and_does_not_rename(caller: Caller):
    queue = make(caller)
    path = f"/v1/queues/{queue['queue_id']}"
    assert caller.patch(path, {"max_running": 1}).expect(400).fields == ["revision"]
    assert caller.patch(path, {"revision": 1}).expect(400).fields == ["revision"]
    assert change(caller, queue, name="other").expect(400).fields == ["name"]


def test_a_limit_below_what_is_held_stops_what_is_new_and_takes_nothing_away(caller: Caller, tenant: Tenant):
    tasks = [factories.submit(tenant) for _ in range(3)]
    factories.change_queue(tenant, max_unfinished=1)
    caller.submit().expect(429, "QUEUE_FULL")
    assert [caller.task(task)["state"] for task in tasks] == ["READY"] * 3


def test_a_change_is_audited_with_what_was_and_what_is(caller: Caller, tenant: Tenant):
    queue = make(caller, max_running=1)
    answer = change(caller, queue, max_running=2).expect(200)
    (entry,) = factories.rows_of("orbit_audit_entry", "object_id = %s AND action = 'queue.change'", [queue["queue_id"]])
    assert entry.data == '{"before":{"max_running":1},"after":{"max_running":2}}'
    assert (entry.actor, entry.request_id) == (tenant.credential_id, answer.json["request_id"])
    assert (entry.revision_before, entry.revision_after) == (1, 2)


# -- the start budget


def budget(caller: Caller, queue: dict[str, Any]) -> dict[str, Any]:
    return dict(caller.get(f"/v1/queues/{queue['queue_id']}/stats").expect(200).data["stats"]["start_budget"])


def spend(queue: dict[str, Any], level: int) -> None:
    """Starts left, as if the others had been spent just now; the rate refills next to nothing meanwhile."""
    per_us = 2_678_400_000 * 1000
    sql = "UPDATE orbit_queue SET start_level = %s, start_level_at = %s WHERE queue_id = %s"
    unit(lambda tx: tx.execute(sql, [level * per_us, tx.now_us, queue["queue_id"]]))


def test_a_new_rate_starts_with_a_full_bucket(caller: Caller):
    queue = make(caller, start_rate={"starts": 7, "per_ms": 60_000})
    assert budget(caller, queue)["left"] == 7
    plain = make(caller, name="plain")
    changed = change(caller, plain, start_rate={"starts": 5, "per_ms": 1000}).expect(200).data["queue"]
    assert budget(caller, changed)["left"] == 5


def test_another_rate_keeps_the_starts_that_were_left(caller: Caller):
    slow = {"starts": 10, "per_ms": 2_678_400_000}
    queue = make(caller, start_rate=slow)
    spend(queue, 3)
    queue = change(caller, queue, start_rate={**slow, "starts": 20}).expect(200).data["queue"]
    assert budget(caller, queue)["left"] == 3
    queue = change(caller, queue, start_rate={**slow, "starts": 2}).expect(200).data["queue"]
    assert budget(caller, queue)["left"] == 2


def test_an_empty_bucket_says_when_the_next_start_is_possible(caller: Caller):
    queue = make(caller, start_rate={"starts": 1, "per_ms": 2_678_400_000})
    spend(queue, 0)
    found = budget(caller, queue)
    assert found["left"] == 0
    assert parse_rfc3339(found["next_at"]) > factories.now() + 30 * 86_400 * factories.SECOND


# -- pause and resume


def post(caller: Caller, queue: dict[str, Any], verb: str, body: Any = None) -> dict[str, Any]:
    return dict(caller.post(f"/v1/queues/{queue['queue_id']}:{verb}", body).expect(200).data["queue"])


def test_pausing_twice_is_pausing_once_and_a_new_reason_takes_the_place_of_the_old(caller: Caller):
    queue = make(caller)
    paused = post(caller, queue, "pause", {"reason": "printer is out"})
    assert (paused["paused"], paused["pause_reason"], paused["revision"]) == (True, "printer is out", "2")
    assert post(caller, queue, "pause") == paused
    assert post(caller, queue, "pause", {"reason": "printer is out"}) == paused
    again = post(caller, queue, "pause", {"reason": "no paper"})
    assert (again["pause_reason"], again["revision"]) == ("no paper", "3")
    resumed = post(caller, queue, "resume", {})
    assert (resumed["paused"], resumed["pause_reason"], resumed["revision"]) == (False, None, "4")
    assert post(caller, queue, "resume") == resumed


def test_a_paused_queue_gives_nothing_to_claims_until_it_is_resumed(caller: Caller, tenant: Tenant):
    factories.submit(tenant)
    queue = caller.get(f"/v1/queues/{tenant.queue_id}").data["queue"]
    post(caller, queue, "pause")
    assert factories.claim_ids(tenant) == []
    post(caller, queue, "resume")
    assert len(factories.claim_ids(tenant)) == 1


def test_a_resumed_queue_is_hinted_at_so_that_claims_look_again(caller: Caller, tenant: Tenant):
    queue = caller.get(f"/v1/queues/{tenant.queue_id}").data["queue"]
    post(caller, queue, "pause")
    heard: list[hints.Hint] = []
    undo = hints.subscribe(heard.append)
    try:
        post(caller, queue, "resume")
    finally:
        undo()
    assert [(hint.queue_id, hint.namespace_id) for hint in heard] == [(tenant.queue_id, tenant.namespace_id)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 1001}, "reason"),
        ({"reason": None}, "reason"),
        ({"reason": 1}, "reason"),
        ({"until": "tomorrow"}, "until"),
    ],
)
def test_a_pause_that_breaks_a_rule_is_400(body: dict[str, Any], field: str, caller: Caller, tenant: Tenant):
    assert caller.post(f"/v1/queues/{tenant.queue_id}:pause", body).expect(400).fields == [field]
    assert caller.post(f"/v1/queues/{tenant.queue_id}:resume", {"reason": "x"}).expect(400).fields == ["reason"]


# -- lists


def test_queues_are_listed_oldest_first_in_pages(caller: Caller, tenant: Tenant):
    made = [tenant.queue_id, *(make(caller, name=f"q {n}")["queue_id"] for n in range(4))]
    seen: list[str] = []
    path = "/v1/queues?limit=2"
    while path:
        data = caller.get(path).expect(200).data
        seen += [queue["queue_id"] for queue in data["items"]]
        path = f"/v1/queues?limit=2&cursor={data['next_cursor']}" if data["next_cursor"] else ""
    assert seen == made


# -- stats


def stats(caller: Caller, tenant: Tenant) -> dict[str, Any]:
    return dict(caller.get(f"/v1/queues/{tenant.queue_id}/stats").expect(200).data["stats"])


def test_an_empty_queue_counts_nothing(caller: Caller, tenant: Tenant):
    found = stats(caller, tenant)
    assert set(found["counts"].values()) == {0}
    assert len(found["counts"]) == 9
    assert {name: found[name] for name in found if name != "counts"} == {
        "backlog_by_priority": {},
        "oldest_waiting_ms_by_priority": {},
        "running": 0,
        "reserved": 0,
        "start_budget": None,
        "head_waiting": None,
    }


def test_counts_are_by_state(caller: Caller, tenant: Tenant):
    for _ in range(4):
        factories.submit(tenant)
    factories.submit(tenant, delay_ms=60_000)
    factories.finish(factories.run_one(tenant))
    factories.run_one(tenant)
    factories.claim_one(tenant)
    found = stats(caller, tenant)
    assert {state: n for state, n in found["counts"].items() if n} == {
        "SUCCEEDED": 1,
        "RUNNING": 1,
        "RESERVED": 1,
        "READY": 1,
        "SCHEDULED": 1,
    }
    assert (found["running"], found["reserved"]) == (1, 1)


@pytest.mark.parametrize("policy", ["AGED", "STRICT"])
def test_the_backlog_is_by_priority_highest_first_with_the_oldest_wait(
    policy: str, caller: Caller, strict_caller: Caller
):
    chosen = caller if policy == "AGED" else strict_caller
    tenant = chosen.tenant
    assert tenant is not None
    low = 0 if policy == "AGED" else -9
    for priority, seconds_ago in ((low, 100), (low, 5), (9, 20), (1, 1)):
        factories.due(factories.submit(tenant, priority=priority), seconds_ago=seconds_ago)
    factories.submit(tenant, priority=9, delay_ms=60_000)  # not due: no backlog
    found = stats(chosen, tenant)
    assert list(found["backlog_by_priority"].items()) == [("9", 1), ("1", 1), (str(low), 2)]
    oldest = found["oldest_waiting_ms_by_priority"]
    assert list(oldest) == ["9", "1", str(low)]
    assert 20_000 <= oldest["9"] < 60_000
    assert 100_000 <= oldest[str(low)] < 140_000


def test_a_task_whose_time_has_come_counts_before_maintenance_moved_it(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant, delay_ms=60_000)
    factories.set_columns(task_id, available_at=factories.now() - 3 * factories.SECOND)
    found = stats(caller, tenant)
    assert found["counts"]["SCHEDULED"] == 1
    assert found["backlog_by_priority"] == {"0": 1}


def test_the_head_of_a_queue_says_why_it_waits(caller: Caller, tenant: Tenant):
    factories.submit(tenant, delay_ms=60_000)
    assert stats(caller, tenant)["head_waiting"] is None
    factories.submit(tenant)
    urgent = factories.submit(tenant, priority=9, handler="other", resource_key="k")
    factories.queues.pause(tenant.principal, tenant.queue_id, reason="no paper", actor=factories.SYSTEM)
    assert stats(caller, tenant)["head_waiting"] == {
        "task_id": urgent,
        "reason": "QUEUE_PAUSED",
        "detail": {"pause_reason": "no paper"},
    }


def test_times_are_shown_in_utc(caller: Caller):
    queue = make(caller)
    assert queue["created_at"] == format_rfc3339(parse_rfc3339(queue["created_at"]))
