"""Cutting in line on a real node: the numbers of the strict-priority seed, section 9 (G1, G2, G3, yields, weights)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fixtures import RunningOrbit
from tests.support.waiting import eventually
from tests.support.worker_sockets import WorkerSocket

SCAN_SECONDS = 1.0


def batch(api: Api, queue_id: str, count: int, *, prefix: str, **fields: Any) -> list[str]:
    """Accepts `count` tasks, 32 a request; their ids in order."""
    task_ids: list[str] = []
    for first in range(0, count, 32):
        items = [
            {
                "idempotency_key": f"{prefix}-{queue_id}-{number}",
                "task": {"queue_id": queue_id, "handler": "echo", "handler_version": "v1", "payload_version": "v1",
                         "payload": number, **fields},
            }
            for number in range(first, min(first + 32, count))
        ]  # fmt: skip
        results = api.post("/v1/tasks:batch", {"items": items}).expect(200).data["items"]
        task_ids += [result["receipt"]["task_id"] for result in results]
    return task_ids


@pytest.fixture
def strict_queue(strict_api: Api) -> str:
    return str(strict_api.make_queue()["queue_id"])


@pytest.fixture
def strict_worker(orbit_server: RunningOrbit, connect_worker: Callable[..., WorkerSocket]) -> WorkerSocket:
    return connect_worker(token=orbit_server.strict.token)


def test_g1_after_a_thousand_p0_the_next_free_slot_runs_the_p9(
    strict_api: Api, strict_queue: str, strict_worker: WorkerSocket
) -> None:
    batch(strict_api, strict_queue, 1000, prefix="g1", priority=0)
    strict_worker.hello([strict_queue], capacity=1)
    first = strict_worker.expect("offer")
    strict_worker.start(first)
    (urgent,) = batch(strict_api, strict_queue, 1, prefix="g1-urgent", priority=9)
    strict_worker.finish(first)
    assert strict_worker.expect("offer")["task"]["task_id"] == urgent


def test_g1_looks_across_queues(strict_api: Api, strict_worker: WorkerSocket) -> None:
    bulk, urgent = (str(strict_api.make_queue()["queue_id"]) for _ in range(2))
    batch(strict_api, bulk, 50, prefix="bulk", priority=0)
    batch(strict_api, urgent, 1, prefix="urgent", priority=5)
    strict_worker.hello([bulk, urgent], capacity=1)
    assert strict_worker.expect("offer")["task"]["queue_id"] == urgent


def test_g2_eight_unstarted_p0_give_exactly_one_place_to_a_p9(
    strict_api: Api, strict_queue: str, strict_worker: WorkerSocket
) -> None:
    batch(strict_api, strict_queue, 8, prefix="g2", priority=0)
    strict_worker.hello([strict_queue], capacity=8)
    offers = {offer["attempt_id"]: offer for offer in strict_worker.offers(8)}
    (urgent,) = batch(strict_api, strict_queue, 1, prefix="g2-urgent", priority=9)
    revoked = strict_worker.expect("revoke", timeout=5)
    assert revoked["reason"] == "YIELDED"
    offer = strict_worker.expect("offer", timeout=5)
    assert offer["task"]["task_id"] == urgent
    assert [message for message in strict_worker.receive_for(SCAN_SECONDS) if message["type"] == "revoke"] == []
    yielded = offers.pop(revoked["attempt_id"])
    # The place in line is kept and no attempt was counted: it runs as soon as there is room.
    (lost,) = strict_worker.start(yielded)
    assert (lost["status"], lost["code"]) == ("REFUSED", "LEASE_LOST")
    for one in [offer, *offers.values()]:
        (started,) = strict_worker.start(one)
        assert started["status"] == "STARTED"
        assert strict_worker.finish(one)["status"] == "COMMITTED"
    again = strict_worker.expect("offer")
    assert (again["task"]["task_id"], again["task"]["attempt"]) == (yielded["task"]["task_id"], 1)
    strict_worker.start(again)
    assert strict_worker.finish(again)["state"] == "SUCCEEDED"
    task = strict_api.get(f"/v1/tasks/{yielded['task']['task_id']}").expect(200).data["task"]
    assert (task["attempts"], task["yields"]) == (1, 1)


def test_g2_as_few_give_way_as_there_are_urgent_tasks_lowest_first(
    strict_api: Api, strict_queue: str, strict_worker: WorkerSocket
) -> None:
    for priority in (-2, 3, 3):
        batch(strict_api, strict_queue, 1, prefix=f"few{priority}-{id(object())}", priority=priority)
    strict_worker.hello([strict_queue], capacity=3)
    offers = {offer["attempt_id"]: offer["task"]["priority"] for offer in strict_worker.offers(3)}
    batch(strict_api, strict_queue, 1, prefix="urgent", priority=4)
    revoked = [message for message in strict_worker.receive_for(3 * SCAN_SECONDS) if message["type"] == "revoke"]
    assert [offers[message["attempt_id"]] for message in revoked] == [-2]


def test_g3_a_running_p0_is_never_touched(strict_api: Api, strict_queue: str, strict_worker: WorkerSocket) -> None:
    batch(strict_api, strict_queue, 1, prefix="g3", priority=0)
    strict_worker.hello([strict_queue], capacity=1)
    running = strict_worker.expect("offer")
    strict_worker.start(running)
    (urgent,) = batch(strict_api, strict_queue, 1, prefix="g3-urgent", priority=9)
    assert strict_worker.receive_for(2 * SCAN_SECONDS) == []
    assert strict_worker.finish(running)["status"] == "COMMITTED"
    assert strict_worker.expect("offer")["task"]["task_id"] == urgent


def test_an_equal_priority_makes_nobody_yield(strict_api: Api, strict_queue: str, strict_worker: WorkerSocket) -> None:
    batch(strict_api, strict_queue, 1, prefix="equal", priority=2)
    strict_worker.hello([strict_queue], capacity=1)
    strict_worker.expect("offer")
    batch(strict_api, strict_queue, 1, prefix="equal-later", priority=2)
    assert strict_worker.receive_for(2 * SCAN_SECONDS) == []


def test_a_task_that_yielded_max_yields_times_keeps_its_next_reservation_and_is_no_dead_letter(
    start_orbit_server: Callable[..., RunningOrbit],
) -> None:
    running = start_orbit_server(ORBIT_MAX_YIELDS="2", ORBIT_YIELD_DELAY_MS="10")
    with (
        Api(running.url, running.strict.token) as api,
        WorkerSocket(running.websocket_url, running.strict.token) as worker,
    ):
        queue_id = str(api.make_queue()["queue_id"])
        (task_id,) = batch(api, queue_id, 1, prefix="low", priority=0)
        worker.hello([queue_id], capacity=1)
        for number in range(2):
            assert worker.expect("offer")["task"]["task_id"] == task_id
            batch(api, queue_id, 1, prefix=f"urgent{number}", priority=9)
            assert worker.expect("revoke", timeout=5)["reason"] == "YIELDED"
            urgent = worker.expect("offer", timeout=5)
            worker.start(urgent)
            worker.finish(urgent)
        kept = worker.expect("offer")
        assert kept["task"]["task_id"] == task_id
        batch(api, queue_id, 1, prefix="too-late", priority=9)
        assert worker.receive_for(2 * SCAN_SECONDS) == []
        worker.start(kept)
        assert worker.finish(kept)["state"] == "SUCCEEDED"
        task = api.get(f"/v1/tasks/{task_id}").expect(200).data["task"]
        assert (task["yields"], task["attempts"], task["losses"] if "losses" in task else 0) == (2, 1, 0)
        events = api.get(f"/v1/tasks/{task_id}/events").expect(200).data["items"]
        assert [event["type"] for event in events].count("YIELDED") == 2
        assert api.get("/v1/tasks?dead=true").expect(200).data["items"] == []


@pytest.mark.parametrize(("weights", "share"), [((3, 1), 60), ((1, 1), 40)])
def test_queues_of_one_tier_share_by_weight(
    strict_api: Api, strict_worker: WorkerSocket, weights: tuple[int, int], share: int
) -> None:
    queues = [str(strict_api.make_queue(weight=weight)["queue_id"]) for weight in weights]
    for queue_id in queues:
        batch(strict_api, queue_id, 100, prefix="share", priority=0)
    strict_worker.hello(queues, capacity=4)
    served: Counter[str] = Counter()
    while sum(served.values()) < 80:
        offer = strict_worker.expect("offer")
        strict_worker.start(offer)
        strict_worker.finish(offer)
        served[offer["task"]["queue_id"]] += 1
    assert abs(served[queues[0]] - share) <= 4, served


def test_normal_reserved_slots_stay_idle_when_only_urgent_work_exists(
    strict_api: Api, strict_queue: str, strict_worker: WorkerSocket
) -> None:
    batch(strict_api, strict_queue, 5, prefix="urgent", priority=5)
    strict_worker.hello([strict_queue], capacity=4, normal_reserved_slots=1)
    strict_worker.offers(3)
    assert strict_worker.receive_for(2 * SCAN_SECONDS) == []
    batch(strict_api, strict_queue, 1, prefix="normal", priority=0)
    assert strict_worker.expect("offer")["task"]["priority"] == 0


def test_the_backlog_is_shown_by_priority_with_its_oldest_wait(strict_api: Api, strict_queue: str) -> None:
    for priority, count in ((9, 3), (5, 2), (0, 4)):
        batch(strict_api, strict_queue, count, prefix=f"p{priority}", priority=priority)
    eventually(lambda: _stats(strict_api, strict_queue)["backlog_by_priority"] == {"9": 3, "5": 2, "0": 4})
    assert set(_stats(strict_api, strict_queue)["oldest_waiting_ms_by_priority"]) == {"9", "5", "0"}


def _stats(api: Api, queue_id: str) -> Any:
    return api.get(f"/v1/queues/{queue_id}/stats").expect(200).data["stats"]
