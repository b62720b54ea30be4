"""Backlogs of any size, made by the server itself (INSERT … SELECT over a sequence): rows as Orbit writes them."""

from __future__ import annotations

from typing import Any

_COLUMNS = (
    "task_id, namespace_id, application_id, queue_id, handler_ref, payload_version, payload, priority, tier, state,"
    " lane, revision, attempts, max_attempts, losses, retry_mode, initial_backoff_ms, max_backoff_ms, multiplier,"
    " available_at, fencing_token, yields, yieldable, created_at, updated_at, resource_ref"
)
_SPREAD_US = 1_000_000
_HOUR_US = 3_600_000_000


def fill(
    connection: Any,
    credentials: dict[str, Any],
    queue_id: str,
    handler_ref: int,
    count: int,
    *,
    state: str = "READY",
    priority: str = "seq MOD 10",
    lane: int = 0,
    resource_ref: int | None = None,
) -> None:
    """`count` tasks of 1 KiB; SCHEDULED ones are due in an hour and more, READY ones since the last second."""
    cursor = connection.cursor()
    due = f"@now + {_HOUR_US} + seq" if state == "SCHEDULED" else f"@now - {_SPREAD_US} + seq MOD {_SPREAD_US}"
    cursor.execute("SET @now = CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")
    cursor.execute("SET @salt = SUBSTR(MD5(RAND()), 1, 6)")
    resource = "NULL" if resource_ref is None else str(resource_ref)
    for first in range(1, count + 1, 100_000):
        last = min(first + 99_999, count)
        cursor.execute(
            f"INSERT INTO orbit_task ({_COLUMNS}) SELECT"
            " LOWER(CONCAT(LPAD(HEX(@now DIV 1000), 12, '0'), '7', LPAD(HEX(seq), 10, '0'), 'a', 'b', 'c', @salt)),"
            f" %s, %s, %s, %s, 'v1', REPEAT('1', 1024), {priority}, 0, %s, %s, 1, 0, 1, 0, 'NEVER', 0, 0, 1, {due}, 0,"
            f" 0, 1, @now, @now, {resource} FROM seq_{first}_to_{last}",
            (credentials["namespace_id"], credentials["application_id"], queue_id, handler_ref, state, lane),
        )
    cursor.execute(
        "UPDATE orbit_queue SET unfinished = (SELECT COUNT(*) FROM orbit_task t"
        " WHERE t.queue_id = orbit_queue.queue_id) WHERE queue_id = %s",
        (queue_id,),
    )
    cursor.execute(
        "UPDATE orbit_application a SET unfinished = (SELECT SUM(unfinished) FROM orbit_queue q"
        " WHERE q.application_id = a.application_id) WHERE application_id = %s",
        (credentials["application_id"],),
    )
    cursor.execute("ANALYZE TABLE orbit_task")
    cursor.fetchall()
