"""What a handler is given beside its payload."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Protocol, TypedDict, Unpack

from orbit_sdk.errors import InvalidRequest
from orbit_sdk.instants import parse_instant
from orbit_sdk.limits import PROGRESS_MESSAGE_LENGTH_MAX
from orbit_sdk.models.tasks import Accepted, RetryPolicy, SubmitTask
from orbit_sdk.worker.outcomes import Cancelled, clean_message

_log = logging.getLogger("orbit_sdk.handler")


class Publisher(Protocol):
    """Submits the children of a running attempt and repeats a submit until its outcome is known."""

    def publish(self, key: str, task: SubmitTask) -> Accepted: ...
    async def apublish(self, key: str, task: SubmitTask) -> Accepted: ...


class TaskDefinition(Protocol):
    """A task of an App, as far as a parent needs to know it."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def retry(self) -> RetryPolicy | None: ...
    def payload(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]: ...


class ChildOptions(TypedDict, total=False):
    """What may be said of a child beside its handler and payload. `priority` None: the parent's."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    queue: str | None
    version: str
    payload_version: str
    priority: int | None
    delay_ms: int | None
    expires_in_ms: int | None
    attempt_timeout_ms: int | None
    retry: RetryPolicy | None
    resource_key: str | None


class OfferedTask:
    """The task of an attempt, as Orbit offered it. `priority`: larger is more urgent; 0 where AGED leaves it out."""

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    @property
    def task_id(self) -> str:
        return str(self._members["task_id"])

    @property
    def queue_id(self) -> str:
        return str(self._members["queue_id"])

    @property
    def handler(self) -> str:
        return str(self._members["handler"])

    @property
    def handler_version(self) -> str:
        return str(self._members["handler_version"])

    @property
    def payload_version(self) -> str:
        return str(self._members["payload_version"])

    @property
    def payload(self) -> Any:
        """The payload as it was sent, before any check against the handler's annotation."""
        return self._members["payload"]

    @property
    def priority(self) -> int:
        return int(self._members.get("priority", 0))

    @property
    def attempt(self) -> int:
        """Which start of the task this is, from 1. Offers that never started do not count."""
        return int(self._members["attempt"])

    @property
    def available_at(self) -> datetime:
        return parse_instant(self._members["available_at"])

    @property
    def deadline_at(self) -> datetime | None:
        text = self._members.get("deadline_at")
        return None if text is None else parse_instant(text)

    @property
    def attempt_timeout_ms(self) -> int | None:
        return self._members.get("attempt_timeout_ms")

    @property
    def resource_key(self) -> str | None:
        return self._members.get("resource_key")

    @property
    def parent_task_id(self) -> str | None:
        return self._members.get("parent_task_id")

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context of the submit, to be continued by the handler."""
        return self._members.get("traceparent")

    def __repr__(self) -> str:
        return f"<task {self.task_id} {self.handler}@{self.handler_version} attempt {self.attempt}>"


class Context:
    """One running attempt. Safe to use from the threads that its handler starts."""

    def __init__(
        self,
        *,
        attempt_id: str,
        fencing_token: str,
        task: OfferedTask,
        publisher: Publisher | None = None,
    ) -> None:
        self.attempt_id = attempt_id
        self.fencing_token = fencing_token
        self.task = task
        self.started_at = time.time()
        self._publisher = publisher
        self._cancel_reason: str | None = None
        self._cancelled: threading.Event | None = None
        self._children = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Context of attempt {self.attempt_id}, {self.task!r}>"

    @property
    def attempt(self) -> int:
        """Which start of the task this is, from 1."""
        return self.task.attempt

    @property
    def priority(self) -> int:
        """The task's frozen priority; larger is more urgent."""
        return self.task.priority

    # -- Stopping

    @property
    def cancelled(self) -> bool:
        """Whether the attempt should stop: a cancel, a passed deadline or time-out, or a lost lease."""
        return self._cancel_reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """REQUESTED, DEADLINE, ATTEMPT_TIMEOUT (Orbit asks), LEASE_LOST (the result will be thrown away), or None."""
        return self._cancel_reason

    def check_cancelled(self) -> bool:
        """Whether the attempt should stop; the same as `cancelled`, for loops that call."""
        return self._cancel_reason is not None

    def raise_if_cancelled(self) -> None:
        """Leave the handler here if it should stop. Raises Cancelled, which is reported as CANCELED."""
        if self._cancel_reason is not None:
            raise Cancelled(self._cancel_reason)

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait until the attempt should stop, at most `timeout` seconds: a sleep that ends early."""
        with self._lock:
            if self._cancelled is None:
                self._cancelled = threading.Event()
                if self._cancel_reason is not None:
                    self._cancelled.set()
        return self._cancelled.wait(timeout)

    def _cancel(self, reason: str) -> None:
        with self._lock:
            if self._cancel_reason is None or reason == "LEASE_LOST":
                self._cancel_reason = reason
            if self._cancelled is not None:
                self._cancelled.set()

    # -- Time

    @property
    def deadline(self) -> datetime | None:
        """When this attempt must have ended: the task's deadline or the attempt's time-out, whichever comes first."""
        moments = [] if self.task.deadline_at is None else [self.task.deadline_at]
        if self.task.attempt_timeout_ms is not None:
            started = datetime.fromtimestamp(self.started_at, UTC)
            moments.append(started + timedelta(milliseconds=self.task.attempt_timeout_ms))
        return min(moments, default=None)

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds until `deadline` by this machine's clock, not below 0; None without a deadline."""
        deadline = self.deadline
        return None if deadline is None else max(0.0, (deadline - datetime.now(UTC)).total_seconds())

    # -- Reporting

    def progress(self, percent: int, message: str | None = None) -> None:
        """Tell how far the attempt is (0 to 100). Sent with the next renewal of the lease; the newest one wins.

        Raises InvalidRequest for another percentage or more than 1000 characters.
        """
        if type(percent) is not int or not 0 <= percent <= 100:
            raise InvalidRequest("percent", "must be an integer from 0 to 100")
        if message is not None:
            message = clean_message(message)
            if len(message) > PROGRESS_MESSAGE_LENGTH_MAX:
                raise InvalidRequest("message", f"must be at most {PROGRESS_MESSAGE_LENGTH_MAX} characters long")
        self._report_progress(percent, message)

    def _report_progress(self, percent: int, message: str | None) -> None:
        """Overridden where somebody listens."""

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry `task_id`, `attempt_id`, `attempt` and `handler`, and show the first two."""
        return _ContextLog(
            _log,
            {
                "task_id": self.task.task_id,
                "attempt_id": self.attempt_id,
                "attempt": self.attempt,
                "handler": self.task.handler,
            },
        )

    # -- Children

    def publish(
        self,
        handler: str | TaskDefinition,
        payload: Any = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Accepted:
        """Submit a child of this task: into the same queue and with the parent's priority, unless given.

        A task of an App takes `args` and `kwargs` instead of a payload, and goes into its own queue.

        Its key is derived from the parent's task id and the number of this call (or `key`, which must then be unique
        among the parent's children), so that a parent that runs again and publishes the same does not publish twice.
        A submit whose outcome is not known is repeated. Raises ApiError when it is refused: FailedPrecondition if this
        attempt is no longer the parent's current one, IdempotencyConflict if an earlier attempt published something
        else under this key.
        """
        child = self._child(handler, payload, options)
        return self._publisher_or_refuse().publish(self._child_key(key), child)

    async def apublish(
        self,
        handler: str | TaskDefinition,
        payload: Any = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Accepted:
        """`publish` for coroutines."""
        child = self._child(handler, payload, options)
        return await self._publisher_or_refuse().apublish(self._child_key(key), child)

    def _child(self, handler: str | TaskDefinition, payload: Any, options: ChildOptions) -> SubmitTask:
        if isinstance(handler, str):
            name, version, queue, retry = handler, "v1", self.task.queue_id, None
        else:
            # A child's priority is its parent's: the task's own default does not count here.
            name, version, queue, retry = handler.name, handler.version, handler.queue, handler.retry
            payload = handler.payload(options.get("args", ()), options.get("kwargs"))
        return SubmitTask(
            queue=options.get("queue") or queue,
            handler=name,
            handler_version=options.get("version") or version,
            payload=payload,
            payload_version=options.get("payload_version", "v1"),
            priority=options.get("priority"),
            delay_ms=options.get("delay_ms"),
            expires_in_ms=options.get("expires_in_ms"),
            attempt_timeout_ms=options.get("attempt_timeout_ms"),
            retry=options.get("retry") or retry,
            resource_key=options.get("resource_key"),
            parent_task_id=self.task.task_id,
            parent_fencing_token=self.fencing_token,
        )

    def _publisher_or_refuse(self) -> Publisher:
        if self._publisher is None:
            raise InvalidRequest("publish", "there is no client in this context")
        return self._publisher

    def _child_key(self, given: str | None) -> str:
        """`child:{task id}:{number or given}`: the same for the same call of every attempt of the parent."""
        if given is not None:
            return f"child:{self.task.task_id}:={given}"
        with self._lock:
            self._children += 1
            return f"child:{self.task.task_id}:{self._children}"


class _ContextLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        extra = self.extra or {}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"[task {extra.get('task_id')} attempt {extra.get('attempt_id')}] {msg}", kwargs
