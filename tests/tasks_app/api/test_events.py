"""Events of a task and the feed of a namespace (design 1.4)."""

from __future__ import annotations

import json

import pytest

from orbit_project.serving import long_polls
from tasks_app.api import waits
from tasks_app.transactions import unit
from tests.tasks_app import factories
from tests.tasks_app.api.callers import Answer, Caller
from tests.tasks_app.factories import Tenant


def items(answer: Answer) -> list[dict[str, object]]:
    return list(answer.expect(200).data["items"])


def types(answer: Answer) -> list[object]:
    return [event["type"] for event in items(answer)]


def forget_event(task_id: str) -> None:
    """Its events lose their ids, as if retention had pruned them and others stood in their places."""
    sql = "UPDATE orbit_event SET event_id = %s WHERE task_id = %s"
    unit(lambda tx: tx.execute(sql, ["f" * 32, task_id]))


# -- of one task


def test_the_events_of_a_task_tell_its_life_oldest_first(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant, priority=3)
    factories.submit(tenant)
    factories.finish(factories.run_one(tenant))
    events = items(caller.get(f"/v1/tasks/{task_id}/events"))
    assert [event["type"] for event in events] == ["ACCEPTED", "STARTED", "SUCCEEDED"]
    assert [event["revision"] for event in events] == ["1", "2", "3"]
    assert [event["state"] for event in events] == ["READY", "RUNNING", "SUCCEEDED"]
    assert set(events[0]) == {"cursor", "type", "task_id", "queue_id", "revision", "state", "created_at", "data"}
    assert (events[0]["task_id"], events[0]["queue_id"]) == (task_id, tenant.queue_id)
    assert all(isinstance(event["data"], dict) for event in events)


def test_the_events_of_a_task_come_in_pages(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    factories.finish(factories.run_one(tenant))
    first = caller.get(f"/v1/tasks/{task_id}/events?limit=2")
    assert types(first) == ["ACCEPTED", "STARTED"]
    cursor = first.data["next_cursor"]
    second = caller.get(f"/v1/tasks/{task_id}/events?limit=2&cursor={cursor}")
    assert types(second) == ["SUCCEEDED"]
    assert second.data["next_cursor"] is None
    other = factories.submit(tenant)
    assert caller.get(f"/v1/tasks/{other}/events?cursor={cursor}").expect(400).fields == ["cursor"]


# -- the feed


def test_the_feed_has_what_has_its_place_in_order_and_says_where_to_go_on_at_its_end(caller: Caller, tenant: Tenant):
    first = caller.get("/v1/events").expect(200).data
    assert first["items"] == []
    assert isinstance(first["next_cursor"], str)
    task_id = factories.submit(tenant)
    factories.finish(factories.run_one(tenant))
    answer = caller.get(f"/v1/events?after={first['next_cursor']}")
    assert types(answer) == ["ACCEPTED", "STARTED", "SUCCEEDED"]
    assert {event["task_id"] for event in items(answer)} == {task_id}
    assert items(caller.get(f"/v1/events?after={answer.data['next_cursor']}")) == []


def test_missing_after_starts_at_the_oldest_kept(caller: Caller, tenant: Tenant):
    factories.submit(tenant)
    assert types(caller.get("/v1/events")) == ["ACCEPTED"]


def test_a_reader_that_follows_the_cursors_sees_every_event_once(caller: Caller, tenant: Tenant):
    seen: list[object] = []
    after = ""
    for number in range(5):
        for _ in range(number):
            factories.submit(tenant)
        while found := items(answer := caller.get(f"/v1/events?limit=2{after}")):
            seen += [event["cursor"] for event in found]
            after = f"&after={answer.data['next_cursor']}"
    assert len(seen) == len(set(seen)) == 10


def test_the_cursor_of_an_event_goes_on_behind_it(caller: Caller, tenant: Tenant):
    for _ in range(3):
        factories.submit(tenant)
    events = items(caller.get("/v1/events"))
    assert items(caller.get(f"/v1/events?after={events[0]['cursor']}")) == events[1:]


def test_an_event_has_one_cursor_in_the_feed_and_in_the_list_of_its_task(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    in_the_feed = items(caller.get("/v1/events"))
    assert items(caller.get(f"/v1/tasks/{task_id}/events")) == in_the_feed


def test_the_cursor_of_an_event_without_a_place_passes_nothing_over(caller: Caller, tenant: Tenant):
    earlier = factories.submit(tenant)
    caller.get("/v1/events").expect(200)
    task_id = factories.submit(tenant)
    (event,) = items(caller.get(f"/v1/tasks/{task_id}/events"))
    late = factories.submit(tenant)
    behind = {item["task_id"] for item in items(caller.get(f"/v1/events?after={event['cursor']}"))}
    assert late in behind
    assert earlier not in behind


def test_the_cursor_of_an_event_that_is_no_longer_kept_starts_at_the_oldest_kept(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    (event,) = items(caller.get(f"/v1/tasks/{task_id}/events"))
    kept = items(caller.get("/v1/events"))
    forget_event(task_id)
    assert len(items(caller.get(f"/v1/events?after={event['cursor']}"))) == len(kept)


def test_a_page_of_a_confined_reader_goes_on_behind_what_it_may_not_see(tenant: Tenant):
    other = tenant.queue()
    factories.submit(tenant, queue_id=other)
    for _ in range(3):
        factories.submit(tenant)
    caller = Caller.of(tenant, queue_ids=[other])
    page = caller.get("/v1/events")
    assert [event["queue_id"] for event in items(page)] == [other]
    rest = caller.get(f"/v1/events?after={page.data['next_cursor']}")
    assert items(rest) == []
    assert rest.data["next_cursor"] == page.data["next_cursor"]


@pytest.mark.parametrize(
    "query", ["after=", "after=x", "cursor=x", "limit=0", "limit=201", "wait_ms=30001", "state=READY"]
)
def test_a_parameter_that_breaks_a_rule_is_400(query: str, caller: Caller):
    assert caller.get(f"/v1/events?{query}").expect(400).fields == [query.split("=")[0]]


def test_a_cursor_of_another_namespace_is_400(caller: Caller, foreign_caller: Caller):
    cursor = foreign_caller.get("/v1/events").data["next_cursor"]
    assert caller.get(f"/v1/events?after={cursor}").expect(400).fields == ["after"]


def test_an_empty_page_is_kept_back_and_a_full_one_is_not(caller: Caller, tenant: Tenant):
    node = {waits.ENVIRON_ENABLED: True}
    factories.submit(tenant)
    full = caller.get("/v1/events?wait_ms=5000", **node).expect(200)
    assert waits.HEADER not in full.headers
    path = f"/v1/events?wait_ms=5000&after={full.data['next_cursor']}"
    held = caller.get(path, **node)
    assert json.loads(held.headers[waits.HEADER]) == {
        "kind": "events",
        "namespace_id": tenant.namespace_id,
        "position": 1,
        "wait_ms": 5000,
    }
    assert long_polls.parse_wait(held.headers[waits.HEADER]).key == ("events", tenant.namespace_id)
    factories.submit(tenant)
    wait = json.loads(held.headers[waits.HEADER])
    woken = caller.get(path, **node, **{waits.ENVIRON_WAIT: {**wait, "final": False}})
    assert types(woken) == ["ACCEPTED"]
    assert waits.HEADER not in woken.headers
