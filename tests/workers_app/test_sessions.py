"""Sessions in the database: open, resume, watch, close, prune. What a worker sees: test_worker_sessions.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from tasks_app import ids
from tasks_app.domain import submission
from tasks_app.errors import NotFound, PermissionDenied, Unauthenticated
from tasks_app.limits import SESSION_RESUME_SECONDS
from tasks_app.transactions import unit
from tests.tasks_app import factories
from tests.tasks_app.factories import SECOND, Tenant, make_tenant
from workers_app import sessions
from workers_app.models import WorkerSession
from workers_app.protocol.messages import Capability, Hello
from workers_app.sessions import Connected, OpenedSession


@pytest.fixture
def tenant(transactional_db: None) -> Tenant:
    submission.forget_references()
    return make_tenant()


def hello(tenant: Tenant, **changes: Any) -> Hello:
    said = Hello(
        worker_name="w",
        capacity=4,
        queue_ids=(tenant.queue_id,),
        handlers=(Capability("h", "1"),),
        resource_keys=True,
        normal_reserved_slots=0,
        session_id=None,
        sdk=None,
    )
    return replace(said, **changes)


def open_session(
    tenant: Tenant, *, connection_id: str = "c" * 32, node_id: str = "node", **changes: Any
) -> OpenedSession:
    return sessions.open_session(
        tenant.principal, hello(tenant, **changes), node_id=node_id, connection_id=connection_id
    )


def row(session_id: str) -> WorkerSession:
    return WorkerSession.objects.get(session_id=session_id)


def change(session_id: str, **columns: Any) -> None:
    names = ", ".join(f"{name} = %s" for name in columns)
    unit(
        lambda tx: tx.execute(
            f"UPDATE orbit_worker_session SET {names} WHERE session_id = %s", [*columns.values(), session_id]
        )
    )


# -- open


def test_session_keeps_what_the_worker_announced(tenant: Tenant) -> None:
    opened = open_session(tenant, worker_name="Wörker", sdk="sdk/1", resource_keys=False, capacity=7)
    kept = row(opened.session_id)
    assert (kept.worker_name, kept.sdk, kept.resource_keys, kept.capacity) == ("Wörker", "sdk/1", False, 7)
    assert (kept.node_id, kept.connection_id, kept.disconnected_at) == ("node", "c" * 32, None)
    assert (opened.resumed, opened.held) == (False, ())


def test_handlers_that_nobody_submitted_to_yet_are_known_afterwards(tenant: Tenant) -> None:
    handlers = tuple(Capability(f"h{number}", "1") for number in range(256))
    opened = open_session(tenant, handlers=handlers)
    assert set(opened.handler_refs) == set(handlers)
    assert len(set(opened.handler_refs.values())) == 256
    assert open_session(tenant, handlers=handlers).handler_refs == opened.handler_refs


def test_handlers_are_told_apart_byte_for_byte(tenant: Tenant) -> None:
    handlers = tuple(Capability(*pair) for pair in (("h", "1"), ("H", "1"), ("h", "\u00e9"), ("h", "e\u0301")))
    assert len(set(open_session(tenant, handlers=handlers).handler_refs.values())) == 4


def test_unknown_and_foreign_queues_are_not_found(tenant: Tenant) -> None:
    other = make_tenant()
    for queue_id in ("0" * 32, other.queue_id):
        with pytest.raises(NotFound):
            open_session(tenant, queue_ids=(tenant.queue_id, queue_id))
    assert not WorkerSession.objects.filter(namespace_id=tenant.namespace_id).exists()


def test_credential_that_may_not_consume_is_refused(tenant: Tenant) -> None:
    unit(lambda tx: tx.execute("UPDATE orbit_credential SET actions = 'workers:connect'"))
    with pytest.raises(PermissionDenied):
        open_session(tenant)


def test_credential_that_was_revoked_since_the_handshake_is_refused(tenant: Tenant) -> None:
    unit(lambda tx: tx.execute("UPDATE orbit_credential SET revoked_at = %s", [tx.now_us]))
    with pytest.raises(Unauthenticated):
        open_session(tenant)


# -- resume


def test_session_is_resumed_for_60_s_after_its_connection_was_lost(tenant: Tenant) -> None:
    opened = open_session(tenant)
    sessions.close_session(opened.session_id, "c" * 32)
    again = open_session(tenant, session_id=opened.session_id, connection_id="d" * 32)
    assert (again.session_id, again.resumed) == (opened.session_id, True)
    assert row(opened.session_id).disconnected_at is None


def test_session_is_not_resumed_after_that(tenant: Tenant) -> None:
    opened = open_session(tenant)
    sessions.close_session(opened.session_id, "c" * 32)
    change(opened.session_id, disconnected_at=factories.now() - (SESSION_RESUME_SECONDS + 1) * SECOND)
    again = open_session(tenant, session_id=opened.session_id)
    assert not again.resumed
    assert again.session_id != opened.session_id


def test_session_that_holds_an_attempt_is_resumed_however_long_it_was_gone(tenant: Tenant) -> None:
    opened = open_session(tenant)
    holder = replace(tenant, session_id=opened.session_id)
    factories.submit(tenant)
    offer = factories.claim_one(holder)
    sessions.close_session(opened.session_id, "c" * 32)
    change(opened.session_id, disconnected_at=factories.now() - 3600 * SECOND)
    again = open_session(tenant, session_id=opened.session_id)
    assert again.resumed
    assert [held.attempt_id for held in again.held] == [offer.task.attempt_id]


def test_held_attempts_of_queues_that_the_new_hello_does_not_name_are_told_too(tenant: Tenant) -> None:
    opened = open_session(tenant)
    factories.submit(tenant)
    offer = factories.claim_one(replace(tenant, session_id=opened.session_id))
    again = open_session(tenant, session_id=opened.session_id, queue_ids=(tenant.queue(),))
    assert [held.attempt_id for held in again.held] == [offer.task.attempt_id]


def test_reservation_that_has_run_out_is_not_held(tenant: Tenant) -> None:
    opened = open_session(tenant)
    factories.submit(tenant)
    factories.claim_one(replace(tenant, session_id=opened.session_id))
    unit(lambda tx: tx.execute("UPDATE orbit_task SET lease_until = %s", [tx.now_us - 1]))
    assert open_session(tenant, session_id=opened.session_id).held == ()


# -- watch and close


def connected(opened: OpenedSession, tenant: Tenant, *, connection_id: str = "c" * 32) -> Connected:
    return Connected(opened.session_id, connection_id, tenant.credential_id, (tenant.queue_id,))


def watch(*who: Connected, queues: tuple[str, ...] = (), mark_seen: bool = False) -> sessions.WatchReport:
    return sessions.watch(who, held_queues=queues, mark_seen=mark_seen)


def test_watch_finds_nothing_where_all_is_well(tenant: Tenant) -> None:
    report = watch(connected(open_session(tenant), tenant), queues=(tenant.queue_id,))
    assert (report.taken_over, report.unauthorised, report.paused_queues) == (frozenset(), frozenset(), frozenset())


def test_watch_finds_connections_that_no_longer_speak_for_their_session(tenant: Tenant) -> None:
    opened = open_session(tenant)
    open_session(tenant, session_id=opened.session_id, connection_id="d" * 32)
    assert watch(connected(opened, tenant)).taken_over == {"c" * 32}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE orbit_credential SET revoked_at = 1",
        "UPDATE orbit_credential SET created_at = 1, expires_at = 2",
        "UPDATE orbit_credential SET actions = 'workers:connect'",
        "UPDATE orbit_credential SET actions = 'workers:consume'",
        "UPDATE orbit_credential SET all_queues = 0",
    ],
)
def test_watch_finds_credentials_that_were_revoked_expired_or_narrowed(tenant: Tenant, statement: str) -> None:
    opened = open_session(tenant)
    unit(lambda tx: tx.execute(statement))
    assert watch(connected(opened, tenant)).unauthorised == {"c" * 32}


def test_watch_finds_paused_queues_among_those_held(tenant: Tenant) -> None:
    opened, other = open_session(tenant), tenant.queue()
    unit(lambda tx: tx.execute("UPDATE orbit_queue SET paused = 1"))
    assert watch(connected(opened, tenant), queues=(tenant.queue_id,)).paused_queues == {tenant.queue_id}
    assert other not in watch(connected(opened, tenant), queues=(tenant.queue_id,)).paused_queues


def test_watch_marks_sessions_as_seen_when_asked(tenant: Tenant) -> None:
    opened = open_session(tenant)
    change(opened.session_id, seen_at=1)
    watch(connected(opened, tenant))
    assert row(opened.session_id).seen_at.year == 1970
    watch(connected(opened, tenant), mark_seen=True)
    assert row(opened.session_id).seen_at.year > 2000


def test_connection_taken_for_dead_during_an_outage_speaks_again(tenant: Tenant) -> None:
    opened = open_session(tenant)
    change(opened.session_id, seen_at=factories.now() - (sessions.DEAD_AFTER_SECONDS + 1) * SECOND)
    sessions.prune()
    assert row(opened.session_id).connection_id is None
    assert watch(connected(opened, tenant)).taken_over == frozenset()
    assert row(opened.session_id).connection_id == "c" * 32


def test_only_the_connection_that_speaks_for_a_session_closes_it(tenant: Tenant) -> None:
    opened = open_session(tenant)
    assert not sessions.close_session(opened.session_id, "d" * 32)
    assert sessions.close_session(opened.session_id, "c" * 32)
    assert not sessions.close_session(opened.session_id, "c" * 32)


def test_announcement_of_another_connection_changes_nothing(tenant: Tenant) -> None:
    opened = open_session(tenant)
    sessions.announce(opened.session_id, "d" * 32, capacity=0, draining=True)
    assert (row(opened.session_id).capacity, row(opened.session_id).draining) == (4, False)
    sessions.announce(opened.session_id, "c" * 32, capacity=0, draining=True)
    assert (row(opened.session_id).capacity, row(opened.session_id).draining) == (0, True)


def test_prune_removes_sessions_that_were_gone_for_a_day_and_no_others(tenant: Tenant) -> None:
    old, recent, open_one = open_session(tenant), open_session(tenant), open_session(tenant)
    for opened in (old, recent):
        sessions.close_session(opened.session_id, "c" * 32)
    change(old.session_id, disconnected_at=factories.now() - (sessions.PRUNE_AFTER_SECONDS + 1) * SECOND)
    assert sessions.prune() == 1
    left = set(WorkerSession.objects.values_list("session_id", flat=True))
    assert {recent.session_id, open_one.session_id} <= left
    assert old.session_id not in left


# -- what the database refuses


@pytest.mark.parametrize(
    "columns",
    [
        {"capacity": -1},
        {"capacity": 1001},
        {"normal_reserved_slots": -1},
        {"connection_id": None},
        {"disconnected_at": 1},
    ],
)
def test_row_that_must_not_exist_is_refused(tenant: Tenant, columns: dict[str, Any]) -> None:
    opened = open_session(tenant)
    with pytest.raises(IntegrityError), transaction.atomic():
        WorkerSession.objects.filter(session_id=opened.session_id).update(**columns)


def test_ids_are_made_by_the_clock_of_the_database(tenant: Tenant) -> None:
    opened = open_session(tenant)
    assert abs(ids.id_instant(opened.session_id) - opened.now_us) < 5 * SECOND
