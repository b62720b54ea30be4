"""A worker beside a node that speaks the protocol over a real socket (design 6.2)."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from orbit_sdk import Cancelled, ConfigError, Context, Fail, Retry, Worker
from tasks_app.states import Policy, TaskState
from tests.sdk.fake_node import QUEUE, FakeNode, Raw, running_node
from workers_app.protocol import messages as wire

MakeWorker = Callable[..., Worker]


def test_a_task_runs_and_its_result_is_reported(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    seen: list[Context] = []

    @worker.handler("object.prepare", version="v1")
    def prepare(ctx: Context, payload: Any) -> Any:
        seen.append(ctx)
        return {"object": payload["object_ref"]}

    attempt = node.submit("object.prepare", {"object_ref": "objects/1"}, priority=7, attempt=2, resource_key="disk")
    with worker:
        report = node.report_of(attempt)

    assert (report.outcome, json.loads(report.result or "")) == ("SUCCEEDED", {"object": "objects/1"})
    (ctx,) = seen
    assert (ctx.attempt_id, ctx.attempt, ctx.priority, ctx.task.resource_key) == (attempt, 2, 7, "disk")
    assert node.authorizations == ["Bearer orbit_test_token"]


def test_hello_says_what_the_worker_can_do(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=3, prefetch=8, resource_keys=False)
    worker.handler("a", version="v1")(lambda ctx, payload: None)
    worker.handler("a", version="v2")(lambda ctx, payload: None)

    with worker:
        hello = node.wait(lambda: node.hellos)[0]

    assert (hello.worker_name, hello.capacity, hello.queue_ids) == ("tester", 8, (QUEUE,))
    assert hello.handlers == (wire.Capability("a", "v1"), wire.Capability("a", "v2"))
    assert (hello.resource_keys, hello.normal_reserved_slots, hello.session_id) == (False, 0, None)
    assert hello.sdk and hello.sdk.startswith("orbit-sdk/")


def test_digits_of_payload_and_result_survive(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(decimals=True)

    @worker.handler("echo")
    def echo(ctx: Context, payload: Any) -> Any:
        assert payload["d"] == Decimal("1.10")
        return payload

    text = '{"n":9007199254740993,"d":1.10,"x":0.1000000000000000055,"e":1E+400}'
    attempt = node.submit("echo", Raw(text))
    with worker:
        assert node.report_of(attempt).result == text


def test_coroutines_run_together_in_one_thread_of_their_own(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=3)
    together = asyncio.Barrier(3)
    threads: set[int] = set()

    @worker.handler("wait")
    async def wait(ctx: Context, payload: Any) -> str:
        threads.add(threading.get_ident())
        await together.wait()
        return "done"

    attempts = [node.submit("wait") for _ in range(3)]
    with worker:
        assert [node.report_of(attempt).result for attempt in attempts] == ['"done"'] * 3

    assert len(threads) == 1


def test_no_more_handlers_run_than_concurrency_although_more_is_held(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=2, prefetch=6)
    release = threading.Event()
    running: list[str] = []

    @worker.handler("hold")
    def hold(ctx: Context, payload: Any) -> None:
        running.append(ctx.attempt_id)
        release.wait(10)

    attempts = [node.submit("hold") for _ in range(6)]
    with worker:
        node.wait(lambda: len(running) == 2)
        started = sum(len(message.items) for message in node.of_kind(wire.Start))
        states = [node.all[attempt].state for attempt in attempts]
        release.set()
        for attempt in attempts:
            node.report_of(attempt)

    assert started == 2
    assert states.count(TaskState.RESERVED) == 4
    assert running == attempts, "in the order in which they were offered"


def test_in_a_strict_namespace_the_most_urgent_offer_starts_first() -> None:
    with running_node(policy=Policy.STRICT) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=1, prefetch=5)
        order: list[int] = []

        @worker.handler("h")
        def handle(ctx: Context, payload: Any) -> None:
            order.append(ctx.priority)
            if len(order) == 1:
                ctx.wait_cancelled(10)

        first = node.submit("h", priority=0)
        with worker:
            node.wait(lambda: order)
            attempts = [node.submit("h", priority=priority) for priority in (0, -1, 9, 5)]
            # Frames are read in order: when the first handler hears this, the offers have been read.
            node.push(wire.cancel(attempt_id=first, reason=wire.CancelReason.REQUESTED))
            for attempt in [first, *attempts]:
                node.report_of(attempt)

    assert order == [0, 9, 5, 0, -1]


def test_starts_and_finishes_are_gathered(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=100, prefetch=100)
    worker.handler("noop")(lambda ctx, payload: None)

    attempts = [node.submit() for _ in range(100)]
    with worker:
        for attempt in attempts:
            node.report_of(attempt)

    sizes = [len(message.items) for message in node.of_kind(wire.Start)]
    assert sum(sizes) == 100
    assert max(sizes) <= 64
    assert len(sizes) < 50


def test_reports_are_split_at_the_largest_frame() -> None:
    with running_node() as node:
        node.frame_bytes_max = 300_000
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=4)
        ready = threading.Barrier(4)

        @worker.handler("large")
        def large(ctx: Context, payload: Any) -> str:
            ready.wait(10)
            return "ü" * 60_000

        attempts = [node.submit("large") for _ in range(4)]
        with worker:
            for attempt in attempts:
                node.report_of(attempt)

        assert max(len(message.items) for message in node.of_kind(wire.Finish)) <= 2


# -- How handlers end


def failing(node: FakeNode, make_worker: MakeWorker, error: BaseException, **options: Any) -> wire.FinishItem:
    worker = make_worker(**options)

    @worker.handler("fails")
    def fails(ctx: Context, payload: Any) -> None:
        raise error

    attempt = node.submit("fails")
    with worker:
        return node.report_of(attempt)


def test_an_unforeseen_error_is_a_failure_that_may_be_retried(node: FakeNode, make_worker: MakeWorker) -> None:
    report = failing(node, make_worker, KeyError("n"))

    assert (report.outcome, report.retryable, report.retry_after_ms) == ("FAILED", True, None)
    assert report.error is not None
    assert (report.error.code, report.error.message) == ("KeyError", "'n'")
    trace = json.loads(report.error.details or "")["traceback"]
    assert "in fails" in trace
    assert "execution.py" not in trace


def test_tracebacks_can_be_switched_off(node: FakeNode, make_worker: MakeWorker) -> None:
    report = failing(node, make_worker, KeyError("n"), tracebacks=False)

    assert report.error is not None
    assert report.error.details is None


def test_retry_says_when(node: FakeNode, make_worker: MakeWorker) -> None:
    report = failing(node, make_worker, Retry("printer busy", after=1.5))

    assert (report.outcome, report.retryable, report.retry_after_ms) == ("FAILED", True, 1500)
    assert report.error == wire.ErrorReport("RETRY", "printer busy", None)


def test_fail_is_for_good(node: FakeNode, make_worker: MakeWorker) -> None:
    report = failing(node, make_worker, Fail("NO_SUCH_OBJECT", "it is gone", details={"ref": 1}))

    assert (report.outcome, report.retryable) == ("FAILED", False)
    assert report.error == wire.ErrorReport("NO_SUCH_OBJECT", "it is gone", '{"ref":1}')


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Cancelled("of my own")])
def test_no_handler_can_end_its_worker(node: FakeNode, make_worker: MakeWorker, error: BaseException) -> None:
    report = failing(node, make_worker, error)

    assert report.outcome == "FAILED"


@pytest.mark.parametrize(
    ("result", "code"),
    [("x" * (256 * 1024), "RESULT_TOO_LARGE"), ({1, 2}, "INVALID_RESULT"), (float("nan"), "INVALID_RESULT")],
)
def test_a_result_that_cannot_be_sent_is_a_failure_for_good(
    node: FakeNode, make_worker: MakeWorker, result: Any, code: str
) -> None:
    worker = make_worker()
    worker.handler("h")(lambda ctx, payload: result)
    attempt = node.submit("h")

    with worker:
        report = node.report_of(attempt)

    assert report.error is not None
    assert (report.outcome, report.error.code, report.retryable) == ("FAILED", code, False)


def test_a_report_that_the_server_refuses_is_replaced_by_one_that_says_so(
    node: FakeNode, make_worker: MakeWorker
) -> None:
    worker = make_worker()
    worker.handler("h")(lambda ctx, payload: 1)
    attempt = node.submit("h")
    node.invalid_finish[attempt] = 1

    with worker:
        report = node.report_of(attempt)

    assert report.error is not None
    assert (report.outcome, report.error.code) == ("FAILED", "REPORT_REFUSED")


def test_what_is_refused_twice_is_left_to_its_lease(
    node: FakeNode, make_worker: MakeWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker = make_worker()
    worker.handler("h")(lambda ctx, payload: 1)
    attempt = node.submit("h")
    node.invalid_finish[attempt] = 2

    with caplog.at_level(logging.WARNING, "orbit_sdk.worker"), worker:
        node.wait(lambda: any("left to its lease" in record.message for record in caplog.records))

    assert len(node.of_kind(wire.Finish)) == 2


# -- Typed handlers (dataclasses are tested in test_payloads)


def test_a_payload_of_another_type_never_reaches_the_handler(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    called: list[Any] = []

    @worker.handler("h")
    def handle(ctx: Context, payload: dict[str, int]) -> None:
        called.append(payload)

    attempt = node.submit("h", {"a": "one"})
    with worker:
        report = node.report_of(attempt)

    assert report.error is not None
    assert (report.error.code, report.error.message) == ("INVALID_PAYLOAD", "payload.a must be a int")
    assert report.retryable is False
    assert called == []


# -- Stopping


def test_a_cancel_reaches_the_handler_and_is_reported(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    reasons: list[str | None] = []

    @worker.handler("long")
    def long(ctx: Context, payload: Any) -> None:
        ctx.raise_if_cancelled()
        reasons.append(ctx.cancel_reason)
        assert ctx.wait_cancelled(10)
        assert ctx.check_cancelled()
        reasons.append(ctx.cancel_reason)
        ctx.raise_if_cancelled()

    attempt = node.submit("long")
    with worker:
        node.wait(lambda: reasons)
        node.push(wire.cancel(attempt_id=attempt, reason=wire.CancelReason.DEADLINE))
        report = node.report_of(attempt)

    assert report.outcome == "CANCELED"
    assert reasons == [None, "DEADLINE"]


def test_a_coroutine_is_cancelled_at_its_next_await(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    cleaned: list[bool] = []

    @worker.handler("long")
    async def long(ctx: Context, payload: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(True)

    attempt = node.submit("long")
    with worker:
        node.wait(lambda: worker.running)
        node.push(wire.cancel(attempt_id=attempt, reason=wire.CancelReason.REQUESTED))
        report = node.report_of(attempt)

    assert report.outcome == "CANCELED"
    assert cleaned == [True]


def test_a_handler_that_finishes_all_the_same_has_succeeded(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()

    @worker.handler("long")
    def long(ctx: Context, payload: Any) -> int:
        ctx.wait_cancelled(10)
        return 5

    attempt = node.submit("long")
    with worker:
        node.wait(lambda: worker.running)
        node.push(wire.cancel(attempt_id=attempt, reason=wire.CancelReason.REQUESTED))
        assert node.report_of(attempt).outcome == "SUCCEEDED"


# -- Leases


def test_leases_are_renewed_every_third_while_handlers_run() -> None:
    with running_node(lease_ms=600) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=2)
        release = threading.Event()
        worker.handler("hold")(lambda ctx, payload: release.wait(10) and None)

        attempt = node.submit("hold")
        with worker:
            node.wait(lambda: len(node.of_kind(wire.Renew)) >= 4)
            release.set()
            node.report_of(attempt)


def test_leases_are_renewed_after_a_handler_held_the_interpreter() -> None:
    with running_node(lease_ms=900) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=2)
        release = threading.Event()

        @worker.handler("holds.the.lock")
        def holds(ctx: Context, payload: Any) -> bool:
            int("9" * 4000) ** 60  # C code that does not let go of the interpreter
            return release.wait(10)

        attempt = node.submit("holds.the.lock")
        with worker:
            node.wait(lambda: node.of_kind(wire.Renew))
            release.set()
            assert node.report_of(attempt).outcome == "SUCCEEDED"


def test_a_blocking_coroutine_delays_no_renewal() -> None:
    with running_node(lease_ms=600) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=2)
        release = threading.Event()

        @worker.handler("blocks")
        async def blocks(ctx: Context, payload: Any) -> None:
            release.wait(10)

        attempt = node.submit("blocks")
        with worker:
            node.wait(lambda: len(node.of_kind(wire.Renew)) >= 3)
            release.set()
            node.report_of(attempt)


def test_a_lost_lease_stops_the_handler_and_its_result_is_thrown_away(caplog: pytest.LogCaptureFixture) -> None:
    with running_node(lease_ms=300) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=2)
        reasons: list[str | None] = []

        @worker.handler("long")
        def long(ctx: Context, payload: Any) -> int:
            assert ctx.wait_cancelled(10)
            reasons.append(ctx.cancel_reason)
            return 5

        attempt = node.submit("long")
        with caplog.at_level(logging.WARNING, "orbit_sdk.worker"), worker:
            node.wait(lambda: worker.running)
            node.lose(attempt)
            node.wait(lambda: reasons and not worker.running)
            other = node.submit("long")
            node.wait(lambda: worker.running)
            node.push(wire.cancel(attempt_id=other, reason=wire.CancelReason.REQUESTED))
            node.report_of(other)

        assert reasons == ["LEASE_LOST", "REQUESTED"]
        assert node.all[attempt].report is None
        assert [item.attempt_id for message in node.of_kind(wire.Finish) for item in message.items] == [other]
        assert any("thrown away" in record.message for record in caplog.records)


def test_a_handler_without_a_lease_is_not_counted_as_room() -> None:
    with running_node(lease_ms=300) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=2)
        release = threading.Event()
        worker.handler("stubborn")(lambda ctx, payload: release.wait(10) and None)

        attempt = node.submit("stubborn")
        with worker:
            node.wait(lambda: worker.running)
            node.lose(attempt)
            node.wait(lambda: node.capacity == 1, "the capacity shrinks by the slot that is not free")
            release.set()
            node.wait(lambda: node.capacity == 2)


def test_progress_is_sent_with_a_renewal_and_the_newest_wins(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker()
    release = threading.Event()

    @worker.handler("long")
    def long(ctx: Context, payload: Any) -> None:
        for percent in range(100):
            ctx.progress(percent)
        ctx.progress(100, "all")
        release.wait(10)

    attempt = node.submit("long")

    def progresses() -> list[wire.Progress]:
        return [item.progress for message in node.of_kind(wire.Renew) for item in message.items if item.progress]

    with worker:
        node.wait(lambda: progresses() and progresses()[-1] == wire.Progress(100, "all"))
        release.set()
        node.report_of(attempt)

    assert len(progresses()) < 50


def test_a_cancel_that_only_a_renewal_tells_is_heard() -> None:
    with running_node(lease_ms=300) as node:
        worker = Worker(node.url, "t", queues=[QUEUE], concurrency=1)
        worker.handler("long")(lambda ctx, payload: ctx.wait_cancelled(10) and ctx.raise_if_cancelled())

        attempt = node.submit("long")
        node.cancel_in_renewal.add(attempt)
        with worker:
            assert node.report_of(attempt).outcome == "CANCELED"


# -- Refusals


@pytest.mark.parametrize("code", list(wire.StartRefusal))
def test_what_was_refused_at_start_never_runs(node: FakeNode, make_worker: MakeWorker, code: wire.StartRefusal) -> None:
    worker = make_worker(concurrency=1)
    ran: list[str] = []
    worker.handler("h")(lambda ctx, payload: ran.append(ctx.attempt_id))

    refused = node.submit("h")
    node.refuse_start[refused] = code
    other = node.submit("h")
    with worker:
        node.report_of(other)

    assert ran == [other]


def test_a_revoked_reservation_never_starts(node: FakeNode, make_worker: MakeWorker) -> None:
    worker = make_worker(concurrency=1, prefetch=3)
    ran: list[str] = []

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> None:
        ran.append(ctx.attempt_id)
        if len(ran) == 1:
            ctx.wait_cancelled(10)

    first, second, third = (node.submit("h") for _ in range(3))
    with worker:
        node.wait(lambda: ran)
        node.push(wire.revoke(attempt_id=second, reason=wire.RevokeReason.YIELDED))
        del node._session.attempts[second]
        node.push(wire.cancel(attempt_id=first, reason=wire.CancelReason.REQUESTED))  # read after the revoke
        node.report_of(third)

    assert ran == [first, third]
    assert [item.attempt_id for message in node.of_kind(wire.Start) for item in message.items] == [first, third]


# -- Construction


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"queues": []}, "queues"),
        ({"queues": "reports"}, "queues"),
        ({"queues": ["reports"]}, "credentials file"),
        ({"queues": [QUEUE, QUEUE]}, "twice"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 1001}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 8, "prefetch": 7}, "prefetch"),
        ({"prefetch": 1001}, "prefetch"),
        ({"concurrency": 2, "normal_reserved_slots": 2}, "normal_reserved_slots"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 129}, "name"),
        ({"drain_timeout": -1}, "drain_timeout"),
    ],
)
def test_a_worker_that_cannot_work_is_refused_when_it_is_made(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Worker("http://127.0.0.1:1", "t", **{"queues": [QUEUE], **options})


def test_a_worker_without_handlers_does_not_start() -> None:
    with pytest.raises(ConfigError, match="handler"):
        Worker("http://127.0.0.1:1", "t", queues=[QUEUE]).start()


def test_a_handler_is_registered_once() -> None:
    worker = Worker("http://127.0.0.1:1", "t", queues=[QUEUE])
    worker.handler("h")(lambda ctx, payload: None)

    with pytest.raises(ConfigError, match="already"):
        worker.handler("h")(lambda ctx, payload: None)


@pytest.mark.parametrize("function", [lambda: None, lambda ctx: None, lambda a, b, c: None])
def test_a_handler_takes_context_and_payload(function: Any) -> None:
    with pytest.raises(ConfigError, match="two arguments"):
        Worker("http://127.0.0.1:1", "t", queues=[QUEUE]).handler("h")(function)


@pytest.mark.parametrize("name", ["", " a", "a\u200b", "x" * 129])
def test_a_handlers_name_is_printable(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        Worker("http://127.0.0.1:1", "t", queues=[QUEUE]).handler(name)(lambda ctx, payload: None)


def test_the_decorator_returns_the_function_itself() -> None:
    worker = Worker("http://127.0.0.1:1", "t", queues=[QUEUE])

    def handle(ctx: Context, payload: Any) -> None: ...

    assert worker.handler("h")(handle) is handle


def test_no_representation_shows_the_token() -> None:
    assert "secret" not in repr(Worker("http://127.0.0.1:1", "secret", queues=[QUEUE]))
