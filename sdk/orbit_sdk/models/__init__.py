"""Values that go to Orbit and come back from it: frozen dataclasses, nothing else."""

from orbit_sdk.models.batches import BatchItem, BatchItemResult, BatchResult
from orbit_sdk.models.events import Event, EventPage
from orbit_sdk.models.operations import Operation, Reconciliation
from orbit_sdk.models.plans import Firing, Plan, PlanVersion
from orbit_sdk.models.queues import Queue, QueueStats, StartRate
from orbit_sdk.models.tasks import (
    Accepted,
    Receipt,
    RetryPolicy,
    SubmitTask,
    Task,
    TaskError,
    TaskSummary,
    Waiting,
)

__all__ = [
    "Accepted",
    "BatchItem",
    "BatchItemResult",
    "BatchResult",
    "Event",
    "EventPage",
    "Firing",
    "Operation",
    "Plan",
    "PlanVersion",
    "Queue",
    "QueueStats",
    "Receipt",
    "Reconciliation",
    "RetryPolicy",
    "StartRate",
    "SubmitTask",
    "Task",
    "TaskError",
    "TaskSummary",
    "Waiting",
]
