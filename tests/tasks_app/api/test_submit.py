"""POST /v1/tasks (design 1.2), through Django's whole stack on a real database."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.db import connection

from tasks_app.instants import format_rfc3339, parse_rfc3339
from tasks_app.states import Action
from tests.tasks_app import factories
from tests.tasks_app.api.callers import Caller
from tests.tasks_app.factories import Tenant

SHOWN_AT_LEAST = {
    "task_id", "queue_id", "handler", "handler_version", "payload_version", "payload", "state", "revision", "attempts",
    "max_attempts", "available_at", "created_at", "updated_at", "retry",
}  # fmt: skip
TEXTS = [
    '{"n": [9007199254740993, 1.10, 1e400, 0.1000000000000000055, -0]}',
    '"\\u0000\\ud83d\\ude00 \U0001f600 \\/"',
    "null",
    "[ 1 , 2 ]",
    "9" * 5_000,
]


def submit_text(caller: Caller, payload: str, key: str = "k") -> Any:
    parts = {name: json.dumps(value) for name, value in caller.task_body().items()} | {"payload": payload}
    return caller.post("/v1/tasks", content="{" + ",".join(f'"{n}":{v}' for n, v in parts.items()) + "}", key=key)


def test_first_acceptance_is_201_with_location_task_and_receipt(caller: Caller):
    answer = caller.submit(key="order-1").expect(201)
    task, receipt = answer.data["task"], answer.data["receipt"]
    assert answer.headers["Location"] == f"/v1/tasks/{task['task_id']}"
    assert receipt == {
        "task_id": task["task_id"],
        "queue_id": caller.task_body()["queue_id"],
        "revision": "1",
        "created_at": task["created_at"],
        "deduplicated": False,
    }
    assert set(task) == SHOWN_AT_LEAST
    assert (task["state"], task["revision"], task["attempts"]) == ("READY", "1", 0)
    assert task["retry"] == {"mode": "NEVER"}
    assert without_waiting(caller.task(task["task_id"])) == task


def without_waiting(task: dict[str, Any]) -> dict[str, Any]:
    """A look at one task adds why it waits; nothing else differs."""
    return {name: value for name, value in task.items() if name != "waiting"}


def test_every_member_that_was_given_is_shown(caller: Caller):
    task = caller.submitted(
        priority=9,
        delay_ms=60_000,
        expires_in_ms=120_000,
        attempt_timeout_ms=5_000,
        resource_key="printer 1",
        retry={"mode": "SAFE", "initial_backoff_ms": 90_000},
    )
    accepted_at = parse_rfc3339(task["created_at"])
    assert task["priority"] == 9
    assert task["state"] == "SCHEDULED"
    assert task["available_at"] == format_rfc3339(accepted_at + 60_000_000)
    assert task["deadline_at"] == format_rfc3339(accepted_at + 120_000_000)
    assert (task["attempt_timeout_ms"], task["resource_key"], task["max_attempts"]) == (5_000, "printer 1", 3)
    assert task["retry"] == {
        "mode": "SAFE",
        "max_attempts": 3,
        "initial_backoff_ms": 90_000,
        "max_backoff_ms": 90_000,
        "multiplier": 2,
    }
    assert without_waiting(caller.task(task["task_id"])) == task


@pytest.mark.parametrize("payload", TEXTS, ids=["numbers", "strings", "null", "blanks", "5000 digits"])
def test_a_payload_comes_back_digit_for_digit(payload: str, caller: Caller):
    answer = submit_text(caller, payload).expect(201)
    shown = f'"payload":{payload},'.encode()
    assert shown in answer.body
    assert shown in caller.get(answer.headers["Location"]).body
    assert shown in submit_text(caller, payload).expect(200).body


def test_a_repeat_is_200_with_the_original_receipt_whatever_became_of_the_task(caller: Caller, tenant: Tenant):
    first = caller.submit(key="k").expect(201).data
    repeat = caller.submit(key="k").expect(200)
    assert repeat.data["receipt"] == {**first["receipt"], "deduplicated": True}
    assert "Location" not in repeat.headers
    factories.finish(factories.run_one(tenant), result="[1.10]")
    late = caller.submit(key="k").expect(200).data
    assert late["receipt"] == {**first["receipt"], "deduplicated": True}
    assert (late["task"]["state"], late["task"]["revision"]) == ("SUCCEEDED", "3")


def test_a_repeat_after_the_task_was_pruned_has_the_receipt_and_no_task(caller: Caller, tenant: Tenant):
    task_id = caller.submit(key="k").expect(201).data["task"]["task_id"]
    factories.cancel(tenant, task_id)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM orbit_event WHERE task_id = %s", [task_id])
        cursor.execute("DELETE FROM orbit_task WHERE task_id = %s", [task_id])
    data = caller.submit(key="k").expect(200).data
    assert data["task"] is None
    assert data["receipt"]["task_id"] == task_id
    with connection.cursor() as cursor:  # the books know of no retention
        cursor.execute("DELETE FROM orbit_idempotency_record WHERE task_id = %s", [task_id])


def test_the_same_key_with_other_content_is_a_conflict_that_names_the_task_and_writes_nothing(caller: Caller):
    task_id = caller.submit(key="k").expect(201).data["task"]["task_id"]
    before = factories.snapshot()
    answer = caller.submit(key="k", payload={"n": 1.0}).expect(409, "IDEMPOTENCY_CONFLICT")
    assert answer.error["details"][0]["task_id"] == task_id
    assert factories.snapshot() == before


def test_keys_are_compared_byte_for_byte_and_quotes_are_part_of_them(caller: Caller):
    keys = ["k", "K", '"k"', "k,", "k" * 128]
    tasks = {caller.submit(key=key).expect(201).data["task"]["task_id"] for key in keys}
    assert len(tasks) == len(keys)


@pytest.mark.parametrize("key", [None, "", "k" * 129, "a b", "é", "\x7f"])
def test_a_missing_or_malformed_key_is_400(key: str | None, caller: Caller):
    answer = caller.post("/v1/tasks", caller.task_body(), **({} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}))
    assert answer.expect(400).fields == ["Idempotency-Key"]


def test_a_key_that_came_twice_is_400(caller: Caller):
    environ = {"orbit.repeated_headers": frozenset({"idempotency-key"})}
    assert caller.post("/v1/tasks", caller.task_body(), key="a,a", **environ).expect(400).fields == ["Idempotency-Key"]


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"handler": ""}, "handler"),
        ({"handler": "a\u200bb"}, "handler"),
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": 1.0}, "priority"),
        ({"priority": "1"}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": None}, "priority"),
        ({"delay_ms": 1, "available_at": "2026-01-01T00:00:00Z"}, "delay_ms"),
        ({"delay_ms": 5, "expires_in_ms": 5}, "expires_in_ms"),
        ({"available_at": "2999-01-01T00:00:00Z"}, "available_at"),
        ({"available_at": "yesterday"}, "available_at"),
        ({"retry": {"mode": "SAFE", "max_attempts": 101}}, "retry.max_attempts"),
        ({"queue_id": "main"}, "queue_id"),
        ({"Priority": 1}, "Priority"),
        ({"resource_key": "x" * 129}, "resource_key"),
        ({"parent_task_id": "0" * 32}, "parent_fencing_token"),
    ],
)
def test_a_request_that_breaks_a_rule_is_400_and_writes_nothing(members: dict[str, Any], field: str, caller: Caller):
    before = factories.snapshot()
    assert caller.submit(**members).expect(400, "INVALID_ARGUMENT").fields == [field]
    assert factories.snapshot() == before


def test_a_payload_past_256_kib_is_413(caller: Caller):
    submit_text(caller, '"' + "x" * 262_142 + '"').expect(201)
    answer = submit_text(caller, '"' + "x" * 262_143 + '"', key="other").expect(413, "PAYLOAD_TOO_LARGE")
    assert answer.fields == ["payload"]


def test_a_back_dated_task_is_available_now(caller: Caller):
    task = caller.submitted(available_at="2020-01-01T00:00:00Z")
    assert task["available_at"] == task["created_at"]


def test_priority_0_is_left_out_in_an_aged_namespace_and_shown_in_a_strict_one(caller: Caller, strict_caller: Caller):
    assert "priority" not in caller.submitted(priority=0)
    assert caller.submitted(priority=1)["priority"] == 1
    assert strict_caller.submitted()["priority"] == 0
    assert strict_caller.submitted(priority=-9)["priority"] == -9
    strict_caller.submit(priority=10).expect(400)


def test_a_full_queue_refuses_what_is_new_and_still_answers_for_what_it_accepted(caller: Caller, tenant: Tenant):
    factories.change_queue(tenant, max_unfinished=1)
    caller.submit(key="first").expect(201)
    answer = caller.submit(key="second").expect(429, "QUEUE_FULL")
    assert answer.error["retry_after_ms"] == 1000
    assert answer.headers["Retry-After"] == "1"
    caller.submit(key="first").expect(200)


def test_a_full_application_refuses_with_its_own_code(caller: Caller, tenant: Tenant):
    factories.set_quotas(tenant, max_unfinished=1)
    caller.submit().expect(201)
    assert caller.submit().expect(429, "APPLICATION_FULL").headers["Retry-After"] == "1"


def test_a_paused_queue_accepts(caller: Caller, tenant: Tenant):
    factories.pause(tenant)
    caller.submit().expect(201)


def test_the_queue_of_a_submit_is_found_or_refused_by_the_body(caller: Caller, tenant: Tenant, foreign_caller: Caller):
    assert foreign_caller.tenant is not None
    foreign = caller.submit(queue_id=foreign_caller.tenant.queue_id).expect(404, "NOT_FOUND")
    assert foreign.error == caller.submit(queue_id="0" * 32).expect(404).error
    confined = Caller.of(tenant, queue_ids=[tenant.queue()])
    confined.submit().expect(403, "PERMISSION_DENIED")


def test_a_repeat_needs_the_queue_still_to_be_in_scope(caller: Caller, tenant: Tenant):
    caller.submit(key="k").expect(201)
    Caller.of(tenant, queue_ids=[tenant.queue()]).submit(key="k").expect(403)


def test_a_child_inherits_the_priority_of_its_running_parent(caller: Caller, tenant: Tenant):
    parent = caller.submitted(priority=7)["task_id"]
    offer = factories.run_one(tenant)
    token = str(offer.task.fencing_token)
    child = caller.submitted(parent_task_id=parent, parent_fencing_token=token)
    assert (child["priority"], child["parent_task_id"]) == (7, parent)
    stale = caller.submit(parent_task_id=parent, parent_fencing_token=str(int(token) + 1))
    stale.expect(409, "FAILED_PRECONDITION")
    caller.submit(parent_task_id="0" * 32, parent_fencing_token="1").expect(409, "FAILED_PRECONDITION")


def test_the_trace_of_the_submit_is_stored_with_the_task(caller: Caller):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    answer = caller.post(
        "/v1/tasks", caller.task_body(), key="k", HTTP_TRACEPARENT=f"00-{trace}-00f067aa0ba902b7-01"
    ).expect(201)
    assert factories.row(answer.data["task"]["task_id"]).traceparent == answer.headers["traceparent"]


def test_the_request_id_stands_in_the_audit_entry(caller: Caller):
    answer = caller.submit().expect(201)
    (entry,) = factories.rows_of("orbit_audit_entry", "object_id = %s", [answer.data["task"]["task_id"]])
    assert entry.request_id == answer.json["request_id"]


def test_two_simultaneous_submits_of_one_key_make_one_task_one_201_and_one_200(caller: Caller, tenant: Tenant):
    answers: list[Any] = []
    start = threading.Barrier(4)

    def submit() -> None:
        client = Caller(caller.token, tenant)
        start.wait(10)
        answers.append(client.submit(key="k"))
        connection.close()

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 201]
    assert len({answer.data["receipt"]["task_id"] for answer in answers}) == 1
    assert len(factories.rows_of("orbit_task")) == 1


def test_a_caller_that_may_only_submit_sees_the_task_it_made(tenant: Tenant):
    caller = Caller.of(tenant, actions=[Action.TASKS_SUBMIT])
    assert caller.submit().expect(201).data["task"]["payload"] == {"n": 1}
