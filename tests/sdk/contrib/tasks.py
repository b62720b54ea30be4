"""Tasks of a Django project, as `@task` makes them on the Orbit backend (TASKS["default"] of the tests)."""

from __future__ import annotations

from typing import Any

from django_tasks import TaskContext, task


class Broken(Exception):
    """Raised by a task."""


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(priority=57, queue_name="email")
def send(to: str) -> str:
    return to


@task
async def wait(n: int) -> int:
    return n


@task(takes_context=True)
def with_context(context: TaskContext, n: int) -> list[Any]:
    return [context.attempt, context.task_result.id, context.task_result.status, n]


@task
def fail() -> None:
    raise Broken("on purpose")


@task(retry=3)
def flaky() -> None:
    raise Broken("again and again")
