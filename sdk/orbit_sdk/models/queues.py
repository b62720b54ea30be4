"""Queues, their limits and what stands in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orbit_sdk.errors import UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.models.tasks import Waiting
from orbit_sdk.states import RetryPriority, TaskState


@dataclass(frozen=True)
class StartRate:
    """A budget of `starts`, refilled evenly over `per_ms`."""

    starts: int
    per_ms: int

    @classmethod
    def read(cls, fields: Fields) -> StartRate:
        return cls(fields.integer("starts"), fields.integer("per_ms"))

    def as_json(self) -> dict[str, int]:
        return {"starts": self.starts, "per_ms": self.per_ms}


@dataclass(frozen=True)
class Queue:
    """A queue; limits that are None do not exist."""

    queue_id: str
    name: str
    paused: bool
    revision: str
    created_at: datetime
    updated_at: datetime
    pause_reason: str | None = None
    max_unfinished: int | None = None
    max_running: int | None = None
    start_rate: StartRate | None = None
    weight: int = 1
    default_priority: int | None = None
    retry_priority: RetryPriority = RetryPriority.KEEP
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, fields: Fields) -> Queue:
        return cls(
            queue_id=fields.id("queue_id"),
            name=fields.text("name"),
            paused=fields.boolean("paused"),
            pause_reason=fields.optional("pause_reason", fields.text),
            max_unfinished=fields.optional("max_unfinished", fields.integer),
            max_running=fields.optional("max_running", fields.integer),
            start_rate=StartRate.read(fields.object("start_rate")) if fields.has("start_rate") else None,
            weight=fields.optional("weight", fields.integer) or 1,
            default_priority=fields.optional("default_priority", fields.integer),
            retry_priority=fields.word("retry_priority", RetryPriority)
            if fields.has("retry_priority")
            else RetryPriority.KEEP,
            revision=fields.revision("revision"),
            created_at=fields.instant("created_at"),
            updated_at=fields.instant("updated_at"),
            raw=fields.raw,
        )


@dataclass(frozen=True)
class QueueStats:
    """What stands in a queue. Priorities are integers, the larger the more urgent; waits are milliseconds."""

    counts: Mapping[TaskState, int]
    backlog_by_priority: Mapping[int, int]
    oldest_waiting_ms_by_priority: Mapping[int, int]
    running: int
    reserved: int
    start_budget: Mapping[str, Any] | None
    head_waiting: Waiting | None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, fields: Fields) -> QueueStats:
        counts = fields.object("counts")
        unknown = set(counts.raw) - set(TaskState)
        if unknown:
            raise UnverifiableResponse(f"stats.counts has states that do not exist: {sorted(unknown)}")
        return cls(
            counts={TaskState(state): counts.integer(state) for state in counts.raw},
            backlog_by_priority=_by_priority(fields.object("backlog_by_priority")),
            oldest_waiting_ms_by_priority=_by_priority(fields.object("oldest_waiting_ms_by_priority")),
            running=fields.integer("running"),
            reserved=fields.integer("reserved"),
            start_budget=fields.object("start_budget").raw if fields.has("start_budget") else None,
            head_waiting=Waiting.read(fields.object("head_waiting")) if fields.has("head_waiting") else None,
            raw=fields.raw,
        )


def _by_priority(fields: Fields) -> dict[int, int]:
    """Most urgent first."""
    try:
        pairs = [(int(priority), fields.integer(priority)) for priority in fields.raw]
    except ValueError:
        raise UnverifiableResponse("a priority is not an integer") from None
    return dict(sorted(pairs, reverse=True))
