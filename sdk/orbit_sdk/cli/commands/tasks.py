"""`orbit task …`: reading and steering one task."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orbit_sdk.cli.session import ExitCode, Session, json_of, session_of, shown_cell
from orbit_sdk.jsoncodec import encode_text
from orbit_sdk.models.events import Event
from orbit_sdk.models.tasks import Task, TaskSummary
from orbit_sdk.states import Decision, TaskState

app = typer.Typer(help="Read and steer one task.", no_args_is_help=True)

TaskId = Annotated[str, typer.Argument(metavar="ID", help="The task's id.")]
Reason = Annotated[str, typer.Option(help="Goes into the audit.")]
Revision = Annotated[str | None, typer.Option(help="The revision that you saw; the current one if left out.")]
LIST_HEADERS = ("task", "queue", "handler", "priority", "state", "attempts", "created")


def exit_code_of_task(task: Task) -> ExitCode:
    if task.state is TaskState.SUCCEEDED:
        return ExitCode.OK
    return ExitCode.REFUSED if task.ended else ExitCode.UNKNOWN


def shown_task(session: Session, task: Task) -> str:
    """A task as lines of `name: value`."""
    lines = [
        ("task", task.task_id),
        ("queue", session.name_of_queue(task.queue_id)),
        ("handler", f"{task.handler}@{task.handler_version}"),
        ("priority", task.priority),
        ("state", task.state),
        ("revision", task.revision),
        ("attempts", f"{task.attempts} of {task.max_attempts}"),
        ("created", task.created_at),
        ("available", task.available_at),
    ]
    optional: dict[str, object] = {
        "deadline": task.deadline_at,
        "finished": task.finished_at,
        "resource key": task.resource_key,
        "losses": task.losses or None,
        "yields": task.yields or None,
        "cancel requested": "yes" if task.cancel_requested else None,
        "parent": task.parent_task_id,
        "plan": task.plan_id,
        "replayed from": task.replayed_from,
        "replayed as": task.replayed_as,
        "waiting": None if task.waiting is None else task.waiting.reason,
        "error": None if task.error is None else f"{task.error.code}: {task.error.message}",
    }
    lines += [(name, value) for name, value in optional.items() if value is not None]
    raw = _raw_task(session)
    lines.append(("payload", encode_text(raw.get("payload", task.payload))))
    if task.state is TaskState.SUCCEEDED:
        lines.append(("result", encode_text(raw.get("result", task.result))))
    return "\n".join(f"{name + ':':<18}{shown_cell(value)}" for name, value in lines)


def _raw_task(session: Session) -> dict[str, Any]:
    """The task of the last answer with every digit as it was sent."""
    data = session.last_data
    raw = data.get("task") if isinstance(data, dict) else None
    return raw if isinstance(raw, dict) else {}


def summary_row(session: Session, task: TaskSummary) -> tuple[object, ...]:
    return (
        task.task_id,
        session.name_of_queue(task.queue_id),
        f"{task.handler}@{task.handler_version}",
        task.priority,
        task.state,
        f"{task.attempts}/{task.max_attempts}",
        task.created_at,
    )


@app.command()
def show(context: typer.Context, task_id: TaskId) -> None:
    """Everything about a task, why it waits included."""
    session = session_of(context)
    task = session.client.get_task(task_id)
    session.show(lambda: shown_task(session, task))


@app.command("list")
def list_(
    context: typer.Context,
    queue: Annotated[str | None, typer.Option(help="Name or id.")] = None,
    state: Annotated[list[TaskState] | None, typer.Option(help="May be given more than once.")] = None,
    handler: Annotated[str | None, typer.Option()] = None,
    priority: Annotated[int | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
) -> None:
    """One page of tasks, newest first."""
    from orbit_sdk.calls import tasks as calls

    session = session_of(context)
    call = calls.list_tasks(
        session.credentials,
        queue=queue,
        states=state or (),
        handler=handler,
        priority=priority,
        page_size=limit,
        cursor=cursor,
    )
    page = session.client.call(call)
    if session.json:
        session.show_json(session.last_data)
        return
    session.table(LIST_HEADERS, [summary_row(session, task) for task in page.items])
    if page.next_cursor is not None:
        session.line(f"more: --cursor {page.next_cursor}")


@app.command()
def wait(
    context: typer.Context,
    task_id: TaskId,
    timeout: Annotated[float | None, typer.Option(min=0, metavar="SECONDS")] = None,
) -> None:
    """Wait for the end: 0 SUCCEEDED, 1 any other end, 3 when time ran out or the outcome is UNKNOWN."""
    session = session_of(context)
    task = session.client.wait_task(task_id, timeout=timeout)
    session.show(lambda: shown_task(session, task))
    raise typer.Exit(exit_code_of_task(task))


@app.command()
def cancel(
    context: typer.Context,
    task_id: TaskId,
    reason: Annotated[str | None, typer.Option()] = None,
    revision: Revision = None,
) -> None:
    """Cancel a task; a running one is asked to stop."""
    session = session_of(context)
    seen = revision or session.client.get_task(task_id).revision
    task = session.client.cancel_task(task_id, seen, reason=reason)
    session.show(lambda: f"{task.task_id} {task.state}" + (" (asked to stop)" if not task.ended else ""))


@app.command()
def events(context: typer.Context, task_id: TaskId) -> None:
    """What happened to a task."""
    session = session_of(context)
    found = list(session.client.task_events(task_id, page_size=200))
    if session.json:
        session.show_json(session.last_data if len(found) <= 200 else {"items": [event.raw for event in found]})
        return
    session.table(("when", "event", "state", "revision", "data"), [_event_row(event) for event in found])


def _event_row(event: Event) -> tuple[object, ...]:
    return event.created_at, event.type, event.state, event.revision, encode_text(event.data) if event.data else ""


@app.command()
def reconcile(
    context: typer.Context,
    task_id: TaskId,
    decision: Annotated[Decision, typer.Option(help="What really happened, or RETRY.")],
    reason: Reason,
    revision: Annotated[str, typer.Option(help="The revision that you saw and decided on.")],
    result: Annotated[str | None, typer.Option(help="The result, as JSON (with SUCCEEDED).")] = None,
) -> None:
    """Settle a task whose outcome is UNKNOWN."""
    session = session_of(context)
    value = None if result is None else json_of(result, "--result")
    task = session.client.reconcile_task(task_id, revision, decision, reason, result=value)
    session.show(lambda: f"{task.task_id} {task.state}")


@app.command()
def replay(
    context: typer.Context,
    task_id: TaskId,
    key: Annotated[str, typer.Option(help="Your idempotency key.")],
    priority: Annotated[int | None, typer.Option(help="Kept unless given.")] = None,
) -> None:
    """Submit a failed, expired or cancelled task again, as a new one."""
    session = session_of(context)
    accepted = session.client.replay_task(key, task_id, priority=priority)
    session.show(lambda: f"{task_id} replayed as {accepted.task_id}")


@app.command()
def dismiss(context: typer.Context, task_id: TaskId, reason: Reason, revision: Revision = None) -> None:
    """Take a failed task out of the dead letters."""
    session = session_of(context)
    seen = revision or session.client.get_task(task_id).revision
    task = session.client.dismiss_task(task_id, seen, reason)
    session.show(lambda: f"{task.task_id} dismissed")
