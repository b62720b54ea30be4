"""Who gets what: shares of starts and of running slots by application, waits, lost leases. Reads for operators.

Shares of starts and waits are those of the newest `STARTS_LOOKED_AT` starts of the last hour: a sample that is bounded,
not an account.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tasks_app import ids
from tasks_app.instants import US_PER_MS, US_PER_SECOND
from tasks_app.states import AttemptState
from tasks_app.transactions import reading

STARTS_LOOKED_AT: Final = 2000
WINDOW_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class Share:
    """Of one application. Shares are percent of all applications together; waits are milliseconds, None: no start."""

    application_id: str
    name: str
    running: int
    running_share: int
    unfinished: int
    starts: int
    start_share: int
    lost: int
    wait_p50_ms: int | None
    wait_p95_ms: int | None


@dataclass(frozen=True, slots=True)
class LastCheck:
    """The last run of `orbit_check`: when (microseconds) and what it found."""

    at: int
    faults: int
    repaired: int


def shares() -> list[Share]:
    """Every application, the one that runs most first."""
    with reading() as tx:
        ((now_us,),) = tx.rows(f"SELECT {tx.now_sql}")
        applications = tx.rows("SELECT application_id, name, running, unfinished FROM orbit_application")
        starts = tx.rows(
            "SELECT t.application_id, a.started_at - t.available_at, a.state, a.number, t.attempts FROM"
            " (SELECT task_id, started_at, state, number FROM orbit_attempt WHERE attempt_id >= %s"
            f" ORDER BY attempt_id DESC LIMIT {STARTS_LOOKED_AT}) a JOIN orbit_task t ON t.task_id = a.task_id",
            [ids.id_floor(max(0, int(now_us) - WINDOW_SECONDS * US_PER_SECOND))],
        )
    all_running = sum(int(row[2]) for row in applications)
    found = []
    for application_id, name, running, unfinished in applications:
        own = [row for row in starts if row[0] == application_id]
        # A task that is to be started again has another `available_at` by now: its earlier waits cannot be told.
        waits = sorted(int(wait) // US_PER_MS for _, wait, _, number, last in own if number == last and wait >= 0)
        found.append(
            Share(
                application_id=application_id,
                name=name,
                running=int(running),
                running_share=_percent(int(running), all_running),
                unfinished=int(unfinished),
                starts=len(own),
                start_share=_percent(len(own), len(starts)),
                lost=sum(1 for row in own if row[2] == AttemptState.LOST),
                wait_p50_ms=quantile(waits, 50),
                wait_p95_ms=quantile(waits, 95),
            )
        )
    return sorted(found, key=lambda share: (-share.running, -share.starts, share.name))


def last_check() -> LastCheck | None:
    """None: it was never run, or so long ago that its entry is not kept."""
    with reading() as tx:
        row: Any = tx.row(
            "SELECT created_at, data FROM orbit_audit_entry WHERE object_id = 'database' AND action = 'check.run'"
            " ORDER BY audit_id DESC LIMIT 1"
        )
    if row is None:
        return None
    data = json.loads(row[1])
    return LastCheck(int(row[0]), int(data["faults"]), int(data["repaired"]))


def quantile(ordered: Sequence[int], percent: int) -> int | None:
    """The smallest value that at least `percent` of them do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole) if whole else 0
