"""`orbit plan …`: schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from orbit_sdk.calls import plans as calls
from orbit_sdk.cli.session import fail, json_of, session_of, shown_cell, text_of_file
from orbit_sdk.models.plans import Plan

app = typer.Typer(help="Plans: schedules that submit tasks by themselves.", no_args_is_help=True)

PlanId = Annotated[str, typer.Argument(metavar="ID", help="The plan's id.")]
DefinitionFile = Annotated[Path, typer.Option("-f", "--file", help="The definition, a JSON file; - is standard input.")]
Limit = Annotated[int, typer.Option(min=1, max=200)]
Note = Annotated[str | None, typer.Option(help="Kept with the plan.")]


def _definition(context: typer.Context, file: Path) -> dict[str, Any]:
    """The file's definition; a `queue` by name in its task becomes the id."""
    document = json_of(text_of_file(file), str(file))
    if not isinstance(document, dict):
        raise fail(f"{file} must be a JSON object")
    task = document.get("task")
    if isinstance(task, dict) and "queue" in task:
        queue_id = session_of(context).credentials.queue_id(task["queue"], place="definition.task.queue")
        document["task"] = {**{name: value for name, value in task.items() if name != "queue"}, "queue_id": queue_id}
    return document


def _shown(plan: Plan) -> str:
    schedule = plan.definition.get("schedule", {})
    lines = {
        "plan": plan.plan_id,
        "name": plan.name,
        "version": f"{plan.active_version} of {plan.versions}",
        "schedule": " ".join(str(value) for value in schedule.values()),
        "paused": ("yes" if plan.paused else "no") + (f" ({plan.note})" if plan.note else ""),
        "revision": plan.revision,
        "last fired": shown_cell(plan.last_fired_at),
        "missed": plan.missed,
        "next": ", ".join(shown_cell(moment) for moment in plan.next_fire_times) or "-",
    }
    return "\n".join(f"{name + ':':<12}{value}" for name, value in lines.items())


@app.command("list")
def list_(context: typer.Context, limit: Limit = 50, cursor: Annotated[str | None, typer.Option()] = None) -> None:
    """One page of plans."""
    session = session_of(context)
    page = session.client.call(calls.list_plans(page_size=limit, cursor=cursor))
    if session.json:
        session.show_json(session.last_data)
        return
    rows = [
        (plan.plan_id, plan.name, plan.active_version, "yes" if plan.paused else "no", *plan.next_fire_times[:1])
        for plan in page.items
    ]
    session.table(("plan", "name", "version", "paused", "next"), rows)


@app.command()
def show(context: typer.Context, plan_id: PlanId) -> None:
    """A plan and its next five firings."""
    session = session_of(context)
    plan = session.client.get_plan(plan_id)
    session.show(lambda: _shown(plan))


@app.command()
def create(context: typer.Context, name: Annotated[str, typer.Argument()], file: DefinitionFile) -> None:
    """Make a plan; its first version is active at once."""
    session = session_of(context)
    plan = session.client.create_plan(name, _definition(context, file))
    session.show(lambda: _shown(plan))


@app.command("add-version")
def add_version(context: typer.Context, plan_id: PlanId, file: DefinitionFile) -> None:
    """Make the next version; it fires only once it is activated."""
    session = session_of(context)
    version = session.client.create_plan_version(plan_id, _definition(context, file))
    session.show(lambda: f"version {version.version}")


@app.command()
def versions(context: typer.Context, plan_id: PlanId, limit: Limit = 50) -> None:
    """The versions of a plan."""
    session = session_of(context)
    page = session.client.call(calls.list_plan_versions(plan_id, page_size=limit))
    if session.json:
        session.show_json(session.last_data)
        return
    session.table(("version", "created"), [(version.version, version.created_at) for version in page.items])


@app.command()
def activate(
    context: typer.Context,
    plan_id: PlanId,
    version: Annotated[int, typer.Argument(min=1)],
    revision: Annotated[str | None, typer.Option(help="The one you saw; the current one if left out.")] = None,
) -> None:
    """Let a version fire."""
    session = session_of(context)
    seen = revision or session.client.get_plan(plan_id).revision
    plan = session.client.activate_plan(plan_id, version, seen)
    session.show(lambda: _shown(plan))


@app.command()
def pause(context: typer.Context, plan_id: PlanId, note: Note = None) -> None:
    """Stop firing; times that pass meanwhile never count."""
    session = session_of(context)
    plan = session.client.pause_plan(plan_id, note=note)
    session.show(lambda: _shown(plan))


@app.command()
def resume(context: typer.Context, plan_id: PlanId, note: Note = None) -> None:
    """Fire again."""
    session = session_of(context)
    plan = session.client.resume_plan(plan_id, note=note)
    session.show(lambda: _shown(plan))


@app.command()
def trigger(
    context: typer.Context, plan_id: PlanId, key: Annotated[str, typer.Option(help="Your idempotency key.")]
) -> None:
    """Fire once, now."""
    session = session_of(context)
    accepted = session.client.trigger_plan(key, plan_id)
    session.show(lambda: f"accepted {accepted.task_id}")


@app.command()
def firings(context: typer.Context, plan_id: PlanId, limit: Limit = 50) -> None:
    """What a plan fired, refused and missed ones included."""
    session = session_of(context)
    page = session.client.call(calls.list_plan_firings(plan_id, page_size=limit))
    if session.json:
        session.show_json(session.last_data)
        return
    rows = [
        (firing.fire_time, firing.version, firing.status, firing.task_id, (firing.error or {}).get("code"))
        for firing in page.items
    ]
    session.table(("time", "version", "status", "task", "error"), rows)
