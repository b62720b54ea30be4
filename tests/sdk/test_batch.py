"""Batches (batch seed, section 5): checked before sending, every item's answer verified, nothing split or repeated."""

from __future__ import annotations

from typing import Any

import pytest

from orbit_sdk import (
    ApiError,
    BatchItem,
    BatchItemError,
    BatchStatus,
    ConnectionLost,
    InvalidArgument,
    InvalidRequest,
    NotFound,
    OrbitClient,
    SubmitTask,
    UnverifiableResponse,
)
from tests.sdk.fake_api import QUEUE, FakeApi, receipt_object

OTHER = "9" * 32


def items(count: int, **changes: Any) -> list[BatchItem]:
    task = SubmitTask(**{"queue": "reports", "handler": "h", "payload": {"n": 1}, **changes})
    return [BatchItem(key=f"k{number}", task=task) for number in range(count)]


def accepted(index: int, **changes: Any) -> dict[str, Any]:
    return {"index": index, "status": "ACCEPTED", "receipt": receipt_object(**changes)}


def refused(index: int, code: str = "QUEUE_FULL", **more: Any) -> dict[str, Any]:
    return {"index": index, "status": "REJECTED", "error": {"code": code, "message": "m", **more}}


def unknown(index: int) -> dict[str, Any]:
    return {"index": index, "status": "UNKNOWN", "error": {"code": "UNAVAILABLE", "message": "m"}}


def not_attempted(index: int) -> dict[str, Any]:
    return {"index": index, "status": "NOT_ATTEMPTED", "error": {"code": "BATCH_STOPPED", "message": "m"}}


def answer(*results: dict[str, Any]) -> dict[str, Any]:
    statuses = [result["status"].lower() for result in results]
    names = ("accepted", "rejected", "unknown", "not_attempted")
    return {"items": list(results), "summary": {name: statuses.count(name) for name in names}}


def test_a_batch_sends_each_key_in_the_body_and_none_in_the_header(api: FakeApi, client: OrbitClient) -> None:
    api.success(answer(accepted(0), accepted(1)))

    client.submit_tasks(items(2))

    (seen,) = api.seen
    assert (seen.method, seen.path) == ("POST", "/v1/tasks:batch")
    assert "idempotency-key" not in seen.headers
    assert [item["idempotency_key"] for item in seen.json["items"]] == ["k0", "k1"]
    assert seen.json["items"][0]["task"]["queue_id"] == QUEUE


def test_each_item_ends_in_one_of_four_answers(api: FakeApi, client: OrbitClient) -> None:
    api.success(answer(accepted(0, deduplicated=True), refused(1, retry_after_ms=1000), unknown(2), not_attempted(3)))

    result = client.submit_tasks(items(4))

    assert [item.status for item in result.items] == list(BatchStatus)
    assert [item.to_repeat for item in result.items] == [False, False, True, True]
    first, second = result.items[0], result.items[1]
    assert first.receipt is not None
    assert first.receipt.deduplicated
    assert isinstance(second.error, BatchItemError)
    assert not isinstance(second.error, ApiError)
    assert (second.error.code, second.error.retry_after) == ("QUEUE_FULL", 1.0)
    assert not result.all_accepted
    assert result.with_status(BatchStatus.REJECTED) == (second,)
    match result.items[0].status:
        case "ACCEPTED":
            pass
        case _:
            pytest.fail("a status is matched by its word")


@pytest.mark.parametrize("count", [0, 33])
def test_a_count_outside_the_limits_is_not_sent(api: FakeApi, client: OrbitClient, count: int) -> None:
    with pytest.raises(InvalidRequest, match="1 to 32"):
        client.submit_tasks(items(count))

    assert api.seen == []


def test_32_items_are_sent_in_one_request(api: FakeApi, client: OrbitClient) -> None:
    api.success(answer(*(accepted(number) for number in range(32))))

    assert client.submit_tasks(items(32)).all_accepted
    assert len(api.seen) == 1


def test_a_repeated_key_is_not_sent(api: FakeApi, client: OrbitClient) -> None:
    with pytest.raises(InvalidRequest, match=r"items\[1\].key: is the key of items\[0\]"):
        client.submit_tasks([items(1)[0], items(1)[0]])


def test_a_bad_key_is_named_by_its_place(api: FakeApi, client: OrbitClient) -> None:
    with pytest.raises(InvalidRequest, match=r"items\[1\]\.key"):
        client.submit_tasks([*items(1), BatchItem(key="a b", task=items(1)[0].task)])


def test_an_unknown_queue_is_named_by_its_place(client: OrbitClient) -> None:
    with pytest.raises(InvalidRequest, match=r"items\[0\]\.task\.queue"):
        client.submit_tasks(items(1, queue="nowhere"))


def test_more_than_512_kib_are_not_sent(api: FakeApi, client: OrbitClient) -> None:
    with pytest.raises(InvalidRequest, match="524288"):
        client.submit_tasks(items(3, payload="x" * (200 * 1024)))

    assert api.seen == []


@pytest.mark.parametrize(
    "data",
    [
        answer(accepted(0)),
        answer(accepted(0), accepted(1), accepted(2)),
        answer(accepted(1), accepted(0)),
        answer(accepted(0), accepted(0)),
        answer(accepted(0), accepted(1, queue_id=OTHER)),
        answer(accepted(0), {"index": 1, "status": "ACCEPTED"}),
        answer(accepted(0), {**accepted(1), "error": {"code": "X", "message": "m"}}),
        answer(accepted(0), {"index": 1, "status": "REJECTED", "receipt": receipt_object()}),
        answer(accepted(0), {"index": 1, "status": "REJECTED"}),
        answer(accepted(0), {"index": 1, "status": "DONE", "receipt": receipt_object()}),
        answer(accepted(0), {**unknown(1), "error": {"code": "QUEUE_FULL", "message": "m"}}),
        answer(accepted(0), {**not_attempted(1), "error": {"code": "UNAVAILABLE", "message": "m"}}),
        {
            **answer(accepted(0), accepted(1)),
            "summary": {"accepted": 1, "rejected": 1, "unknown": 0, "not_attempted": 0},
        },
        {"items": {}},
        {},
    ],
)
def test_a_result_that_does_not_fit_the_request_is_not_believed(api: FakeApi, client: OrbitClient, data: Any) -> None:
    api.success(data)

    with pytest.raises(UnverifiableResponse):
        client.submit_tasks(items(2))


def test_a_refused_batch_is_an_api_error(api: FakeApi, client: OrbitClient) -> None:
    api.failure(400, "INVALID_ARGUMENT")

    with pytest.raises(InvalidArgument):
        client.submit_tasks(items(2))


def test_a_lost_answer_is_not_repeated_or_split(api: FakeApi, client: OrbitClient) -> None:
    api.cut()

    with pytest.raises(ConnectionLost):
        client.submit_tasks(items(2))

    assert len(api.seen) == 1


def test_an_old_server_without_the_route_does_not_become_single_submits(api: FakeApi, client: OrbitClient) -> None:
    api.failure(404, "NOT_FOUND")

    with pytest.raises(NotFound):
        client.submit_tasks(items(2))

    assert [seen.path for seen in api.seen] == ["/v1/tasks:batch"]


def test_a_bulk_replay_names_the_source_of_each_item(api: FakeApi, client: OrbitClient) -> None:
    api.success(answer({**accepted(0), "source_task_id": OTHER}, {**refused(1), "source_task_id": OTHER}))

    result = client.replay_tasks("k", "reports", limit=2, states=["FAILED", "EXPIRED"], priority=1)

    assert api.seen[0].headers["idempotency-key"] == "k"
    assert api.seen[0].json == {"queue_id": QUEUE, "states": ["FAILED", "EXPIRED"], "limit": 2, "priority": 1}
    assert [item.source_task_id for item in result.items] == [OTHER, OTHER]


@pytest.mark.parametrize("limit", [0, 501])
def test_a_bulk_replay_has_a_limit(client: OrbitClient, limit: int) -> None:
    with pytest.raises(InvalidRequest, match="limit"):
        client.replay_tasks("k", "reports", limit=limit)
