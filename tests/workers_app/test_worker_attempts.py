"""Offer, start, renew, finish, release: every answer of the table (design, chapter 2, Attempts)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.worker_sockets import WorkerSocket, held
from tests.workers_app.conftest import Node

KIB = 1024
Offers = Callable[..., dict[str, Any]]


def item(offer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**held(offer), **more}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- offer


def test_offer_tells_everything_that_the_worker_needs(api: Api, queue_id: str, worker: WorkerSocket) -> None:
    answer = api.submit(
        queue_id, priority=3, payload={"n": 1}, expires_in_ms=600_000, attempt_timeout_ms=60_000
    ).expect(201)
    task = answer.data["task"]
    offer = worker.expect("offer")
    assert set(offer) == {"type", "attempt_id", "fencing_token", "reserved_until", "task"}
    assert offer["fencing_token"] == "1"
    assert offer["task"] == {
        "task_id": task["task_id"],
        "queue_id": queue_id,
        "handler": "echo",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": {"n": 1},
        "priority": 3,
        "attempt": 1,
        "available_at": task["available_at"],
        "deadline_at": task["deadline_at"],
        "attempt_timeout_ms": 60_000,
    }


def test_payload_arrives_digit_for_digit(api: Api, queue_id: str, worker: WorkerSocket) -> None:
    raw = '{"a": 1.10, "b": 9007199254740993, "c": 1e400, "d": 0.1000000000000000055, "e": "\\u4f60\\ud83d\\ude00"}'
    body = {"queue_id": queue_id, "handler": "echo", "handler_version": "v1", "payload_version": "v1", "payload": "X"}
    content = json.dumps(body).replace('"X"', raw).encode()
    api.call("POST", "/v1/tasks", content=content, key="digits-" + queue_id).expect(201)
    frame = worker.connection.recv(timeout=15)
    for digits in ("1.10", "9007199254740993", "1e400", "0.1000000000000000055"):
        assert digits in frame
    assert json.loads(frame)["task"]["payload"]["e"] == "你😀"


def test_task_of_another_handler_or_version_is_not_offered(api: Api, queue_id: str, worker: WorkerSocket) -> None:
    api.submit(queue_id, handler_version="v2").expect(201)
    api.submit(queue_id, handler="Echo").expect(201)
    mine = api.submit(queue_id).expect(201).data["task"]["task_id"]
    assert worker.expect("offer")["task"]["task_id"] == mine
    assert worker.receive_for(1.2) == []


@pytest.mark.parametrize("declared", [True, False])
def test_resource_keys_are_offered_to_those_who_can_hold_them(
    api: Api, queue_id: str, connect_worker: Callable[..., WorkerSocket], declared: bool
) -> None:
    worker = connect_worker()
    worker.hello([queue_id], resource_keys=declared)
    api.submit(queue_id, resource_key="printer").expect(201)
    offers = [message for message in worker.receive_for(1.5) if message["type"] == "offer"]
    assert [offer["task"]["resource_key"] for offer in offers] == (["printer"] if declared else [])


def test_no_more_is_offered_than_there_is_capacity(api: Api, queue_id: str, worker: WorkerSocket) -> None:
    for _ in range(6):
        api.submit(queue_id).expect(201)
    offers = worker.offers(4)
    assert worker.receive_for(1.2) == []
    worker.start(*offers)
    assert worker.finish(offers[0])["status"] == "COMMITTED"
    assert len(worker.offers(1)) == 1
    assert worker.receive_for(1.2) == []


def test_order_of_offers_is_the_order_of_priorities(
    api: Api, queue_id: str, connect_worker: Callable[..., WorkerSocket]
) -> None:
    for priority in (0, 9, 4):
        api.submit(queue_id, priority=priority).expect(201)
    worker = connect_worker()
    worker.hello([queue_id], capacity=3)
    assert [offer["task"].get("priority", 0) for offer in worker.offers(3)] == [9, 4, 0]


# -- start


def test_started_with_a_lease(worker: WorkerSocket, claim_one: Offers, api: Api) -> None:
    offer = claim_one()
    (answer,) = worker.start(offer)
    assert answer == {"attempt_id": offer["attempt_id"], "status": "STARTED", "lease_until": answer["lease_until"]}
    assert moment(answer["lease_until"]) > moment(offer["reserved_until"])
    assert api.task(offer["task"]["task_id"])["state"] == "RUNNING"


def test_repeated_start_is_started_again_and_no_second_attempt(
    worker: WorkerSocket, claim_one: Offers, api: Api
) -> None:
    offer = claim_one()
    first, second = worker.start(offer)[0], worker.start(offer)[0]
    assert first == second
    assert api.task(offer["task"]["task_id"])["attempts"] == 1


@pytest.mark.parametrize(
    ("token", "attempt"), [("2", None), ("0", None), ("-1", None), ("x", None), (None, "0" * 32), (None, "nonsense")]
)
def test_start_with_another_token_or_attempt_is_lease_lost(
    worker: WorkerSocket, claim_one: Offers, token: str | None, attempt: str | None
) -> None:
    offer = claim_one()
    named = {"attempt_id": attempt or offer["attempt_id"], "fencing_token": token or offer["fencing_token"]}
    (answer,) = worker.request("start", items=[named])["items"]
    assert answer == {"attempt_id": named["attempt_id"], "status": "REFUSED", "code": "LEASE_LOST"}


def test_start_of_a_canceled_task_is_refused_and_the_reservation_revoked(
    worker: WorkerSocket, claim_one: Offers, api: Api
) -> None:
    offer = claim_one()
    api.post(f"/v1/tasks/{offer['task']['task_id']}:cancel", {"revision": "1"}).expect(200)
    revoke = worker.expect("revoke")
    assert revoke == {"type": "revoke", "attempt_id": offer["attempt_id"], "reason": "CANCELED"}
    assert worker.start(offer)[0]["status"] == "REFUSED"


def test_start_in_a_paused_queue_is_refused(worker: WorkerSocket, claim_one: Offers, api: Api, queue_id: str) -> None:
    offer = claim_one()
    api.post(f"/v1/queues/{queue_id}:pause", {}).expect(200)
    (answer,) = worker.start(offer)
    assert (answer["status"], answer["code"]) in {("REFUSED", "QUEUE_PAUSED"), ("REFUSED", "LEASE_LOST")}
    assert api.task(offer["task"]["task_id"])["state"] == "READY"


def test_reservations_of_a_queue_that_is_paused_are_revoked(
    worker: WorkerSocket, claim_one: Offers, api: Api, queue_id: str
) -> None:
    offer = claim_one()
    api.post(f"/v1/queues/{queue_id}:pause", {}).expect(200)
    revoke = worker.expect("revoke", timeout=5)
    assert (revoke["attempt_id"], revoke["reason"]) == (offer["attempt_id"], "QUEUE_PAUSED")
    api.post(f"/v1/queues/{queue_id}:resume", {}).expect(200)
    assert worker.expect("offer", timeout=5)["task"]["task_id"] == offer["task"]["task_id"]


def test_start_beyond_a_lowered_limit_is_limited_and_the_reservation_given_back(
    worker: WorkerSocket, claim_one: Offers, api: Api, queue_id: str
) -> None:
    first, second = claim_one(), claim_one()
    queue = api.get(f"/v1/queues/{queue_id}").data["queue"]
    api.patch(f"/v1/queues/{queue_id}", {"revision": queue["revision"], "max_running": 1}).expect(200)
    answers = worker.start(first, second)
    assert sorted(answer["status"] for answer in answers) == ["REFUSED", "STARTED"]
    (refused,) = [answer for answer in answers if answer["status"] == "REFUSED"]
    assert refused["code"] == "LIMITED"


def test_offers_that_were_given_back_do_not_count_as_attempts(
    worker: WorkerSocket, claim_one: Offers, api: Api
) -> None:
    offer = claim_one()
    for _ in range(3):
        worker.release(offer)
        offer = worker.expect("offer")
    assert offer["task"]["attempt"] == 1
    assert offer["fencing_token"] == "4"
    worker.start(offer)
    assert api.task(offer["task"]["task_id"])["attempts"] == 1


# -- renew


def test_renewed_with_a_later_lease(worker: WorkerSocket, claim_one: Offers) -> None:
    offer = claim_one()
    (started,) = worker.start(offer)
    (answer,) = worker.renew(offer)
    assert answer["status"] == "RENEWED"
    assert answer["cancel_requested"] is False
    assert moment(answer["lease_until"]) > moment(started["lease_until"])


def test_renewal_carries_progress(worker: WorkerSocket, start_one: Offers, api: Api) -> None:
    offer = start_one()
    answer = worker.request("renew", items=[item(offer, progress={"percent": 40, "message": "half"})])
    assert answer["items"][0]["status"] == "RENEWED"
    events = api.get(f"/v1/tasks/{offer['task']['task_id']}/events").data["items"]
    assert events[-1]["type"] == "PROGRESS"
    assert events[-1]["data"] == {"percent": 40, "message": "half"}


def test_progress_out_of_range_is_not_taken_and_the_lease_renewed_all_the_same(
    worker: WorkerSocket, start_one: Offers, api: Api
) -> None:
    offer = start_one()
    (answer,) = worker.request("renew", items=[item(offer, progress={"percent": 101})])["items"]
    assert answer["status"] == "RENEWED"
    events = api.get(f"/v1/tasks/{offer['task']['task_id']}/events").data["items"]
    assert all(event["type"] != "PROGRESS" for event in events)


def test_renewal_of_what_does_not_run_is_lost(worker: WorkerSocket, claim_one: Offers) -> None:
    reserved = claim_one()
    stranger = {"attempt_id": "0" * 32, "fencing_token": "1"}
    answers = worker.request("renew", items=[held(reserved), stranger, {**held(reserved), "fencing_token": "9"}])
    assert [answer["status"] for answer in answers["items"]] == ["LOST", "LOST", "LOST"]


def test_renewal_tells_of_a_cancel_request(worker: WorkerSocket, start_one: Offers, api: Api) -> None:
    offer = start_one()
    task = api.task(offer["task"]["task_id"])
    api.post(f"/v1/tasks/{task['task_id']}:cancel", {"revision": task["revision"]}).expect(200)
    assert worker.renew(offer)[0]["cancel_requested"] is True


# -- finish


def test_finish_is_committed_with_state_and_revision(worker: WorkerSocket, start_one: Offers, api: Api) -> None:
    offer = start_one()
    answer = worker.finish(offer, result={"n": 1})
    task = api.task(offer["task"]["task_id"])
    assert answer == {
        "attempt_id": offer["attempt_id"],
        "status": "COMMITTED",
        "state": "SUCCEEDED",
        "revision": task["revision"],
    }
    assert task["result"] == {"n": 1}


def test_result_is_null_by_default(worker: WorkerSocket, start_one: Offers, api: Api) -> None:
    offer = start_one()
    worker.finish(offer)
    assert api.task(offer["task"]["task_id"])["result"] is None


def test_repeated_finish_with_the_same_content_is_already(worker: WorkerSocket, start_one: Offers) -> None:
    offer = start_one()
    first = worker.finish(offer, result=[1])
    assert worker.finish(offer, result=[1]) == {**first, "status": "ALREADY"}
    assert worker.finish(offer, result=[2])["status"] == "LOST"


def test_failed_without_retry_is_failed(worker: WorkerSocket, start_one: Offers, api: Api) -> None:
    offer = start_one()
    error = {"code": "BROKEN", "message": "it broke", "details": {"at": 1}}
    answer = worker.finish(offer, "FAILED", error=error)
    assert (answer["status"], answer["state"]) == ("COMMITTED", "FAILED")
    assert api.task(offer["task"]["task_id"])["error"] == error


def test_failed_with_retry_comes_again_as_the_next_attempt(worker: WorkerSocket, start_one: Offers) -> None:
    offer = start_one(retry={"mode": "SAFE", "max_attempts": 2, "initial_backoff_ms": 0})
    answer = worker.finish(offer, "FAILED", error={"code": "X", "message": "x"})
    assert answer["status"] == "COMMITTED"
    again = worker.expect("offer")
    assert again["task"]["task_id"] == offer["task"]["task_id"]
    assert again["task"]["attempt"] == 2
    assert int(again["fencing_token"]) > int(offer["fencing_token"])
    worker.start(again)
    assert worker.finish(offer, "FAILED", error={"code": "Y", "message": "late"})["status"] == "LOST"


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        ("SUCCEEDED", {"error": {"code": "X", "message": "x"}}),
        ("FAILED", {}),
        ("FAILED", {"result": 1, "error": {"code": "X", "message": "x"}}),
        ("FAILED", {"error": {"code": "", "message": "x"}}),
        ("FAILED", {"error": {"code": "X", "message": "x" * 4097}}),
        ("FAILED", {"error": {"code": "X", "message": "x", "details": "d" * 65 * KIB}}),
        ("FAILED", {"error": {"code": "X", "message": "x"}, "retry_after_ms": -1}),
        ("SUCCEEDED", {"result": "r" * 257 * KIB}),
        ("CANCELED", {}),
    ],
)
def test_combination_or_size_that_is_not_allowed_is_invalid_and_the_attempt_goes_on(
    worker: WorkerSocket, start_one: Offers, outcome: str, fields: dict[str, Any]
) -> None:
    offer = start_one()
    answer = worker.finish(offer, outcome, **fields)
    assert answer["status"] == "INVALID"
    assert answer["code"]
    assert answer["message"]
    assert worker.renew(offer)[0]["status"] == "RENEWED"
    assert worker.finish(offer)["status"] == "COMMITTED"


def test_result_at_the_limit_is_taken(worker: WorkerSocket, start_one: Offers) -> None:
    assert worker.finish(start_one(), result="r" * (256 * KIB - 2))["status"] == "COMMITTED"


def test_canceled_is_for_attempts_that_were_asked_to_stop(worker: WorkerSocket, start_one: Offers, api: Api) -> None:
    offer = start_one()
    task = api.task(offer["task"]["task_id"])
    api.post(f"/v1/tasks/{task['task_id']}:cancel", {"revision": task["revision"]}).expect(200)
    answer = worker.finish(offer, "CANCELED")
    assert (answer["status"], answer["state"]) == ("COMMITTED", "CANCELED")


def test_one_bad_item_never_spoils_the_others(worker: WorkerSocket, start_one: Offers) -> None:
    good, bad, another = start_one(), start_one(), start_one()
    items = [
        item(good, outcome="SUCCEEDED"),
        item(bad, outcome="FAILED"),
        {"attempt_id": "0" * 32, "fencing_token": "1", "outcome": "SUCCEEDED"},
        {"attempt_id": "what", "fencing_token": "1", "outcome": "SUCCEEDED"},
        item(another, outcome="SUCCEEDED"),
    ]
    answers = worker.request("finish", items=items)["items"]
    assert [answer["status"] for answer in answers] == ["COMMITTED", "INVALID", "LOST", "LOST", "COMMITTED"]
    assert [answer["attempt_id"] for answer in answers] == [one["attempt_id"] for one in items]


def test_64_items_are_one_message_and_65_are_a_protocol_error(
    api: Api, queue_id: str, connect_worker: Callable[..., WorkerSocket]
) -> None:
    worker = connect_worker()
    worker.hello([queue_id], capacity=100)
    for _ in range(64):
        api.submit(queue_id).expect(201)
    offers = worker.offers(64)
    assert {answer["status"] for answer in worker.start(*offers)} == {"STARTED"}
    items = [item(offer, outcome="SUCCEEDED") for offer in offers]
    assert {answer["status"] for answer in worker.request("finish", items=items)["items"]} == {"COMMITTED"}
    worker.send("renew", seq=99, items=[held(offer) for offer in [*offers, offers[0]]])
    assert worker.closed() == 4400


# -- release


def test_released_reservation_is_offered_again(worker: WorkerSocket, claim_one: Offers) -> None:
    offer = claim_one()
    assert worker.release(offer) == [{"attempt_id": offer["attempt_id"], "status": "RELEASED"}]
    assert worker.release(offer) == [{"attempt_id": offer["attempt_id"], "status": "LOST"}]
    assert worker.expect("offer")["task"]["task_id"] == offer["task"]["task_id"]


def test_running_attempt_is_not_released(worker: WorkerSocket, start_one: Offers) -> None:
    offer = start_one()
    assert worker.release(offer)[0]["status"] == "LOST"
    assert worker.renew(offer)[0]["status"] == "RENEWED"
    assert worker.finish(offer)["status"] == "COMMITTED"


# -- across connections and nodes


def test_running_attempt_is_renewed_and_finished_by_any_connection_of_the_namespace(here: Node, there: Node) -> None:
    worker = here.worker()
    here.submit()
    offer = worker.expect("offer")
    worker.start(offer)
    stranger = there.worker(handlers=[("other", "v1")])
    assert stranger.renew(offer)[0]["status"] == "RENEWED"
    assert stranger.start(offer)[0]["status"] == "STARTED"  # the repeat of a start whose answer was lost
    assert stranger.finish(offer)["status"] == "COMMITTED"
    assert worker.finish(offer)["status"] == "ALREADY"


def test_attempt_of_another_namespace_is_lost(
    start_one: Offers, foreign_api: Api, connect_worker: Callable[..., WorkerSocket], orbit_server: Any
) -> None:
    offer = start_one()
    foreigner = connect_worker(token=orbit_server.foreign.token)
    foreigner.hello([str(foreign_api.make_queue()["queue_id"])])
    assert foreigner.renew(offer)[0]["status"] == "LOST"
    assert foreigner.finish(offer)["status"] == "LOST"
    assert foreigner.start(offer)[0]["code"] == "LEASE_LOST"


def test_reservation_of_a_lost_connection_returns_at_once_and_what_runs_stays(
    api: Api, queue_id: str, connect_worker: Callable[..., WorkerSocket]
) -> None:
    worker, other = connect_worker(), connect_worker()
    worker.hello([queue_id], capacity=2)
    for _ in range(2):
        api.submit(queue_id).expect(201)
    running, reserved = worker.offers(2)
    worker.start(running)
    other.hello([queue_id], capacity=5)
    worker.close()
    again = other.expect("offer", timeout=5)  # well before the reservation would have run out
    assert again["task"]["task_id"] == reserved["task"]["task_id"]
    assert other.receive_for(0.5) == []
    assert other.finish(running)["status"] == "COMMITTED"
