"""POST /v1/tasks:batch (design 1.3; batch seed, sections 1 to 4)."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from tasks_app.api import task_views
from tasks_app.domain import batches, submission, tenancy
from tasks_app.domain.audit import SYSTEM
from tasks_app.errors import Unavailable
from tasks_app.transactions import unit
from tests.tasks_app import factories
from tests.tasks_app.api.callers import Answer, Caller
from tests.tasks_app.factories import Tenant

PATH = "/v1/tasks:batch"


def item(caller: Caller, key: str, **members: Any) -> dict[str, Any]:
    return {"idempotency_key": key, "task": caller.task_body(**members)}


def send(caller: Caller, *items: dict[str, Any]) -> Answer:
    return caller.post(PATH, {"items": list(items)})


def statuses(answer: Answer) -> list[str]:
    return [result["status"] for result in answer.data["items"]]


def codes(answer: Answer) -> list[str | None]:
    return [result.get("error", {}).get("code") for result in answer.data["items"]]


def test_each_input_has_one_result_in_order_with_its_index_and_receipt(caller: Caller):
    answer = send(caller, *(item(caller, f"k-{n}") for n in range(32))).expect(200)
    assert [result["index"] for result in answer.data["items"]] == list(range(32))
    assert statuses(answer) == ["ACCEPTED"] * 32
    first = answer.data["items"][0]
    assert set(first) == {"index", "status", "receipt"}
    assert set(first["receipt"]) == {"task_id", "queue_id", "revision", "created_at", "deduplicated"}
    assert answer.data["summary"] == {"accepted": 32, "rejected": 0, "unknown": 0, "not_attempted": 0}
    created = [result["receipt"]["created_at"] for result in answer.data["items"]]
    assert created == sorted(created)


def test_a_batch_of_new_repeat_conflict_over_quota_and_malformed_gives_one_verdict_each_and_the_same_again(
    caller: Caller, tenant: Tenant
):
    full = tenant.queue(max_unfinished=0)
    caller.submit(key="repeat").expect(201)
    caller.submit(key="conflict").expect(201)
    items = [
        item(caller, "new"),
        item(caller, "repeat"),
        item(caller, "conflict", payload={"n": 2}),
        item(caller, "over quota", queue_id=full) | {"idempotency_key": "over-quota"},
        item(caller, "malformed", handler=""),
    ]
    answer = send(caller, *items).expect(200)
    assert statuses(answer) == ["ACCEPTED", "ACCEPTED", "REJECTED", "REJECTED", "REJECTED"]
    assert codes(answer) == [None, None, "IDEMPOTENCY_CONFLICT", "QUEUE_FULL", "INVALID_ARGUMENT"]
    assert [answer.data["items"][n]["receipt"]["deduplicated"] for n in (0, 1)] == [False, True]
    assert answer.data["summary"] == {"accepted": 2, "rejected": 3, "unknown": 0, "not_attempted": 0}
    assert "Retry-After" not in answer.headers
    again = send(caller, *items).expect(200)
    assert (statuses(again), codes(again)) == (statuses(answer), codes(answer))
    assert [again.data["items"][n]["receipt"]["task_id"] for n in (0, 1)] == [
        answer.data["items"][n]["receipt"]["task_id"] for n in (0, 1)
    ]


def test_a_quota_refusal_of_an_item_carries_its_hint(caller: Caller, tenant: Tenant):
    factories.change_queue(tenant, max_unfinished=1)
    answer = send(caller, item(caller, "a"), item(caller, "b")).expect(200)
    assert answer.data["items"][1] == {
        "index": 1,
        "status": "REJECTED",
        "error": {
            "code": "QUEUE_FULL",
            "message": "queue unfinished task limit reached; retry later using the original identity",
            "retry_after_ms": 1000,
        },
    }
    factories.set_quotas(tenant, max_unfinished=1)
    factories.change_queue(tenant, max_unfinished=None)
    assert send(caller, item(caller, "c")).data["items"][0]["error"]["code"] == "APPLICATION_FULL"


@pytest.mark.parametrize(
    ("members", "code", "field"),
    [
        ({"handler": ""}, "INVALID_ARGUMENT", "items[1].task.handler"),
        ({"priority": 10}, "INVALID_ARGUMENT", "items[1].task.priority"),
        ({"priority": 10**30}, "INVALID_ARGUMENT", "items[1].task.priority"),
        ({"delay_ms": 10, "expires_in_ms": 5}, "INVALID_ARGUMENT", "items[1].task.expires_in_ms"),
        ({"available_at": "2999-01-01T00:00:00Z"}, "INVALID_ARGUMENT", "items[1].task.available_at"),
        ({"retry": {"mode": "SOMETIMES"}}, "INVALID_ARGUMENT", "items[1].task.retry.mode"),
        ({"payload": "x" * 262_145}, "PAYLOAD_TOO_LARGE", "items[1].task.payload"),
        ({"queue_id": "0" * 32}, "NOT_FOUND", "queue_id"),
        (
            {"parent_task_id": "0" * 32, "parent_fencing_token": "1"},
            "FAILED_PRECONDITION",
            "parent_fencing_token",
        ),
    ],
)
def test_a_semantic_refusal_is_the_item_s_own_and_the_others_go_on(
    members: dict[str, Any], code: str, field: str, caller: Caller
):
    answer = send(caller, item(caller, "a"), item(caller, "b", **members), item(caller, "c")).expect(200)
    assert statuses(answer) == ["ACCEPTED", "REJECTED", "ACCEPTED"]
    refused = answer.data["items"][1]
    assert set(refused) == {"index", "status", "error"}
    assert refused["error"]["code"] == code
    assert refused["error"]["details"][0]["field"] == field


def test_a_queue_outside_the_scope_refuses_its_item_only(tenant: Tenant):
    caller = Caller.of(tenant, queue_ids=[tenant.queue_id])
    answer = send(caller, item(caller, "a", queue_id=tenant.queue()), item(caller, "b")).expect(200)
    assert codes(answer) == ["PERMISSION_DENIED", None]


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items.clear(),
        lambda items: items.extend(items[0] | {"idempotency_key": f"n-{n}"} for n in range(32)),
        lambda items: items[1].update(idempotency_key="a"),
        lambda items: items[1].update(idempotency_key="has blank"),
        lambda items: items[1].update(idempotency_key=""),
        lambda items: items[1].pop("task"),
        lambda items: items[1].update(extra=1),
        lambda items: items[1]["task"].update(Queue_id="x"),
        lambda items: items[1]["task"].update(unknown=1),
        lambda items: items[1]["task"].update(priority=None),
        lambda items: items[1]["task"].update(priority="9"),
        lambda items: items[1]["task"].update(queue_id="short"),
        lambda items: items[1]["task"].update(available_at="2026-09-17 00:00:00Z"),
        lambda items: items[1]["task"].pop("payload"),
    ],
)
def test_a_structural_fault_of_any_item_refuses_the_whole_batch_and_nothing_is_written(change, caller: Caller):
    items = [item(caller, "a"), item(caller, "b")]
    change(items)
    before = factories.snapshot()
    send(caller, *items).expect(400, "INVALID_ARGUMENT")
    assert factories.snapshot() == before


def test_a_duplicate_json_key_in_the_payload_of_one_item_refuses_the_whole_batch(caller: Caller):
    text = '{"items":[{"idempotency_key":"a","task":{"payload":{"k":1,"k":2}}}]}'
    answer = caller.post(PATH, content=text).expect(400)
    assert answer.fields == ["items[0].task.payload"]


def test_the_idempotency_key_header_is_an_error(caller: Caller):
    before = factories.snapshot()
    answer = caller.post(PATH, {"items": [item(caller, "a")]}, key="k")
    assert answer.expect(400).fields == ["Idempotency-Key"]
    assert factories.snapshot() == before


def test_a_body_past_512_kib_is_413_and_one_past_the_limit_of_other_paths_is_not(caller: Caller):
    big = [item(caller, f"k-{n}", payload="x" * 200_000) for n in range(2)]
    assert statuses(send(caller, *big).expect(200)) == ["ACCEPTED"] * 2
    send(caller, *big, item(caller, "c", payload="x" * 200_000)).expect(413, "PAYLOAD_TOO_LARGE")


def test_batch_and_single_submits_share_one_identity_space(caller: Caller):
    single = caller.submit(key="a").expect(201).data["receipt"]
    answer = send(caller, item(caller, "b"), item(caller, "a")).expect(200)
    assert answer.data["items"][1]["receipt"] == {**single, "deduplicated": True}
    batched = answer.data["items"][0]["receipt"]
    assert caller.submit(key="b").expect(200).data["receipt"] == {**batched, "deduplicated": True}


def test_another_order_or_a_part_of_a_batch_does_not_change_identities(caller: Caller):
    first = send(caller, *(item(caller, f"k-{n}") for n in range(4))).expect(200)
    part = send(caller, item(caller, "k-3"), item(caller, "k-1")).expect(200)
    assert [result["receipt"]["task_id"] for result in part.data["items"]] == [
        first.data["items"][n]["receipt"]["task_id"] for n in (3, 1)
    ]
    assert [result["index"] for result in part.data["items"]] == [0, 1]


def test_a_full_queue_still_gives_receipts_for_what_it_accepted(caller: Caller, tenant: Tenant):
    send(caller, item(caller, "a")).expect(200)
    factories.change_queue(tenant, max_unfinished=1)
    answer = send(caller, item(caller, "a"), item(caller, "b")).expect(200)
    assert statuses(answer) == ["ACCEPTED", "REJECTED"]


# -- what ends a batch


def on_item(monkeypatch: pytest.MonkeyPatch, number: int, act) -> None:
    """Runs `act` in place of, or before, the acceptance of the `number`th item (from 1)."""
    count, real = itertools.count(1), submission.accept

    def accept(*args: Any, **more: Any) -> Any:
        if next(count) == number:
            act()
        return real(*args, **more)

    monkeypatch.setattr(batches, "accept", accept)


def fail(error: Exception):
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    "error", [Unavailable(), OperationalError(2013, "Lost connection"), ZeroDivisionError("a fault of ours")]
)
def test_an_unknown_outcome_stops_the_batch_and_what_committed_stays_accepted(
    error: Exception, caller: Caller, monkeypatch: pytest.MonkeyPatch
):
    on_item(monkeypatch, 3, fail(error))
    answer = send(caller, *(item(caller, f"k-{n}") for n in range(5))).expect(200)
    assert statuses(answer) == ["ACCEPTED", "ACCEPTED", "UNKNOWN", "NOT_ATTEMPTED", "NOT_ATTEMPTED"]
    assert codes(answer) == [None, None, "UNAVAILABLE", "BATCH_STOPPED", "BATCH_STOPPED"]
    assert answer.data["summary"] == {"accepted": 2, "rejected": 0, "unknown": 1, "not_attempted": 2}
    assert "Lost" not in answer.body.decode()
    assert len(factories.rows_of("orbit_task")) == 2
    monkeypatch.undo()
    assert statuses(send(caller, *(item(caller, f"k-{n}") for n in range(5)))) == ["ACCEPTED"] * 5
    assert len(factories.rows_of("orbit_task")) == 5


def test_a_credential_revoked_midway_rejects_its_item_and_stops_the_rest(
    caller: Caller, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    def revoke() -> None:
        unit(lambda tx: tenancy.revoke_credential(tx, tenant.credential_id, actor=SYSTEM))

    on_item(monkeypatch, 2, revoke)
    answer = send(caller, *(item(caller, f"k-{n}") for n in range(4))).expect(200)
    assert statuses(answer) == ["ACCEPTED", "REJECTED", "NOT_ATTEMPTED", "NOT_ATTEMPTED"]
    assert codes(answer)[1] == "UNAUTHENTICATED"


def test_a_narrowed_scope_midway_refuses_the_item_and_goes_on(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    other = tenant.queue()
    caller = Caller.of(tenant, queue_ids=[tenant.queue_id, other])
    credential = tenancy.authenticate(str(caller.token)).credential_id

    def narrow() -> None:
        sql = "DELETE FROM orbit_credential_queue WHERE credential_id = %s AND queue_id = %s"
        unit(lambda tx: tx.execute(sql, [credential, other]))

    on_item(monkeypatch, 2, narrow)
    answer = send(caller, *(item(caller, f"k-{n}", queue_id=other if n == 1 else tenant.queue_id) for n in range(3)))
    assert codes(answer.expect(200)) == [None, "PERMISSION_DENIED", None]


def test_time_up_leaves_the_rest_unattempted(caller: Caller, monkeypatch: pytest.MonkeyPatch):
    moments = iter([0.0, 1.0, 7.99, 8.0, 8.5])
    monkeypatch.setattr(task_views, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    answer = send(caller, *(item(caller, f"k-{n}") for n in range(5))).expect(200)
    assert statuses(answer) == ["ACCEPTED", "ACCEPTED", "NOT_ATTEMPTED", "NOT_ATTEMPTED", "NOT_ATTEMPTED"]


def test_a_client_that_left_leaves_the_rest_unattempted(caller: Caller):
    gone = iter([False, False, True])
    body = {"items": [item(caller, f"k-{n}") for n in range(4)]}
    answer = caller.post(PATH, body, **{"orbit.client_gone": lambda: next(gone)}).expect(200)
    assert statuses(answer) == ["ACCEPTED", "ACCEPTED", "NOT_ATTEMPTED", "NOT_ATTEMPTED"]


def test_a_database_that_cannot_be_asked_for_the_credential_is_503(caller: Caller, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tenancy, "reading", fail(OperationalError(2003, "no connection")))
    caller.post(PATH, {"items": []}).expect(503, "UNAVAILABLE")
