"""Plans (design 1.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orbit_sdk.calls.pages import Page, page_call
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.models.plans import Firing, Plan, PlanVersion
from orbit_sdk.models.tasks import Accepted, SubmitTask, read_accepted
from orbit_sdk.wire import SUBMIT_STATUSES, Answer, Call, check_id, get, post, without_none

_CREATED = frozenset({201})


def plan_definition(
    credentials: Credentials,
    task: SubmitTask,
    *,
    cron: str | None = None,
    timezone: str | None = None,
    interval_ms: int | None = None,
    misfire: str = "FIRE_ONCE",
    catch_up_limit: int | None = None,
    overlap: str = "ALLOW",
) -> dict[str, Any]:
    """The document of a plan. Give `cron` (five fields) with `timezone`, or `interval_ms` (at least 1000)."""
    schedule = without_none({"cron": cron, "timezone": timezone, "interval_ms": interval_ms})
    return {
        "schedule": schedule,
        "misfire": misfire,
        **without_none({"catch_up_limit": catch_up_limit}),
        "overlap": overlap,
        "task": task.as_json(credentials, place="definition.task"),
    }


def create_plan(name: str, definition: Mapping[str, Any]) -> Call[Plan]:
    def verify(answer: Answer) -> Plan:
        plan = _plan(answer)
        if plan.name != name:
            raise UnverifiableResponse(f"plan {plan.name!r} was answered, {name!r} was asked for")
        return plan

    return Call(post("/v1/plans", {"name": name, "definition": definition}), verify, _CREATED)


def list_plans(*, page_size: int | None = None, cursor: str | None = None) -> Call[Page[Plan]]:
    return page_call("/v1/plans", Plan.read, page_size=page_size, cursor=cursor)


def get_plan(plan_id: str) -> Call[Plan]:
    return Call(get(_path(plan_id)), _verifier(plan_id))


def create_plan_version(plan_id: str, definition: Mapping[str, Any]) -> Call[PlanVersion]:
    def verify(answer: Answer) -> PlanVersion:
        return PlanVersion.read(Fields(answer.data, "data").object("version"))

    return Call(post(f"{_path(plan_id)}/versions", {"definition": definition}), verify, _CREATED)


def list_plan_versions(
    plan_id: str, *, page_size: int | None = None, cursor: str | None = None
) -> Call[Page[PlanVersion]]:
    return page_call(f"{_path(plan_id)}/versions", PlanVersion.read, page_size=page_size, cursor=cursor)


def list_plan_firings(plan_id: str, *, page_size: int | None = None, cursor: str | None = None) -> Call[Page[Firing]]:
    return page_call(f"{_path(plan_id)}/firings", Firing.read, page_size=page_size, cursor=cursor)


def activate_plan(plan_id: str, version: int, revision: str) -> Call[Plan]:
    document = {"version": version, "revision": revision}
    return Call(post(f"{_path(plan_id)}:activate", document), _verifier(plan_id))


def pause_plan(plan_id: str, *, note: str | None = None) -> Call[Plan]:
    return Call(post(f"{_path(plan_id)}:pause", without_none({"note": note})), _verifier(plan_id))


def resume_plan(plan_id: str, *, note: str | None = None) -> Call[Plan]:
    return Call(post(f"{_path(plan_id)}:resume", without_none({"note": note})), _verifier(plan_id))


def trigger_plan(key: str, plan_id: str) -> Call[Accepted]:
    def verify(answer: Answer) -> Accepted:
        accepted = read_accepted(answer.data, status=answer.status, request_id=answer.request_id, queue_id=None)
        if accepted.task is not None and accepted.task.plan_id != plan_id:
            raise UnverifiableResponse("the task is not one of the plan that was asked for")
        return accepted

    return Call(post(f"{_path(plan_id)}:trigger", {}, key=key), verify, SUBMIT_STATUSES)


def _path(plan_id: str) -> str:
    return f"/v1/plans/{check_id(plan_id, place='plan_id')}"


def _plan(answer: Answer) -> Plan:
    return Plan.read(Fields(answer.data, "data").object("plan"))


def _verifier(plan_id: str) -> Callable[[Answer], Plan]:
    def verify(answer: Answer) -> Plan:
        plan = _plan(answer)
        if plan.plan_id != plan_id:
            raise UnverifiableResponse(f"plan {plan.plan_id} was answered, {plan_id} was asked for")
        return plan

    return verify
