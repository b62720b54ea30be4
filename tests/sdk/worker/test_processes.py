"""Handlers in processes of their own (opt-in, design 6.2)."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable

import pytest

from orbit_sdk import ConfigError, Worker
from orbit_sdk.worker import processes
from tests.sdk.fake_node import QUEUE, FakeNode, running_node
from tests.sdk.worker import process_handlers
from workers_app.protocol import messages as wire

MakeWorker = Callable[..., Worker]


def test_a_handler_runs_in_a_child_that_is_used_again(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=1)
    worker.handler("pid", process=True)(process_handlers.tell_pid)

    attempts = [node.submit("pid", {"n": 9007199254740993}) for _ in range(2)]
    with worker:
        results = [json.loads(node.report_of(attempt).result or "") for attempt in attempts]

    assert results[0]["pid"] == results[1]["pid"] != os.getpid()
    assert results[0]["payload"] == {"n": 9007199254740993}
    progress = [item.progress for message in node.of_kind(wire.Renew) for item in message.items if item.progress]
    assert wire.Progress(50, "half way") in progress


def test_an_error_in_a_child_is_reported_like_any_other(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    worker.handler("fail", process=True)(process_handlers.fail)

    attempt = node.submit("fail")
    with worker:
        report = node.report_of(attempt)

    assert report.error is not None
    assert (report.error.code, report.error.message) == ("ValueError", "in the child")


def test_a_cancel_reaches_the_child(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    worker.handler("wait", process=True)(process_handlers.wait_for_cancel)

    attempt = node.submit("wait")
    with worker:
        node.wait(lambda: worker.running)
        node.push(wire.cancel(attempt_id=attempt, reason=wire.CancelReason.REQUESTED))
        assert node.report_of(attempt).outcome == "CANCELED"


def test_what_a_dead_child_did_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    with running_node(lease_ms=300) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=1)
        worker.handler("die", process=True)(process_handlers.die)
        worker.handler("pid", process=True)(process_handlers.tell_pid)

        attempt = node.submit("die")
        other = node.submit("pid")
        node.capacity = 2
        with caplog.at_level(logging.WARNING, "orbit_sdk.worker"), worker:
            node.wait(lambda: any("left to its lease" in record.message for record in caplog.records))
            node.lose(attempt)
            node.do(node._offer())
            node.report_of(other)

        assert node.all[attempt].report is None
        assert attempt not in [item.attempt_id for message in node.of_kind(wire.Finish) for item in message.items]


def test_a_child_that_ignores_a_lost_lease_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KILL_SECONDS", 0.1)
    with running_node(lease_ms=300) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=1)
        worker.handler("stubborn", process=True)(process_handlers.stubborn)

        attempt = node.submit("stubborn")
        with worker:
            node.wait(lambda: worker.running)
            node.lose(attempt)
            node.wait(lambda: not worker.running)


def test_a_handler_that_a_child_cannot_import_is_refused_at_the_start(make_worker: MakeWorker) -> None:
    worker = make_worker()
    worker.handler("local", process=True)(lambda ctx, payload: None)

    with pytest.raises(ConfigError, match="process of its own"):
        worker.start()


def test_a_coroutine_does_not_run_in_a_process(make_worker: MakeWorker) -> None:
    async def handle(ctx: object, payload: object) -> None: ...

    with pytest.raises(ConfigError, match="coroutine"):
        make_worker().handler("h", process=True)(handle)
