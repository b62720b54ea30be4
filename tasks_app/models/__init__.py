"""Rows, constraints and states of tasks_app."""

from tasks_app.models.nodes import Node, NodeState
from tasks_app.models.plans import FiringStatus, Plan, PlanFiring, PlanVersion
from tasks_app.models.records import ActorKind, AuditEntry, Event, EventHead, IdempotencyRecord, Operation
from tasks_app.models.tasks import Attempt, Task
from tasks_app.models.tenancy import (
    Application,
    Credential,
    CredentialQueue,
    Handler,
    Namespace,
    Queue,
    ResourceKey,
)

__all__ = [
    "ActorKind",
    "Application",
    "Attempt",
    "AuditEntry",
    "Credential",
    "CredentialQueue",
    "Event",
    "EventHead",
    "FiringStatus",
    "Handler",
    "IdempotencyRecord",
    "Namespace",
    "Node",
    "NodeState",
    "Operation",
    "Plan",
    "PlanFiring",
    "PlanVersion",
    "Queue",
    "ResourceKey",
    "Task",
]
