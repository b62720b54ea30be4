"""The objects of the API as JSON documents (design 1.2 to 1.5): what is shown, under which name, and when it is left
out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks_app.api.envelope import RawJson
from tasks_app.domain import batches
from tasks_app.domain.batches import ItemResult, Verdict
from tasks_app.domain.event_reads import EventView
from tasks_app.domain.queues import Queue
from tasks_app.domain.statistics import QueueStatistics
from tasks_app.domain.submission import Receipt
from tasks_app.domain.task_reads import TaskView
from tasks_app.domain.waiting import Waiting
from tasks_app.instants import format_rfc3339
from tasks_app.retries import RetryPolicy
from tasks_app.states import Policy, RetryMode
from tasks_app.strict_json import parse_document

Document = dict[str, Any]


def task_document(task: TaskView, policy: Policy, *, waiting: Waiting | None = None) -> Document:
    """A whole task. In an AGED namespace priority 0 is left out, in a STRICT one it is always shown."""
    whole = _task(task, policy)
    whole["payload"] = RawJson(task.payload or "null")
    if task.result is not None:
        whole["result"] = RawJson(task.result)
    if task.error is not None:
        whole["error"] = RawJson(task.error)
    if waiting is not None:
        whole["waiting"] = waiting_document(waiting)
    return _present(whole)


def task_summary(task: TaskView, policy: Policy) -> Document:
    """The same in a list: without `payload`, `result` and `error.details`."""
    summary = _task(task, policy)
    if task.error is not None:
        error = parse_document(task.error).members()
        summary["error"] = {name: RawJson(error[name].raw) for name in ("code", "message") if name in error}
    return _present(summary)


def receipt_document(receipt: Receipt) -> Document:
    return {
        "task_id": receipt.task_id,
        "queue_id": receipt.queue_id,
        "revision": receipt.revision,
        "created_at": format_rfc3339(receipt.created_at),
        "deduplicated": receipt.deduplicated,
    }


def batch_item_document(index: int, result: ItemResult) -> Document:
    """One result of a batch (1.3): members that do not belong to its status are absent."""
    item: Document = {"index": index, "status": result.verdict.value}
    if result.receipt is not None:
        item["receipt"] = receipt_document(result.receipt)
    elif result.error is not None:
        item["error"] = result.error.as_json()
    else:
        item["error"] = {"code": batches.STOPPED_CODE, "message": batches.STOPPED_MESSAGE}
    return item


def batch_document(items: Sequence[Document], results: Sequence[ItemResult]) -> Document:
    """The results with the count of each status: a plain 200 must not look as if everything had been accepted."""
    summary = {verdict.value.lower(): sum(result.verdict is verdict for result in results) for verdict in Verdict}
    return {"items": list(items), "summary": summary}


def waiting_document(waiting: Waiting) -> Document:
    """Instants in the detail are shown as times."""
    detail = {name: format_rfc3339(value) if name.endswith("_at") else value for name, value in waiting.detail.items()}
    return {"reason": waiting.reason.value, "detail": detail}


def event_document(event: EventView, cursor: str) -> Document:
    return {
        "cursor": cursor,
        "type": event.type,
        "task_id": event.task_id,
        "queue_id": event.queue_id,
        "revision": str(event.revision),
        "state": event.state,
        "created_at": format_rfc3339(event.created_at),
        "data": RawJson(event.data or "{}"),
    }


def queue_document(queue: Queue) -> Document:
    starts, per_ms = queue.start_rate or (None, None)
    return {
        "queue_id": queue.queue_id,
        "name": queue.name,
        "paused": queue.paused,
        "pause_reason": queue.pause_reason,
        "max_unfinished": queue.max_unfinished,
        "max_running": queue.max_running,
        "start_rate": None if starts is None else {"starts": starts, "per_ms": per_ms},
        "weight": queue.weight,
        "default_priority": queue.default_priority,
        "retry_priority": queue.retry_priority,
        "revision": str(queue.revision),
        "created_at": format_rfc3339(queue.created_at),
        "updated_at": format_rfc3339(queue.updated_at),
    }


def statistics_document(found: QueueStatistics, head: Waiting | None) -> Document:
    """`head` says why the first task waits; None where none does."""
    budget = found.start_budget
    return {
        "counts": dict(found.counts),
        "backlog_by_priority": {str(priority): count for priority, count in found.backlog.items()},
        "oldest_waiting_ms_by_priority": {str(p): waited for p, waited in found.oldest_waiting_ms.items()},
        "running": found.running,
        "reserved": found.reserved,
        "start_budget": None if budget is None else {"left": budget.left, "next_at": format_rfc3339(budget.next_at)},
        "head_waiting": None if head is None else {"task_id": found.head_task_id, **waiting_document(head)},
    }


def _task(task: TaskView, policy: Policy) -> Document:
    """Every member in the order of the contract; None for what is absent or filled in by the caller."""
    return {
        "task_id": task.task_id,
        "queue_id": task.queue_id,
        "handler": task.handler,
        "handler_version": task.handler_version,
        "payload_version": task.payload_version,
        "payload": None,
        "priority": task.priority if task.priority or policy == Policy.STRICT else None,
        "state": task.state.value,
        "revision": str(task.revision),
        "attempts": task.attempts,
        "max_attempts": task.retry.max_attempts,
        "losses": task.losses or None,
        "available_at": format_rfc3339(task.available_at),
        "deadline_at": _instant(task.deadline_at),
        "attempt_timeout_ms": task.attempt_timeout_ms,
        "resource_key": task.resource_key,
        "created_at": format_rfc3339(task.created_at),
        "updated_at": format_rfc3339(task.updated_at),
        "finished_at": _instant(task.finished_at),
        "result": None,
        "error": None,
        "cancel_requested": task.cancel_requested or None,
        "replayed_from": task.replayed_from,
        "replayed_as": task.replayed_as,
        "plan_id": task.plan_id,
        "parent_task_id": task.parent_task_id,
        "yields": task.yields or None,
        "retry": _retry(task.retry),
    }


def _retry(retry: RetryPolicy) -> Document:
    if retry.mode != RetryMode.SAFE:
        return {"mode": RetryMode.NEVER.value}
    return {
        "mode": RetryMode.SAFE.value,
        "max_attempts": retry.max_attempts,
        "initial_backoff_ms": retry.initial_backoff_ms,
        "max_backoff_ms": retry.max_backoff_ms,
        "multiplier": retry.multiplier,
    }


def _present(document: Document) -> Document:
    return {name: value for name, value in document.items() if value is not None}


def _instant(at_us: int | None) -> str | None:
    return None if at_us is None else format_rfc3339(at_us)
