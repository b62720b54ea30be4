"""What users test their own programs with: handlers in process, and an Orbit that loses answers on demand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from orbit_sdk import (
    BatchItem,
    ConnectionLost,
    Context,
    Fail,
    InvalidRequest,
    OrbitClient,
    Retry,
    RetryPolicy,
    SubmitTask,
    TaskState,
    Unavailable,
    UnverifiableResponse,
    WaitTimeout,
    Worker,
)
from orbit_sdk.testing import InMemoryOrbit, run_handler


@dataclass
class Invoice:
    order: int


def a_task(**changes: Any) -> SubmitTask:
    return SubmitTask(**{"queue": "reports", "handler": "h", "payload": {"n": 1}, **changes})


def a_worker(orbit: InMemoryOrbit) -> Worker:
    return Worker.from_credentials(orbit.credentials, queues=["reports"])


# -- run_handler


def test_a_handler_runs_in_process() -> None:
    def handle(ctx: Context, payload: Any) -> Any:
        ctx.progress(50, "half way")
        ctx.publish("child", {"of": ctx.task.task_id}, priority=2)
        return {"n": payload["n"] + 1, "priority": ctx.priority, "attempt": ctx.attempt}

    run = run_handler(handle, {"n": 9007199254740993}, priority=5, attempt=2, task_id="a" * 32)

    assert run.outcome == "SUCCEEDED"
    assert run.result == {"n": 9007199254740994, "priority": 5, "attempt": 2}
    assert run.progress == ((50, "half way"),)
    ((key, child),) = run.published
    assert key == f"child:{'a' * 32}:1"
    assert (child.handler, child.priority, child.parent_task_id) == ("child", 2, "a" * 32)


def test_a_coroutine_runs_in_process() -> None:
    async def handle(ctx: Context, payload: Any) -> Any:
        await asyncio.sleep(0)
        await ctx.apublish("child", 1)
        return payload

    run = run_handler(handle, [1])
    assert (run.outcome, run.result, len(run.published)) == ("SUCCEEDED", [1], 1)


def test_payloads_go_through_json() -> None:
    run = run_handler(lambda ctx, payload: payload, {"t": (1, 2), "d": Decimal("1.10")}, decimals=True)

    assert run.result == {"t": [1, 2], "d": Decimal("1.10")}
    assert str(run.result["d"]) == "1.10"


@pytest.mark.parametrize(
    ("error", "code", "retryable", "retry_after"),
    [
        (Retry(after=30), "RETRY", True, 30.0),
        (Fail("NO", "never"), "NO", False, None),
        (KeyError("k"), "KeyError", True, None),
    ],
)
def test_how_a_handler_failed_is_told(error: Exception, code: str, retryable: bool, retry_after: float | None) -> None:
    def handle(ctx: Context, payload: Any) -> None:
        raise error

    run = run_handler(handle, None)

    assert run.error is not None
    assert (run.outcome, run.error.code, run.retryable, run.retry_after) == ("FAILED", code, retryable, retry_after)


def test_a_typed_payload_is_checked() -> None:
    def handle(ctx: Context, payload: Invoice) -> int:
        return payload.order

    assert run_handler(handle, {"order": 5}).result == 5
    refused = run_handler(handle, {"order": "5"})
    assert refused.error is not None
    assert (refused.error.code, refused.retryable) == ("INVALID_PAYLOAD", False)


@pytest.mark.parametrize("as_coroutine", [False, True])
def test_a_handler_that_was_asked_to_stop(as_coroutine: bool) -> None:
    def plain(ctx: Context, payload: Any) -> None:
        ctx.raise_if_cancelled()

    async def coroutine(ctx: Context, payload: Any) -> None:
        await asyncio.sleep(60)

    assert run_handler(coroutine if as_coroutine else plain, None, cancel_reason="REQUESTED").outcome == "CANCELED"


# -- InMemoryOrbit


@pytest.fixture
def orbit() -> InMemoryOrbit:
    return InMemoryOrbit(queues=["reports"])


def test_it_is_a_client(orbit: InMemoryOrbit) -> None:
    assert isinstance(orbit, OrbitClient)


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_lost_answer_is_resolved_by_the_same_key(orbit: InMemoryOrbit, took_effect: bool) -> None:
    orbit.lose_next_answer(took_effect=took_effect)
    with pytest.raises(ConnectionLost):
        orbit.submit_task("k", a_task())

    assert orbit.submit_task("k", a_task()).deduplicated == took_effect
    assert len(list(orbit.list_tasks())) == 1


@pytest.mark.parametrize("took_effect", [True, False])
def test_an_unknown_commit_stops_a_batch(orbit: InMemoryOrbit, took_effect: bool) -> None:
    items = [BatchItem(f"k{number}", a_task()) for number in range(3)]
    orbit.submit_task("k0", a_task())
    orbit.unknown_next_commit(took_effect=took_effect)

    first = orbit.submit_tasks(items)
    second = orbit.submit_tasks(items)

    assert [item.status for item in first.items] == ["ACCEPTED", "UNKNOWN", "NOT_ATTEMPTED"]
    assert second.all_accepted
    receipts = [item.receipt for item in second.items if item.receipt is not None]
    assert [receipt.deduplicated for receipt in receipts] == [True, took_effect, False]


def test_an_unknown_commit_of_a_single_submit_is_unavailable(orbit: InMemoryOrbit) -> None:
    orbit.unknown_next_commit()
    with pytest.raises(Unavailable) as error:
        orbit.submit_task("k", a_task())

    assert error.value.outcome_unknown
    assert orbit.submit_task("k", a_task()).deduplicated


def test_a_garbled_answer_is_unverifiable(orbit: InMemoryOrbit) -> None:
    orbit.garble_next_answer()
    with pytest.raises(UnverifiableResponse):
        orbit.submit_task("k", a_task())

    assert orbit.submit_task("k", a_task()).deduplicated


def test_the_opt_in_loop_gets_through_everything(orbit: InMemoryOrbit) -> None:
    orbit.lose_next_answer(took_effect=False)
    orbit.unknown_next_commit()
    orbit.garble_next_answer()

    assert orbit.submit_task_until_known("k", a_task(), deadline=30).deduplicated


def test_pending_tasks_run_in_the_order_of_the_policy() -> None:
    for policy, priorities in (("AGED", (0, 9, 4)), ("STRICT", (-3, 9, 0))):
        orbit = InMemoryOrbit(queues=["reports"], policy=policy)
        order: list[int] = []
        worker = a_worker(orbit)
        worker.handler("h")(lambda ctx, payload, order=order: order.append(ctx.priority))
        for priority in priorities:
            orbit.submit_task(f"k{priority}", a_task(priority=priority))

        assert orbit.run_pending(worker) == 3
        assert order == sorted(priorities, reverse=True)


def test_children_are_published_once_however_often_the_parent_runs(orbit: InMemoryOrbit) -> None:
    worker = a_worker(orbit)
    children: list[Any] = []

    @worker.handler("parent")
    def parent(ctx: Context, payload: Any) -> None:
        ctx.publish("child", {"n": 1})
        if ctx.attempt == 1:
            raise Retry

    worker.handler("child")(lambda ctx, payload: children.append((payload, ctx.priority)))
    orbit.submit_task("k", a_task(handler="parent", priority=7, retry=RetryPolicy.safe(initial_backoff_ms=60_000)))

    orbit.run_pending(worker)
    orbit.advance(61)
    orbit.run_pending(worker)

    assert children == [({"n": 1}, 7)]


def test_failures_are_retried_by_the_tasks_policy_only(orbit: InMemoryOrbit) -> None:
    worker = a_worker(orbit)

    @worker.handler("h")
    def handle(ctx: Context, payload: Any) -> None:
        raise ValueError("always")

    never = orbit.submit_task("n", a_task())
    safe = orbit.submit_task("s", a_task(retry=RetryPolicy.safe(2, initial_backoff_ms=0)))

    assert orbit.run_pending(worker) == 3
    for accepted, attempts in ((never, 1), (safe, 2)):
        task = orbit.get_task(accepted.task_id)
        assert task.error is not None
        assert (task.state, task.attempts, task.error.code) == (TaskState.FAILED, attempts, "ValueError")


def test_an_unknown_task_waits_for_its_reconciliation(orbit: InMemoryOrbit) -> None:
    accepted = orbit.submit_task("k", a_task())
    orbit.become_unknown(accepted.task_id)

    seen = orbit.wait_task(accepted.task_id)
    settled = orbit.reconcile_task(seen.task_id, seen.revision, "SUCCEEDED", "the printer says so", result=7)

    assert seen.state is TaskState.UNKNOWN
    assert (settled.state, settled.result) == (TaskState.SUCCEEDED, 7)


def test_deadlines_pass_when_time_is_advanced(orbit: InMemoryOrbit) -> None:
    accepted = orbit.submit_task("k", a_task(expires_in_ms=5000))
    orbit.advance(6)

    assert orbit.get_task(accepted.task_id).state is TaskState.EXPIRED


def test_waiting_for_what_nobody_runs_times_out(orbit: InMemoryOrbit) -> None:
    accepted = orbit.submit_task("k", a_task())
    with pytest.raises(WaitTimeout):
        orbit.wait_task(accepted.task_id, timeout=0.05)


def test_what_it_cannot_do_is_said(orbit: InMemoryOrbit) -> None:
    with pytest.raises(InvalidRequest, match="does not know"):
        orbit.list_plans().__next__()


async def test_coroutines_use_the_same_orbit(orbit: InMemoryOrbit) -> None:
    async with orbit.as_async() as client:
        accepted = await client.submit_task("k", a_task())

    assert orbit.get_task(accepted.task_id).handler == "h"
