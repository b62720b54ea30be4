"""Functions as tasks: define with `@app.task`, send with `.delay`, run with `app.run_worker()`."""

from orbit_sdk.app.app import App
from orbit_sdk.app.config import Config, Priority, QueueConfig
from orbit_sdk.app.handles import (
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    TaskHandle,
    TaskNotSucceeded,
    TaskOutcomeUnknown,
)
from orbit_sdk.app.tasks import AppTask

__all__ = [
    "App",
    "AppTask",
    "Config",
    "Priority",
    "QueueConfig",
    "TaskCanceled",
    "TaskExpired",
    "TaskFailed",
    "TaskHandle",
    "TaskNotSucceeded",
    "TaskOutcomeUnknown",
]
