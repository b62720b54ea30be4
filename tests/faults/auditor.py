"""Joins what clients and workers were told with what the database holds, and says every broken promise.

Imports nothing of Orbit: it reads the tables by plain SQL, so that a fault of Orbit's own code cannot hide itself.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LEASED = ("RESERVED", "RUNNING")
ENDS = ("SUCCEEDED", "FAILED", "CANCELED", "EXPIRED")


class History:
    """What one party was told, appended line by line and flushed before it acts on it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def write(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"event": event, **fields}) + "\n")

    @staticmethod
    def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
        return [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]


class Database:
    """The tables, read by plain SQL."""

    def __init__(self, url: str) -> None:
        if url.startswith("sqlite:"):
            self._connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"))
        else:
            import MySQLdb

            parts = urlsplit(url)
            self._connection = MySQLdb.connect(
                host=parts.hostname, port=parts.port or 3306, user=parts.username, password=parts.password or "",
                db=parts.path.strip("/"), charset="utf8mb4", autocommit=True,
            )  # fmt: skip

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        cursor.execute(sql)
        return list(cursor.fetchall())

    def close(self) -> None:
        self._connection.close()


def audit(database: Database, history: list[dict[str, Any]], *, at_rest: bool = True) -> list[str]:
    """Every broken promise, one sentence each. `at_rest`: nothing is running any more, so nothing may be unfinished."""
    faults: list[str] = []
    faults += _accepted_is_kept(database, history)
    faults += _identities_are_single(database, history)
    faults += _attempts_are_ordered(database)
    faults += _runs_were_granted(database, history)
    faults += _counters_are_exact(database)
    faults += _events_are_gapless(database)
    if at_rest:
        faults += [
            f"task {task_id} is still {state}"
            for task_id, state in database.rows("SELECT task_id, state FROM orbit_task")
            if state not in ENDS and state != "UNKNOWN"
        ]
    return faults


def _accepted_is_kept(database: Database, history: list[dict[str, Any]]) -> list[str]:
    """N1: what a client was told ACCEPTED exists, under the id it was told. N3: what was REJECTED added nothing."""
    keys = dict(database.rows("SELECT idempotency_key, task_id FROM orbit_idempotency_record"))
    tasks = {task_id for (task_id,) in database.rows("SELECT task_id FROM orbit_task")}
    faults = []
    for entry in history:
        if entry["event"] == "accepted":
            if keys.get(entry["key"]) != entry["task_id"]:
                faults.append(f"key {entry['key']}: told {entry['task_id']}, recorded {keys.get(entry['key'])}")
            if entry["task_id"] not in tasks:
                faults.append(f"key {entry['key']}: the accepted task {entry['task_id']} does not exist")
    accepted = {entry["key"] for entry in history if entry["event"] == "accepted"}
    for entry in history:
        if entry["event"] == "rejected" and entry["key"] in keys and entry["key"] not in accepted:
            faults.append(f"key {entry['key']}: told REJECTED, but a task exists")
    return faults


def _identities_are_single(database: Database, history: list[dict[str, Any]]) -> list[str]:
    """N2: one task per key; every task has the record it was accepted under."""
    told: dict[str, set[str]] = defaultdict(set)
    for entry in history:
        if entry["event"] == "accepted":
            told[entry["key"]].add(entry["task_id"])
    faults = [f"key {key}: told several tasks {sorted(tasks)}" for key, tasks in told.items() if len(tasks) > 1]
    recorded = [task_id for (task_id,) in database.rows("SELECT task_id FROM orbit_idempotency_record")]
    if len(recorded) != len(set(recorded)):
        faults.append("one task stands under several keys")
    tasks = {task_id for (task_id,) in database.rows("SELECT task_id FROM orbit_task")}
    faults += [f"task {task_id} has no idempotency record" for task_id in tasks - set(recorded)]
    return faults


def _attempts_are_ordered(database: Database) -> list[str]:
    """N4, N6, N8: one authority at a time, rising tokens, at most one success, attempts counted once each."""
    faults = []
    by_task: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in database.rows(
        "SELECT task_id, number, fencing_token, state, started_at, finished_at FROM orbit_attempt"
        " ORDER BY task_id, number"
    ):
        by_task[row[0]].append(row)
    for task_id, state, attempts, max_attempts in database.rows(
        "SELECT task_id, state, attempts, max_attempts FROM orbit_task"
    ):
        rows = by_task.get(task_id, [])
        if [row[1] for row in rows] != list(range(1, attempts + 1)):
            faults.append(f"task {task_id}: {attempts} attempts counted, rows {[row[1] for row in rows]}")
        if attempts > max_attempts:
            faults.append(f"task {task_id}: {attempts} attempts of {max_attempts}")
        tokens = [row[2] for row in rows]
        if tokens != sorted(set(tokens)):
            faults.append(f"task {task_id}: fencing tokens do not rise: {tokens}")
        if sum(row[3] == "SUCCEEDED" for row in rows) > 1:
            faults.append(f"task {task_id}: several attempts succeeded")
        running = [row for row in rows if row[3] == "RUNNING"]
        if len(running) != (state == "RUNNING"):
            faults.append(f"task {task_id} is {state} with {len(running)} running attempts")
        for earlier, later in zip(rows, rows[1:], strict=False):
            if earlier[5] is None or earlier[5] > later[4]:
                faults.append(f"task {task_id}: attempt {later[1]} began before attempt {earlier[1]} ended")
    return faults


def _runs_were_granted(database: Database, history: list[dict[str, Any]]) -> list[str]:
    """N5: nothing ran without a committed start. N6: a finish that was told COMMITTED is the one that counts."""
    attempts = {
        attempt_id: (task_id, token, state)
        for attempt_id, task_id, token, state in database.rows(
            "SELECT attempt_id, task_id, fencing_token, state FROM orbit_attempt"
        )
    }
    faults = []
    for entry in history:
        if entry["event"] == "started" and entry["attempt_id"] not in attempts:
            faults.append(f"attempt {entry['attempt_id']} ran without a committed start")
        if entry["event"] == "committed":
            found = attempts.get(entry["attempt_id"])
            if found is None or found[2] in ("RUNNING", "LOST"):
                faults.append(f"attempt {entry['attempt_id']}: told COMMITTED, recorded {found}")
    return faults


def _counters_are_exact(database: Database) -> list[str]:
    """N9, N10: counters of queues, applications and resource keys against a recount."""
    faults = []
    leased = ", ".join(f"'{state}'" for state in LEASED)
    ends = ", ".join(f"'{state}'" for state in ENDS)
    for table, key in (("orbit_queue", "queue_id"), ("orbit_application", "application_id")):
        counted = {
            identity: (int(unfinished), int(running))
            for identity, unfinished, running in database.rows(
                f"SELECT {key}, SUM(CASE WHEN state NOT IN ({ends}) THEN 1 ELSE 0 END),"
                f" SUM(CASE WHEN state IN ({leased}) THEN 1 ELSE 0 END) FROM orbit_task GROUP BY {key}"
            )
        }
        for identity, unfinished, running, max_unfinished, max_running in database.rows(
            f"SELECT {key}, unfinished, running, max_unfinished, max_running FROM {table}"
        ):
            if (unfinished, running) != counted.get(identity, (0, 0)):
                faults.append(f"{table} {identity}: counters {(unfinished, running)}, rows {counted.get(identity)}")
            if max_unfinished is not None and unfinished > max_unfinished:
                faults.append(f"{table} {identity}: {unfinished} unfinished, limit {max_unfinished}")
            if max_running is not None and running > max_running:
                faults.append(f"{table} {identity}: {running} running, limit {max_running}")
    held = dict(
        database.rows(
            "SELECT resource_ref, COUNT(*) FROM orbit_task WHERE resource_ref IS NOT NULL"
            f" AND state IN ({leased}, 'UNKNOWN') GROUP BY resource_ref"
        )
    )
    for resource_ref, count in database.rows("SELECT resource_ref, held FROM orbit_resource_key"):
        if count != held.get(resource_ref, 0):
            faults.append(f"resource key {resource_ref}: {count} held, {held.get(resource_ref, 0)} in rows")
    return faults


def _events_are_gapless(database: Database) -> list[str]:
    """N15, N19: every revision of a task has exactly one event, and the last is the task's own."""
    revisions: dict[str, list[int]] = defaultdict(list)
    for task_id, revision in database.rows(
        "SELECT task_id, revision FROM orbit_event WHERE type NOT IN ('YIELDED', 'PROGRESS') ORDER BY task_id, revision"
    ):
        revisions[task_id].append(revision)
    return [
        f"task {task_id} at revision {revision} has events of revisions {revisions[task_id]}"
        for task_id, revision in database.rows("SELECT task_id, revision FROM orbit_task")
        if revisions[task_id] != list(range(1, revision + 1))
    ]
