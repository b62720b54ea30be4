"""The worker: runs tasks that Orbit granted, and tells what became of them."""

from orbit_sdk.worker.context import Context, OfferedTask
from orbit_sdk.worker.outcomes import Cancelled, Fail, HandlerExit, Retry
from orbit_sdk.worker.runtime import WorkerRefused
from orbit_sdk.worker.worker import Worker

__all__ = ["Cancelled", "Context", "Fail", "HandlerExit", "OfferedTask", "Retry", "Worker", "WorkerRefused"]
