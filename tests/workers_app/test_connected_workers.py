"""Which sessions count as workers that take offers, for telling why a task waits (design 3.5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks_app import ids
from tasks_app.domain import submission, waiting
from tasks_app.domain.waiting import Reason, Worker
from tests.tasks_app import factories
from tests.tasks_app.factories import Tenant, make_tenant
from workers_app.connected_workers import connected_workers
from workers_app.models import WorkerSession
from workers_app.sessions import DEAD_AFTER_SECONDS


@pytest.fixture
def tenant(transactional_db: None) -> Tenant:
    submission.forget_references()  # ids of an earlier test's rows may come again
    return make_tenant()


def session(tenant: Tenant, **changes: Any) -> str:
    """A connected session of a worker that can do the factory's tasks."""
    now = factories.now()
    columns = {
        "session_id": ids.new_id(now),
        "namespace_id": tenant.namespace_id,
        "credential_id": tenant.credential_id,
        "worker_name": "worker",
        "capacity": 4,
        "queue_ids": json.dumps([tenant.queue_id]),
        "handlers": json.dumps([["h", "1"]]),
        "resource_keys": True,
        "node_id": "node",
        "connection_id": ids.new_id(now),
        "opened_at": now,
        "connected_at": now,
        "seen_at": now,
        **changes,
    }
    return str(WorkerSession.objects.create(**columns).session_id)


def test_a_connected_session_is_a_worker_with_what_it_announced(tenant: Tenant):
    session_id = session(tenant, normal_reserved_slots=1)
    assert connected_workers(tenant.namespace_id) == [
        Worker(
            session_id=session_id,
            queue_ids=frozenset({tenant.queue_id}),
            handlers=frozenset({("h", "1")}),
            resource_keys=True,
            capacity=4,
            normal_reserved_slots=1,
        )
    ]


def test_who_takes_no_offers_is_no_worker(tenant: Tenant):
    now = factories.now()
    session(tenant, connection_id=None, disconnected_at=now)
    session(tenant, draining=True)
    session(tenant, capacity=0)
    session(tenant, seen_at=now - DEAD_AFTER_SECONDS * factories.SECOND)
    session(make_tenant())
    assert connected_workers(tenant.namespace_id) == []


def test_waiting_tasks_are_told_by_the_sessions_of_their_namespace(tenant: Tenant):
    task_id = factories.submit(tenant)
    found = waiting.why(task_id)
    assert found is not None
    assert found.reason is Reason.NO_COMPATIBLE_WORKER
    session(tenant)
    found = waiting.why(task_id)
    assert found is not None
    assert found.reason is Reason.BEHIND_OTHERS
