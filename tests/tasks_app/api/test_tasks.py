"""Reading and steering tasks (design 1.4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from orbit_project.serving import long_polls, pooled_wsgi
from tasks_app.api import context, waits
from tasks_app.endings import Report
from tasks_app.instants import format_rfc3339
from tasks_app.states import Action
from tests.tasks_app import factories
from tests.tasks_app.api.callers import Answer, Caller
from tests.tasks_app.factories import Tenant


def ids(answer: Answer) -> list[str]:
    return [item["task_id"] for item in answer.expect(200).data["items"]]


def failed(tenant: Tenant, **more: Any) -> str:
    task_id = factories.submit(tenant)
    factories.finish(factories.run_one(tenant), Report.FAILED, **more)
    return task_id


def unknown(tenant: Tenant) -> str:
    task_id = factories.submit(tenant)
    factories.lose(factories.run_one(tenant))
    return task_id


# -- GET one


def test_result_and_error_come_back_digit_for_digit(caller: Caller, tenant: Tenant):
    done = factories.submit(tenant)
    factories.finish(factories.run_one(tenant), result='{"n": 1.10, "big": 9007199254740993}')
    assert b'"result":{"n": 1.10, "big": 9007199254740993}' in caller.get(f"/v1/tasks/{done}").body
    broken = failed(tenant, error_details='{"x": 1e400}')
    body = caller.get(f"/v1/tasks/{broken}").body
    assert b'"error":{"code": "BROKEN", "message": "it broke", "details": {"x": 1e400}}' in body
    assert b'"finished_at":"' in body


def test_a_running_task_that_is_asked_to_stop_says_so(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    factories.run_one(tenant)
    assert "cancel_requested" not in caller.task(task_id)
    factories.cancel(tenant, task_id)
    assert caller.task(task_id)["cancel_requested"] is True


def test_losses_are_shown_once_there_are_any(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant, retry=factories.SAFE)
    assert "losses" not in caller.task(task_id)
    factories.lose(factories.run_one(tenant))
    assert caller.task(task_id)["losses"] == 1


def test_an_etag_answers_304_until_something_shown_changes(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    path = f"/v1/tasks/{task_id}"
    etag = caller.get(path).headers["ETag"]
    assert etag.startswith('W/"')
    for header in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        answer = caller.get(path, HTTP_IF_NONE_MATCH=header)
        assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
        assert "X-Request-Id" in answer.headers
    factories.claim_one(tenant)  # shown, though the revision stays
    answer = caller.get(path, HTTP_IF_NONE_MATCH=etag).expect(200)
    assert answer.headers["ETag"] != etag
    for header in ('"other"', "nonsense", ""):
        caller.get(path, HTTP_IF_NONE_MATCH=header).expect(200)


def test_a_task_that_waits_says_why_and_a_list_does_not(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant, delay_ms=60_000)
    task = caller.task(task_id)
    assert task["waiting"] == {"reason": "NOT_DUE", "detail": {"available_at": task["available_at"]}}
    assert "waiting" not in caller.get("/v1/tasks").data["items"][0]
    factories.cancel(tenant, task_id)
    assert "waiting" not in caller.task(task_id)


# -- waiting


def held(answer: Answer) -> dict[str, Any] | None:
    text = answer.headers.get(waits.HEADER)
    return None if text is None else json.loads(text)


NODE = {waits.ENVIRON_ENABLED: True}


def test_the_words_between_views_and_the_node_are_the_same_on_both_sides():
    assert waits.HEADER.lower() == long_polls.WAIT_HEADER
    assert waits.ENVIRON_WAIT == long_polls.ENVIRON_WAIT
    assert waits.ENVIRON_ENABLED == long_polls.ENVIRON_ENABLED
    assert context.REPEATED_HEADERS == pooled_wsgi.REPEATED_HEADERS
    assert context.CLIENT_GONE == pooled_wsgi.CLIENT_GONE


def test_a_wait_asks_the_node_to_keep_the_answer_back(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    answer = caller.get(f"/v1/tasks/{task_id}?wait_ms=12000", **NODE).expect(200)
    wait = held(answer)
    assert wait == {"kind": "task", "task_id": task_id, "revision": 1, "baseline": 1, "wait_ms": 12_000}
    assert long_polls.parse_wait(answer.headers[waits.HEADER]).seen == 1


def test_the_second_run_answers_when_the_revision_is_newer_than_at_arrival(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    path = f"/v1/tasks/{task_id}?wait_ms=12000"
    first = held(caller.get(path, **NODE))
    assert first is not None
    again = caller.get(path, **NODE, **{waits.ENVIRON_WAIT: {**first, "final": False}})
    assert held(again) == first
    factories.run_one(tenant)
    changed = caller.get(path, **NODE, **{waits.ENVIRON_WAIT: {**first, "final": False}})
    assert held(changed) is None
    assert changed.data["task"]["revision"] == "2"


def test_the_last_run_answers_with_the_current_state_whatever_it_is(caller: Caller, tenant: Tenant):
    path = f"/v1/tasks/{factories.submit(tenant)}?wait_ms=12000"
    first = held(caller.get(path, **NODE))
    assert first is not None
    final = caller.get(path, **NODE, **{waits.ENVIRON_WAIT: {**first, "final": True}}).expect(200)
    assert held(final) is None


def test_a_revision_newer_than_the_one_asked_for_answers_at_once(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    factories.run_one(tenant)
    assert held(caller.get(f"/v1/tasks/{task_id}?wait_ms=9&revision=1", **NODE)) is None
    wait = held(caller.get(f"/v1/tasks/{task_id}?wait_ms=9&revision=2", **NODE))
    assert wait is not None
    assert (wait["revision"], wait["baseline"]) == (2, 2)
    ahead = held(caller.get(f"/v1/tasks/{task_id}?wait_ms=9&revision=7", **NODE))
    assert ahead is not None
    assert (ahead["revision"], ahead["baseline"]) == (2, 7)
    rerun = caller.get(f"/v1/tasks/{task_id}?wait_ms=9&revision=7", **NODE, **{waits.ENVIRON_WAIT: ahead})
    assert held(rerun) == ahead


def test_without_a_node_or_a_time_nobody_waits(caller: Caller, tenant: Tenant):
    path = f"/v1/tasks/{factories.submit(tenant)}"
    for query, environ in (("?wait_ms=9000", {}), ("?wait_ms=0", NODE), ("", NODE)):
        assert held(caller.get(path + query, **environ).expect(200)) is None


@pytest.mark.parametrize(
    "query", ["wait_ms=30001", "wait_ms=-1", "wait_ms=1.5", "wait_ms=", "revision=x", "revision=-1"]
)
def test_a_wait_outside_its_range_is_400(query: str, caller: Caller, tenant: Tenant):
    answer = caller.get(f"/v1/tasks/{factories.submit(tenant)}?{query}")
    assert answer.expect(400).fields == [query.split("=")[0]]


# -- GET list


def test_a_list_is_newest_first_in_pages_that_neither_repeat_nor_skip(caller: Caller, tenant: Tenant):
    tasks = [factories.submit(tenant) for _ in range(7)]
    seen: list[str] = []
    path, cursor = "/v1/tasks?limit=3", ""
    while True:
        answer = caller.get(path + cursor)
        seen += ids(answer)
        factories.submit(tenant)  # what arrives meanwhile is newer than every page that is still to come
        if answer.data["next_cursor"] is None:
            break
        cursor = f"&cursor={answer.data['next_cursor']}"
    assert seen == tasks[::-1]


def test_summaries_leave_out_payload_result_and_the_details_of_an_error(caller: Caller, tenant: Tenant):
    failed(tenant, error_details='{"secret": 1}')
    factories.submit(tenant)
    factories.finish(factories.run_one(tenant), result='{"secret": 2}')
    done, broken = caller.get("/v1/tasks").data["items"]
    assert not {"payload", "result", "waiting"} & (set(done) | set(broken))
    assert broken["error"] == {"code": "BROKEN", "message": "it broke"}
    assert (done["state"], done["revision"], broken["state"]) == ("SUCCEEDED", "3", "FAILED")
    whole = caller.task(done["task_id"])
    assert {name: whole[name] for name in done} == done


def test_a_list_is_narrowed_by_each_filter(caller: Caller, tenant: Tenant):
    other = tenant.queue()
    plain = factories.submit(tenant)
    elsewhere = factories.submit(tenant, queue_id=other)
    urgent = factories.submit(tenant, priority=9)
    keyed = factories.submit(tenant, resource_key="é key")
    handled = factories.submit(tenant, handler="other handler")
    later = factories.submit(tenant, delay_ms=60_000)
    everything = [later, handled, keyed, urgent, elsewhere, plain]
    assert ids(caller.get("/v1/tasks")) == everything
    assert ids(caller.get(f"/v1/tasks?queue_id={other}")) == [elsewhere]
    assert ids(caller.get("/v1/tasks?priority=9")) == [urgent]
    assert ids(caller.get("/v1/tasks?priority=-3")) == []
    assert ids(caller.get("/v1/tasks?resource_key=%C3%A9%20key")) == [keyed]
    assert ids(caller.get("/v1/tasks?resource_key=e%20key")) == []
    assert ids(caller.get("/v1/tasks?handler=other%20handler")) == [handled]
    assert ids(caller.get("/v1/tasks?handler=Other%20handler")) == []
    assert ids(caller.get("/v1/tasks?state=SCHEDULED")) == [later]
    assert ids(caller.get("/v1/tasks?state=SCHEDULED&state=READY")) == everything
    assert ids(caller.get(f"/v1/tasks?state=READY&priority=0&queue_id={tenant.queue_id}")) == [handled, keyed, plain]


def test_a_list_is_narrowed_to_when_tasks_were_accepted(caller: Caller, tenant: Tenant):
    tasks = [factories.submit(tenant) for _ in range(3)]
    moments = [format_rfc3339(factories.row(task).created_at) for task in tasks]
    assert ids(caller.get(f"/v1/tasks?created_from={moments[1]}")) == [tasks[2], tasks[1]]
    assert ids(caller.get(f"/v1/tasks?created_to={moments[1]}")) == [tasks[0]]
    assert ids(caller.get(f"/v1/tasks?created_from={moments[1]}&created_to={moments[2]}")) == [tasks[1]]
    assert ids(caller.get("/v1/tasks?created_from=0001-01-01T00:00:00Z&created_to=9999-12-31T23:59:59Z")) == tasks[::-1]


def test_dead_letters_are_what_failed_and_was_neither_replayed_nor_dismissed(caller: Caller, tenant: Tenant):
    dead, fine = failed(tenant), factories.submit(tenant)
    assert ids(caller.get("/v1/tasks?dead=true")) == [dead]
    assert ids(caller.get("/v1/tasks?dead=false")) == [fine]
    factories.set_columns(dead, dismissed_at=factories.now())
    assert ids(caller.get("/v1/tasks?dead=true")) == []
    assert ids(caller.get("/v1/tasks?dead=false")) == [fine, dead]


def test_what_needs_reconciling_is_found(caller: Caller, tenant: Tenant):
    lost = unknown(tenant)
    factories.submit(tenant)
    assert ids(caller.get("/v1/tasks?state=UNKNOWN")) == [lost]
    assert ids(caller.get("/v1/tasks?state=UNKNOWN&state=READY"))[1:] == [lost]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=201",
        "limit=ten",
        "limit=5&limit=5",
        "queue_id=x",
        "queue_id=",
        "state=ready",
        "state=DONE",
        "priority=10",
        "priority=1.0",
        "created_from=yesterday",
        "created_to=2026-09-17",
        "dead=1",
        "dead=",
        "cursor=",
        "cursor=made-up",
        "page=2",
        "State=READY",
        "handler=a&handler=b",
    ],
)
def test_a_filter_that_breaks_a_rule_is_400(query: str, caller: Caller):
    assert caller.get(f"/v1/tasks?{query}").expect(400).fields == [query.split("=")[0]]


def test_a_cursor_is_bound_to_its_filters_and_its_namespace(caller: Caller, tenant: Tenant, foreign_caller: Caller):
    for _ in range(3):
        factories.submit(tenant)
    cursor = caller.get("/v1/tasks?limit=1&state=READY").data["next_cursor"]
    caller.get(f"/v1/tasks?limit=200&state=READY&cursor={cursor}").expect(200)
    for query in ("", "state=SCHEDULED&", "state=READY&priority=0&", f"state=READY&queue_id={tenant.queue_id}&"):
        assert caller.get(f"/v1/tasks?{query}cursor={cursor}").expect(400).fields == ["cursor"]
    foreign_caller.get(f"/v1/tasks?state=READY&cursor={cursor}").expect(400)
    caller.get(f"/v1/queues?cursor={cursor}").expect(400)


def test_the_queue_of_a_filter_is_found_or_refused_like_any_other(
    caller: Caller, tenant: Tenant, foreign_caller: Caller
):
    assert foreign_caller.tenant is not None
    foreign = caller.get(f"/v1/tasks?queue_id={foreign_caller.tenant.queue_id}").expect(404, "NOT_FOUND")
    assert foreign.error == caller.get(f"/v1/tasks?queue_id={'0' * 32}").expect(404).error
    confined = Caller.of(tenant, queue_ids=[tenant.queue()])
    confined.get(f"/v1/tasks?queue_id={tenant.queue_id}").expect(403)


def test_a_credential_whose_list_of_queues_is_empty_sees_nothing(tenant: Tenant):
    factories.submit(tenant)
    caller = Caller.of(tenant, queue_ids=[])
    for path in ("/v1/tasks", "/v1/queues", "/v1/events"):
        assert caller.get(path).expect(200).data["items"] == []


# -- cancel


def cancel(caller: Caller, task_id: str, revision: str = "1", **more: Any) -> Answer:
    return caller.post(f"/v1/tasks/{task_id}:cancel", {"revision": revision, **more})


@pytest.mark.parametrize("delay_ms", [0, 60_000], ids=["READY", "SCHEDULED"])
def test_a_task_that_has_not_started_is_canceled_and_canceling_again_is_200(
    delay_ms: int, caller: Caller, tenant: Tenant
):
    task_id = factories.submit(tenant, delay_ms=delay_ms)
    task = cancel(caller, task_id, reason="no longer needed").expect(200).data["task"]
    assert (task["state"], task["revision"]) == ("CANCELED", "2")
    assert cancel(caller, task_id, reason="again").expect(200).data["task"] == task
    (entry,) = factories.rows_of("orbit_audit_entry", "object_id = %s AND action = 'task.cancel'", [task_id])
    assert (entry.reason, entry.actor) == ("no longer needed", tenant.credential_id)


def test_a_reserved_task_is_canceled(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    factories.claim_one(tenant)
    assert cancel(caller, task_id).expect(200).data["task"]["state"] == "CANCELED"


def test_a_running_task_is_asked_to_stop_and_asking_again_is_200(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    factories.run_one(tenant)
    task = cancel(caller, task_id, "2").expect(200).data["task"]
    assert (task["state"], task["cancel_requested"], task["revision"]) == ("RUNNING", True, "3")
    assert cancel(caller, task_id, "2").expect(200).data["task"] == task


@pytest.mark.parametrize("make", [failed, unknown], ids=["FAILED", "UNKNOWN"])
def test_a_task_that_ended_otherwise_or_is_unknown_cannot_be_canceled_judged_before_the_revision(
    make: Callable[[Tenant], str], caller: Caller, tenant: Tenant
):
    cancel(caller, make(tenant), "99").expect(409, "FAILED_PRECONDITION")


def test_a_stale_revision_is_409_with_the_current_one(caller: Caller, tenant: Tenant):
    task_id = factories.submit(tenant)
    factories.run_one(tenant)
    answer = cancel(caller, task_id, "1").expect(409, "REVISION_CONFLICT")
    (detail,) = answer.error["details"]
    assert (detail["field"], detail["current"]) == ("revision", "2")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "revision"),
        ({"revision": 1}, "revision"),
        ({"revision": None}, "revision"),
        ({"revision": "01"}, "revision"),
        ({"revision": "0"}, "revision"),
        ({"revision": "-1"}, "revision"),
        ({"revision": "1.0"}, "revision"),
        ({"revision": "9" * 20}, "revision"),
        ({"revision": "1", "reason": ""}, "reason"),
        ({"revision": "1", "reason": "x" * 1001}, "reason"),
        ({"revision": "1", "reason": None}, "reason"),
        ({"revision": "1", "force": True}, "force"),
    ],
)
def test_a_cancel_that_breaks_a_rule_is_400(body: dict[str, Any], field: str, caller: Caller, tenant: Tenant):
    answer = caller.post(f"/v1/tasks/{factories.submit(tenant)}:cancel", body)
    assert answer.expect(400).fields == [field]


# -- reconcile


def reconcile(caller: Caller, task_id: str, decision: str, revision: str = "3", **more: Any) -> Answer:
    body = {"revision": revision, "decision": decision, "reason": "looked at it", **more}
    return caller.post(f"/v1/tasks/{task_id}:reconcile", body)


def test_an_unknown_task_is_settled_as_succeeded_with_its_result(caller: Caller, tenant: Tenant):
    task_id = unknown(tenant)
    text = '{"revision":"3","decision":"SUCCEEDED","reason":"it is there","result":{"n":1.10}}'
    answer = caller.post(f"/v1/tasks/{task_id}:reconcile", content=text).expect(200)
    assert (answer.data["task"]["state"], answer.data["task"]["revision"]) == ("SUCCEEDED", "4")
    assert b'"result":{"n":1.10}' in answer.body


def test_an_unknown_task_is_settled_as_failed_with_its_error(caller: Caller, tenant: Tenant):
    error = {"code": "NOT_THERE", "message": "", "details": [1]}
    task = reconcile(caller, unknown(tenant), "FAILED", error=error).expect(200).data["task"]
    assert (task["state"], task["error"]) == ("FAILED", error)
    task = reconcile(caller, unknown(tenant), "FAILED").expect(200).data["task"]
    assert task["error"]["message"] == "looked at it"


def test_an_unknown_task_is_made_ready_whatever_its_retry_mode_and_may_start_once_more(caller: Caller, tenant: Tenant):
    task_id = unknown(tenant)
    task = reconcile(caller, task_id, "RETRY").expect(200).data["task"]
    assert (task["state"], task["attempts"], task["max_attempts"]) == ("READY", 1, 2)
    factories.finish(factories.run_one(tenant))
    assert caller.task(task_id)["state"] == "SUCCEEDED"


def test_only_an_unknown_task_is_reconciled_judged_before_the_revision(caller: Caller, tenant: Tenant):
    task_id = unknown(tenant)
    reconcile(caller, factories.submit(tenant), "RETRY", "99").expect(409, "FAILED_PRECONDITION")
    answer = reconcile(caller, task_id, "RETRY", "2").expect(409, "REVISION_CONFLICT")
    assert answer.error["details"][0]["current"] == "3"
    reconcile(caller, task_id, "RETRY").expect(200)
    reconcile(caller, task_id, "RETRY", "4").expect(409, "FAILED_PRECONDITION")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"decision": "MAYBE"}, "decision"),
        ({"decision": None}, "decision"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 1001}, "reason"),
        ({"decision": "RETRY", "result": 1}, "result"),
        ({"decision": "FAILED", "result": 1}, "result"),
        ({"decision": "SUCCEEDED", "error": {"code": "A", "message": ""}}, "error"),
        ({"decision": "FAILED", "error": {"code": "", "message": ""}}, "error.code"),
        ({"decision": "FAILED", "error": {"code": "x" * 129, "message": ""}}, "error.code"),
        ({"decision": "FAILED", "error": {"code": "A", "message": "x" * 4097}}, "error.message"),
        ({"decision": "FAILED", "error": {"code": "A"}}, "error.message"),
        ({"decision": "FAILED", "error": None}, "error"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_decision_that_breaks_a_rule_is_400(change: dict[str, Any], field: str, caller: Caller, tenant: Tenant):
    body = {"revision": "3", "decision": "RETRY", "reason": "looked", **change}
    assert caller.post(f"/v1/tasks/{unknown(tenant)}:reconcile", body).expect(400).fields == [field]


def test_a_reason_is_required_to_reconcile(caller: Caller, tenant: Tenant):
    answer = caller.post(f"/v1/tasks/{unknown(tenant)}:reconcile", {"revision": "3", "decision": "RETRY"})
    assert answer.expect(400).fields == ["reason"]


def test_documents_of_a_decision_have_their_limits(caller: Caller, tenant: Tenant):
    task_id = unknown(tenant)
    answer = reconcile(caller, task_id, "SUCCEEDED", result="x" * 262_143).expect(413, "PAYLOAD_TOO_LARGE")
    assert answer.fields == ["result"]
    error = {"code": "A", "message": "", "details": "x" * 65_535}
    assert reconcile(caller, task_id, "FAILED", error=error).expect(413).fields == ["error.details"]
    reconcile(caller, task_id, "SUCCEEDED", result="x" * 262_142).expect(200)


def test_null_is_a_result(caller: Caller, tenant: Tenant):
    task = reconcile(caller, unknown(tenant), "SUCCEEDED", result=None).expect(200).data["task"]
    assert task["result"] is None


def test_a_reader_may_not_steer(tenant: Tenant):
    reader = Caller.of(tenant, actions=[Action.TASKS_READ])
    cancel(reader, factories.submit(tenant)).expect(403)
