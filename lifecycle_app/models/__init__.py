"""Rows, constraints and states of lifecycle_app."""

from lifecycle_app.models.intents import Delivery, LifecycleTask, OperationIntent
from lifecycle_app.models.records import (
    Favorite,
    Notification,
    NotificationStatus,
    RecoveryRun,
    ReportReceipt,
    UsageEntry,
    WeeklyUsage,
)
from lifecycle_app.models.storage_nodes import StorageNode

__all__ = [
    "Delivery",
    "Favorite",
    "LifecycleTask",
    "Notification",
    "NotificationStatus",
    "OperationIntent",
    "RecoveryRun",
    "ReportReceipt",
    "StorageNode",
    "UsageEntry",
    "WeeklyUsage",
]
