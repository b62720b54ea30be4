"""Events: what happened to tasks, in an order that no reader ever misses a part of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orbit_sdk.fields import Fields
from orbit_sdk.states import EventType, TaskState


@dataclass(frozen=True)
class Event:
    """One event. `cursor` identifies it; several events may share a revision."""

    cursor: str
    type: EventType
    task_id: str
    queue_id: str
    revision: str
    state: TaskState
    created_at: datetime
    data: Any = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, fields: Fields) -> Event:
        return cls(
            cursor=fields.text("cursor"),
            type=fields.word("type", EventType),
            task_id=fields.id("task_id"),
            queue_id=fields.id("queue_id"),
            revision=fields.revision("revision"),
            state=fields.word("state", TaskState),
            created_at=fields.instant("created_at"),
            data=fields.raw.get("data"),
            raw=fields.raw,
        )


@dataclass(frozen=True)
class EventPage:
    """A piece of the feed. `next_cursor` is where to go on, also at the end of the feed."""

    items: tuple[Event, ...]
    next_cursor: str
