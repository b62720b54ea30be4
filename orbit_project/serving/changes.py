"""Which of the things that long polls wait for have changed: one cheap look for all of them (design 1.4)."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_project.serving.long_polls import Key, Wait
from tasks_app import dialect
from tasks_app.domain import event_feed
from tasks_app.transactions import reading
from workers_app.reads import read_again_if_lost

IDS_PER_LOOK = 500


def changed(waits: Sequence[Wait]) -> set[Key]:
    """The keys of those whose revision or feed went on since it was seen. Runs in a thread; reads only."""
    return read_again_if_lost(lambda: _changed(waits))


def _changed(waits: Sequence[Wait]) -> set[Key]:
    seen: dict[Key, int] = {}
    for wait in waits:
        seen[wait.key] = min(wait.seen, seen.get(wait.key, wait.seen))
    tasks = {subject: revision for (kind, subject), revision in seen.items() if kind == "task"}
    found = {("task", task_id) for task_id, revision in _revisions(sorted(tasks)) if revision > tasks[task_id]}
    found |= {
        (kind, subject)
        for (kind, subject), position in seen.items()
        if kind == "events" and event_feed.has_news(subject, after=position)
    }
    return found


def _revisions(task_ids: Sequence[str]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    with reading() as tx:
        for start in range(0, len(task_ids), IDS_PER_LOOK):
            part = task_ids[start : start + IDS_PER_LOOK]
            found += [
                (task_id, int(revision))
                for task_id, revision in tx.rows(
                    f"SELECT task_id, revision FROM orbit_task WHERE task_id IN ({dialect.placeholders(part)})",  # noqa: S608
                    part,
                )
            ]
    return found
