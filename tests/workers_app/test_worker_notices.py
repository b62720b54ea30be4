"""What the server tells a worker of its own accord: cancels, revokes, credentials (design, chapter 2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fixtures import RunningOrbit
from tests.support.server import Credentials
from tests.support.waiting import eventually
from tests.support.worker_sockets import WorkerSocket
from tests.workers_app.conftest import Node

Offers = Callable[..., dict[str, Any]]


def cancel(api: Api, offer: dict[str, Any]) -> None:
    task = api.task(offer["task"]["task_id"])
    api.post(f"/v1/tasks/{task['task_id']}:cancel", {"revision": task["revision"]}).expect(200)


# -- cancel


def test_cancel_request_reaches_the_running_attempt_once(worker: WorkerSocket, start_one: Offers, api: Api) -> None:
    offer = start_one()
    cancel(api, offer)
    assert worker.expect("cancel", timeout=5) == {
        "type": "cancel",
        "attempt_id": offer["attempt_id"],
        "reason": "REQUESTED",
    }
    cancel(api, offer)
    assert worker.receive_for(0.5) == []


def test_cancel_request_made_on_another_node_reaches_the_attempt(here: Node, there: Node) -> None:
    worker = here.worker()
    here.submit()
    offer = worker.expect("offer")
    worker.start(offer)
    cancel(there.api, offer)
    assert worker.expect("cancel", timeout=5)["reason"] == "REQUESTED"


def test_cancel_of_a_reservation_made_on_another_node_revokes_it(here: Node, there: Node) -> None:
    worker = here.worker()
    here.submit()
    offer = worker.expect("offer")
    cancel(there.api, offer)
    revoke = worker.expect("revoke", timeout=5)
    assert (revoke["attempt_id"], revoke["reason"]) == (offer["attempt_id"], "CANCELED")


def test_resumed_session_is_told_of_a_cancel_that_it_missed(here: Node) -> None:
    worker = here.worker()
    here.submit()
    offer = worker.expect("offer")
    worker.start(offer)
    worker.close()
    cancel(here.api, offer)
    again = here.socket()
    again.hello([here.queue_id], session_id=worker.welcome["session_id"])
    assert again.expect("cancel", timeout=5)["attempt_id"] == offer["attempt_id"]


def test_passed_deadline_is_told_and_may_be_answered_with_canceled(
    worker: WorkerSocket, start_one: Offers, api: Api
) -> None:
    offer = start_one(expires_in_ms=700)
    assert worker.expect("cancel", timeout=5) == {
        "type": "cancel",
        "attempt_id": offer["attempt_id"],
        "reason": "DEADLINE",
    }
    # Told late rather than early: the row agrees that the deadline has passed.
    answer = worker.finish(offer, "CANCELED")
    assert (answer["status"], answer["state"]) == ("COMMITTED", "EXPIRED")


def test_passed_attempt_time_out_is_told_and_may_be_answered_with_canceled(
    worker: WorkerSocket, start_one: Offers
) -> None:
    offer = start_one(attempt_timeout_ms=500)
    assert worker.expect("cancel", timeout=5)["reason"] == "ATTEMPT_TIMEOUT"
    answer = worker.finish(offer, "CANCELED")
    assert (answer["status"], answer["state"]) == ("COMMITTED", "FAILED")


def test_resumed_session_is_told_of_a_time_out(here: Node) -> None:
    worker = here.worker()
    here.submit(attempt_timeout_ms=3000)
    offer = worker.expect("offer")
    worker.start(offer)
    worker.close()
    again = here.socket()
    again.hello([here.queue_id], session_id=worker.welcome["session_id"])
    assert again.expect("cancel", timeout=8)["reason"] == "ATTEMPT_TIMEOUT"


# -- revoke


def test_reservation_that_runs_out_is_revoked_and_offered_again(start_node: Callable[..., Node]) -> None:
    node = start_node(ORBIT_RESERVATION_MS="1200", ORBIT_SCAN_CYCLE_MS="500")
    worker = node.worker(capacity=1)
    node.submit()
    offer = worker.expect("offer")
    revoke = worker.expect("revoke", timeout=6)
    assert (revoke["attempt_id"], revoke["reason"]) == (offer["attempt_id"], "LEASE_LOST")
    again = worker.expect("offer", timeout=6)
    assert again["attempt_id"] != offer["attempt_id"]
    assert again["task"]["attempt"] == 1
    assert worker.start(offer)[0] == {
        "attempt_id": offer["attempt_id"],
        "status": "REFUSED",
        "code": "LEASE_LOST",
    }


def test_reservation_whose_task_expires_is_revoked(worker: WorkerSocket, claim_one: Offers, api: Api) -> None:
    offer = claim_one(expires_in_ms=700)
    revoke = worker.expect("revoke", timeout=6)
    assert (revoke["attempt_id"], revoke["reason"]) == (offer["attempt_id"], "EXPIRED")
    assert api.task(offer["task"]["task_id"])["state"] == "EXPIRED"


# -- credentials


@pytest.fixture
def narrow(orbit_server: RunningOrbit, issue_credential: Callable[..., Credentials]) -> Credentials:
    return issue_credential(orbit_server, actions="workers:connect,workers:consume")


def test_revoked_credential_starts_nothing_finishes_and_is_closed_with_4401(
    orbit_server: RunningOrbit,
    api: Api,
    queue_id: str,
    narrow: Credentials,
    connect_worker: Callable[..., WorkerSocket],
) -> None:
    worker = connect_worker(token=narrow.token)
    worker.hello([queue_id], capacity=2)
    for _ in range(2):
        api.submit(queue_id).expect(201)
    running, reserved = worker.offers(2)
    worker.start(running)
    # Sent before the close arrives: the row's transaction decides, not the state of the connection.
    orbit_server.manage("orbit_credential", "revoke", narrow.members["credential_id"])
    begin = time.monotonic()
    assert worker.closed(timeout=10) == 4401
    assert time.monotonic() - begin < 5.5
    (error,) = [message for message in worker.inbox if message["type"] == "error"]
    assert error["code"] == "UNAUTHENTICATED"
    assert eventually(lambda: api.task(reserved["task"]["task_id"])["state"] == "READY")
    assert api.task(running["task"]["task_id"])["state"] == "RUNNING"


def test_expired_credential_is_closed_with_4401(
    orbit_server: RunningOrbit,
    queue_id: str,
    connect_worker: Callable[..., WorkerSocket],
    issue_credential: Callable[..., Credentials],
) -> None:
    credentials = issue_credential(orbit_server, actions="workers:connect,workers:consume", more=("--expires-in", "4"))
    worker = connect_worker(token=credentials.token)
    worker.hello([queue_id])
    assert worker.closed(timeout=15) == 4401
