"""What a sent task is to its sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from orbit_sdk.errors import OrbitError, RevisionConflict
from orbit_sdk.models.tasks import Accepted, Task
from orbit_sdk.states import TaskState

if TYPE_CHECKING:
    from orbit_sdk.app.app import App

R = TypeVar("R")


class TaskNotSucceeded(OrbitError):
    """The task will not give its result. `task` is its last state."""

    def __init__(self, task: Task, words: str) -> None:
        self.task = task
        super().__init__(f"task {task.task_id} ({task.handler}) {words}")


class TaskFailed(TaskNotSucceeded):
    """The handler failed for good. `code`, `message` and `details` are its words."""

    def __init__(self, task: Task) -> None:
        self.code = task.error.code if task.error else ""
        self.message = task.error.message if task.error else ""
        self.details = task.error.details if task.error else None
        super().__init__(task, f"failed: {self.code}: {self.message}")


class TaskCanceled(TaskNotSucceeded):
    """Somebody cancelled it."""


class TaskExpired(TaskNotSucceeded):
    """Its deadline passed."""


class TaskOutcomeUnknown(TaskNotSucceeded):
    """Nobody knows whether it took effect.

    It is not over: an operator reconciles it, and then `get` gives the result.
    """


_ENDS = {
    TaskState.CANCELED: (TaskCanceled, "was cancelled"),
    TaskState.EXPIRED: (TaskExpired, "passed its deadline"),
    TaskState.UNKNOWN: (TaskOutcomeUnknown, "has an unknown outcome and waits for a reconciliation"),
}


class TaskHandle(Generic[R]):
    """One accepted task."""

    def __init__(self, app: App, accepted: Accepted) -> None:
        self._app = app
        self.accepted = accepted

    def __repr__(self) -> str:
        return f"<TaskHandle {self.task_id}>"

    @property
    def task_id(self) -> str:
        return self.accepted.task_id

    @property
    def deduplicated(self) -> bool:
        """Whether the key had been accepted before, so that this is that earlier task."""
        return self.accepted.deduplicated

    def task(self) -> Task:
        """The task as it is now."""
        return self._app.client.get_task(self.task_id)

    @property
    def state(self) -> TaskState:
        return self.task().state

    def get(self, timeout: float | None = None) -> R:
        """Wait for the result, at most `timeout` seconds.

        Raises WaitTimeout, TaskFailed, TaskCanceled, TaskExpired or TaskOutcomeUnknown.
        """
        task = self._app.client.wait_task(self.task_id, timeout=timeout)
        if task.state is TaskState.SUCCEEDED:
            return cast(R, task.result)
        if task.state in _ENDS:
            kind, words = _ENDS[task.state]
            raise kind(task, words)
        raise TaskFailed(task)

    def cancel(self, reason: str | None = None) -> Task:
        """Cancel the task whatever happened to it meanwhile; a running one is asked to stop.

        Raises FailedPrecondition if it ended otherwise or its outcome is unknown.
        """
        while True:
            task = self.task()
            try:
                return self._app.client.cancel_task(task.task_id, task.revision, reason=reason)
            except RevisionConflict:
                continue  # it moved between the look and the cancel: look again
