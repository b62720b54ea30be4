"""The client over a real socket: what is sent, what is refused before sending, what is believed of an answer."""

from __future__ import annotations

import socket
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from orbit_sdk import (
    ApiError,
    AsyncOrbitClient,
    ConnectionLost,
    IdempotencyConflict,
    Internal,
    InvalidRequest,
    NotFound,
    OrbitClient,
    QueueFull,
    RetryPolicy,
    SubmitTask,
    TaskState,
    Unauthenticated,
    Unavailable,
    UnverifiableResponse,
    WaitTimeout,
)
from orbit_sdk.errors import ERROR_CLASSES
from tests.sdk.fake_api import (
    NOW,
    QUEUE,
    REQUEST,
    TASK,
    FakeApi,
    Reply,
    Seen,
    accepted_object,
    failure,
    queue_object,
    receipt_object,
    success,
    task_object,
)

OTHER = "9" * 32


def a_task(**changes: Any) -> SubmitTask:
    return SubmitTask(**{"queue": "reports", "handler": "object.prepare", "payload": {"n": 1}, **changes})


# -- Submitting


def test_a_submit_sends_the_request_of_the_contract(api: FakeApi, client: OrbitClient) -> None:
    api.success(accepted_object(), 201)

    accepted = client.submit_task(
        "order-1", a_task(priority=9, payload={"big": 9007199254740993, "d": Decimal("1.10")})
    )

    (seen,) = api.seen
    assert (seen.method, seen.path) == ("POST", "/v1/tasks")
    assert seen.headers["idempotency-key"] == "order-1"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["authorization"] == "Bearer orbit_test_token"
    assert b'"payload":{"big":9007199254740993,"d":1.10}' in seen.body
    assert {name: value for name, value in seen.json.items() if name != "payload"} == {
        "queue_id": QUEUE,
        "handler": "object.prepare",
        "handler_version": "v1",
        "payload_version": "v1",
        "priority": 9,
    }
    assert (accepted.task_id, accepted.deduplicated, accepted.request_id) == (TASK, False, REQUEST)


def test_only_what_was_given_is_sent(api: FakeApi, client: OrbitClient) -> None:
    api.success(accepted_object(), 201)
    moment = datetime(2026, 9, 17, 8, 0, tzinfo=UTC)

    client.submit_task(
        "k",
        a_task(
            priority=0,
            available_at=moment,
            expires_in_ms=5000,
            attempt_timeout_ms=100,
            retry=RetryPolicy.safe(5, multiplier=3),
            resource_key="disk",
            payload=None,
        ),
    )

    assert api.seen[0].json == {
        "queue_id": QUEUE,
        "handler": "object.prepare",
        "handler_version": "v1",
        "payload_version": "v1",
        "priority": 0,
        "available_at": "2026-09-17T08:00:00Z",
        "expires_in_ms": 5000,
        "attempt_timeout_ms": 100,
        "retry": {"mode": "SAFE", "max_attempts": 5, "multiplier": 3},
        "resource_key": "disk",
        "payload": None,
    }


@pytest.mark.parametrize("key", ["", " ", "a b", "ü", "a\n", "x" * 129])
def test_a_key_that_breaks_the_rule_is_not_sent(api: FakeApi, client: OrbitClient, key: str) -> None:
    with pytest.raises(InvalidRequest, match="key"):
        client.submit_task(key, a_task())

    assert api.seen == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"queue": "unknown"}, "task.queue"),
        ({"payload": float("nan")}, "JSON"),
        ({"payload": {1: 2}}, "not a string"),
        ({"payload": "x" * (384 * 1024)}, "at most 393216"),
        ({"available_at": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 (that is the point)
        ({"available_at": datetime.now(UTC), "delay_ms": 1}, "together"),
        ({"priority": True}, "integer"),
        ({"priority": 1.0}, "integer"),
        ({"delay_ms": "5"}, "integer"),
        ({"parent_task_id": TASK}, "parent_fencing_token"),
    ],
)
def test_a_task_that_cannot_be_right_is_not_sent(
    api: FakeApi, client: OrbitClient, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        client.submit_task("k", a_task(**changes))

    assert api.seen == []


def test_a_repeated_acceptance_shows_the_original_receipt(api: FakeApi, client: OrbitClient) -> None:
    api.success({"task": None, "receipt": receipt_object(deduplicated=True)}, 200)

    accepted = client.submit_task("k", a_task())

    assert accepted.deduplicated
    assert accepted.task is None
    assert accepted.receipt.created_at == datetime(2026, 9, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (accepted_object(receipt=receipt_object(queue_id=OTHER)), 201),
        (accepted_object(receipt=receipt_object(task_id=OTHER)), 201),
        (accepted_object(receipt=receipt_object(deduplicated=True)), 201),
        (accepted_object(receipt=receipt_object(deduplicated=False)), 200),
        (accepted_object(receipt=receipt_object(revision=1)), 201),
        (accepted_object(receipt=receipt_object(created_at="yesterday")), 201),
        (accepted_object(receipt=None), 201),
        (accepted_object(task=task_object(state="DONE")), 201),
        ({"receipt": receipt_object()}, 201),
        (accepted_object(), 202),
        ([], 201),
        (None, 201),
    ],
)
def test_a_receipt_that_does_not_fit_the_request_is_not_believed(
    api: FakeApi, client: OrbitClient, data: Any, status: int
) -> None:
    api.success(data, status)

    with pytest.raises(UnverifiableResponse) as refusal:
        client.submit_task("k", a_task())

    assert refusal.value.outcome_unknown
    assert refusal.value.request_id == REQUEST
    assert len(api.seen) == 1


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (201, b"", "application/json"),
        (201, b"{}", "application/json"),
        (201, b'{"request_id":"1","data":{}}', "application/json"),
        (201, b'{"data":{},"data":{}}', "application/json"),
        (201, b"<html>", "text/html"),
        (502, b"<html>Bad gateway</html>", "text/html"),
        (500, b'{"error":{"code":"INTERNAL","message":"m"}}', "application/json"),
        (200, b'{"request_id":"%s","error":{"code":"X","message":"m"}}' % REQUEST.encode(), "application/json"),
        (400, b'{"request_id":"%s","error":{"code":1,"message":"m"}}' % REQUEST.encode(), "application/json"),
        (400, b'{"request_id":"%s","data":{}}' % REQUEST.encode(), "application/json"),
        (302, b"", "application/json"),
        (201, b'{"request_id":"%s","data":NaN}' % REQUEST.encode(), "application/json"),
    ],
)
def test_an_answer_that_is_no_envelope_is_not_believed(
    api: FakeApi, client: OrbitClient, status: int, body: bytes, content_type: str
) -> None:
    api.raw(status, body, Content_Type=content_type)

    with pytest.raises(UnverifiableResponse):
        client.submit_task("k", a_task())


def test_a_redirect_is_never_followed(api: FakeApi, client: OrbitClient) -> None:
    api.raw(307, b"", Location="/v1/elsewhere", Content_Type="application/json")

    with pytest.raises(UnverifiableResponse):
        client.submit_task("k", a_task())

    assert [seen.path for seen in api.seen] == ["/v1/tasks"]


def test_a_lost_answer_is_never_repeated_by_itself(api: FakeApi, client: OrbitClient) -> None:
    api.cut()

    with pytest.raises(ConnectionLost) as lost:
        client.submit_task("k", a_task())

    assert lost.value.outcome_unknown
    assert len(api.seen) == 1


def test_an_answer_cut_on_a_reused_connection_is_not_repeated(api: FakeApi, client: OrbitClient) -> None:
    api.success(accepted_object(), 201)
    api.cut()
    client.submit_task("k", a_task())

    with pytest.raises(ConnectionLost):
        client.submit_task("k2", a_task())

    assert len(api.seen) == 2


def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]

    with OrbitClient(f"http://127.0.0.1:{port}", "t") as client, pytest.raises(ConnectionLost):
        client.get_task(TASK)


def test_a_server_that_does_not_answer_in_time_is_a_lost_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with OrbitClient(f"http://127.0.0.1:{port}", "t", timeout=0.05) as client, pytest.raises(ConnectionLost):
            client.get_task(TASK)


# -- Refusals


@pytest.mark.parametrize("code", sorted(ERROR_CLASSES))
def test_every_code_has_its_class(api: FakeApi, client: OrbitClient, code: str) -> None:
    api.failure(418, code)

    with pytest.raises(ERROR_CLASSES[code]) as refusal:
        client.get_task(TASK)

    assert refusal.value.code == code
    assert refusal.value.outcome_unknown == (code in ("UNAVAILABLE", "INTERNAL"))


def test_a_refusal_carries_all_that_was_said(api: FakeApi, client: OrbitClient) -> None:
    api.failure(429, "QUEUE_FULL", retry_after_ms=1000, details=[{"field": "queue_id", "reason": "full", "limit": 4}])

    with pytest.raises(QueueFull) as refusal:
        client.submit_task("k", a_task())

    error = refusal.value
    assert (error.status, error.retry_after, error.request_id) == (429, 1.0, REQUEST)
    assert error.detail("limit") == 4
    assert REQUEST in str(error)
    assert "/docs/errors/#QUEUE_FULL" in str(error)


def test_a_code_of_a_newer_server_is_an_api_error(api: FakeApi, client: OrbitClient) -> None:
    api.failure(409, "SOMETHING_NEW")

    with pytest.raises(ApiError) as refusal:
        client.get_task(TASK)

    assert type(refusal.value) is ApiError


# -- The opt-in loop


def test_submit_until_known_repeats_the_very_same_request(api: FakeApi, client: OrbitClient) -> None:
    api.cut()
    api.failure(503, "UNAVAILABLE", retry_after_ms=1)
    api.raw(200, b"garbage")
    api.success(accepted_object(receipt=receipt_object(deduplicated=True)), 200)

    accepted = client.submit_task_until_known("k", a_task(), deadline=30)

    assert accepted.deduplicated
    assert len(api.seen) == 4
    assert {(seen.headers["idempotency-key"], seen.body) for seen in api.seen} == {("k", api.seen[0].body)}


@pytest.mark.parametrize(
    ("status", "code"), [(429, "QUEUE_FULL"), (409, "IDEMPOTENCY_CONFLICT"), (401, "UNAUTHENTICATED")]
)
def test_submit_until_known_stops_at_a_refusal(api: FakeApi, client: OrbitClient, status: int, code: str) -> None:
    api.cut()
    api.failure(status, code)

    with pytest.raises((QueueFull, IdempotencyConflict, Unauthenticated)):
        client.submit_task_until_known("k", a_task(), deadline=30)

    assert len(api.seen) == 2


def test_submit_until_known_raises_the_last_error_when_time_is_up(api: FakeApi, client: OrbitClient) -> None:
    api.always = lambda seen: failure(503, "UNAVAILABLE")

    with pytest.raises(Unavailable):
        client.submit_task_until_known("k", a_task(), deadline=0.3)

    assert len(api.seen) > 1


# -- Reading


def test_a_task_is_read_whole(api: FakeApi, client: OrbitClient) -> None:
    api.success(
        {
            "task": task_object(
                state="FAILED",
                revision="4",
                priority=7,
                error={"code": "E", "message": "m", "details": {"x": [1]}},
                finished_at="2026-09-17T00:00:01.000500Z",
                losses=2,
                yields=3,
                replayed_as=OTHER,
                deadline_at=NOW,
            )
        }
    )

    task = client.get_task(TASK)

    assert task.state is TaskState.FAILED
    assert task.ended
    assert (task.priority, task.losses, task.yields, task.replayed_as) == (7, 2, 3, OTHER)
    assert task.error is not None
    assert (task.error.code, task.error.details) == ("E", {"x": [1]})
    assert task.finished_at == datetime(2026, 9, 17, 0, 0, 1, 500, tzinfo=UTC)
    assert task.payload == {"object_ref": "objects/example"}


def test_digits_of_payload_and_result_survive(api: FakeApi, client: OrbitClient) -> None:
    body = b'{"request_id":"%s","data":{"task":%s}}' % (REQUEST.encode(), b"%s")
    document = (
        b'{"task_id":"%s","queue_id":"%s","handler":"h","handler_version":"v","payload_version":"v",'
        b'"payload":{"n":9007199254740993,"d":1.10},"result":[0.1000000000000000055,1e400],"state":"SUCCEEDED",'
        b'"revision":"3","attempts":1,"max_attempts":1,"available_at":"%s","created_at":"%s","updated_at":"%s"}'
    ) % (TASK.encode(), QUEUE.encode(), NOW.encode(), NOW.encode(), NOW.encode())
    api.raw(200, body % document)
    api.raw(200, body % document)

    task = client.get_task(TASK)
    assert task.payload["n"] == 9007199254740993
    assert task.result == [Decimal("0.1000000000000000055"), Decimal("1e400")]

    with OrbitClient(api.url, "t", decimals=True) as exact:
        task = exact.get_task(TASK)
    assert str(task.payload["d"]) == "1.10"


def test_another_task_than_was_asked_for_is_not_believed(api: FakeApi, client: OrbitClient) -> None:
    api.success({"task": task_object(task_id=OTHER)})

    with pytest.raises(UnverifiableResponse):
        client.get_task(TASK)


def test_a_malformed_id_is_not_sent(api: FakeApi, client: OrbitClient) -> None:
    with pytest.raises(InvalidRequest):
        client.get_task("../queues")

    assert api.seen == []


def test_lists_follow_the_cursors(api: FakeApi, client: OrbitClient) -> None:
    summary = {name: value for name, value in task_object().items() if name not in ("payload", "retry")}
    api.success({"items": [summary, summary], "next_cursor": "c+/="})
    api.success({"items": [summary], "next_cursor": None})
    since = datetime(2026, 1, 1, tzinfo=UTC)

    found = list(
        client.list_tasks(
            queue="reports", states=["READY", TaskState.UNKNOWN], dead=True, created_from=since, page_size=2, priority=9
        )
    )

    assert len(found) == 3
    expected = [
        ("queue_id", QUEUE),
        ("state", "READY"),
        ("state", "UNKNOWN"),
        ("priority", "9"),
        ("created_from", "2026-01-01T00:00:00Z"),
        ("dead", "true"),
        ("limit", "2"),
    ]
    assert api.seen[0].query == expected
    assert api.seen[1].query == [*expected, ("cursor", "c+/=")]


@pytest.mark.parametrize("page_size", [0, 201, -1])
def test_a_page_size_outside_the_limits_is_refused_at_once(api: FakeApi, client: OrbitClient, page_size: int) -> None:
    with pytest.raises(InvalidRequest):
        client.list_tasks(page_size=page_size)


def event_object(cursor: str, kind: str = "ACCEPTED") -> dict[str, Any]:
    return {
        "cursor": cursor,
        "type": kind,
        "task_id": TASK,
        "queue_id": QUEUE,
        "revision": "1",
        "state": "READY",
        "created_at": NOW,
        "data": {},
    }


def test_the_feed_is_followed_without_an_end(api: FakeApi, client: OrbitClient) -> None:
    api.success({"items": [event_object("a"), event_object("b")], "next_cursor": "b"})
    api.success({"items": [], "next_cursor": "b"})
    api.success({"items": [event_object("c", "STARTED")], "next_cursor": "c"})

    feed = client.follow_events(wait_ms=100)

    assert [next(feed).cursor for _ in range(3)] == ["a", "b", "c"]
    assert [dict(seen.query).get("after") for seen in api.seen] == [None, "b", "b"]


def test_events_of_another_task_are_not_believed(api: FakeApi, client: OrbitClient) -> None:
    api.success({"items": [{**event_object("a"), "task_id": OTHER}], "next_cursor": None})

    with pytest.raises(UnverifiableResponse):
        list(client.task_events(TASK))


# -- Waiting


def test_waiting_uses_long_polls_until_the_end(api: FakeApi, client: OrbitClient) -> None:
    api.success({"task": task_object(revision="1")})
    api.success({"task": task_object(revision="2", state="RUNNING")})
    api.success({"task": task_object(revision="3", state="SUCCEEDED", result=7)})

    task = client.wait_task(TASK, timeout=60)

    assert task.result == 7
    assert api.seen[0].query == []
    waits = [dict(seen.query) for seen in api.seen[1:]]
    assert [wait["revision"] for wait in waits] == ["1", "2"]
    assert all(29_000 <= int(wait["wait_ms"]) <= 30_000 for wait in waits)


def test_waiting_ends_at_unknown_which_is_no_end(api: FakeApi, client: OrbitClient) -> None:
    api.success({"task": task_object(state="UNKNOWN")})

    task = client.wait_task(TASK)

    assert not task.ended


def test_waiting_survives_an_interruption(api: FakeApi, client: OrbitClient) -> None:
    api.success({"task": task_object()})
    api.cut()
    api.failure(503, "UNAVAILABLE")
    api.success({"task": task_object(revision="2", state="CANCELED")})

    assert client.wait_task(TASK, timeout=30).state is TaskState.CANCELED


def test_waiting_stops_at_a_refusal(api: FakeApi, client: OrbitClient) -> None:
    api.failure(404, "NOT_FOUND")

    with pytest.raises(NotFound):
        client.wait_task(TASK, timeout=30)


def test_waiting_gives_up_in_time_and_says_where_the_task_is(api: FakeApi, client: OrbitClient) -> None:
    api.always = lambda seen: success({"task": task_object(state="RUNNING")})

    with pytest.raises(WaitTimeout) as over:
        client.wait_task(TASK, timeout=0.3)

    assert over.value.state == "RUNNING"
    assert isinstance(over.value, TimeoutError)
    assert len(api.seen) < 10, "a server that does not hold its answer back must not be flooded"


# -- Steering, queues, plans, operations: the request of each verb


def plan_object(**changes: Any) -> dict[str, Any]:
    return {
        "plan_id": OTHER,
        "name": "nightly",
        "active_version": 1,
        "versions": 1,
        "definition": {},
        "paused": False,
        "note": None,
        "revision": "1",
        "next_fire_times": [NOW],
        "last_fired_at": None,
        "missed": 0,
        "created_at": NOW,
        **changes,
    }


def operation_object(**changes: Any) -> dict[str, Any]:
    return {"gid": 7, "operation_id": OTHER, "state": "SUBMITTED", "name": "n", "requester": "r", **changes}


TASK_DATA = {"task": task_object()}
QUEUE_DATA = {"queue": queue_object()}
PLAN_DATA = {"plan": plan_object()}
OPERATION_DATA = {"operation": operation_object()}
REPLAYED = {"task": task_object(replayed_from=OTHER), "receipt": receipt_object()}
FIRED = {"task": task_object(plan_id=OTHER), "receipt": receipt_object()}


@pytest.mark.parametrize(
    ("act", "status", "data", "method", "path", "body"),
    [
        (lambda c: c.cancel_task(TASK, "3", reason="no"), 200, TASK_DATA, "POST", f"/v1/tasks/{TASK}:cancel",
         {"revision": "3", "reason": "no"}),
        (lambda c: c.cancel_task(TASK, "3"), 200, TASK_DATA, "POST", f"/v1/tasks/{TASK}:cancel", {"revision": "3"}),
        (lambda c: c.reconcile_task(TASK, "3", "RETRY", "seen"), 200, TASK_DATA, "POST",
         f"/v1/tasks/{TASK}:reconcile", {"revision": "3", "decision": "RETRY", "reason": "seen"}),
        (lambda c: c.reconcile_task(TASK, "3", "SUCCEEDED", "seen", result=[1]), 200, TASK_DATA, "POST",
         f"/v1/tasks/{TASK}:reconcile", {"revision": "3", "decision": "SUCCEEDED", "reason": "seen", "result": [1]}),
        (lambda c: c.dismiss_task(TASK, "3", "old"), 200, TASK_DATA, "POST", f"/v1/tasks/{TASK}:dismiss",
         {"revision": "3", "reason": "old"}),
        (lambda c: c.replay_task("k", OTHER, priority=2, delay_ms=5), 201, REPLAYED, "POST",
         f"/v1/tasks/{OTHER}:replay", {"priority": 2, "delay_ms": 5}),
        (lambda c: c.create_queue("reports", max_unfinished=4), 201, QUEUE_DATA, "POST", "/v1/queues",
         {"name": "reports", "max_unfinished": 4}),
        (lambda c: c.get_queue("reports"), 200, QUEUE_DATA, "GET", f"/v1/queues/{QUEUE}", None),
        (lambda c: c.update_queue("reports", "1", max_unfinished=None, weight=3), 200, QUEUE_DATA, "PATCH",
         f"/v1/queues/{QUEUE}", {"revision": "1", "max_unfinished": None, "weight": 3}),
        (lambda c: c.pause_queue("reports", reason="why"), 200, QUEUE_DATA, "POST", f"/v1/queues/{QUEUE}:pause",
         {"reason": "why"}),
        (lambda c: c.resume_queue("reports"), 200, QUEUE_DATA, "POST", f"/v1/queues/{QUEUE}:resume", {}),
        (lambda c: c.create_plan("nightly", {"a": 1}), 201, PLAN_DATA, "POST", "/v1/plans",
         {"name": "nightly", "definition": {"a": 1}}),
        (lambda c: c.get_plan(OTHER), 200, PLAN_DATA, "GET", f"/v1/plans/{OTHER}", None),
        (lambda c: c.create_plan_version(OTHER, {"a": 2}), 201,
         {"version": {"version": 2, "definition": {"a": 2}, "created_at": NOW}}, "POST",
         f"/v1/plans/{OTHER}/versions", {"definition": {"a": 2}}),
        (lambda c: c.activate_plan(OTHER, 2, "1"), 200, PLAN_DATA, "POST", f"/v1/plans/{OTHER}:activate",
         {"version": 2, "revision": "1"}),
        (lambda c: c.pause_plan(OTHER, note="n"), 200, PLAN_DATA, "POST", f"/v1/plans/{OTHER}:pause", {"note": "n"}),
        (lambda c: c.resume_plan(OTHER), 200, PLAN_DATA, "POST", f"/v1/plans/{OTHER}:resume", {}),
        (lambda c: c.trigger_plan("k", OTHER), 201, FIRED, "POST", f"/v1/plans/{OTHER}:trigger", {}),
        (lambda c: c.create_operation(7, "n", "r"), 202, OPERATION_DATA, "POST", "/v1/operations",
         {"gid": 7, "name": "n", "requester": "r"}),
        (lambda c: c.get_operation(7), 200, OPERATION_DATA, "GET", "/v1/operations/7", None),
        (lambda c: c.delete_operation(7), 202, OPERATION_DATA, "DELETE", "/v1/operations/7", None),
        (lambda c: c.add_favorite(7, "a/b"), 200, {}, "POST", "/v1/operations/7/favorites/a%2Fb", {}),
        (lambda c: c.remove_favorite(7, "u"), 200, {}, "DELETE", "/v1/operations/7/favorites/u", None),
        (lambda c: c.reconcile_operation(7, OTHER, "UNKNOWN", "LOOKUP", "look"), 200, {**OPERATION_DATA, "lookup": {}},
         "POST", "/v1/operations/7:reconcile",
         {"operation_id": OTHER, "state": "UNKNOWN", "decision": "LOOKUP", "reason": "look"}),
    ],
)  # fmt: skip
def test_each_verb_sends_its_request_and_believes_its_answer(
    api: FakeApi, client: OrbitClient, act: Any, status: int, data: Any, method: str, path: str, body: Any
) -> None:
    api.success(data, status)

    act(client)

    (seen,) = api.seen
    assert (seen.method, seen.path) == (method, path)
    assert (seen.json if seen.body else None) == body


@pytest.mark.parametrize(
    ("act", "status", "data"),
    [
        (lambda c: c.replay_task("k", TASK), 201, accepted_object()),
        (lambda c: c.trigger_plan("k", OTHER), 201, accepted_object()),
        (lambda c: c.get_queue("reports"), 200, {"queue": queue_object(queue_id=OTHER)}),
        (lambda c: c.create_queue("other"), 201, QUEUE_DATA),
        (lambda c: c.get_plan(TASK), 200, PLAN_DATA),
        (lambda c: c.get_operation(8), 200, OPERATION_DATA),
    ],
)
def test_an_answer_about_something_else_is_not_believed(
    api: FakeApi, client: OrbitClient, act: Any, status: int, data: Any
) -> None:
    api.success(data, status)

    with pytest.raises(UnverifiableResponse):
        act(client)


def test_a_queue_that_was_made_is_known_by_its_name(api: FakeApi) -> None:
    api.success(QUEUE_DATA, 201)
    api.success(accepted_object(), 201)

    with OrbitClient(api.url, "t") as client:
        client.create_queue("reports")
        client.submit_task("k", a_task())

    assert api.seen[1].json["queue_id"] == QUEUE


def test_stats_are_sorted_by_urgency(api: FakeApi, client: OrbitClient) -> None:
    api.success(
        {
            "stats": {
                "counts": {"READY": 5},
                "backlog_by_priority": {"-1": 1, "9": 3, "0": 1},
                "oldest_waiting_ms_by_priority": {"9": 1200},
                "running": 1,
                "reserved": 2,
                "start_budget": {"left": 3, "next_at": NOW},
                "head_waiting": {"task_id": TASK, "reason": "QUEUE_PAUSED", "detail": {}},
            }
        }
    )

    stats = client.queue_stats("reports")

    assert list(stats.backlog_by_priority.items()) == [(9, 3), (0, 1), (-1, 1)]
    assert stats.counts[TaskState.READY] == 5
    assert stats.head_waiting is not None
    assert stats.head_waiting.reason == "QUEUE_PAUSED"


def test_a_plan_definition_is_the_document_of_the_contract(client: OrbitClient) -> None:
    definition = client.plan_definition(
        a_task(priority=3), cron="*/5 * * * *", timezone="Asia/Shanghai", overlap="SKIP"
    )

    assert definition["schedule"] == {"cron": "*/5 * * * *", "timezone": "Asia/Shanghai"}
    assert (definition["misfire"], definition["overlap"]) == ("FIRE_ONCE", "SKIP")
    assert definition["task"]["priority"] == 3


# -- Coroutines


async def test_the_coroutine_client_does_the_same(api: FakeApi) -> None:
    api.cut()
    api.success(accepted_object(receipt=receipt_object(deduplicated=True)), 200)
    api.success({"task": task_object()})
    api.success({"task": task_object(state="SUCCEEDED", revision="2")})
    api.success({"items": [task_object()], "next_cursor": "c"})
    api.success({"items": [task_object()], "next_cursor": None})
    api.cut()

    async with AsyncOrbitClient(api.url, "t", queues={"reports": QUEUE}) as client:
        accepted = await client.submit_task_until_known("k", a_task(), deadline=30)
        done = await client.wait_task(accepted.task_id, timeout=30)
        found = [task async for task in client.list_tasks()]
        with pytest.raises(ConnectionLost):
            await client.get_task(TASK)

    assert done.state is TaskState.SUCCEEDED
    assert len(found) == 2


def test_internal_errors_keep_the_identity(api: FakeApi, client: OrbitClient) -> None:
    def answer(seen: Seen) -> Reply:
        return failure(500, "INTERNAL")

    api.always = answer
    with pytest.raises(Internal) as error:
        client.submit_task("k", a_task(delay_ms=int(timedelta(hours=1).total_seconds() * 1000)))

    assert error.value.outcome_unknown
