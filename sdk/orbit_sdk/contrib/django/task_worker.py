"""A worker for the tasks of a `TASKS` backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import close_old_connections
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules

from orbit_sdk.contrib.django.backend import VERSION, OrbitBackend
from orbit_sdk.contrib.django.compat import (
    TaskContext,
    TaskError,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)
from orbit_sdk.errors import ConfigError
from orbit_sdk.worker.context import Context
from orbit_sdk.worker.handlers import Handlers
from orbit_sdk.worker.outcomes import Fail, HandlerExit, cut_traceback
from orbit_sdk.worker.worker import Worker


def discover(alias: str) -> dict[str, Any]:
    """Module path -> task, of every `tasks` module of the installed apps.

    Raises ConfigError if it is no backend of ours.
    """
    backend = task_backends[alias]
    if not isinstance(backend, OrbitBackend):
        raise ConfigError(f"TASKS[{alias!r}] is not an OrbitBackend")
    autodiscover_modules("tasks")
    return {path: task for (known, path), task in backend.known_tasks.items() if known == alias}


def register(handlers: Handlers, alias: str) -> None:
    """Give `handlers` every task of a backend."""
    for path, task in discover(alias).items():
        handlers.add(_handler(task, alias), name=path, version=VERSION)


def task_worker(alias: str = "default", **options: Any) -> Worker:
    """A worker for the tasks and queues of a backend; options as for `Worker`. Raises ConfigError."""
    backend = task_backends[alias]
    if not isinstance(backend, OrbitBackend):
        raise ConfigError(f"TASKS[{alias!r}] is not an OrbitBackend")
    worker = Worker.from_credentials(backend.client.credentials, queues=sorted(backend.queues), **options)
    register(worker.handlers, alias)
    return worker


def _handler(task: Any, alias: str) -> Callable[[Context, Any], Any]:
    """A task's function as a handler: in a thread, with the database connections and signals that Django expects."""

    def run(ctx: Context, payload: Any) -> Any:
        if not isinstance(payload, dict) or payload.keys() != {"args", "kwargs", "priority"}:
            raise Fail("INVALID_PAYLOAD", 'the payload must be {"args": […], "kwargs": {…}, "priority": …}')
        backend: OrbitBackend = task_backends[alias]
        result = _running(task, backend, ctx, payload)
        with _connections():
            task_started.send(sender=type(backend), task_result=result)
            try:
                context = [TaskContext(task_result=result)] if task.takes_context else []
                value = task.call(*context, *payload["args"], **payload["kwargs"])
            except HandlerExit:
                raise
            except Exception as error:
                path = f"{type(error).__module__}.{type(error).__qualname__}"
                trace = cut_traceback(error)
                result.errors.append(TaskError(exception_class_path=path, traceback=trace))
                _end(result, TaskResultStatus.FAILED)
                task_finished.send(type(backend), task_result=result)
                details = {"exception_class": path, "traceback": trace}
                raise Fail(type(error).__name__, str(error), details=details, retryable=True) from error
            object.__setattr__(result, "_return_value", value)
            _end(result, TaskResultStatus.SUCCESSFUL)
            task_finished.send(type(backend), task_result=result)
            return value

    return run


def _running(task: Any, backend: OrbitBackend, ctx: Context, payload: dict[str, Any]) -> Any:
    changed = task.using(
        priority=payload["priority"], queue_name=backend.client.credentials.queue_name(ctx.task.queue_id)
    )
    result = backend._result(
        changed,
        task_id=ctx.task.task_id,
        args=payload["args"],
        kwargs=payload["kwargs"],
        metadata={"orbit_state": "RUNNING", "priority": ctx.priority},
    )
    object.__setattr__(result, "status", TaskResultStatus.RUNNING)
    object.__setattr__(result, "started_at", timezone.now())
    object.__setattr__(result, "last_attempted_at", result.started_at)
    result.worker_ids.extend(f"attempt-{number}" for number in range(1, ctx.attempt + 1))
    return result


def _end(result: Any, status: Any) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())


@contextmanager
def _connections() -> Iterator[None]:
    """A long-lived thread must not go on with a connection that the server gave up."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
