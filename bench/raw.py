"""The reference: the same rows written by plain SQL over one connection, statement by statement, no Orbit in
between.
"""

from __future__ import annotations

import time
from typing import Any

from tasks_app import ids
from tasks_app.columns import ATTEMPT_COLUMNS, AUDIT_COLUMNS, EVENT_COLUMNS, RECORD_COLUMNS, TASK_INSERT_COLUMNS

PAYLOAD = '{"x": "' + "p" * 1000 + '"}'


class RawTasks:
    """One tenant's rows, by hand: accept, then claim n, start n, finish n."""

    def __init__(self, connection: Any, credentials: dict[str, Any], queue_id: str, handler_ref: int) -> None:
        self.cursor = connection.cursor()
        self.credential_id = credentials["credential_id"]
        self.namespace_id, self.application_id = credentials["namespace_id"], credentials["application_id"]
        self.queue_id, self.handler_ref = queue_id, handler_ref

    def accept(self, key: str) -> None:
        """The nine statements of one acceptance."""
        run, now = self.cursor.execute, time.time_ns() // 1000
        task_id = ids.new_id(now)
        run("START TRANSACTION")
        run(
            "SELECT c.revoked_at, c.expires_at, n.policy, q.max_unfinished, q.unfinished FROM orbit_credential c"
            " JOIN orbit_namespace n ON n.namespace_id = c.namespace_id JOIN orbit_queue q"
            " ON q.namespace_id = n.namespace_id WHERE c.credential_id = %s AND q.queue_id = %s",
            (self.credential_id, self.queue_id),
        )
        self.cursor.fetchall()
        self._insert(
            "orbit_idempotency_record", RECORD_COLUMNS,
            (ids.new_id(now), self.namespace_id, "task.submit", key, b"d" * 32, task_id, self.queue_id, now),
        )  # fmt: skip
        self._insert(
            "orbit_task", TASK_INSERT_COLUMNS,
            (task_id, self.namespace_id, self.application_id, self.queue_id, self.handler_ref, "v1", PAYLOAD, 0, 0,
             "READY", 0, 1, 0, 1, 0, "NEVER", 0, 0, 1, now, None, None, None, 0, 0, True, None, None, None, None, now,
             now),
        )  # fmt: skip
        self._insert(
            "orbit_event", EVENT_COLUMNS,
            (ids.new_id(now), self.namespace_id, task_id, self.queue_id, "ACCEPTED", 1, "READY", now,
             '{"priority": 0}'),
        )  # fmt: skip
        self._insert(
            "orbit_audit_entry", AUDIT_COLUMNS,
            (ids.new_id(now), self.namespace_id, "CREDENTIAL", self.credential_id, "task.submit", "task", task_id,
             None, None, None, 1, None, now),
        )  # fmt: skip
        run("UPDATE orbit_queue SET unfinished = unfinished + 1 WHERE queue_id = %s", (self.queue_id,))
        run(
            "UPDATE orbit_application SET unfinished = unfinished + 1 WHERE application_id = %s", (self.application_id,)
        )
        run("COMMIT")

    def execute(self, limit: int) -> int:
        """Claims up to `limit`, starts them together, finishes them together; how many."""
        run, now = self.cursor.execute, time.time_ns() // 1000
        run("START TRANSACTION")
        run(
            "SELECT task_id FROM orbit_task FORCE INDEX (task_to_claim) WHERE queue_id = %s AND state = 'READY'"
            " AND lane = 0 AND handler_ref = %s ORDER BY tier, dispatch_at, available_at, task_id LIMIT %s",
            (self.queue_id, self.handler_ref, limit),
        )
        task_ids = [task_id for (task_id,) in self.cursor.fetchall()]
        if not task_ids:
            run("COMMIT")
            return 0
        marks = ", ".join(["%s"] * len(task_ids))
        run(f"SELECT task_id, payload FROM orbit_task WHERE task_id IN ({marks}) FOR UPDATE SKIP LOCKED", task_ids)
        self.cursor.fetchall()
        run(
            "UPDATE orbit_task SET state = 'RESERVED', attempt_id = task_id, session_id = %s, lease_until = %s,"
            f" fencing_token = fencing_token + 1 WHERE task_id IN ({marks}) AND state = 'READY'",
            (self.queue_id, now + 10_000_000, *task_ids),
        )
        self._counters(running=len(task_ids))
        run("COMMIT")
        run("START TRANSACTION")
        run(f"SELECT task_id, fencing_token FROM orbit_task WHERE task_id IN ({marks}) FOR UPDATE", task_ids)
        self.cursor.fetchall()
        run(
            "UPDATE orbit_task SET state = 'RUNNING', attempts = 1, revision = 2, started_at = %s, lease_until = %s,"
            f" updated_at = %s WHERE task_id IN ({marks}) AND state = 'RESERVED'",
            (now, now + 30_000_000, now, *task_ids),
        )
        self._insert_many(
            "orbit_attempt",
            ATTEMPT_COLUMNS,
            [(task_id, task_id, 1, 1, self.queue_id, "raw", "raw", "RUNNING", now) for task_id in task_ids],
        )
        self._events(task_ids, "STARTED", "RUNNING", 2, now)
        run("COMMIT")
        run("START TRANSACTION")
        run(f"SELECT task_id, fencing_token FROM orbit_task WHERE task_id IN ({marks}) FOR UPDATE", task_ids)
        self.cursor.fetchall()
        run(
            "UPDATE orbit_task SET state = 'SUCCEEDED', attempt_id = NULL, session_id = NULL, lease_until = NULL,"
            " started_at = NULL, finished_at = %s, updated_at = %s, revision = 3, result = 'null'"
            f" WHERE task_id IN ({marks}) AND state = 'RUNNING'",
            (now, now, *task_ids),
        )
        run(
            f"UPDATE orbit_attempt SET state = 'SUCCEEDED', finished_at = %s WHERE attempt_id IN ({marks})",
            (now, *task_ids),
        )
        self._events(task_ids, "SUCCEEDED", "SUCCEEDED", 3, now)
        self._counters(running=-len(task_ids), unfinished=-len(task_ids))
        run("COMMIT")
        return len(task_ids)

    def claim_ids(self, limit: int) -> int:
        """The bare look of a claim: ids from the index, no lock."""
        self.cursor.execute(
            "SELECT task_id FROM orbit_task FORCE INDEX (task_to_claim) WHERE queue_id = %s AND state = 'READY'"
            " AND lane = 0 AND handler_ref = %s ORDER BY tier, dispatch_at, available_at, task_id LIMIT %s",
            (self.queue_id, self.handler_ref, limit),
        )
        return len(self.cursor.fetchall())

    def _events(self, task_ids: list[str], kind: str, state: str, revision: int, now: int) -> None:
        self._insert_many(
            "orbit_event", EVENT_COLUMNS,
            [(ids.new_id(now), self.namespace_id, task_id, self.queue_id, kind, revision, state, now, '{"attempt":1}')
             for task_id in task_ids],
        )  # fmt: skip

    def _counters(self, *, running: int, unfinished: int = 0) -> None:
        for table, key, identity in (
            ("orbit_queue", "queue_id", self.queue_id),
            ("orbit_application", "application_id", self.application_id),
        ):
            self.cursor.execute(
                f"UPDATE {table} SET running = running + %s, unfinished = unfinished + %s WHERE {key} = %s",
                (running, unfinished, identity),
            )

    def _insert(self, table: str, columns: tuple[str, ...], row: tuple[Any, ...]) -> None:
        self._insert_many(table, columns, [row])

    def _insert_many(self, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        one = "(" + ", ".join(["%s"] * len(columns)) + ")"
        self.cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([one] * len(rows))}",
            [value for row in rows for value in row],
        )
