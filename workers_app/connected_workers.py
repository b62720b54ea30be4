"""The workers of a namespace that take offers now, on whatever node: what `tasks_app.domain.waiting` asks for."""

from __future__ import annotations

import json

from tasks_app.domain.waiting import Worker
from tasks_app.instants import US_PER_SECOND
from tasks_app.transactions import reading
from workers_app.sessions import DEAD_AFTER_SECONDS


def connected_workers(namespace_id: str) -> list[Worker]:
    """Sessions with a connection whose node gave a sign of life, that did not ask for an end and have a capacity."""
    with reading() as tx:
        rows = tx.rows(
            "SELECT session_id, queue_ids, handlers, resource_keys, capacity, normal_reserved_slots"
            " FROM orbit_worker_session WHERE namespace_id = %s AND connection_id IS NOT NULL AND capacity > 0"
            " AND NOT draining AND seen_at > %s",
            [namespace_id, tx.now_us - DEAD_AFTER_SECONDS * US_PER_SECOND],
        )
    return [
        Worker(
            session_id=session_id,
            queue_ids=frozenset(json.loads(queue_ids)),
            handlers=frozenset((handler, version) for handler, version in json.loads(handlers)),
            resource_keys=bool(resource_keys),
            capacity=capacity,
            normal_reserved_slots=normal_reserved_slots,
        )
        for session_id, queue_ids, handlers, resource_keys, capacity, normal_reserved_slots in rows
    ]
