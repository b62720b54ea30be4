"""Submitting, reading and steering tasks (design 1.2 to 1.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from orbit_sdk.calls.pages import Page, page_call, query_of
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import InvalidRequest, UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.limits import (
    BATCH_BODY_BYTES_MAX,
    BATCH_ITEMS_MAX,
    BATCH_ITEMS_MIN,
    REPLAY_LIMIT_MAX,
    REPLAY_LIMIT_MIN,
    WAIT_MS_MAX,
)
from orbit_sdk.models.batches import BatchItem, BatchResult, read_batch_items
from orbit_sdk.models.events import Event, EventPage
from orbit_sdk.models.tasks import Accepted, SubmitTask, Task, TaskSummary, read_accepted
from orbit_sdk.states import BatchStatus, Decision, TaskState
from orbit_sdk.wire import SUBMIT_STATUSES, Answer, Call, check_id, check_key, get, post, without_none


def submit_task(credentials: Credentials, key: str, task: SubmitTask) -> Call[Accepted]:
    document = task.as_json(credentials)
    queue_id: str = document["queue_id"]

    def verify(answer: Answer) -> Accepted:
        return read_accepted(answer.data, status=answer.status, request_id=answer.request_id, queue_id=queue_id)

    return Call(post("/v1/tasks", document, key=key), verify, SUBMIT_STATUSES)


def submit_tasks(credentials: Credentials, items: Sequence[BatchItem]) -> Call[BatchResult]:
    if not BATCH_ITEMS_MIN <= len(items) <= BATCH_ITEMS_MAX:
        raise InvalidRequest("items", f"must be {BATCH_ITEMS_MIN} to {BATCH_ITEMS_MAX}, not {len(items)}")
    seen: dict[str, int] = {}
    documents: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        check_key(item.key, place=f"items[{index}].key")
        if item.key in seen:
            raise InvalidRequest(f"items[{index}].key", f"is the key of items[{seen[item.key]}] too")
        seen[item.key] = index
        task = item.task.as_json(credentials, place=f"items[{index}].task")
        documents.append({"idempotency_key": item.key, "task": task})
    queue_ids = [document["task"]["queue_id"] for document in documents]

    def verify(answer: Answer) -> BatchResult:
        return BatchResult(read_batch_items(answer.data, queue_ids=queue_ids), answer.request_id)

    return Call(post("/v1/tasks:batch", {"items": documents}, bytes_max=BATCH_BODY_BYTES_MAX), verify)


def get_task(task_id: str, *, wait_ms: int | None = None, revision: str | None = None) -> Call[Task]:
    """With `wait_ms` (0 to 30000) the answer is held back until the revision is newer than `revision`, or time is
    up.
    """
    if wait_ms is not None and not 0 <= wait_ms <= WAIT_MS_MAX:
        raise InvalidRequest("wait_ms", f"must be 0 to {WAIT_MS_MAX}")
    path = f"/v1/tasks/{check_id(task_id, place='task_id')}"
    query = query_of(wait_ms=wait_ms, revision=revision)
    return Call(get(path, query=query, wait_seconds=(wait_ms or 0) / 1000), _task_verifier(task_id))


def list_tasks(
    credentials: Credentials,
    *,
    queue: str | None = None,
    states: Iterable[TaskState | str] = (),
    handler: str | None = None,
    priority: int | None = None,
    resource_key: str | None = None,
    created_from: datetime | None = None,
    created_to: datetime | None = None,
    dead: bool | None = None,
    page_size: int | None = None,
    cursor: str | None = None,
) -> Call[Page[TaskSummary]]:
    query = query_of(
        queue_id=None if queue is None else credentials.queue_id(queue),
        state=[str(state) for state in states],
        handler=handler,
        priority=priority,
        resource_key=resource_key,
        created_from=created_from,
        created_to=created_to,
        dead=dead,
    )
    return page_call("/v1/tasks", TaskSummary.read, query=query, page_size=page_size, cursor=cursor)


def cancel_task(task_id: str, revision: str, *, reason: str | None = None) -> Call[Task]:
    return _steer(task_id, "cancel", without_none({"revision": revision, "reason": reason}))


def reconcile_task(
    task_id: str, revision: str, decision: Decision | str, reason: str, *, result: Any = None, error: Any = None
) -> Call[Task]:
    document: dict[str, Any] = {"revision": revision, "decision": str(decision), "reason": reason}
    return _steer(task_id, "reconcile", {**document, **without_none({"result": result, "error": error})})


def dismiss_task(task_id: str, revision: str, reason: str) -> Call[Task]:
    return _steer(task_id, "dismiss", {"revision": revision, "reason": reason})


def replay_task(key: str, task_id: str, *, priority: int | None = None, delay_ms: int | None = None) -> Call[Accepted]:
    path = f"/v1/tasks/{check_id(task_id, place='task_id')}:replay"

    def verify(answer: Answer) -> Accepted:
        accepted = read_accepted(answer.data, status=answer.status, request_id=answer.request_id, queue_id=None)
        if accepted.task is not None and accepted.task.replayed_from != task_id:
            raise UnverifiableResponse("the new task is not a replay of the one that was asked for")
        return accepted

    document = without_none({"priority": priority, "delay_ms": delay_ms})
    return Call(post(path, document, key=key), verify, SUBMIT_STATUSES)


def replay_tasks(
    credentials: Credentials,
    key: str,
    queue: str,
    *,
    limit: int,
    states: Sequence[TaskState | str] | None = None,
    handler: str | None = None,
    priority: int | None = None,
) -> Call[BatchResult]:
    if not REPLAY_LIMIT_MIN <= limit <= REPLAY_LIMIT_MAX:
        raise InvalidRequest("limit", f"must be {REPLAY_LIMIT_MIN} to {REPLAY_LIMIT_MAX}")
    queue_id = credentials.queue_id(queue)
    document = without_none(
        {
            "queue_id": queue_id,
            "states": None if states is None else [str(state) for state in states],
            "handler": handler,
            "limit": limit,
            "priority": priority,
        }
    )

    def verify(answer: Answer) -> BatchResult:
        items = read_batch_items(answer.data, queue_ids=None, replay=True)
        if len(items) > limit:
            raise UnverifiableResponse(f"at most {limit} items were asked for and {len(items)} answered")
        if any(
            item.status is BatchStatus.ACCEPTED and item.receipt and item.receipt.queue_id != queue_id for item in items
        ):
            raise UnverifiableResponse("a receipt names another queue than was asked for")
        return BatchResult(items, answer.request_id)

    return Call(post("/v1/tasks:replay", document, key=key), verify)


def task_events(task_id: str, *, page_size: int | None = None, cursor: str | None = None) -> Call[Page[Event]]:
    path = f"/v1/tasks/{check_id(task_id, place='task_id')}/events"

    def read(fields: Fields) -> Event:
        event = Event.read(fields)
        if event.task_id != task_id:
            raise UnverifiableResponse(f"an event of task {event.task_id} is among those of {task_id}")
        return event

    return page_call(path, read, page_size=page_size, cursor=cursor)


def events(*, after: str | None = None, limit: int | None = None, wait_ms: int | None = None) -> Call[EventPage]:
    """A piece of the namespace's feed after the cursor `after`; from the oldest kept event where that is None."""
    if wait_ms is not None and not 0 <= wait_ms <= WAIT_MS_MAX:
        raise InvalidRequest("wait_ms", f"must be 0 to {WAIT_MS_MAX}")
    query = query_of(after=after, limit=limit, wait_ms=wait_ms)

    def verify(answer: Answer) -> EventPage:
        fields = Fields(answer.data, "data")
        items = tuple(Event.read(item) for item in fields.objects("items"))
        return EventPage(items=items, next_cursor=fields.text("next_cursor"))

    return Call(get("/v1/events", query=query, wait_seconds=(wait_ms or 0) / 1000), verify)


def _steer(task_id: str, verb: str, document: dict[str, Any]) -> Call[Task]:
    path = f"/v1/tasks/{check_id(task_id, place='task_id')}:{verb}"
    return Call(post(path, document), _task_verifier(task_id))


def _task_verifier(task_id: str) -> Callable[[Answer], Task]:
    def verify(answer: Answer) -> Task:
        task = Task.read(Fields(answer.data, "data").object("task"))
        if task.task_id != task_id:
            raise UnverifiableResponse(f"task {task.task_id} was answered, {task_id} was asked for")
        return task

    return verify
