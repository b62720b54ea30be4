"""`orbit call`, `orbit submit`, `orbit batch`: handing work over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from orbit_sdk.cli.commands.tasks import exit_code_of_task, shown_task
from orbit_sdk.cli.documents import read_batch_file, read_task_file
from orbit_sdk.cli.loading import load_task
from orbit_sdk.cli.session import ExitCode, Session, fail, json_of, session_of
from orbit_sdk.models.batches import BatchResult
from orbit_sdk.models.tasks import Accepted, SubmitTask
from orbit_sdk.states import BatchStatus

Key = Annotated[str | None, typer.Option("--key", help="Your idempotency key: store it, repeat it until it is known.")]
Wait = Annotated[float | None, typer.Option("--wait", min=0, metavar="SECONDS", help="Then wait for the end.")]
TaskFile = Annotated[Path, typer.Option("-f", "--file", help="A JSON file; - is standard input.")]


def call(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="MODULE.TASK", help="A function decorated with @app.task.")],
    args: Annotated[str, typer.Option(help="Its arguments, a JSON array.")] = "[]",
    kwargs: Annotated[str, typer.Option(help="Its keyword arguments, a JSON object.")] = "{}",
    priority: Annotated[int | None, typer.Option(help="Larger is more urgent.")] = None,
    delay_ms: Annotated[int | None, typer.Option(help="Earliest start, from now.")] = None,
    key: Key = None,
    wait: Wait = None,
) -> None:
    """Send a task of an App with arguments."""
    session = session_of(context)
    if key is None:
        raise fail("give --key: the identity of this piece of business is yours to keep")
    found = load_task(task)
    positional, named = json_of(args, "--args"), json_of(kwargs, "--kwargs")
    if not isinstance(positional, list) or not isinstance(named, dict):
        raise fail("--args must be a JSON array and --kwargs a JSON object")
    try:
        payload = found.payload(positional, named)
    except TypeError as error:
        raise fail(f"{task}: {error}") from None
    config = found.app.config
    request = SubmitTask(
        queue=found.queue,
        handler=found.name,
        handler_version=found.version,
        payload=payload,
        priority=config.resolve_priority(
            call=config.checked_priority(priority, "--priority"), task=found.priority, queue=found.queue
        ),
        delay_ms=delay_ms,
        retry=found.retry,
    )
    _submit(session, key, request, wait)


def submit(context: typer.Context, file: TaskFile, key: Key = None, wait: Wait = None) -> None:
    """Submit the task of a file: the API's task object, with `queue` (a name) or `queue_id`."""
    known_key, task = read_task_file(file, key)
    _submit(session_of(context), known_key, task, wait)


def _submit(session: Session, key: str, task: SubmitTask, wait: float | None) -> None:
    accepted = session.client.submit_task(key, task)
    if wait is None or not session.json:
        session.show(lambda: _shown_receipt(accepted))
    if wait is not None:
        done = session.client.wait_task(accepted.task_id, timeout=wait)
        session.show(lambda: shown_task(session, done))
        raise typer.Exit(exit_code_of_task(done))


def _shown_receipt(accepted: Accepted) -> str:
    known = " (accepted before: the same task)" if accepted.deduplicated else ""
    return f"accepted {accepted.task_id}{known}"


def batch(context: typer.Context, file: TaskFile) -> None:
    """Submit 1 to 32 independent tasks of a file; each has its own answer.

    Exits with 0 if all were accepted, 1 if some were refused, 3 if some are not known or were not tried: repeat the
    same file then.
    """
    session = session_of(context)
    items = read_batch_file(file)
    result = session.client.submit_tasks(items)
    if session.json:
        session.show_json(session.last_data)
    else:
        session.table(("key", *BATCH_HEADERS), [(items[item.index].key, *row) for item, row in batch_rows(result)])
    raise typer.Exit(exit_code_of_batch(result))


BATCH_HEADERS = ("status", "task", "code", "message")


def batch_rows(result: BatchResult) -> list[tuple[Any, tuple[object, ...]]]:
    return [
        (
            item,
            (
                item.status,
                item.receipt.task_id if item.receipt else None,
                item.error.code
                if item.error
                else ("deduplicated" if item.receipt and item.receipt.deduplicated else ""),
                item.error.message if item.error else "",
            ),
        )
        for item in result.items
    ]


def exit_code_of_batch(result: BatchResult) -> ExitCode:
    if any(item.to_repeat for item in result.items):
        return ExitCode.UNKNOWN
    return ExitCode.REFUSED if result.with_status(BatchStatus.REJECTED) else ExitCode.OK
