"""Worker sessions: open, resume, take over, watch, close, prune (design 2, Session).

Worker name, session and connection are three things. The row of a session names the one connection that speaks for it;
whoever was named before is closed with 4409 by the node that holds it, at once on the same node and within a second on
another. What a session holds stands in the task rows, and stays there until released, finished or run out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks_app import dialect, ids
from tasks_app.domain.tenancy import Principal, principal_again
from tasks_app.errors import NotFound, Unauthenticated
from tasks_app.instants import US_PER_SECOND
from tasks_app.limits import SESSION_RESUME_SECONDS
from tasks_app.states import Action, TaskState
from tasks_app.transactions import Tx, unit
from workers_app.protocol.messages import Capability, Hello

SEEN_EVERY_SECONDS = 5
DEAD_AFTER_SECONDS = 120
PRUNE_AFTER_SECONDS = 24 * 3600
PRUNE_BATCH = 200


@dataclass(frozen=True, slots=True)
class HeldTask:
    """An attempt that a session holds, as its task row says."""

    task_id: str
    attempt_id: str
    fencing_token: int
    queue_id: str
    state: TaskState
    priority: int
    lease_until: int
    deadline_at: int | None
    attempt_timeout_ms: int | None
    timeout_at: int | None
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A session that a connection now speaks for. `handler_refs` by capability are what it may claim."""

    session_id: str
    resumed: bool
    handler_refs: dict[Capability, int]
    held: tuple[HeldTask, ...]
    now_us: int


def open_session(principal: Principal, hello: Hello, *, node_id: str, connection_id: str) -> OpenedSession:
    """Make a session, or take over the one that `hello` names (same credential, same namespace, not gone for too long).

    Raises NotFound for a queue that is not the namespace's, PermissionDenied for one out of scope or a credential that
    may not consume, Unauthenticated for one that is no longer valid.
    """
    refs = _handler_refs(principal.namespace_id, hello.handlers)
    # Run again after a lost COMMIT it finds its own row and takes it over from itself: the same answer.
    session_id = ids.new_id(unit(lambda tx: tx.now_us))

    def run(tx: Tx) -> OpenedSession:
        now = principal_again(tx, principal.credential_id)
        now.require(Action.WORKERS_CONSUME)
        _check_queues(tx, now, hello.queue_ids)
        return _open_in(tx, now, hello, refs, node_id=node_id, connection_id=connection_id, new_session_id=session_id)

    return unit(run, on_unknown=lambda: unit(run))


def _open_in(
    tx: Tx,
    principal: Principal,
    hello: Hello,
    refs: dict[Capability, int],
    *,
    node_id: str,
    connection_id: str,
    new_session_id: str,
) -> OpenedSession:
    announced = {
        "worker_name": hello.worker_name,
        "sdk": hello.sdk,
        "capacity": hello.capacity,
        "queue_ids": json.dumps(hello.queue_ids),
        "handlers": json.dumps([[one.handler, one.handler_version] for one in hello.handlers], ensure_ascii=False),
        "resource_keys": hello.resource_keys,
        "normal_reserved_slots": hello.normal_reserved_slots,
        "draining": False,
        "node_id": node_id,
        "connection_id": connection_id,
        "connected_at": tx.now_us,
        "seen_at": tx.now_us,
        "disconnected_at": None,
    }
    for session_id in (hello.session_id, new_session_id):
        row = None if session_id is None else _resumable(tx, principal, session_id)
        if row is not None and session_id is not None:
            held = held_by(tx, session_id, {*row.queue_ids, *hello.queue_ids})
            gone_for_us = 0 if row.disconnected_at is None else tx.now_us - row.disconnected_at
            if held or gone_for_us <= SESSION_RESUME_SECONDS * US_PER_SECOND:
                tx.execute(
                    f"UPDATE orbit_worker_session SET {', '.join(f'{name} = %s' for name in announced)}"  # noqa: S608
                    " WHERE session_id = %s",
                    [*announced.values(), session_id],
                )
                return OpenedSession(session_id, session_id == hello.session_id, refs, tuple(held), tx.now_us)
    columns = {
        "session_id": new_session_id,
        "namespace_id": principal.namespace_id,
        "credential_id": principal.credential_id,
        "opened_at": tx.now_us,
        **announced,
    }
    tx.insert("orbit_worker_session", tuple(columns), [tuple(columns.values())])
    return OpenedSession(new_session_id, False, refs, (), tx.now_us)


@dataclass(frozen=True, slots=True)
class _SessionRow:
    queue_ids: tuple[str, ...]
    disconnected_at: int | None


def _resumable(tx: Tx, principal: Principal, session_id: str) -> _SessionRow | None:
    """The session, locked, if it is this credential's."""
    row = tx.row(
        "SELECT queue_ids, disconnected_at FROM orbit_worker_session"  # noqa: S608
        " WHERE session_id = %s AND credential_id = %s AND namespace_id = %s" + dialect.for_update(tx.connection),
        [session_id, principal.credential_id, principal.namespace_id],
    )
    return None if row is None else _SessionRow(tuple(json.loads(row[0])), row[1])


def held_by(tx: Tx, session_id: str, queue_ids: Iterable[str]) -> list[HeldTask]:
    """What the session holds in those queues and has not run out, oldest reservation first."""
    wanted = sorted(queue_ids)
    rows = tx.rows(
        "SELECT task_id, attempt_id, fencing_token, queue_id, state, priority, lease_until, deadline_at, started_at,"  # noqa: S608
        f" attempt_timeout_ms, cancel_requested_at FROM orbit_task WHERE queue_id IN ({dialect.placeholders(wanted)})"
        " AND state IN ('RESERVED', 'RUNNING') AND session_id = %s AND lease_until > %s ORDER BY attempt_id",
        [*wanted, session_id, tx.now_us],
    )
    return [
        HeldTask(
            task_id,
            attempt_id,
            int(token),
            queue_id,
            TaskState(state),
            priority,
            lease_until,
            deadline_at,
            timeout_ms,
            None if started_at is None or timeout_ms is None else started_at + timeout_ms * 1000,
            cancel_requested_at is not None,
        )
        for (
            task_id,
            attempt_id,
            token,
            queue_id,
            state,
            priority,
            lease_until,
            deadline_at,
            started_at,
            timeout_ms,
            cancel_requested_at,
        ) in rows
    ]


def _check_queues(tx: Tx, principal: Principal, queue_ids: Sequence[str]) -> None:
    rows = tx.rows(
        f"SELECT queue_id FROM orbit_queue WHERE queue_id IN ({dialect.placeholders(queue_ids)}) AND namespace_id = %s",  # noqa: S608
        [*queue_ids, principal.namespace_id],
    )
    known = {queue_id for (queue_id,) in rows}
    for index, queue_id in enumerate(queue_ids):
        if queue_id not in known:
            # The same words for a queue that never was and one of another namespace.
            raise NotFound("no such queue", details=[{"field": f"queues[{index}]", "reason": "no such queue"}])
        principal.require_queue(queue_id)


def _handler_refs(namespace_id: str, handlers: Sequence[Capability]) -> dict[Capability, int]:
    """The small integers of the announced handlers; those that nobody submitted to yet are made, so that the first
    submit finds a claimant."""

    def known(tx: Tx) -> dict[Capability, int]:
        marks = ", ".join(["(%s, %s)"] * len(handlers))
        rows = tx.rows(
            "SELECT handler, handler_version, handler_ref FROM orbit_handler WHERE namespace_id = %s"  # noqa: S608
            f" AND (handler, handler_version) IN (VALUES {marks})"
            if not tx.is_mysql
            else "SELECT handler, handler_version, handler_ref FROM orbit_handler WHERE namespace_id = %s"  # noqa: S608
            f" AND (handler, handler_version) IN ({marks})",
            [namespace_id, *(part for one in handlers for part in (one.handler, one.handler_version))],
        )
        return {Capability(handler, version): int(ref) for handler, version, ref in rows}

    def make(tx: Tx) -> None:
        missing = [one for one in handlers if one not in found]
        tx.execute(
            f"{dialect.insert_ignore(tx.connection)} orbit_handler (namespace_id, handler, handler_version) VALUES "
            + ", ".join(["(%s, %s, %s)"] * len(missing)),
            [part for one in missing for part in (namespace_id, one.handler, one.handler_version)],
        )

    found = unit(known)
    if len(found) < len(handlers):
        unit(make)
        found = unit(known)
    return found


# -- While it is connected


@dataclass(frozen=True, slots=True)
class Connected:
    """One connection as its node knows it."""

    session_id: str
    connection_id: str
    credential_id: str
    queue_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WatchReport:
    """What a node must act on. Everything is by the database's clock `now_us`."""

    now_us: int
    taken_over: frozenset[str]  # connection ids that no longer speak for their session
    unauthorised: frozenset[str]  # connection ids whose credential was revoked, expired or narrowed
    paused_queues: frozenset[str]


def watch(connected: Sequence[Connected], *, held_queues: Iterable[str], mark_seen: bool) -> WatchReport:
    """Look at all connections of a node at once: are they still the ones, may they still, which queues are paused."""

    def run(tx: Tx) -> WatchReport:
        owners = _owners(tx, [one.session_id for one in connected])
        unowned = [one for one in connected if one.session_id in owners and owners[one.session_id] is None]
        taken_over = {
            one.connection_id
            for one in connected
            if one not in unowned and owners.get(one.session_id) != one.connection_id
        }
        for one in unowned:  # taken for dead while the database could not be reached
            _speak_again(tx, one)
        allowed = {one: _allowed(tx, one) for one in {one.credential_id for one in connected}}
        unauthorised = {
            one.connection_id for one in connected if not _may_go_on(allowed[one.credential_id], one.queue_ids)
        }
        if mark_seen and connected:
            tx.execute(
                "UPDATE orbit_worker_session SET seen_at = %s WHERE connection_id IS NOT NULL AND session_id IN"  # noqa: S608
                f" ({dialect.placeholders(connected)})",
                [tx.now_us, *sorted(one.session_id for one in connected)],
            )
        return WatchReport(
            tx.now_us, frozenset(taken_over), frozenset(unauthorised), _paused(tx, sorted(set(held_queues)))
        )

    return unit(run)


def _owners(tx: Tx, session_ids: Sequence[str]) -> dict[str, str | None]:
    if not session_ids:
        return {}
    rows = tx.rows(
        "SELECT session_id, connection_id FROM orbit_worker_session WHERE session_id IN"  # noqa: S608
        f" ({dialect.placeholders(session_ids)})",
        list(session_ids),
    )
    return dict(rows)


def _speak_again(tx: Tx, one: Connected) -> None:
    tx.execute(
        "UPDATE orbit_worker_session SET connection_id = %s, disconnected_at = NULL, seen_at = %s"
        " WHERE session_id = %s AND connection_id IS NULL",
        [one.connection_id, tx.now_us, one.session_id],
    )


def _allowed(tx: Tx, credential_id: str) -> Principal | None:
    try:
        return principal_again(tx, credential_id)
    except Unauthenticated:
        return None


def _may_go_on(principal: Principal | None, queue_ids: Sequence[str]) -> bool:
    if principal is None or not (principal.may(Action.WORKERS_CONNECT) and principal.may(Action.WORKERS_CONSUME)):
        return False
    return all(principal.in_scope(queue_id) for queue_id in queue_ids)


def _paused(tx: Tx, queue_ids: Sequence[str]) -> frozenset[str]:
    if not queue_ids:
        return frozenset()
    rows = tx.rows(
        f"SELECT queue_id FROM orbit_queue WHERE queue_id IN ({dialect.placeholders(queue_ids)}) AND paused = %s",  # noqa: S608
        [*queue_ids, True],
    )
    return frozenset(queue_id for (queue_id,) in rows)


def announce(session_id: str, connection_id: str, *, capacity: int, draining: bool) -> None:
    """Keep what the worker said since its hello, for people who look."""
    unit(
        lambda tx: tx.execute(
            "UPDATE orbit_worker_session SET capacity = %s, draining = %s WHERE session_id = %s AND connection_id = %s",
            [capacity, draining, session_id, connection_id],
        )
    )


# -- The end


def close_session(session_id: str, connection_id: str) -> bool:
    """The connection is gone. False if another one speaks for the session by now, which changes nothing."""
    return unit(
        lambda tx: (
            tx.execute(
                "UPDATE orbit_worker_session SET connection_id = NULL, disconnected_at = %s"
                " WHERE session_id = %s AND connection_id = %s",
                [tx.now_us, session_id, connection_id],
            )
            == 1
        )
    )


def prune() -> int:
    """Remove a batch of sessions that lost their connection long ago; attempts keep their ids. A session whose node
    gave no sign for minutes lost its connection with it."""

    def run(tx: Tx) -> int:
        tx.execute(
            "UPDATE orbit_worker_session SET connection_id = NULL, disconnected_at = seen_at"
            " WHERE connection_id IS NOT NULL AND seen_at < %s",
            [tx.now_us - DEAD_AFTER_SECONDS * US_PER_SECOND],
        )
        rows = tx.rows(
            "SELECT session_id FROM orbit_worker_session WHERE disconnected_at IS NOT NULL AND disconnected_at < %s"
            f" ORDER BY disconnected_at LIMIT {PRUNE_BATCH}",
            [tx.now_us - PRUNE_AFTER_SECONDS * US_PER_SECOND],
        )
        if not rows:
            return 0
        found = sorted(session_id for (session_id,) in rows)
        return tx.execute(
            f"DELETE FROM orbit_worker_session WHERE session_id IN ({dialect.placeholders(found)})"  # noqa: S608
            " AND disconnected_at IS NOT NULL",
            found,
        )

    return unit(run)
