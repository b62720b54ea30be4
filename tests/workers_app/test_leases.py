"""Leases and maintenance through a real node (design 3.6): what is late shows within 2 s on an idle system.

Times are measured on the server's side by its own stamps, so that a busy machine delays a test but does not fail it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.support.waiting import eventually
from tests.workers_app.conftest import Node

SHORT = {
    "ORBIT_LEASE_MS": "2000",
    "ORBIT_RESERVATION_MS": "1500",
    "ORBIT_SCAN_CYCLE_MS": "500",
    "ORBIT_FINISH_GRACE_MS": "300",
}
SAFE = {"mode": "SAFE", "max_attempts": 5, "initial_backoff_ms": 0}


@pytest.fixture(scope="module")
def short_server(orbit_site: Any) -> Iterator[Any]:
    from tests.support.fixtures import RunningOrbit
    from tests.support.server import ServerProcess

    with ServerProcess(orbit_site.database_url, **SHORT) as server:
        yield RunningOrbit(orbit_site, server)


@pytest.fixture
def node(short_server: Any) -> Iterator[Node]:
    """A node with leases of 2 s, and a queue of the test's own."""
    node = Node(short_server)
    yield node
    node.close()


def events(node: Node, task_id: str) -> list[str]:
    return [event["type"] for event in node.api.get(f"/v1/tasks/{task_id}/events").data["items"]]


def ended(node: Node, task_id: str, *states: str) -> dict[str, Any]:
    """The task, once it is in one of the states."""
    return eventually(lambda: task if (task := node.api.task(task_id))["state"] in states else None)


def test_scheduled_task_becomes_due_and_is_offered(node: Node) -> None:
    worker = node.worker()
    task = node.submit(delay_ms=800)
    assert task["state"] == "SCHEDULED"
    offer = worker.expect("offer", timeout=10)
    assert offer["task"]["task_id"] == task["task_id"]
    reserved = datetime.fromisoformat(offer["reserved_until"]).timestamp() - 1.5
    assert 0 <= reserved - datetime.fromisoformat(offer["task"]["available_at"]).timestamp() < 2


def test_lost_start_of_a_safe_task_is_a_loss_and_is_tried_again(node: Node) -> None:
    worker = node.worker(capacity=1)
    task = node.submit(retry=SAFE)
    worker.start(worker.expect("offer"))  # and never renews
    again = worker.expect("offer", timeout=10)
    assert again["task"]["attempt"] == 2
    seen = node.api.task(task["task_id"])
    assert (seen["attempts"], seen["losses"]) == (1, 1)


def test_safe_task_that_is_lost_max_losses_times_fails_with_worker_lost(node: Node) -> None:
    worker = node.worker(capacity=1)
    task = node.submit(retry=SAFE)
    for _ in range(3):
        worker.start(worker.expect("offer", timeout=10))
    failed = ended(node, task["task_id"], "FAILED")
    assert failed["error"]["code"] == "WORKER_LOST"
    assert failed["losses"] == 3


def test_lost_start_of_a_task_that_is_not_safe_is_unknown_and_never_started_again(node: Node) -> None:
    worker = node.worker(capacity=1)
    task = node.submit()
    offer = worker.expect("offer")
    worker.start(offer)
    ended(node, task["task_id"], "UNKNOWN")
    assert worker.finish(offer)["status"] == "LOST"  # a report that comes too late changes no state
    assert node.state(task["task_id"]) == "UNKNOWN"
    assert worker.receive_for(1.5) == []
    assert events(node, task["task_id"]) == ["ACCEPTED", "STARTED", "UNKNOWN"]


def test_renewed_lease_outlives_its_first_length(node: Node) -> None:
    worker = node.worker(capacity=1)
    task = node.submit()
    offer = worker.expect("offer")
    worker.start(offer)
    for _ in range(8):
        assert worker.receive_for(0.5) == []
        assert worker.renew(offer)[0]["status"] == "RENEWED"
    assert worker.finish(offer)["status"] == "COMMITTED"
    assert node.state(task["task_id"]) == "SUCCEEDED"


def test_waiting_task_expires_at_its_deadline(node: Node) -> None:
    task = node.submit(expires_in_ms=500)
    expired = ended(node, task["task_id"], "EXPIRED")
    late = datetime.fromisoformat(expired["finished_at"]) - datetime.fromisoformat(expired["deadline_at"])
    assert 0 <= late.total_seconds() < 2


@pytest.mark.parametrize(("retry", "state"), [(SAFE, "EXPIRED"), ({"mode": "NEVER"}, "UNKNOWN")])
def test_lease_that_ends_after_the_deadline(node: Node, retry: dict[str, Any], state: str) -> None:
    worker = node.worker(capacity=1)
    task = node.submit(expires_in_ms=600, retry=retry)
    worker.start(worker.expect("offer"))
    assert worker.expect("cancel", timeout=5)["reason"] == "DEADLINE"
    ended(node, task["task_id"], state)


def test_lease_never_reaches_past_the_deadline_and_the_grace(node: Node) -> None:
    worker = node.worker(capacity=1)
    node.submit(expires_in_ms=900)
    offer = worker.expect("offer")
    (started,) = worker.start(offer)
    latest = datetime.fromisoformat(offer["task"]["deadline_at"]).timestamp() + 0.3
    assert datetime.fromisoformat(started["lease_until"]).timestamp() <= latest + 1e-6


def test_attempt_time_out_of_a_safe_task_is_tried_again(node: Node) -> None:
    worker = node.worker(capacity=1)
    node.submit(attempt_timeout_ms=400, retry=SAFE)
    worker.start(worker.expect("offer"))
    assert worker.expect("cancel", timeout=5)["reason"] == "ATTEMPT_TIMEOUT"
    assert worker.expect("offer", timeout=10)["task"]["attempt"] == 2


def test_worker_that_reconnects_within_the_lease_keeps_its_attempt(node: Node) -> None:
    """Complaint 19: a dropped socket must not take live tasks from a healthy worker."""
    worker = node.worker(capacity=1)
    task = node.submit(retry=SAFE)
    offer = worker.expect("offer")
    worker.start(offer)
    worker.close()
    again = node.socket()
    again.hello([node.queue_id], session_id=worker.welcome["session_id"])
    assert again.renew(offer)[0]["status"] == "RENEWED"
    assert again.receive_for(1.0) == []
    assert again.finish(offer)["status"] == "COMMITTED"
    assert node.api.task(task["task_id"])["attempts"] == 1


def test_cancel_holds_with_no_worker_connected(node: Node, here: Node) -> None:
    """Complaint 21: a cancel is durable, whoever is connected."""
    task = node.submit()
    node.api.post(f"/v1/tasks/{task['task_id']}:cancel", {"revision": "1"}).expect(200)
    worker = node.worker()
    assert worker.receive_for(1.0) == []
    assert node.state(task["task_id"]) == "CANCELED"


def test_work_accepted_on_another_node_is_offered_long_before_the_cycle_ends(
    start_node: Callable[..., Node], here: Node
) -> None:
    """The hint comes from the event tail: the scan cycle is set so long that only the hint can explain the offer."""
    node = start_node(ORBIT_SCAN_CYCLE_MS="9000", ORBIT_RESERVATION_MS="9500")
    worker = node.worker()
    assert worker.receive_for(1.0) == []  # its first claim came back empty
    here.api.submit(node.queue_id).expect(201)
    assert worker.expect("offer", timeout=6)
