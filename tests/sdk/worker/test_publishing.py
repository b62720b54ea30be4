"""`ctx.publish`: a submit with the parent's id and token, under a key that a retried parent derives again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbit_sdk import Accepted, Context, Credentials, FailedPrecondition, Worker
from orbit_sdk.worker import OfferedTask, runtime
from orbit_sdk.worker.publishing import ChildPublisher
from tests.sdk.fake_api import FakeApi, accepted_object, receipt_object
from tests.sdk.fake_node import QUEUE, FakeNode

TASK = "2" * 32


class Publisher:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def publish(self, key: str, task: Any) -> Any:
        self.sent.append((key, task))

    async def apublish(self, key: str, task: Any) -> Any:
        self.sent.append((key, task))


def a_context(publisher: Publisher | None, *, token: str = "7") -> Context:
    members = {
        "task_id": TASK,
        "queue_id": QUEUE,
        "handler": "h",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": None,
        "attempt": 1,
        "available_at": "2026-09-17T00:00:00Z",
    }
    return Context(attempt_id="3" * 32, fencing_token=token, task=OfferedTask(members), publisher=publisher)


def test_a_child_names_its_parent_and_inherits_queue_and_priority() -> None:
    publisher = Publisher()
    a_context(publisher).publish("child", {"n": 1})

    ((key, task),) = publisher.sent
    assert key == f"child:{TASK}:1"
    assert (task.parent_task_id, task.parent_fencing_token) == (TASK, "7")
    assert (task.queue, task.priority, task.handler_version) == (QUEUE, None, "v1")


def test_a_retried_parent_derives_the_same_keys() -> None:
    first, second = Publisher(), Publisher()
    for publisher, token in ((first, "7"), (second, "8")):
        ctx = a_context(publisher, token=token)
        ctx.publish("a", 1)
        ctx.publish("b", 2, priority=5, queue="4" * 32)
        ctx.publish("c", 3, key="mine")

    assert [key for key, _ in first.sent] == [key for key, _ in second.sent]
    assert len({key for key, _ in first.sent}) == 3


def test_a_given_key_never_meets_a_counted_one() -> None:
    publisher = Publisher()
    ctx = a_context(publisher)
    ctx.publish("a", 1)
    ctx.publish("a", 1, key="1")

    assert publisher.sent[0][0] != publisher.sent[1][0]


async def test_coroutines_publish_too() -> None:
    publisher = Publisher()
    await a_context(publisher).apublish("child", None, priority=3)

    assert publisher.sent[0][1].priority == 3


def test_a_running_handler_publishes_over_http_and_repeats_what_is_unknown(
    node: FakeNode, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The node answers the worker's WebSocket; the API is another port, as behind a balancer that splits by path.
    def publisher_of_the_api(credentials: Credentials) -> ChildPublisher:
        return ChildPublisher(Credentials(api.url, credentials.token))

    monkeypatch.setattr(runtime, "ChildPublisher", publisher_of_the_api)
    worker = Worker(node.url, "orbit_test_token", queues=[QUEUE], concurrency=1)
    api.cut()
    api.success(accepted_object(receipt=receipt_object(deduplicated=True)), 200)
    api.failure(409, "FAILED_PRECONDITION")
    accepted: list[Accepted] = []

    @worker.handler("parent")
    def parent(ctx: Context, payload: Any) -> None:
        accepted.append(ctx.publish("child", {"n": 1}))
        with pytest.raises(FailedPrecondition):
            ctx.publish("child", {"n": 2})

    attempt = node.submit("parent")
    with worker:
        report = node.report_of(attempt)

    assert report.outcome == "SUCCEEDED"
    assert accepted[0].deduplicated
    task_id = node.all[attempt].task_id
    keys = [seen.headers["idempotency-key"] for seen in api.seen]
    assert keys == [f"child:{task_id}:1", f"child:{task_id}:1", f"child:{task_id}:2"]
    assert api.seen[0].body == api.seen[1].body
    body = json.loads(api.seen[0].body)
    assert (body["parent_task_id"], body["parent_fencing_token"]) == (task_id, "1")
    assert "priority" not in body
