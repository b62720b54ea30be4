"""Queues (design 1.5)."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from orbit_sdk.calls.pages import Page, page_call
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.models.queues import Queue, QueueStats, StartRate
from orbit_sdk.states import RetryPriority
from orbit_sdk.wire import Answer, Call, get, post, send_json, without_none


class Unset(enum.Enum):
    """What stands for "leave it as it is", because None lifts a limit."""

    UNSET = "unset"


UNSET = Unset.UNSET
_CREATED = frozenset({201})


def create_queue(
    name: str,
    *,
    max_unfinished: int | None = None,
    max_running: int | None = None,
    start_rate: StartRate | None = None,
    weight: int | None = None,
    default_priority: int | None = None,
    retry_priority: RetryPriority | str | None = None,
) -> Call[Queue]:
    document = without_none(
        {
            "name": name,
            "max_unfinished": max_unfinished,
            "max_running": max_running,
            "start_rate": None if start_rate is None else start_rate.as_json(),
            "weight": weight,
            "default_priority": default_priority,
            "retry_priority": None if retry_priority is None else str(retry_priority),
        }
    )

    def verify(answer: Answer) -> Queue:
        queue = _queue(answer)
        if queue.name != name:
            raise UnverifiableResponse(f"queue {queue.name!r} was answered, {name!r} was asked for")
        return queue

    return Call(post("/v1/queues", document), verify, _CREATED)


def list_queues(*, page_size: int | None = None, cursor: str | None = None) -> Call[Page[Queue]]:
    return page_call("/v1/queues", Queue.read, page_size=page_size, cursor=cursor)


def get_queue(credentials: Credentials, queue: str) -> Call[Queue]:
    queue_id = credentials.queue_id(queue)
    return Call(get(f"/v1/queues/{queue_id}"), _verifier(queue_id))


def update_queue(
    credentials: Credentials,
    queue: str,
    revision: str,
    *,
    max_unfinished: int | None | Unset = UNSET,
    max_running: int | None | Unset = UNSET,
    start_rate: StartRate | None | Unset = UNSET,
    weight: int | Unset = UNSET,
    default_priority: int | None | Unset = UNSET,
    retry_priority: RetryPriority | str | Unset = UNSET,
) -> Call[Queue]:
    queue_id = credentials.queue_id(queue)
    changes: dict[str, Any] = {
        "max_unfinished": max_unfinished,
        "max_running": max_running,
        "start_rate": start_rate.as_json() if isinstance(start_rate, StartRate) else start_rate,
        "weight": weight,
        "default_priority": default_priority,
        "retry_priority": retry_priority if retry_priority is UNSET else str(retry_priority),
    }
    document = {"revision": revision, **{name: value for name, value in changes.items() if value is not UNSET}}
    return Call(send_json("PATCH", f"/v1/queues/{queue_id}", document), _verifier(queue_id))


def pause_queue(credentials: Credentials, queue: str, *, reason: str | None = None) -> Call[Queue]:
    queue_id = credentials.queue_id(queue)
    return Call(post(f"/v1/queues/{queue_id}:pause", without_none({"reason": reason})), _verifier(queue_id))


def resume_queue(credentials: Credentials, queue: str) -> Call[Queue]:
    queue_id = credentials.queue_id(queue)
    return Call(post(f"/v1/queues/{queue_id}:resume", {}), _verifier(queue_id))


def queue_stats(credentials: Credentials, queue: str) -> Call[QueueStats]:
    queue_id = credentials.queue_id(queue)

    def verify(answer: Answer) -> QueueStats:
        return QueueStats.read(Fields(answer.data, "data").object("stats"))

    return Call(get(f"/v1/queues/{queue_id}/stats"), verify)


def _queue(answer: Answer) -> Queue:
    return Queue.read(Fields(answer.data, "data").object("queue"))


def _verifier(queue_id: str) -> Callable[[Answer], Queue]:
    def verify(answer: Answer) -> Queue:
        queue = _queue(answer)
        if queue.queue_id != queue_id:
            raise UnverifiableResponse(f"queue {queue.queue_id} was answered, {queue_id} was asked for")
        return queue

    return verify
