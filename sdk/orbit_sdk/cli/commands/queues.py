"""`orbit status` and `orbit queue …`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orbit_sdk.cli.session import Session, fail, session_of, shown_cell
from orbit_sdk.models.queues import Queue, QueueStats
from orbit_sdk.states import TaskState

app = typer.Typer(help="Make, pause and resume queues.", no_args_is_help=True)

STATUS_HEADERS = (
    "queue",
    "waiting",
    "scheduled",
    "reserved",
    "running",
    "unknown",
    "failed",
    "oldest wait",
    "held back by",
)
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name or id.")]
_MS_PER_SECOND = 1000


def status(
    context: typer.Context,
    by_priority: Annotated[
        bool, typer.Option("--by-priority", help="Backlog per priority, most urgent first.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
    queue: Annotated[list[str] | None, typer.Option(help="Only these; may be given more than once.")] = None,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Between two looks with --watch.")] = 2.0,
) -> None:
    """What stands in the queues."""
    session = session_of(context)
    if not watch:
        _show(session, _look(session, queue), by_priority=by_priority)
        return
    if session.json or not session.is_terminal:
        raise fail("--watch needs a terminal")
    with Live(console=session.console, auto_refresh=False) as live:
        while True:
            found = _look(session, queue)
            live.update(_by_priority(found) if by_priority else _table(found), refresh=True)
            time.sleep(every)


Found = list[tuple[Queue, QueueStats, Any]]


def _look(session: Session, names: list[str] | None) -> Found:
    client = session.client
    queues = [client.get_queue(name) for name in names] if names else list(client.list_queues(page_size=200))
    found = []
    for queue in sorted(queues, key=lambda queue: queue.name):
        stats = client.queue_stats(queue.queue_id)
        found.append((queue, stats, {"queue": queue.raw, "stats": session.last_data["stats"]}))
    return found


def _show(session: Session, found: Found, *, by_priority: bool) -> None:
    if session.json:
        session.show_json({"items": [raw for _, _, raw in found]})
    elif by_priority:
        session.line(_by_priority(found).plain)
    else:
        session.table(STATUS_HEADERS, [_row(queue, stats) for queue, stats, _ in found])


def _by_priority(found: Found) -> Text:
    """One line for each queue, such as `email: P9=3 P5=12 P0=104`."""
    lines = []
    for queue, stats, _ in found:
        tiers = [f"P{priority}={count}" for priority, count in stats.backlog_by_priority.items() if count]
        lines.append(f"{queue.name}: {' '.join(tiers) or 'empty'}")
    return Text("\n".join(lines))


def _row(queue: Queue, stats: QueueStats) -> tuple[object, ...]:
    counts = stats.counts
    oldest = max(stats.oldest_waiting_ms_by_priority.values(), default=0)
    return (
        queue.name + (" (paused)" if queue.paused else ""),
        counts.get(TaskState.READY, 0),
        counts.get(TaskState.SCHEDULED, 0),
        stats.reserved,
        stats.running,
        counts.get(TaskState.UNKNOWN, 0),
        counts.get(TaskState.FAILED, 0),
        f"{oldest / _MS_PER_SECOND:.1f} s" if oldest else "-",
        None if stats.head_waiting is None else stats.head_waiting.reason,
    )


def _table(found: Found) -> Table:
    table = Table(*STATUS_HEADERS, box=None, pad_edge=False, header_style="bold")
    for queue, stats, _ in found:
        table.add_row(*[Text(shown_cell(cell)) for cell in _row(queue, stats)])
    return table


@app.command("list")
def list_(context: typer.Context, limit: Annotated[int, typer.Option(min=1, max=200)] = 200) -> None:
    """One page of queues."""
    from orbit_sdk.calls import queues as calls

    session = session_of(context)
    page = session.client.call(calls.list_queues(page_size=limit))
    if session.json:
        session.show_json(session.last_data)
        return
    headers = ("queue", "id", "paused", "max unfinished", "max running", "weight", "default priority")
    session.table(headers, [_queue_row(queue) for queue in page.items])


def _queue_row(queue: Queue) -> tuple[object, ...]:
    return (
        queue.name,
        queue.queue_id,
        "yes" if queue.paused else "no",
        queue.max_unfinished,
        queue.max_running,
        queue.weight,
        queue.default_priority,
    )


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument()],
    max_unfinished: Annotated[int | None, typer.Option(min=0)] = None,
    max_running: Annotated[int | None, typer.Option(min=0)] = None,
    weight: Annotated[int | None, typer.Option(help="STRICT namespaces.")] = None,
    default_priority: Annotated[int | None, typer.Option(help="STRICT namespaces.")] = None,
) -> None:
    """Make a queue."""
    session = session_of(context)
    queue = session.client.create_queue(
        name,
        max_unfinished=max_unfinished,
        max_running=max_running,
        weight=weight,
        default_priority=default_priority,
    )
    session.show(lambda: f"{queue.queue_id} {queue.name}")


@app.command()
def pause(
    context: typer.Context, queue: QueueName, reason: Annotated[str | None, typer.Option(help="Shown to all.")] = None
) -> None:
    """Stop starts; the queue goes on accepting."""
    session = session_of(context)
    paused = session.client.pause_queue(queue, reason=reason)
    session.show(lambda: f"{paused.name} is paused")


@app.command()
def resume(context: typer.Context, queue: QueueName) -> None:
    """Go on."""
    session = session_of(context)
    resumed = session.client.resume_queue(queue)
    session.show(lambda: f"{resumed.name} is running")
