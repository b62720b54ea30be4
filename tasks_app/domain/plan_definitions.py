"""What a plan says (design 1.6): read from a document, judged, and read again from its stored text. No I/O.

As with submits, structural faults (members, JSON types) are refused by `read_definition`, everything else is judged by
`definition_fault`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tasks_app.domain.plan_schedule import BadSchedule, Cron, Interval, Misfire, Overlap, Schedule, Timing
from tasks_app.errors import Detail, InvalidArgument, OrbitError
from tasks_app.json_fields import read_object, refusal
from tasks_app.limits import CATCH_UP_LIMIT_DEFAULT, CATCH_UP_LIMIT_MAX
from tasks_app.states import Policy
from tasks_app.strict_json import Node, parse_document
from tasks_app.submission_request import SubmitRequest, read_task, semantic_fault, time_fault

# A plan says when; a parent is a running attempt, which no plan can name.
TASK_MEMBERS_UNKNOWN: Final = ("available_at", "parent_task_id", "parent_fencing_token")


@dataclass(frozen=True, slots=True)
class PlanDefinition:
    """A definition as it was asked for. `raw` is its JSON text exactly as sent; None means omitted."""

    raw: str
    path: str
    cron: str | None
    timezone: str | None
    interval_ms: int | None
    misfire: str
    catch_up_limit: int | None
    overlap: str
    task: SubmitRequest

    def timing(self) -> Timing:
        """The rules of a definition that was judged sound. Raises BadSchedule, ValueError."""
        return Timing(
            schedule=self._schedule(),
            misfire=Misfire(self.misfire),
            overlap=Overlap(self.overlap),
            catch_up_limit=CATCH_UP_LIMIT_DEFAULT if self.catch_up_limit is None else self.catch_up_limit,
        )

    def _schedule(self) -> Schedule:
        if self.interval_ms is not None:
            return Interval(self.interval_ms)
        return Cron(self.cron or "", self.timezone or "")


def read_definition(node: Node) -> PlanDefinition:
    """The definition at `node`. Raises InvalidArgument for structural faults."""
    fields = read_object(node, required=("schedule", "misfire", "overlap", "task"), optional=("catch_up_limit",))
    schedule = read_object(fields.required_node("schedule"), optional=("cron", "timezone", "interval_ms"))
    if schedule.names() not in ({"cron", "timezone"}, {"interval_ms"}):
        raise InvalidArgument.field(fields.path("schedule"), "must have cron and timezone, or interval_ms")
    return PlanDefinition(
        raw=node.raw,
        path=node.path,
        cron=schedule.string("cron"),
        timezone=schedule.string("timezone"),
        interval_ms=schedule.integer("interval_ms"),
        misfire=fields.required_string("misfire"),
        catch_up_limit=fields.integer("catch_up_limit"),
        overlap=fields.required_string("overlap"),
        task=read_task(fields.required_node("task"), without=TASK_MEMBERS_UNKNOWN),
    )


def stored_definition(raw: str) -> PlanDefinition:
    """A definition as it stands in the database; what it is made of was judged when it came."""
    return read_definition(parse_document(raw))


def definition_fault(definition: PlanDefinition, policy: Policy) -> OrbitError | None:
    """What is wrong with the values of a definition in a namespace of that policy."""
    faults = _Faults(definition.path)
    _judge_schedule(definition, faults)
    faults.choice("misfire", definition.misfire, Misfire)
    faults.choice("overlap", definition.overlap, Overlap)
    if definition.catch_up_limit is not None:
        if not 1 <= definition.catch_up_limit <= CATCH_UP_LIMIT_MAX:
            faults.add("catch_up_limit", f"must be 1 to {CATCH_UP_LIMIT_MAX}", minimum=1, maximum=CATCH_UP_LIMIT_MAX)
        elif definition.misfire != Misfire.CATCH_UP.value:
            faults.add("catch_up_limit", "means something with misfire CATCH_UP only")
    if faults.found:
        return refusal(faults.found)
    # Every time in a plan's task is relative: what is wrong with them is wrong at any moment.
    return semantic_fault(definition.task, policy) or time_fault(definition.task, 0)


def _judge_schedule(definition: PlanDefinition, faults: _Faults) -> None:
    if definition.interval_ms is not None:
        faults.schedule("schedule.interval_ms", lambda: Interval(definition.interval_ms or 0))
        return
    # Each with something sound in place of the other, so that both faults are told.
    faults.schedule("schedule.cron", lambda: Cron(definition.cron or "", "UTC"))
    faults.schedule("schedule.timezone", lambda: Cron("* * * * *", definition.timezone or ""))


class _Faults:
    """Collects details, each with its place."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.found: list[Detail] = []

    def add(self, name: str, reason: str, **variables: Any) -> None:
        self.found.append({"field": f"{self._path}.{name}" if self._path else name, "reason": reason, **variables})

    def choice(self, name: str, value: str, among: type[Misfire] | type[Overlap]) -> None:
        words = [word.value for word in among]
        if value not in words:
            self.add(name, f"must be one of {', '.join(words)}", allowed=words)

    def schedule(self, name: str, make: Callable[[], Schedule]) -> None:
        try:
            make()
        except BadSchedule as error:
            self.add(name, str(error))
