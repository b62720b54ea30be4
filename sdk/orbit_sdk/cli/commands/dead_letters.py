"""`orbit dlq …`: failed tasks that were neither replayed nor dismissed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.progress import Progress

from orbit_sdk.calls import tasks as calls
from orbit_sdk.cli.commands.submitting import BATCH_HEADERS, batch_rows, exit_code_of_batch
from orbit_sdk.cli.commands.tasks import LIST_HEADERS, summary_row
from orbit_sdk.cli.session import Session, fail, session_of
from orbit_sdk.models.batches import BatchItemResult, BatchResult
from orbit_sdk.states import BatchStatus, TaskState

app = typer.Typer(help="Dead letters: look at them, replay them.", no_args_is_help=True)

ROUND = 100  # tasks per request: each is a transaction of its own on the server
Queue = Annotated[str | None, typer.Option(help="Name or id.")]


@app.command("list")
def list_(
    context: typer.Context,
    queue: Queue = None,
    handler: Annotated[str | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 50,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
) -> None:
    """One page of dead letters, newest first."""
    session = session_of(context)
    call = calls.list_tasks(
        session.credentials, queue=queue, handler=handler, dead=True, page_size=limit, cursor=cursor
    )
    page = session.client.call(call)
    if session.json:
        session.show_json(session.last_data)
        return
    rows = [(*summary_row(session, task), task.error.code if task.error else None) for task in page.items]
    session.table((*LIST_HEADERS, "error"), rows)
    if page.next_cursor is not None:
        session.line(f"more: --cursor {page.next_cursor}")


@app.command()
def replay(
    context: typer.Context,
    queue: Queue = None,
    all_: Annotated[bool, typer.Option("--all", help="Every dead letter of the queue.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, max=500, help="The oldest so many.")] = None,
    handler: Annotated[str | None, typer.Option()] = None,
    state: Annotated[list[TaskState] | None, typer.Option(help="FAILED unless given.")] = None,
    priority: Annotated[int | None, typer.Option(help="Kept unless given.")] = None,
    key: Annotated[
        str | None, typer.Option(help="Your idempotency key: the same key covers the same tasks. With --limit.")
    ] = None,
) -> None:
    """Submit dead letters of a queue again, oldest first. A task is replayed once, however often this is run."""
    session = session_of(context)
    if queue is None:
        raise fail("give --queue")
    if all_ == (limit is not None):
        raise fail("give --all or --limit, one of them")
    if all_ and key is not None:
        raise fail("--key names one selection: give it with --limit")
    options: dict[str, Any] = {"states": state or None, "handler": handler, "priority": priority}
    if limit is not None:
        key = key or f"dlq:{secrets.token_hex(16)}"
        result = session.client.replay_tasks(key, queue, limit=limit, **options)
        items: Sequence[BatchItemResult] = result.items
        raw = session.last_data
    else:
        items, raw = _replay_all(session, queue, options)
    result = BatchResult(tuple(items), "")
    if session.json:
        session.show_json(raw)
    else:
        rows = [(item.source_task_id, *row) for item, row in batch_rows(result)]
        session.table(("dead letter", *BATCH_HEADERS), rows)
        session.line(f"{len(result.with_status(BatchStatus.ACCEPTED))} of {len(items)} replayed")
    raise typer.Exit(exit_code_of_batch(result))


def _replay_all(session: Session, queue: str, options: dict[str, Any]) -> tuple[list[BatchItemResult], dict[str, Any]]:
    """Round after round until nothing is left, or a round achieves nothing (a full queue refuses for ever)."""
    items: list[BatchItemResult] = []
    raw: list[Any] = []
    with Progress(console=session.console, transient=True, disable=not session.is_terminal or session.json) as progress:
        bar = progress.add_task("replaying", total=None)
        while True:
            result = session.client.replay_tasks(f"dlq:{secrets.token_hex(16)}", queue, limit=ROUND, **options)
            # What is refused is selected again in the next round; only the last word about a task counts.
            sources = {item.source_task_id for item in result.items}
            items = [item for item in items if item.source_task_id not in sources] + list(result.items)
            raw = [item for item in raw if item["source_task_id"] not in sources] + list(session.last_data["items"])
            accepted = len(result.with_status(BatchStatus.ACCEPTED))
            progress.update(bar, advance=accepted, description=f"replaying: {len(items)} seen")
            if len(result.items) < ROUND or accepted == 0:
                break
    words = [str(status) for status in BatchStatus]
    summary = {word.lower(): sum(item.status == word for item in items) for word in words}
    return items, {"items": raw, "summary": summary}
