"""Tasks: what is submitted, what comes back, what can be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import InvalidRequest, UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.instants import format_instant
from orbit_sdk.states import ENDS, RetryMode, TaskState
from orbit_sdk.wire import without_none


@dataclass(frozen=True)
class RetryPolicy:
    """Whether and how Orbit repeats the task by itself.

    `NEVER` (the default): one attempt; when its outcome cannot be known the task is UNKNOWN. `SAFE`: the handler may
    run again after a failure or a lost worker, up to `max_attempts` starts. Left-out numbers are the server's defaults
    (3 attempts, 1000 ms, the larger of 60 000 ms and the first back-off, factor 2).
    """

    mode: RetryMode = RetryMode.NEVER
    max_attempts: int | None = None
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None
    multiplier: int | None = None

    @classmethod
    def never(cls) -> RetryPolicy:
        return cls()

    @classmethod
    def safe(
        cls,
        max_attempts: int | None = None,
        *,
        initial_backoff_ms: int | None = None,
        max_backoff_ms: int | None = None,
        multiplier: int | None = None,
    ) -> RetryPolicy:
        return cls(RetryMode.SAFE, max_attempts, initial_backoff_ms, max_backoff_ms, multiplier)

    def as_json(self) -> dict[str, Any]:
        return without_none({**self.__dict__, "mode": str(self.mode)})


@dataclass(frozen=True)
class SubmitTask:
    """A task to be accepted.

    `queue` is a queue's id, or its name where the client has a credentials file. Of `priority` the larger is the more
    urgent (AGED namespaces 0 to 9, STRICT −9 to 9); None leaves it out, which in a STRICT namespace means the default
    of the parent, queue or namespace. `available_at` (aware) or `delay_ms` sets the earliest start, `expires_in_ms`
    the total deadline from acceptance, `attempt_timeout_ms` the longest single attempt.
    """

    queue: str
    handler: str
    payload: Any
    handler_version: str = "v1"
    payload_version: str = "v1"
    priority: int | None = None
    available_at: datetime | None = None
    delay_ms: int | None = None
    expires_in_ms: int | None = None
    attempt_timeout_ms: int | None = None
    retry: RetryPolicy | None = None
    resource_key: str | None = None
    parent_task_id: str | None = None
    parent_fencing_token: str | None = None

    def as_json(self, credentials: Credentials, *, place: str = "task") -> dict[str, Any]:
        """The request's object. Raises InvalidRequest for what the SDK can judge without asking."""
        try:
            available_at = None if self.available_at is None else format_instant(self.available_at)
        except ValueError as error:
            raise InvalidRequest(f"{place}.available_at", str(error)) from None
        if self.available_at is not None and self.delay_ms is not None:
            raise InvalidRequest(f"{place}.delay_ms", "cannot be given together with available_at")
        if (self.parent_task_id is None) != (self.parent_fencing_token is None):
            raise InvalidRequest(f"{place}.parent_task_id", "goes together with parent_fencing_token")
        for name in ("priority", "delay_ms", "expires_in_ms", "attempt_timeout_ms"):
            number = getattr(self, name)
            if number is not None and type(number) is not int:
                raise InvalidRequest(f"{place}.{name}", "must be an integer")
        document = without_none(
            {
                "queue_id": credentials.queue_id(self.queue, place=f"{place}.queue"),
                "handler": self.handler,
                "handler_version": self.handler_version,
                "payload_version": self.payload_version,
                "priority": self.priority,
                "available_at": available_at,
                "delay_ms": self.delay_ms,
                "expires_in_ms": self.expires_in_ms,
                "attempt_timeout_ms": self.attempt_timeout_ms,
                "retry": None if self.retry is None else self.retry.as_json(),
                "resource_key": self.resource_key,
                "parent_task_id": self.parent_task_id,
                "parent_fencing_token": self.parent_fencing_token,
            }
        )
        document["payload"] = self.payload
        return document


@dataclass(frozen=True)
class Receipt:
    """The proof of acceptance: the original one, however often the key is repeated."""

    task_id: str
    queue_id: str
    revision: str
    created_at: datetime
    deduplicated: bool

    @classmethod
    def read(cls, fields: Fields) -> Receipt:
        return cls(
            task_id=fields.id("task_id"),
            queue_id=fields.id("queue_id"),
            revision=fields.revision("revision"),
            created_at=fields.instant("created_at"),
            deduplicated=fields.boolean("deduplicated"),
        )


@dataclass(frozen=True)
class TaskError:
    """Why a task failed, in its handler's words."""

    code: str
    message: str
    details: Any = None  # left out in lists

    @classmethod
    def read(cls, fields: Fields) -> TaskError:
        return cls(fields.text("code"), fields.text("message"), fields.raw.get("details"))


@dataclass(frozen=True)
class Waiting:
    """The first gate that holds a waiting task back, and what is known about it."""

    reason: str
    detail: Any = None

    @classmethod
    def read(cls, fields: Fields) -> Waiting:
        return cls(fields.text("reason"), fields.raw.get("detail"))


@dataclass(frozen=True)
class TaskSummary:
    """A task as lists show it. `priority` is 0 where an AGED namespace leaves it out; larger is more urgent."""

    task_id: str
    queue_id: str
    handler: str
    handler_version: str
    payload_version: str
    priority: int
    state: TaskState
    revision: str
    attempts: int
    max_attempts: int
    available_at: datetime
    created_at: datetime
    updated_at: datetime
    losses: int = 0
    yields: int = 0
    deadline_at: datetime | None = None
    finished_at: datetime | None = None
    attempt_timeout_ms: int | None = None
    resource_key: str | None = None
    error: TaskError | None = None
    cancel_requested: bool = False
    replayed_from: str | None = None
    replayed_as: str | None = None
    plan_id: str | None = None
    parent_task_id: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether the task is in one of its four ends. UNKNOWN is not an end."""
        return self.state in ENDS

    @classmethod
    def read(cls, fields: Fields) -> TaskSummary:
        return cls(**_summary(fields))


@dataclass(frozen=True)
class Task(TaskSummary):
    """A task with everything that it carries. `raw` is the object as the API gave it."""

    payload: Any = None
    result: Any = None
    waiting: Waiting | None = None
    retry: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Task:
        return cls(
            **_summary(fields),
            payload=fields.value("payload"),
            result=fields.raw.get("result"),
            waiting=Waiting.read(fields.object("waiting")) if fields.has("waiting") else None,
            retry=fields.object("retry").raw if fields.has("retry") else {},
        )


def _summary(fields: Fields) -> dict[str, Any]:
    return {
        "task_id": fields.id("task_id"),
        "queue_id": fields.id("queue_id"),
        "handler": fields.text("handler"),
        "handler_version": fields.text("handler_version"),
        "payload_version": fields.text("payload_version"),
        "priority": fields.optional("priority", fields.integer) or 0,
        "state": fields.word("state", TaskState),
        "revision": fields.revision("revision"),
        "attempts": fields.integer("attempts"),
        "max_attempts": fields.integer("max_attempts"),
        "losses": fields.optional("losses", fields.integer) or 0,
        "yields": fields.optional("yields", fields.integer) or 0,
        "available_at": fields.instant("available_at"),
        "created_at": fields.instant("created_at"),
        "updated_at": fields.instant("updated_at"),
        "deadline_at": fields.optional("deadline_at", fields.instant),
        "finished_at": fields.optional("finished_at", fields.instant),
        "attempt_timeout_ms": fields.optional("attempt_timeout_ms", fields.integer),
        "resource_key": fields.optional("resource_key", fields.text),
        "error": TaskError.read(fields.object("error")) if fields.has("error") else None,
        "cancel_requested": fields.flag("cancel_requested"),
        "replayed_from": fields.optional("replayed_from", fields.id),
        "replayed_as": fields.optional("replayed_as", fields.id),
        "plan_id": fields.optional("plan_id", fields.id),
        "parent_task_id": fields.optional("parent_task_id", fields.id),
        "raw": fields.raw,
    }


@dataclass(frozen=True)
class Accepted:
    """A verified acceptance. `task` is None once the task was pruned; the receipt outlives it."""

    receipt: Receipt
    task: Task | None
    request_id: str

    @property
    def task_id(self) -> str:
        return self.receipt.task_id

    @property
    def deduplicated(self) -> bool:
        """Whether this key had been accepted before."""
        return self.receipt.deduplicated


def read_accepted(data: Any, *, status: int, request_id: str, queue_id: str | None) -> Accepted:
    """Raises UnverifiableResponse unless receipt, task and status fit each other and the queue that was asked for."""
    fields = Fields(data, "data")
    receipt = Receipt.read(fields.object("receipt"))
    task = Task.read(fields.object("task")) if fields.value("task") is not None else None
    if queue_id is not None and receipt.queue_id != queue_id:
        raise UnverifiableResponse(f"the receipt names queue {receipt.queue_id}, not {queue_id}")
    if receipt.deduplicated != (status == 200):
        raise UnverifiableResponse("the status and receipt.deduplicated contradict each other")
    if task is not None and (task.task_id, task.queue_id) != (receipt.task_id, receipt.queue_id):
        raise UnverifiableResponse("the task is not the one that the receipt names")
    return Accepted(receipt=receipt, task=task, request_id=request_id)
