"""What the server says: the messages of `orbit.worker.v1` from server to worker, as JSON text (design, chapter 2).

Each function gives the text of one frame. What users wrote (a task's payload) is spliced in as the text that they sent,
so that every digit of it survives. Instants come in microseconds since the epoch and leave as RFC 3339; fencing tokens
and revisions leave as decimal strings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from tasks_app.instants import format_rfc3339
from tasks_app.states import Policy, TaskState

# Attempts that were reserved, started or renewed in one transaction have one instant, and its text is half of the work.
_when: Final = lru_cache(maxsize=64)(format_rfc3339)


class RevokeReason(StrEnum):
    """Why an unstarted reservation is no longer the worker's."""

    YIELDED = "YIELDED"
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    CAPACITY = "CAPACITY"
    LEASE_LOST = "LEASE_LOST"


class CancelReason(StrEnum):
    """Why a running attempt is asked to stop."""

    REQUESTED = "REQUESTED"
    DEADLINE = "DEADLINE"
    ATTEMPT_TIMEOUT = "ATTEMPT_TIMEOUT"


class StartRefusal(StrEnum):
    """Why a start was refused."""

    LEASE_LOST = "LEASE_LOST"  # expired, taken, yielded
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    LIMITED = "LIMITED"  # a permit or budget was used up since the claim; the reservation is given back


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """One attempt that a resumed session still holds; `state` is RESERVED or RUNNING."""

    attempt_id: str
    fencing_token: int
    task_id: str
    state: TaskState
    lease_until: int


@dataclass(frozen=True, slots=True)
class OfferedTask:
    """What a worker is told of a task. `attempt` is the number that this start would have; `payload` is JSON text."""

    task_id: str
    queue_id: str
    handler: str
    handler_version: str
    payload_version: str
    payload: str
    priority: int
    policy: Policy
    attempt: int
    available_at: int
    deadline_at: int | None = None
    attempt_timeout_ms: int | None = None
    resource_key: str | None = None
    parent_task_id: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    attempt_id: str
    lease_until: int


@dataclass(frozen=True, slots=True)
class StartRefused:
    attempt_id: str
    code: StartRefusal


@dataclass(frozen=True, slots=True)
class Renewed:
    """`progress_fault` tells that the lease was renewed and the progress was not taken, and why."""

    attempt_id: str
    lease_until: int
    cancel_requested: bool
    progress_fault: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """COMMITTED, or ALREADY if `repeated`: this very attempt had been finished with the same content."""

    attempt_id: str
    state: TaskState
    revision: int
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class FinishInvalid:
    """The report was refused and the attempt goes on."""

    attempt_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Released:
    attempt_id: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The attempt is not the caller's: an answer to `renew`, `finish` and `release`."""

    attempt_id: str


StartAnswer = Started | StartRefused
RenewAnswer = Renewed | Lost
FinishAnswer = Finished | FinishInvalid | Lost
ReleaseAnswer = Released | Lost


def welcome(
    *,
    session_id: str,
    node_id: str,
    server_time: int,
    scan_cycle_ms: int,
    reservation_ms: int,
    lease_ms: int,
    max_message_bytes: int,
    namespace_policy: Policy,
    resumed: bool,
    held: Iterable[HeldAttempt] = (),
) -> str:
    return _text(
        {
            "type": "welcome",
            "session_id": session_id,
            "node_id": node_id,
            "server_time": _when(server_time),
            "scan_cycle_ms": scan_cycle_ms,
            "reservation_ms": reservation_ms,
            "lease_ms": lease_ms,
            "max_message_bytes": max_message_bytes,
            "namespace_policy": namespace_policy.value,
            "resumed": resumed,
            "held": [
                {
                    "attempt_id": attempt.attempt_id,
                    "fencing_token": str(attempt.fencing_token),
                    "task_id": attempt.task_id,
                    "state": attempt.state.value,
                    "lease_until": _when(attempt.lease_until),
                }
                for attempt in held
            ],
        }
    )


def offer(*, attempt_id: str, fencing_token: int, reserved_until: int, task: OfferedTask) -> str:
    members: dict[str, Any] = {
        "task_id": task.task_id,
        "queue_id": task.queue_id,
        "handler": task.handler,
        "handler_version": task.handler_version,
        "payload_version": task.payload_version,
        "attempt": task.attempt,
        "available_at": _when(task.available_at),
    }
    if task.policy == Policy.STRICT or task.priority:
        members["priority"] = task.priority  # left out when 0 in an AGED namespace, as in the task object (1.2)
    if task.deadline_at is not None:
        members["deadline_at"] = _when(task.deadline_at)
    for name in ("attempt_timeout_ms", "resource_key", "parent_task_id", "traceparent"):
        value = getattr(task, name)
        if value is not None:
            members[name] = value
    head = _text(
        {
            "type": "offer",
            "attempt_id": attempt_id,
            "fencing_token": str(fencing_token),
            "reserved_until": _when(reserved_until),
        }
    )
    return f'{head[:-1]},"task":{_text(members)[:-1]},"payload":{task.payload}}}}}'


def started(*, re: int, items: Iterable[StartAnswer]) -> str:
    return _answer("started", re, items)


def renewed(*, re: int, items: Iterable[RenewAnswer]) -> str:
    return _answer("renewed", re, items)


def finished(*, re: int, items: Iterable[FinishAnswer]) -> str:
    return _answer("finished", re, items)


def released(*, re: int, items: Iterable[ReleaseAnswer]) -> str:
    return _answer("released", re, items)


def resized(*, re: int, capacity: int) -> str:
    return _text({"type": "resized", "re": re, "capacity": capacity})


def draining(*, re: int, running: int) -> str:
    return _text({"type": "draining", "re": re, "running": running})


def drained() -> str:
    return _text({"type": "drained"})


def heartbeat_ack(*, re: int, server_time: int) -> str:
    return _text({"type": "heartbeat_ack", "re": re, "server_time": _when(server_time)})


def revoke(*, attempt_id: str, reason: RevokeReason) -> str:
    return _text({"type": "revoke", "attempt_id": attempt_id, "reason": reason.value})


def cancel(*, attempt_id: str, reason: CancelReason) -> str:
    return _text({"type": "cancel", "attempt_id": attempt_id, "reason": reason.value})


def drain() -> str:
    """The node goes down: finish or let go, reconnect elsewhere."""
    return _text({"type": "drain"})


def error(*, code: str, message: str, re: int | None = None) -> str:
    members: dict[str, Any] = {"type": "error", "code": code, "message": message}
    if re is not None:
        members["re"] = re
    return _text(members)


def _answer(kind: str, re: int, items: Iterable[StartAnswer | RenewAnswer | FinishAnswer | ReleaseAnswer]) -> str:
    return _text({"type": kind, "re": re, "items": [_item(item) for item in items]})


def _item(item: StartAnswer | RenewAnswer | FinishAnswer | ReleaseAnswer) -> dict[str, Any]:
    members: dict[str, Any] = {"attempt_id": item.attempt_id}
    match item:
        case Started():
            members |= {"status": "STARTED", "lease_until": _when(item.lease_until)}
        case StartRefused():
            members |= {"status": "REFUSED", "code": item.code.value}
        case Renewed():
            members |= {
                "status": "RENEWED",
                "lease_until": _when(item.lease_until),
                "cancel_requested": item.cancel_requested,
            }
            if item.progress_fault is not None:
                members |= {"code": "INVALID_ARGUMENT", "message": item.progress_fault}
        case Finished():
            members |= {
                "status": "ALREADY" if item.repeated else "COMMITTED",
                "state": item.state.value,
                "revision": str(item.revision),
            }
        case FinishInvalid():
            members |= {"status": "INVALID", "code": item.code, "message": item.message}
        case Released():
            members["status"] = "RELEASED"
        case Lost():
            members["status"] = "LOST"
    return members


def _text(members: dict[str, Any]) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
