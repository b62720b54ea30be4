"""`django.tasks` where Django has it (6.0 and later), else the backport `django-tasks`.

Two libraries with the same contract and different types, so that to a type checker all of this is Any.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

try:
    _package = "django.tasks"
    _tasks: Any = import_module(_package)
except ModuleNotFoundError:
    _package = "django_tasks"
    _tasks = import_module(_package)

_base: Any = import_module(f"{_package}.base")
_exceptions: Any = import_module(f"{_package}.exceptions")
_signals: Any = import_module(f"{_package}.signals")

BaseTaskBackend: Any = import_module(f"{_package}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
InvalidTaskError: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
task_backends: Any = _tasks.task_backends
task_enqueued: Any = _signals.task_enqueued
task_started: Any = _signals.task_started
task_finished: Any = _signals.task_finished
