"""The words of Orbit as enums of strings. One mirror of the server's tables; a test compares them."""

from enum import StrEnum


class TaskState(StrEnum):
    SCHEDULED = "SCHEDULED"
    READY = "READY"
    RESERVED = "RESERVED"
    RUNNING = "RUNNING"
    UNKNOWN = "UNKNOWN"  # the outcome cannot be known; an operator reconciles it. Not an end
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"


ENDS = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELED, TaskState.EXPIRED})


class EventType(StrEnum):
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


class Policy(StrEnum):
    AGED = "AGED"
    STRICT = "STRICT"


class RetryMode(StrEnum):
    NEVER = "NEVER"
    SAFE = "SAFE"


class RetryPriority(StrEnum):
    KEEP = "KEEP"
    LOWER = "LOWER"


class BatchStatus(StrEnum):
    """What became of one item of a batch."""

    ACCEPTED = "ACCEPTED"  # committed; or the original receipt of this key
    REJECTED = "REJECTED"  # refused; this request added nothing
    UNKNOWN = "UNKNOWN"  # the commit's outcome could not be learned: same key, same content, later
    NOT_ATTEMPTED = "NOT_ATTEMPTED"  # not tried in this request: same key, same content, later


class Decision(StrEnum):
    """How an operator settles an UNKNOWN task."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    RETRY = "RETRY"


class OperationState(StrEnum):
    RESERVED = "RESERVED"
    SUBMITTING = "SUBMITTING"
    SUBMITTED = "SUBMITTED"
    UNKNOWN = "UNKNOWN"
    DELETE_PENDING = "DELETE_PENDING"
    DELETED = "DELETED"


class OperationDecision(StrEnum):
    """How an operator settles an operation intent (design 4.8)."""

    SUBMITTED = "SUBMITTED"
    NOT_SUBMITTED = "NOT_SUBMITTED"
    LOOKUP = "LOOKUP"
    DELETED = "DELETED"
    REASSIGN = "REASSIGN"
