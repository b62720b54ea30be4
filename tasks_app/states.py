"""The states of a task: the enum, its groups and the one table of allowed moves (design 3.1).

Only `domain/transitions.py` changes a task's state; nobody else spells a state as a string.
"""

from __future__ import annotations

from django.db import models


class TaskState(models.TextChoices):
    """Who enters a state and who leaves it."""

    SCHEDULED = "SCHEDULED", "Scheduled"  # in: accept (not due), retry with back-off. out: due, cancel, deadline
    READY = "READY", "Ready"  # in: accept (due), due, give back, yield, reconcile. out: claim, cancel, deadline
    RESERVED = "RESERVED", "Reserved"  # in: claim. out: start, give back, cancel, deadline
    RUNNING = "RUNNING", "Running"  # in: start. out: finish, lease end
    UNKNOWN = "UNKNOWN", "Unknown"  # in: lease end of work that is not safe to repeat. out: reconcile
    SUCCEEDED = "SUCCEEDED", "Succeeded"
    FAILED = "FAILED", "Failed"
    CANCELED = "CANCELED", "Canceled"
    EXPIRED = "EXPIRED", "Expired"


S = TaskState
ENDS = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELED, S.EXPIRED})
UNFINISHED = frozenset(set(S) - ENDS)
WAITING = frozenset({S.SCHEDULED, S.READY})
NOT_STARTED = frozenset({S.SCHEDULED, S.READY, S.RESERVED})
LEASED = frozenset({S.RESERVED, S.RUNNING})  # hold a lease and the running permits
HOLDS_RESOURCE_KEY = frozenset({S.RESERVED, S.RUNNING, S.UNKNOWN})
REPLAYABLE = frozenset({S.FAILED, S.EXPIRED, S.CANCELED})

MOVES: dict[TaskState, frozenset[TaskState]] = {
    S.SCHEDULED: frozenset({S.READY, S.CANCELED, S.EXPIRED}),
    S.READY: frozenset({S.RESERVED, S.CANCELED, S.EXPIRED}),
    S.RESERVED: frozenset({S.READY, S.RUNNING, S.CANCELED, S.EXPIRED}),
    S.RUNNING: frozenset({S.SCHEDULED, S.READY, S.UNKNOWN, S.SUCCEEDED, S.FAILED, S.CANCELED, S.EXPIRED}),
    S.UNKNOWN: frozenset({S.SUCCEEDED, S.FAILED, S.READY}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELED: frozenset(),
    S.EXPIRED: frozenset(),
}
assert set(MOVES) == set(S)
assert all(not MOVES[end] for end in ENDS)


def is_move(before: TaskState, after: TaskState) -> bool:
    return after in MOVES[before]


class Lane(models.IntegerChoices):
    """Where a READY task stands in the claim index. Claims read OPEN and KEYED only (docs/decisions/claim-index.md)."""

    OPEN = 0, "open"  # no resource key
    KEYED = 1, "open, with a resource key that has a free permit"
    HELD = 2, "held: its resource key has no free permit"
    YIELDED = 3, "yielded: to be seen again at `visible_at`"


class AttemptState(models.TextChoices):
    """An attempt is a start; a reservation that never started leaves no attempt."""

    RUNNING = "RUNNING", "Running"
    SUCCEEDED = "SUCCEEDED", "Succeeded"
    FAILED = "FAILED", "Failed"
    CANCELED = "CANCELED", "Canceled"
    LOST = "LOST", "Lost"  # its lease ended without a report


class EventType(models.TextChoices):
    ACCEPTED = "ACCEPTED"
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    YIELDED = "YIELDED"
    RETRY_SCHEDULED = "RETRY_SCHEDULED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"
    UNKNOWN = "UNKNOWN"
    RECONCILED = "RECONCILED"
    REPLAYED = "REPLAYED"
    DISMISSED = "DISMISSED"


class Policy(models.TextChoices):
    AGED = "AGED", "Aged"
    STRICT = "STRICT", "Strict"


class RetryMode(models.TextChoices):
    NEVER = "NEVER", "Never"
    SAFE = "SAFE", "Safe"


class RetryPriority(models.TextChoices):
    KEEP = "KEEP", "Keep"
    LOWER = "LOWER", "Lower"


class Action(models.TextChoices):
    """What a credential may do (1.1)."""

    TASKS_SUBMIT = "tasks:submit"
    TASKS_READ = "tasks:read"
    TASKS_CANCEL = "tasks:cancel"
    TASKS_RECONCILE = "tasks:reconcile"
    TASKS_REPLAY = "tasks:replay"
    QUEUES_READ = "queues:read"
    QUEUES_MANAGE = "queues:manage"
    PLANS_READ = "plans:read"
    PLANS_MANAGE = "plans:manage"
    OPERATIONS_READ = "operations:read"
    OPERATIONS_WRITE = "operations:write"
    WORKERS_CONNECT = "workers:connect"
    WORKERS_CONSUME = "workers:consume"
    NODES_CONNECT = "nodes:connect"
