"""Running a handler in process, as a worker would."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orbit_sdk.instants import format_instant
from orbit_sdk.jsoncodec import Numbers, decode, encode
from orbit_sdk.models.tasks import Accepted, Receipt, SubmitTask, TaskError
from orbit_sdk.worker.context import Context, OfferedTask, Publisher
from orbit_sdk.worker.execution import execute, execute_coroutine
from orbit_sdk.worker.handlers import Handler, Handlers, RunIn
from orbit_sdk.worker.outcomes import Report

_QUEUE_ID = "0" * 32


@dataclass(frozen=True)
class HandlerRun:
    """How a handler ended: what `finish` would say of it, and what it did on the way.

    `outcome` is SUCCEEDED, FAILED or CANCELED; `retry_after` is in seconds; `progress` holds (percent, message) pairs;
    `published` holds (key, task) pairs of children.
    """

    outcome: str
    result: Any = None
    error: TaskError | None = None
    retryable: bool = False
    retry_after: float | None = None
    progress: tuple[tuple[int, str | None], ...] = ()
    published: tuple[tuple[str, SubmitTask], ...] = ()


@dataclass
class _Recorder:
    """Accepts every child and remembers it."""

    published: list[tuple[str, SubmitTask]] = field(default_factory=list)

    def publish(self, key: str, task: SubmitTask) -> Accepted:
        self.published.append((key, task))
        receipt = Receipt(secrets.token_hex(16), task.queue, "1", datetime.now(UTC), deduplicated=False)
        return Accepted(receipt=receipt, task=None, request_id=secrets.token_hex(16))

    async def apublish(self, key: str, task: SubmitTask) -> Accepted:
        return self.publish(key, task)


class RecordingContext(Context):
    """A context that keeps what it was told."""

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self.reported: list[tuple[int, str | None]] = []

    def _report_progress(self, percent: int, message: str | None) -> None:
        self.reported.append((percent, message))


def run_handler(
    function: Callable[..., Any],
    payload: Any,
    *,
    priority: int = 0,
    attempt: int = 1,
    task_id: str | None = None,
    resource_key: str | None = None,
    deadline_at: datetime | None = None,
    cancel_reason: str | None = None,
    decimals: bool = False,
) -> HandlerRun:
    """Run a handler, plain or coroutine, with a payload that went through JSON as it would on the wire.

    Typed payloads are checked, exceptions become outcomes, results go through JSON too. With `cancel_reason` (such as
    "REQUESTED") the attempt was asked to stop before it began. Children are recorded, not submitted.
    """
    handler = Handlers().add(function, name="handler.under.test", version="v1")
    members: dict[str, Any] = {
        "task_id": task_id or secrets.token_hex(16),
        "queue_id": _QUEUE_ID,
        "handler": handler.name,
        "handler_version": handler.version,
        "payload_version": "v1",
        "payload": payload,
        "priority": priority,
        "attempt": attempt,
        "available_at": format_instant(datetime.now(UTC)),
    }
    if resource_key is not None:
        members["resource_key"] = resource_key
    if deadline_at is not None:
        members["deadline_at"] = format_instant(deadline_at)
    recorder = _Recorder()
    context, report = run_offer(
        handler, members, fencing_token=str(attempt), publisher=recorder, cancel_reason=cancel_reason, decimals=decimals
    )
    return handler_run(report, context, recorder.published, decimals=decimals)


def run_offer(
    handler: Handler,
    members: dict[str, Any],
    *,
    fencing_token: str,
    publisher: Publisher,
    cancel_reason: str | None = None,
    decimals: bool = False,
) -> tuple[RecordingContext, Report]:
    """Run the handler of an offer in this thread (a coroutine in an event loop of its own)."""
    numbers = Numbers.DECIMAL if decimals else Numbers.EXACT
    context = RecordingContext(
        attempt_id=secrets.token_hex(16),
        fencing_token=fencing_token,
        task=OfferedTask(decode(encode(members), numbers=numbers)),
        publisher=publisher,
    )
    if cancel_reason is not None:
        context._cancel(cancel_reason)
    if handler.run_in is RunIn.COROUTINE:
        return context, asyncio.run(_cancelled_or_not(handler, context))
    return context, execute(handler, context, with_traceback=True)


async def _cancelled_or_not(handler: Handler, context: Context) -> Report:
    if context.cancelled:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (asyncio.run makes one)
        task.cancel()
    return await execute_coroutine(handler, context, with_traceback=True)


def handler_run(
    report: Report, context: RecordingContext, published: list[tuple[str, SubmitTask]], *, decimals: bool
) -> HandlerRun:
    numbers = Numbers.DECIMAL if decimals else Numbers.EXACT
    details = None if report.details is None else decode(report.details, numbers=numbers)
    return HandlerRun(
        outcome=report.outcome,
        result=None if report.result is None else decode(report.result, numbers=numbers),
        error=None if report.code is None else TaskError(report.code, report.message, details),
        retryable=report.outcome == "FAILED" and report.retryable,
        retry_after=None if report.retry_after_ms is None else report.retry_after_ms / 1000,
        progress=tuple(context.reported),
        published=tuple(published),
    )
