"""What only a real node shows: answers that are kept back, HEAD, headers that came twice."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from tests.support.api import Answer, Api
from tests.support.fixtures import RunningOrbit

LONG_MS = 25_000  # longer than any of these tests may last


def in_background(act: Any) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(act()), daemon=True)
    thread.start()
    return thread, answers


def test_a_wait_for_a_task_is_answered_when_it_changes_and_not_before(orbit_server: RunningOrbit, api: Api):
    task_id = api.submit(api.make_queue()["queue_id"]).expect(201).data["task"]["task_id"]
    with Api(orbit_server.url, orbit_server.aged.token) as waiting:
        thread, answers = in_background(lambda: waiting.get(f"/v1/tasks/{task_id}?wait_ms={LONG_MS}"))
        thread.join(0.7)
        assert not answers
        api.post(f"/v1/tasks/{task_id}:cancel", {"revision": "1"}).expect(200)
        thread.join(20)
    assert answers[0].expect(200).data["task"]["state"] == "CANCELED"
    assert "x-orbit-wait" not in answers[0].headers


def test_a_wait_whose_time_is_up_is_answered_with_the_current_state(api: Api):
    task_id = api.submit(api.make_queue()["queue_id"]).expect(201).data["task"]["task_id"]
    started = time.monotonic()
    answer = api.get(f"/v1/tasks/{task_id}?wait_ms=300").expect(200)
    assert time.monotonic() - started >= 0.3
    assert answer.data["task"]["revision"] == "1"


def test_a_wait_for_an_older_revision_is_answered_at_once(api: Api):
    task_id = api.submit(api.make_queue()["queue_id"]).expect(201).data["task"]["task_id"]
    api.post(f"/v1/tasks/{task_id}:cancel", {"revision": "1"}).expect(200)
    answer = api.get(f"/v1/tasks/{task_id}?wait_ms={LONG_MS}&revision=1").expect(200)
    assert answer.data["task"]["revision"] == "2"


def test_a_wait_at_the_end_of_the_feed_is_answered_by_the_next_event(orbit_server: RunningOrbit, api: Api):
    queue_id = api.make_queue()["queue_id"]
    after = end_of_feed(api)
    with Api(orbit_server.url, orbit_server.aged.token) as waiting:
        thread, answers = in_background(lambda: waiting.get(f"/v1/events?after={after}&wait_ms={LONG_MS}"))
        thread.join(0.5)
        assert not answers
        task_id = api.submit(queue_id).expect(201).data["task"]["task_id"]
        thread.join(20)
    assert task_id in {event["task_id"] for event in answers[0].expect(200).data["items"]}


def end_of_feed(api: Api) -> str:
    after = ""
    while True:
        data = api.get(f"/v1/events?limit=200{after}").expect(200).data
        if not data["items"]:
            return str(data["next_cursor"])
        after = f"&after={data['next_cursor']}"


def test_many_waiting_requests_leave_the_api_free(orbit_server: RunningOrbit, api: Api):
    task_id = api.submit(api.make_queue()["queue_id"]).expect(201).data["task"]["task_id"]
    callers = [Api(orbit_server.url, orbit_server.aged.token) for _ in range(30)]
    waiting = [
        in_background(lambda caller=caller: caller.get(f"/v1/tasks/{task_id}?wait_ms={LONG_MS}")) for caller in callers
    ]
    for _ in range(10):
        api.get("/v1/queues?limit=1").expect(200)
    api.post(f"/v1/tasks/{task_id}:cancel", {"revision": "1"}).expect(200)
    for thread, answers in waiting:
        thread.join(20)
        assert answers[0].expect(200).data["task"]["state"] == "CANCELED"
    for caller in callers:
        caller.close()


def test_head_carries_the_length_of_a_body_that_does_not_come(orbit_server: RunningOrbit):
    place = urlsplit(orbit_server.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
    headers = {"Authorization": f"Bearer {orbit_server.aged.token}"}
    for path in ("/v1/queues", "/v1/openapi.json"):
        connection.request("HEAD", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) > 0
        assert answer.read() == b""
    connection.request("GET", "/v1/queues", headers=headers)  # on the same connection: nothing was left in it
    assert json.loads(connection.getresponse().read())["data"]
    connection.close()


def test_an_idempotency_key_that_comes_twice_is_400(orbit_server: RunningOrbit, api: Api):
    place = urlsplit(orbit_server.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
    connection.putrequest("POST", "/v1/tasks")
    for name, value in (
        ("Authorization", f"Bearer {orbit_server.aged.token}"),
        ("Content-Type", "application/json"),
        ("Content-Length", "2"),
        ("Idempotency-Key", "a"),
        ("Idempotency-Key", "a"),
    ):
        connection.putheader(name, value)
    connection.endheaders(b"{}")
    answer = connection.getresponse()
    assert answer.status == 400
    assert json.loads(answer.read())["error"]["details"][0]["field"] == "Idempotency-Key"
    connection.close()
