"""Plans: schedules that submit tasks by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orbit_sdk.errors import UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.instants import parse_instant


@dataclass(frozen=True)
class Plan:
    """A plan; `definition` is the document of its active version, as in the API."""

    plan_id: str
    name: str
    active_version: int
    versions: int
    definition: Mapping[str, Any]
    paused: bool
    revision: str
    next_fire_times: tuple[datetime, ...]
    created_at: datetime
    note: str | None = None
    last_fired_at: datetime | None = None
    missed: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, fields: Fields) -> Plan:
        try:
            times = tuple(parse_instant(text) for text in fields.array("next_fire_times"))
        except (TypeError, ValueError):
            raise UnverifiableResponse("next_fire_times must be times") from None
        return cls(
            plan_id=fields.id("plan_id"),
            name=fields.text("name"),
            active_version=fields.integer("active_version"),
            versions=fields.integer("versions"),
            definition=fields.object("definition").raw,
            paused=fields.boolean("paused"),
            note=fields.optional("note", fields.text),
            revision=fields.revision("revision"),
            next_fire_times=times,
            last_fired_at=fields.optional("last_fired_at", fields.instant),
            missed=fields.optional("missed", fields.integer) or 0,
            created_at=fields.instant("created_at"),
            raw=fields.raw,
        )


@dataclass(frozen=True)
class PlanVersion:
    """One immutable version of a plan."""

    version: int
    definition: Mapping[str, Any]
    created_at: datetime
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, fields: Fields) -> PlanVersion:
        return cls(
            version=fields.integer("version"),
            definition=fields.object("definition").raw,
            created_at=fields.instant("created_at"),
            raw=fields.raw,
        )


@dataclass(frozen=True)
class Firing:
    """One firing: `status` is ACCEPTED, REFUSED, SKIPPED or MISSED."""

    fire_time: datetime
    status: str
    version: int | None = None
    task_id: str | None = None
    error: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, fields: Fields) -> Firing:
        return cls(
            fire_time=fields.instant("fire_time"),
            status=fields.text("status"),
            version=fields.optional("version", fields.integer),
            task_id=fields.optional("task_id", fields.id),
            error=fields.object("error").raw if fields.has("error") else None,
            raw=fields.raw,
        )
