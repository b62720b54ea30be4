"""Connections come and go; what started goes on (design 2, Session and Rules; 6.2)."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_sdk import Context, Worker, WorkerRefused
from tasks_app.states import TaskState
from tests.sdk.fake_node import CUT, CUT_AFTER, QUEUE, SWALLOW, UNAVAILABLE, FakeNode, Held, running_node
from workers_app.protocol import messages as wire

MakeWorker = Callable[..., Worker]


def holding(worker: Worker) -> threading.Event:
    """A handler "hold" that runs until the event is set, and returns how often it was called."""
    release = threading.Event()
    calls: list[str] = []

    @worker.handler("hold")
    def hold(ctx: Context, payload: Any) -> int:
        calls.append(ctx.attempt_id)
        release.wait(10)
        return calls.count(ctx.attempt_id)

    return release


@pytest.mark.parametrize("how", [CUT, CUT_AFTER])
def test_a_start_whose_answer_was_lost_is_repeated_and_runs_once(
    node: FakeNode, make_worker: MakeWorker, how: str
) -> None:
    worker = make_worker()
    holding(worker).set()
    node.script["start"].append(how)

    attempt = node.submit("hold")
    with worker:
        report = node.report_of(attempt)

    assert report.result == "1"
    assert node.connections == 2
    assert node.hellos[1].session_id == next(iter(node.sessions))


@pytest.mark.parametrize("how", [CUT, CUT_AFTER])
@pytest.mark.parametrize("resumed", [True, False])
def test_a_finish_whose_answer_was_lost_is_repeated_on_the_next_connection(
    node: FakeNode, make_worker: MakeWorker, how: str, resumed: bool
) -> None:
    worker = make_worker()
    holding(worker).set()
    node.script["finish"].append(how)
    node.resume = resumed

    attempt = node.submit("hold")
    with worker:
        node.wait(lambda: node.connections == 2 and not worker.running and node.of_kind(wire.Finish))

    assert node.report_of(attempt).result == "1"


def test_a_running_attempt_goes_on_over_a_new_connection_and_is_renewed_at_once(
    node: FakeNode, make_worker: MakeWorker
) -> None:
    worker = make_worker()
    release = holding(worker)

    attempt = node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        node.cut()
        node.wait(
            lambda: node.of_kind(wire.Renew), "a renewal right after the new welcome, not a third of a lease later"
        )
        release.set()
        assert node.report_of(attempt).result == "1"

    assert node.connections == 2


def test_a_running_attempt_is_renewed_and_finished_although_its_session_is_gone(
    node: FakeNode, make_worker: MakeWorker
) -> None:
    worker = make_worker()
    release = holding(worker)
    node.resume = False

    attempt = node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        node.cut()
        node.wait(lambda: node.of_kind(wire.Renew))
        release.set()
        assert node.report_of(attempt).result == "1"


def test_a_report_made_while_the_connection_was_down_is_sent_later(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    release = holding(worker)
    node.handshake_status.extend([200])
    node.handshake_status.clear()

    attempt = node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        node.handshake_status.extend([503, 503])
        node.cut()
        node.wait(lambda: not node.handshake_status)
        release.set()
        assert node.report_of(attempt).result == "1"


def test_a_reservation_that_the_session_no_longer_holds_is_forgotten(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=1, prefetch=2)
    release = holding(worker)

    first, second = node.submit("hold"), node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        del node._session.attempts[second]
        node.cut()
        node.wait(lambda: node.connections == 2)
        release.set()
        node.report_of(first)
        third = node.submit("hold")
        node.report_of(third)

    started = [item.attempt_id for message in node.of_kind(wire.Start) for item in message.items]
    assert started == [first, third]


def test_a_reservation_that_is_still_held_is_started_after_the_reconnect(
    node: FakeNode, make_worker: MakeWorker
) -> None:
    worker = make_worker(concurrency=1, prefetch=2)
    release = holding(worker)

    first, second = node.submit("hold"), node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        node.cut()
        node.wait(lambda: node.connections == 2)
        release.set()
        assert node.report_of(first).result == "1"
        assert node.report_of(second).result == "1"


def test_what_the_session_holds_and_the_worker_does_not_know(
    node: FakeNode, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make_worker()
    release = holding(worker)
    reserved, running = "e" * 32, "f" * 32

    attempt = node.submit("hold")
    with caplog.at_level(logging.WARNING, "orbit_sdk.worker"), worker:
        node.wait(lambda: worker.running)
        for name, state in ((reserved, TaskState.RESERVED), (running, TaskState.RUNNING)):
            node.all[name] = node._session.attempts[name] = Held(name, 3, "d" * 32, state)
        node.cut()
        node.wait(lambda: node.of_kind(wire.Release))
        release.set()
        node.report_of(attempt)
        del node._session.attempts[running]

    (message,) = node.of_kind(wire.Release)
    assert [(item.attempt_id, item.fencing_token) for item in message.items] == [(reserved, 3)]
    assert any("left to its lease" in record.message and running in record.message for record in caplog.records)


def test_an_unavailable_database_is_asked_again_on_the_same_connection(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    holding(worker).set()
    node.script["start"].append(UNAVAILABLE)
    node.script["finish"].extend([UNAVAILABLE, UNAVAILABLE])

    attempt = node.submit("hold")
    with worker:
        assert node.report_of(attempt).result == "1"

    assert node.connections == 1
    assert len(node.of_kind(wire.Start)) == 2
    assert len(node.of_kind(wire.Finish)) == 3


def test_a_renewal_that_the_database_could_not_take_is_repeated() -> None:
    with running_node(lease_ms=900) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=1)
        release = holding(worker)
        node.script["renew"].append(UNAVAILABLE)

        attempt = node.submit("hold")
        with worker:
            node.wait(lambda: len(node.of_kind(wire.Renew)) >= 2)
            release.set()
            assert node.report_of(attempt).outcome == "SUCCEEDED"
        assert node.connections == 1


def test_a_lost_lease_is_learned_after_the_reconnect(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    reasons: list[str | None] = []

    @worker.handler("long")
    def long(ctx: Context, payload: Any) -> None:
        ctx.wait_cancelled(10)
        reasons.append(ctx.cancel_reason)

    attempt = node.submit("long")
    with worker:
        node.wait(lambda: worker.running)
        node.lose(attempt)
        node.cut()
        node.wait(lambda: reasons == ["LEASE_LOST"])

    assert node.all[attempt].report is None


@pytest.mark.parametrize("code", [1012, 1001, 1011, 4408, 4429])
def test_a_closed_connection_is_opened_again(node: FakeNode, make_worker: MakeWorker, code: int) -> None:
    worker = make_worker()
    release = holding(worker)

    attempt = node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        node.close_with(code)
        node.wait(lambda: node.connections == 2)
        release.set()
        assert node.report_of(attempt).result == "1"


def test_a_session_that_was_taken_over_is_not_fought_for(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    holding(worker).set()

    with worker:
        node.wait(lambda: node.connections == 1)
        node.close_with(4409)
        node.wait(lambda: node.connections == 2)

    assert node.hellos[1].session_id is None


def test_a_node_that_goes_down_is_left_when_nothing_runs_any_more(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=1, prefetch=2)
    release = holding(worker)

    first, second = node.submit("hold"), node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        node.push(wire.drain())
        node.wait(lambda: node.of_kind(wire.Release), "what has not started is let go")
        release.set()
        node.report_of(first)
        node.wait(lambda: node.connections == 2, "and the worker connects elsewhere")

    started = [item.attempt_id for message in node.of_kind(wire.Start) for item in message.items]
    assert started == [first]
    assert [item.attempt_id for message in node.of_kind(wire.Release) for item in message.items] == [second]


def test_a_server_that_is_not_there_yet_is_waited_for(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    holding(worker).set()
    node.handshake_status.extend([503, 502, 404])

    attempt = node.submit("hold")
    with worker:
        assert node.report_of(attempt).outcome == "SUCCEEDED"


# -- What there is no coming back from


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refused_handshake_ends_the_worker(node: FakeNode, make_worker: MakeWorker, status: int) -> None:
    worker = make_worker()
    holding(worker)
    node.handshake_status.append(status)

    worker.start()
    with pytest.raises(WorkerRefused, match=str(status)) as refusal:
        worker.join(10)

    assert "orbit_test_token" not in str(refusal.value)


@pytest.mark.parametrize("code", [4401, 4403])
def test_a_refusing_close_ends_the_worker(node: FakeNode, make_worker: MakeWorker, code: int) -> None:
    worker = make_worker()
    holding(worker)
    node.close_at_hello.append(code)

    worker.start()
    with pytest.raises(WorkerRefused):
        worker.join(10)


def test_a_protocol_error_again_and_again_ends_the_worker(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    holding(worker)
    node.close_at_hello.extend([4400, 4400, 4400])

    worker.start()
    with pytest.raises(WorkerRefused):
        worker.join(10)

    assert len(node.hellos) == 3


def test_one_protocol_error_does_not_end_the_worker(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    holding(worker).set()
    node.close_at_hello.append(4400)

    attempt = node.submit("hold")
    with worker:
        node.report_of(attempt)


def test_garbage_from_the_server_ends_the_connection_not_the_work(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    release = holding(worker)

    attempt = node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        node.push('{"type":"started","re":99,"items":[]}')
        node.wait(lambda: node.connections == 2)
        release.set()
        assert node.report_of(attempt).result == "1"


def test_a_rotated_token_is_taken_up(node: FakeNode, tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"

    def write(token: str) -> None:
        path.write_text(json.dumps({"url": node.url, "token": token, "queues": {"reports": QUEUE}}))

    write("old")
    worker = Worker.from_credentials_file(path, queues=["reports"])
    release = holding(worker)
    attempt = node.submit("hold")
    with worker:
        node.wait(lambda: worker.running)
        write("new")
        node.close_with(4401)
        node.wait(lambda: node.connections == 2)
        release.set()
        assert node.report_of(attempt).result == "1"

    assert node.authorizations == ["Bearer old", "Bearer new"]


# -- Draining


def test_draining_lets_go_of_reservations_and_waits_for_what_runs(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=1, prefetch=3)
    release = holding(worker)

    first, *others = (node.submit("hold") for _ in range(3))
    worker.start()
    node.wait(lambda: worker.running)
    worker.stop()
    node.wait(lambda: node.of_kind(wire.Drain))
    assert worker.running == 1
    release.set()
    left = worker.join(10)

    assert left == 0
    assert node.report_of(first).result == "1"
    assert all(node.all[attempt].report is None for attempt in others)


def test_draining_ends_at_its_time_out_and_says_what_was_left(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(drain_timeout=0.2)
    release = holding(worker)

    node.submit("hold")
    worker.start()
    node.wait(lambda: worker.running)
    worker.stop()

    assert worker.join(10) == 1
    release.set()


def test_a_second_stop_leaves_at_once(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(drain_timeout=600)
    release = holding(worker)

    node.submit("hold")
    worker.start()
    node.wait(lambda: worker.running)
    worker.stop()
    worker.stop()

    assert worker.join(10) == 1
    release.set()


def test_a_drain_goes_on_over_a_new_connection(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    release = holding(worker)

    attempt = node.submit("hold")
    worker.start()
    node.wait(lambda: worker.running)
    worker.stop()
    node.wait(lambda: node.of_kind(wire.Drain))
    node.cut()
    node.wait(lambda: len(node.of_kind(wire.Drain)) == 2)
    release.set()

    assert worker.join(10) == 0
    assert node.report_of(attempt).result == "1"


def test_an_idle_worker_leaves_although_the_node_waits_for_somebody(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(drain_timeout=600)
    holding(worker)
    node.script["drain"].append(SWALLOW)

    worker.start()
    node.wait(lambda: node.connections == 1)
    node._session.attempts["f" * 32] = node.all["f" * 32] = Held("f" * 32, 1, "d" * 32, TaskState.RUNNING)
    node.script["drain"].clear()
    worker.stop()

    assert worker.join(10) == 0


def test_a_worker_without_a_connection_leaves_at_once(make_worker: MakeWorker, node: FakeNode) -> None:
    worker = make_worker(drain_timeout=600)
    holding(worker)
    node.handshake_status.extend([503] * 1000)

    worker.start()
    node.wait(lambda: node.authorizations)
    worker.stop()

    assert worker.join(10) == 0


def test_pausing_takes_no_new_tasks_until_it_is_resumed(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    holding(worker).set()

    with worker:
        node.wait(lambda: node.connections == 1)
        worker.pause()
        node.wait(lambda: node.capacity == 0)
        attempt = node.submit("hold")
        assert attempt not in node.all
        worker.resume()
        assert node.report_of(attempt).result == "1"


def test_a_worker_can_be_started_again(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    holding(worker).set()
    for _ in range(2):
        attempt = node.submit("hold")
        with worker:
            node.report_of(attempt)

    assert [hello.session_id for hello in node.hellos] == [None, None]
