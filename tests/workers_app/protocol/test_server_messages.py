"""What the server says: each frame is one of the published messages and says what it was given (design, chapter 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.limits import FRAME_BYTES_MAX
from tasks_app.states import Policy, TaskState
from tests.workers_app.protocol.frames import (
    ATTEMPT_ID,
    NOON,
    NOON_TEXT,
    OTHER_ATTEMPT_ID,
    QUEUE_ID,
    SESSION_ID,
    TASK_ID,
    Frame,
    sent,
)
from workers_app.protocol import messages
from workers_app.protocol.messages import (
    CancelReason,
    Finished,
    FinishInvalid,
    HeldAttempt,
    Lost,
    OfferedTask,
    Released,
    Renewed,
    RevokeReason,
    Started,
    StartRefusal,
    StartRefused,
)


def task(**changes: Any) -> OfferedTask:
    values: dict[str, Any] = {
        "task_id": TASK_ID,
        "queue_id": QUEUE_ID,
        "handler": "object.prepare",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": '{"order":4711}',
        "priority": 0,
        "policy": Policy.AGED,
        "attempt": 1,
        "available_at": NOON,
    }
    return OfferedTask(**{**values, **changes})


def offered(**changes: Any) -> Frame:
    return sent(messages.offer(attempt_id=ATTEMPT_ID, fencing_token=7, reserved_until=NOON, task=task(**changes)))


def test_welcome_tells_the_session_and_its_times() -> None:
    held = HeldAttempt(ATTEMPT_ID, 7, TASK_ID, TaskState.RUNNING, NOON)
    frame = sent(
        messages.welcome(
            session_id=SESSION_ID,
            node_id="node-a:8080",
            server_time=NOON,
            scan_cycle_ms=1000,
            reservation_ms=10_000,
            lease_ms=30_000,
            max_message_bytes=FRAME_BYTES_MAX,
            namespace_policy=Policy.STRICT,
            resumed=True,
            held=[held],
        )
    )
    assert frame == {
        "type": "welcome",
        "session_id": SESSION_ID,
        "node_id": "node-a:8080",
        "server_time": NOON_TEXT,
        "scan_cycle_ms": 1000,
        "reservation_ms": 10_000,
        "lease_ms": 30_000,
        "max_message_bytes": 1_048_576,
        "namespace_policy": "STRICT",
        "resumed": True,
        "held": [
            {
                "attempt_id": ATTEMPT_ID,
                "fencing_token": "7",
                "task_id": TASK_ID,
                "state": "RUNNING",
                "lease_until": NOON_TEXT,
            }
        ],
    }


def test_offer_tells_the_task_and_leaves_out_what_it_does_not_have() -> None:
    assert offered() == {
        "type": "offer",
        "attempt_id": ATTEMPT_ID,
        "fencing_token": "7",
        "reserved_until": NOON_TEXT,
        "task": {
            "task_id": TASK_ID,
            "queue_id": QUEUE_ID,
            "handler": "object.prepare",
            "handler_version": "v1",
            "payload_version": "v1",
            "payload": {"order": 4711},
            "attempt": 1,
            "available_at": NOON_TEXT,
        },
    }


def test_offer_tells_all_that_the_task_has() -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    frame = offered(
        priority=9,
        attempt=3,
        deadline_at=NOON + 876_544,
        attempt_timeout_ms=60_000,
        resource_key="tenant/ä",
        parent_task_id=OTHER_ATTEMPT_ID,
        traceparent=traceparent,
    )
    assert frame["task"] | {"payload": None} == {
        "task_id": TASK_ID,
        "queue_id": QUEUE_ID,
        "handler": "object.prepare",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": None,
        "priority": 9,
        "attempt": 3,
        "available_at": NOON_TEXT,
        "deadline_at": "2026-09-21T14:13:21Z",
        "attempt_timeout_ms": 60_000,
        "resource_key": "tenant/ä",
        "parent_task_id": OTHER_ATTEMPT_ID,
        "traceparent": traceparent,
    }


@pytest.mark.parametrize(
    ("policy", "priority", "shown"),
    [(Policy.AGED, 0, False), (Policy.AGED, 9, True), (Policy.STRICT, 0, True), (Policy.STRICT, -9, True)],
)
def test_priority_is_left_out_only_when_0_in_an_aged_namespace(policy: Policy, priority: int, shown: bool) -> None:
    assert offered(policy=policy, priority=priority)["task"].get("priority") == (priority if shown else None)


@pytest.mark.parametrize("payload", ["9007199254740993", "1.10", "1e400", "0.1000000000000000055", '{ "a" : [-0] }'])
def test_payload_goes_out_as_the_text_that_came_in(payload: str) -> None:
    text = messages.offer(
        attempt_id=ATTEMPT_ID, fencing_token=7, reserved_until=NOON, task=task(payload=payload, priority=3)
    )
    assert f'"payload":{payload}}}' in text
    sent(text)


_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_json = st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(payload=_json, indent=st.sampled_from([None, 1]), handler=st.text(min_size=1, max_size=128))
def test_no_payload_or_name_can_break_out_of_its_place(payload: Any, indent: int | None, handler: str) -> None:
    frame = offered(payload=json.dumps(payload, indent=indent), handler=handler)
    assert frame["task"]["payload"] == payload
    assert frame["task"]["handler"] == handler
    assert set(frame) == {"type", "attempt_id", "fencing_token", "reserved_until", "task"}


def test_started_answers_each_item_in_order() -> None:
    frame = sent(
        messages.started(
            re=5, items=[Started(ATTEMPT_ID, NOON), *(StartRefused(ATTEMPT_ID, code) for code in StartRefusal)]
        )
    )
    assert frame == {
        "type": "started",
        "re": 5,
        "items": [
            {"attempt_id": ATTEMPT_ID, "status": "STARTED", "lease_until": NOON_TEXT},
            *(
                {"attempt_id": ATTEMPT_ID, "status": "REFUSED", "code": code}
                for code in ("LEASE_LOST", "CANCELED", "EXPIRED", "QUEUE_PAUSED", "LIMITED")
            ),
        ],
    }


def test_renewed_answers_each_item_in_order() -> None:
    items = [
        Renewed(ATTEMPT_ID, NOON, cancel_requested=True),
        Renewed(ATTEMPT_ID, NOON, cancel_requested=False, progress_fault="progress.percent must be 0 to 100"),
        Lost(ATTEMPT_ID),
    ]
    assert sent(messages.renewed(re=5, items=items))["items"] == [
        {"attempt_id": ATTEMPT_ID, "status": "RENEWED", "lease_until": NOON_TEXT, "cancel_requested": True},
        {
            "attempt_id": ATTEMPT_ID,
            "status": "RENEWED",
            "lease_until": NOON_TEXT,
            "cancel_requested": False,
            "code": "INVALID_ARGUMENT",
            "message": "progress.percent must be 0 to 100",
        },
        {"attempt_id": ATTEMPT_ID, "status": "LOST"},
    ]


def test_finished_answers_each_item_in_order() -> None:
    items = [
        Finished(ATTEMPT_ID, TaskState.SUCCEEDED, 3),
        Finished(ATTEMPT_ID, TaskState.SCHEDULED, 4, repeated=True),
        Lost(ATTEMPT_ID),
        FinishInvalid(ATTEMPT_ID, "INVALID_ARGUMENT", "error: is required with outcome FAILED"),
    ]
    assert sent(messages.finished(re=5, items=items))["items"] == [
        {"attempt_id": ATTEMPT_ID, "status": "COMMITTED", "state": "SUCCEEDED", "revision": "3"},
        {"attempt_id": ATTEMPT_ID, "status": "ALREADY", "state": "SCHEDULED", "revision": "4"},
        {"attempt_id": ATTEMPT_ID, "status": "LOST"},
        {
            "attempt_id": ATTEMPT_ID,
            "status": "INVALID",
            "code": "INVALID_ARGUMENT",
            "message": "error: is required with outcome FAILED",
        },
    ]


def test_released_answers_each_item_in_order() -> None:
    frame = sent(messages.released(re=5, items=[Released(ATTEMPT_ID), Lost("not an id")]))
    assert frame["items"] == [
        {"attempt_id": ATTEMPT_ID, "status": "RELEASED"},
        {"attempt_id": "not an id", "status": "LOST"},
    ]


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        (messages.heartbeat_ack(re=5, server_time=NOON), {"type": "heartbeat_ack", "re": 5, "server_time": NOON_TEXT}),
        (messages.resized(re=5, capacity=0), {"type": "resized", "re": 5, "capacity": 0}),
        (messages.draining(re=5, running=2), {"type": "draining", "re": 5, "running": 2}),
        (messages.drained(), {"type": "drained"}),
        (messages.drain(), {"type": "drain"}),
        (
            messages.error(code="UNAVAILABLE", message="ask again", re=5),
            {"type": "error", "code": "UNAVAILABLE", "message": "ask again", "re": 5},
        ),
        (
            messages.error(code="NODE_FULL", message="128 connections"),
            {"type": "error", "code": "NODE_FULL", "message": "128 connections"},
        ),
    ],
)
def test_simple_messages_say_what_they_were_given(text: str, frame: Frame) -> None:
    assert sent(text) == frame


def test_revoke_and_cancel_name_their_reasons() -> None:
    revoked = [sent(messages.revoke(attempt_id=ATTEMPT_ID, reason=reason))["reason"] for reason in RevokeReason]
    assert revoked == ["YIELDED", "CANCELED", "EXPIRED", "QUEUE_PAUSED", "CAPACITY", "LEASE_LOST"]
    canceled = [sent(messages.cancel(attempt_id=ATTEMPT_ID, reason=reason))["reason"] for reason in CancelReason]
    assert canceled == ["REQUESTED", "DEADLINE", "ATTEMPT_TIMEOUT"]
