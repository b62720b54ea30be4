"""A `TASKS` backend on Orbit.

    TASKS = {
        "default": {
            "BACKEND": "orbit_sdk.contrib.django.backend.OrbitBackend",
            "QUEUES": ["default", "email"],            # names of Orbit queues
            "OPTIONS": {
                "CREDENTIALS_FILE": "/etc/orbit.json",  # default: the environment (ORBIT_URL, ORBIT_CREDENTIALS_FILE)
                "URL": "https://orbit.example",         # default: the file's
                "POLICY": "STRICT",                     # default: the file's, else AGED
                "SUBMIT_SECONDS": 30,                   # how long an unknown outcome is repeated under its key
            },
        }
    }

Priorities run from −100 to 100, higher first. In a STRICT namespace they become −9 to 9, in an AGED one 0 to 9 (what is
below 0 becomes 0): `round(priority × 9 / 100)`, so that eleven neighbours share a level and 0 stays 0.

Orbit's states become READY (SCHEDULED, READY, RESERVED), RUNNING (RUNNING, and UNKNOWN: it is no end), SUCCESSFUL,
FAILED (FAILED, CANCELED, EXPIRED). The real one stands in `result.metadata["orbit_state"]`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar

from django.core import checks
from django.utils import timezone
from django.utils.module_loading import import_string

from orbit_sdk.client import OrbitClient
from orbit_sdk.contrib.django.compat import (
    BaseTaskBackend,
    InvalidTaskError,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from orbit_sdk.credentials import Credentials, is_id
from orbit_sdk.errors import ConfigError, InvalidRequest, NotFound
from orbit_sdk.limits import AGED_PRIORITY_MAX, HORIZON_MS_MAX
from orbit_sdk.models.tasks import RetryPolicy, SubmitTask
from orbit_sdk.models.tasks import Task as OrbitTaskRow
from orbit_sdk.states import EventType, Policy, TaskState
from orbit_sdk.wire import check_key

VERSION = "v1"
_STATUS = {
    TaskState.SCHEDULED: TaskResultStatus.READY,
    TaskState.READY: TaskResultStatus.READY,
    TaskState.RESERVED: TaskResultStatus.READY,
    TaskState.RUNNING: TaskResultStatus.RUNNING,
    TaskState.UNKNOWN: TaskResultStatus.RUNNING,
    TaskState.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    TaskState.FAILED: TaskResultStatus.FAILED,
    TaskState.CANCELED: TaskResultStatus.FAILED,
    TaskState.EXPIRED: TaskResultStatus.FAILED,
}


_REFRESHED = (
    "status",
    "enqueued_at",
    "started_at",
    "last_attempted_at",
    "finished_at",
    "errors",
    "worker_ids",
    "metadata",
    "_return_value",
)


class OrbitTaskFailed(Exception):
    """The task failed in a way that has no exception of the project's: its worker was lost, its payload did not fit."""


class OrbitTaskCanceled(Exception):
    """The task was cancelled."""


class OrbitTaskExpired(Exception):
    """The task's deadline passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrbitTask(Task):
    """A task with what only Orbit knows.

    `key` is the idempotency key of the next enqueue (`task.using(key="order-1").enqueue(…)`); without one each enqueue
    is a new task. `retry` is the number of attempts of work that is safe to repeat; `resource_key` names what only so
    many tasks may hold at once.
    """

    key: str | None = None
    retry: int | None = None
    resource_key: str | None = None

    def using(
        self, *, key: str | None = None, retry: int | None = None, resource_key: str | None = None, **changes: Any
    ) -> Any:
        """A copy with other values; those of Orbit beside those of every backend."""
        # Not `super()`: a dataclass with slots is not the class that this function was written in.
        changed = Task.using(self, **changes)
        own = {"key": key, "retry": retry, "resource_key": resource_key}
        return replace(changed, **{name: value for name, value in own.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class OrbitTaskResult(TaskResult):
    """A result that shows Orbit's own state of the task: `metadata["orbit_state"]`, `["priority"]`, `["revision"]`."""

    metadata: dict[str, Any] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the task again."""
        self._take_over(self.task.get_backend().get_result(self.id))

    async def arefresh(self) -> None:
        self._take_over(await self.task.get_backend().aget_result(self.id))

    def _take_over(self, fresh: Any) -> None:
        for name in _REFRESHED:
            _set(self, name, getattr(fresh, name))


class OrbitBackend(BaseTaskBackend):
    """See the module."""

    task_class = OrbitTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    # Backends are made per thread; the functions that were made tasks belong to the process.
    known_tasks: ClassVar[dict[tuple[str, str], Any]] = {}

    # -- Set-up

    @cached_property
    def client(self) -> OrbitClient:
        """Raises ConfigError if neither the options nor the environment say where Orbit is."""
        if "CLIENT" in self.options:
            client: OrbitClient = self.options["CLIENT"]
            return client
        path = self.options.get("CREDENTIALS_FILE")
        if path is None:
            return OrbitClient.from_credentials(Credentials.from_env())
        return OrbitClient.from_credentials_file(path, url=self.options.get("URL"))

    @property
    def policy(self) -> Policy:
        return Policy(self.options.get("POLICY") or self.client.credentials.policy or Policy.AGED)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        try:
            credentials = self.client.credentials
            for queue in sorted(self.queues):
                credentials.queue_id(queue)
        except (ConfigError, InvalidRequest) as error:
            yield checks.Error(f"TASKS[{self.alias!r}]: {error}", id="orbit_sdk.E001")

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        if task.run_after is not None:
            ahead = task.run_after - timezone.now() if timezone.is_aware(task.run_after) else timedelta(0)
            if ahead > timedelta(milliseconds=HORIZON_MS_MAX):
                raise InvalidTaskError("run_after must be at most 31 days ahead.")
        if getattr(task, "key", None) is not None:
            try:
                check_key(task.key)
            except InvalidRequest as error:
                raise InvalidTaskError(str(error)) from None
        self.known_tasks.setdefault((self.alias, task.module_path), task)

    # -- Enqueueing

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Hand the task over at once, whatever transaction is open: for one that belongs to it, use the outbox."""
        self.validate_task(task)
        result = self._result(task, task_id="", args=list(args), kwargs=dict(kwargs), metadata={})
        request = SubmitTask(
            queue=task.queue_name,
            handler=task.module_path,
            handler_version=VERSION,
            payload={"args": result.args, "kwargs": result.kwargs, "priority": task.priority},
            priority=orbit_priority(task.priority, self.policy),
            available_at=self._aware(task.run_after),
            retry=None if task.retry is None else RetryPolicy.safe(task.retry),
            resource_key=task.resource_key,
        )
        accepted = self.client.submit_task_until_known(
            task.key or f"django:{secrets.token_hex(16)}",
            request,
            deadline=float(self.options.get("SUBMIT_SECONDS", 30)),
        )
        _set(result, "id", accepted.task_id)
        _set(result, "enqueued_at", accepted.receipt.created_at)
        if accepted.task is not None:
            _set(result, "status", _STATUS[accepted.task.state])
            result.metadata.update(_metadata(accepted.task))
        task_enqueued.send(type(self), task_result=result)
        return result

    def _aware(self, moment: Any) -> Any:
        """Without USE_TZ a project's datetimes are in its own zone."""
        return moment if moment is None or timezone.is_aware(moment) else timezone.make_aware(moment)

    # -- Results

    def get_result(self, result_id: str) -> Any:
        """Raises TaskResultDoesNotExist for an id that is none, is not known, or is not a task of this project."""
        if not is_id(result_id):
            raise TaskResultDoesNotExist(result_id)
        try:
            row = self.client.get_task(result_id)
        except NotFound:
            raise TaskResultDoesNotExist(result_id) from None
        task = self._task_of(row)
        payload = row.payload
        result = self._result(
            task, task_id=row.task_id, args=payload["args"], kwargs=payload["kwargs"], metadata=_metadata(row)
        )
        _set(result, "status", _STATUS[row.state])
        _set(result, "enqueued_at", row.created_at)
        _set(result, "finished_at", row.finished_at)
        result.worker_ids.extend(f"attempt-{number}" for number in range(1, row.attempts + 1))
        if row.attempts:
            starts = [
                event.created_at
                for event in self.client.task_events(row.task_id, page_size=200)
                if event.type is EventType.STARTED
            ]
            _set(result, "started_at", min(starts, default=None))
            _set(result, "last_attempted_at", max(starts, default=None))
        if row.state is TaskState.SUCCEEDED:
            _set(result, "_return_value", row.result)
        elif _STATUS[row.state] is TaskResultStatus.FAILED:
            result.errors.append(_error(row))
        return result

    def _task_of(self, row: OrbitTaskRow) -> Any:
        shaped = isinstance(row.payload, dict) and row.payload.keys() == {"args", "kwargs", "priority"}
        try:
            found = import_string(row.handler) if shaped else None
        except ImportError:
            found = None
        if not isinstance(found, Task):
            raise TaskResultDoesNotExist(f"{row.task_id} is not a task of this project: {row.handler}")
        queue_name = self.client.credentials.queue_name(row.queue_id)
        return found.using(priority=row.payload["priority"], queue_name=queue_name, backend=self.alias)

    def _result(
        self, task: Any, *, task_id: str, args: list[Any], kwargs: dict[str, Any], metadata: dict[str, Any]
    ) -> OrbitTaskResult:
        return OrbitTaskResult(
            task=task,
            id=task_id,
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
            metadata=metadata,
        )


def orbit_priority(priority: int, policy: Policy) -> int:
    """−100 to 100 as −9 to 9 (STRICT) or 0 to 9 (AGED); larger stays more urgent, or as urgent."""
    level = round(priority * AGED_PRIORITY_MAX / 100)
    return level if policy is Policy.STRICT else max(0, level)


def _set(result: Any, name: str, value: Any) -> None:
    """Results are frozen for everybody but their backend; this is how the reference backends fill them."""
    object.__setattr__(result, name, value)


def _metadata(row: OrbitTaskRow) -> dict[str, Any]:
    return {"orbit_state": str(row.state), "priority": row.priority, "revision": row.revision}


def _error(row: OrbitTaskRow) -> Any:
    details = row.error.details if row.error is not None and isinstance(row.error.details, dict) else {}
    words = f"{row.error.code}: {row.error.message}" if row.error is not None else str(row.state)
    if row.state is TaskState.CANCELED:
        return TaskError(exception_class_path=_path(OrbitTaskCanceled), traceback=words)
    if row.state is TaskState.EXPIRED:
        return TaskError(exception_class_path=_path(OrbitTaskExpired), traceback=words)
    path = details.get("exception_class")
    return TaskError(
        exception_class_path=path if isinstance(path, str) else _path(OrbitTaskFailed),
        traceback=str(details.get("traceback", words)),
    )


def _path(kind: type[Exception]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
