"""The rows of the in-memory Orbit: queues, tasks, idempotency records, events.

One lock, one clock that tests may move.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from orbit_sdk.instants import format_instant
from orbit_sdk.states import ENDS, Policy, TaskState
from orbit_sdk.testing.submissions import Refused, Submission, invalid, read_submission

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_STARTED = (TaskState.SCHEDULED, TaskState.READY, TaskState.RESERVED)
_REPLAYABLE = (TaskState.FAILED, TaskState.EXPIRED, TaskState.CANCELED)


def instant(at_us: int) -> str:
    return format_instant(_EPOCH + timedelta(microseconds=at_us))


@dataclass
class QueueRow:
    queue_id: str
    name: str
    created_at: int
    paused: bool = False
    pause_reason: str | None = None
    max_unfinished: int | None = None
    default_priority: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    revision: int = 1

    def as_json(self) -> dict[str, Any]:
        defaults = {"max_running": None, "start_rate": None, "weight": 1, "retry_priority": "KEEP"}
        return {
            "queue_id": self.queue_id,
            "name": self.name,
            "paused": self.paused,
            "pause_reason": self.pause_reason,
            "max_unfinished": self.max_unfinished,
            "default_priority": self.default_priority,
            **defaults,
            **self.settings,
            "revision": str(self.revision),
            "created_at": instant(self.created_at),
            "updated_at": instant(self.created_at),
        }


@dataclass
class TaskRow:
    number: int  # the order of acceptance
    task_id: str
    submission: Submission
    priority: int
    created_at: int
    available_at: int
    deadline_at: int | None
    max_attempts: int
    state: TaskState = TaskState.READY
    revision: int = 1
    attempts: int = 0
    updated_at: int = 0
    finished_at: int | None = None
    result: Any = None
    error: dict[str, Any] | None = None
    cancel_requested: bool = False
    replayed_from: str | None = None
    replayed_as: str | None = None
    dismissed: bool = False

    @property
    def queue_id(self) -> str:
        return str(self.submission.document["queue_id"])

    def as_json(self, policy: Policy) -> dict[str, Any]:
        document = self.submission.document
        shown: dict[str, Any] = {
            "task_id": self.task_id,
            "queue_id": self.queue_id,
            "handler": document["handler"],
            "handler_version": document["handler_version"],
            "payload_version": document["payload_version"],
            "payload": document["payload"],
            "state": str(self.state),
            "revision": str(self.revision),
            "attempts": self.attempts,
            "max_attempts": self.max_attempts,
            "available_at": instant(self.available_at),
            "created_at": instant(self.created_at),
            "updated_at": instant(self.updated_at),
            "retry": self.submission.retry,
        }
        if self.priority or policy is Policy.STRICT:
            shown["priority"] = self.priority
        optional = {
            "deadline_at": None if self.deadline_at is None else instant(self.deadline_at),
            "finished_at": None if self.finished_at is None else instant(self.finished_at),
            "attempt_timeout_ms": document.get("attempt_timeout_ms"),
            "resource_key": document.get("resource_key"),
            "parent_task_id": document.get("parent_task_id"),
            "error": self.error,
            "cancel_requested": self.cancel_requested or None,
            "replayed_from": self.replayed_from,
            "replayed_as": self.replayed_as,
        }
        shown |= {name: value for name, value in optional.items() if value is not None}
        if self.state is TaskState.SUCCEEDED:
            shown["result"] = self.result
        return shown


@dataclass(frozen=True)
class Record:
    """What a key stands for."""

    digest: str
    task_id: str
    receipt: dict[str, Any]


class Store:
    """Everything that is accepted, and the verbs that change it. Raises Refused."""

    def __init__(self, *, policy: Policy, default_priority: int = 0) -> None:
        self.policy = policy
        self.default_priority = default_priority
        self.lock = threading.RLock()
        self.queues: dict[str, QueueRow] = {}
        self.tasks: dict[str, TaskRow] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.events: list[dict[str, Any]] = []
        self.moved_us = 0

    def now_us(self) -> int:
        return time.time_ns() // 1000 + self.moved_us

    # -- Queues

    def add_queue(self, name: str, **settings: Any) -> QueueRow:
        for queue in self.queues.values():
            if queue.name == name:
                raise Refused("ALREADY_EXISTS", 409, "it exists already", field="name", queue_id=queue.queue_id)
        queue = QueueRow(
            secrets.token_hex(16),
            name,
            self.now_us(),
            max_unfinished=settings.pop("max_unfinished", None),
            default_priority=settings.pop("default_priority", None),
            settings=settings,
        )
        self.queues[queue.queue_id] = queue
        return queue

    def queue(self, queue_id: str) -> QueueRow:
        queue = self.queues.get(queue_id)
        if queue is None:
            raise Refused("NOT_FOUND", 404, "no such object", field="queue_id")
        return queue

    # -- Accepting

    def accept(self, operation: str, key: str, document: dict[str, Any]) -> tuple[bool, TaskRow, dict[str, Any]]:
        """Whether it is new, the task, and its receipt."""
        queue = self.queue(document["queue_id"])
        submission = read_submission(document, self.policy)
        record = self.records.get((operation, key))
        if record is not None:
            if record.digest != submission.digest:
                raise Refused(
                    "IDEMPOTENCY_CONFLICT",
                    409,
                    "the idempotency key was used with other content",
                    field="Idempotency-Key",
                    task_id=record.task_id,
                )
            return False, self.tasks[record.task_id], {**record.receipt, "deduplicated": True}
        self._check_room(queue)
        task = self._insert(queue, submission)
        receipt = {
            "task_id": task.task_id,
            "queue_id": task.queue_id,
            "revision": "1",
            "created_at": instant(task.created_at),
            "deduplicated": False,
        }
        self.records[operation, key] = Record(submission.digest, task.task_id, receipt)
        return True, task, receipt

    def _check_room(self, queue: QueueRow) -> None:
        unfinished = sum(task.state not in ENDS for task in self.tasks.values() if task.queue_id == queue.queue_id)
        if queue.max_unfinished is not None and unfinished >= queue.max_unfinished:
            message = "queue unfinished task limit reached; retry later using the original identity"
            raise Refused("QUEUE_FULL", 429, message, field="queue_id")

    def _insert(self, queue: QueueRow, submission: Submission) -> TaskRow:
        now = self.now_us()
        parent = self._parent(submission.document)
        available_at = max(now, submission.available_at_us or now + submission.delay_ms * 1000)
        deadline_at = None if submission.expires_in_ms is None else now + submission.expires_in_ms * 1000
        if deadline_at is not None and deadline_at <= available_at:
            raise invalid("expires_in_ms", "must lie after the earliest start")
        task = TaskRow(
            number=len(self.tasks) + 1,
            task_id=secrets.token_hex(16),
            submission=submission,
            priority=self._priority(queue, submission, parent),
            created_at=now,
            available_at=available_at,
            deadline_at=deadline_at,
            max_attempts=submission.retry["max_attempts"],
            state=TaskState.SCHEDULED if available_at > now else TaskState.READY,
            updated_at=now,
        )
        self.tasks[task.task_id] = task
        self.tell(task, "ACCEPTED")
        return task

    def _parent(self, document: dict[str, Any]) -> TaskRow | None:
        if "parent_task_id" not in document:
            return None
        parent = self.tasks.get(document["parent_task_id"])
        running = parent is not None and parent.state is TaskState.RUNNING
        if parent is None or not running or document["parent_fencing_token"] != str(parent.attempts):
            raise Refused(
                "FAILED_PRECONDITION", 409, "the parent's token is not its current one", field="parent_task_id"
            )
        return parent

    def _priority(self, queue: QueueRow, submission: Submission, parent: TaskRow | None) -> int:
        if submission.priority is not None:
            return submission.priority
        if parent is not None:
            return parent.priority
        if self.policy is Policy.AGED:
            return 0
        return self.default_priority if queue.default_priority is None else queue.default_priority

    # -- Moving

    def task(self, task_id: str) -> TaskRow:
        self.let_time_pass()
        task = self.tasks.get(task_id)
        if task is None:
            raise Refused("NOT_FOUND", 404, "no such object")
        return task

    def move(self, task: TaskRow, state: TaskState, event: str) -> None:
        task.state = state
        task.revision += 1
        task.updated_at = self.now_us()
        task.finished_at = task.updated_at if state in ENDS else None
        self.tell(task, event)

    def tell(self, task: TaskRow, event: str) -> None:
        self.events.append(
            {
                "cursor": f"{len(self.events) + 1:08}",
                "type": event,
                "task_id": task.task_id,
                "queue_id": task.queue_id,
                "revision": str(task.revision),
                "state": str(task.state),
                "created_at": instant(self.now_us()),
                "data": {},
            }
        )

    def let_time_pass(self) -> None:
        """What maintenance does: due tasks become READY, passed deadlines expire what has not started."""
        now = self.now_us()
        for task in self.tasks.values():
            if task.state is TaskState.SCHEDULED and task.available_at <= now:
                task.state = TaskState.READY
            if task.state in _NOT_STARTED and task.deadline_at is not None and task.deadline_at <= now:
                self.move(task, TaskState.EXPIRED, "EXPIRED")

    def check_revision(self, task: TaskRow, revision: str) -> None:
        if revision != str(task.revision):
            message = "the object changed since the revision that was seen"
            raise Refused(
                "REVISION_CONFLICT", 409, message, field="revision", reason=message, current=str(task.revision)
            )

    def cancel(self, task_id: str, revision: str) -> TaskRow:
        task = self.task(task_id)
        if task.state is TaskState.CANCELED or task.cancel_requested:
            return task
        if task.state is TaskState.UNKNOWN or task.state in ENDS:
            raise Refused("FAILED_PRECONDITION", 409, f"the task is {task.state}")
        self.check_revision(task, revision)
        if task.state is TaskState.RUNNING:
            task.cancel_requested = True
            self.move(task, TaskState.RUNNING, "CANCEL_REQUESTED")
        else:
            self.move(task, TaskState.CANCELED, "CANCELED")
        return task

    def reconcile(self, task_id: str, document: dict[str, Any]) -> TaskRow:
        task = self.task(task_id)
        if task.state is not TaskState.UNKNOWN:
            raise Refused("FAILED_PRECONDITION", 409, f"the task is {task.state}")
        self.check_revision(task, document["revision"])
        if document["decision"] == "RETRY":
            task.max_attempts = max(task.max_attempts, task.attempts + 1)
            self.move(task, TaskState.READY, "RECONCILED")
            return task
        task.result, task.error = document.get("result"), document.get("error")
        self.move(task, TaskState(document["decision"]), "RECONCILED")
        return task

    def dismiss(self, task_id: str, revision: str) -> TaskRow:
        task = self.task(task_id)
        if not self.is_dead(task):
            raise Refused("FAILED_PRECONDITION", 409, "the task is not a dead letter")
        self.check_revision(task, revision)
        task.dismissed = True
        self.move(task, task.state, "DISMISSED")
        return task

    def is_dead(self, task: TaskRow) -> bool:
        return task.state is TaskState.FAILED and task.replayed_as is None and not task.dismissed

    def replay(self, key: str, task_id: str, document: dict[str, Any]) -> tuple[bool, TaskRow, dict[str, Any]]:
        source = self.task(task_id)
        record = self.records.get(("task.replay", key))
        if record is None:
            if source.state not in _REPLAYABLE:
                raise Refused("FAILED_PRECONDITION", 409, f"the task is {source.state}")
            if source.replayed_as is not None:
                raise Refused("ALREADY_EXISTS", 409, "it was replayed already", task_id=source.replayed_as)
        again = {
            **{
                name: value
                for name, value in source.submission.document.items()
                if name not in ("available_at", "delay_ms", "parent_task_id", "parent_fencing_token")
            },
            "priority": source.priority,
            **document,
        }
        new, task, receipt = self.accept("task.replay", key, again)
        if new:
            task.replayed_from = source.task_id
            source.replayed_as = task.task_id
            self.move(source, source.state, "REPLAYED")
        return new, task, receipt
