"""The workers of one node: its connections, what they share, and the three things that go on beside them.

- every 100 ms: time (leases, deadlines, time-outs) and the event tail of other nodes;
- every second: are the sessions still ours, are the credentials still good, are queues paused;
- at a drain: tell everybody, wait, close with 1012.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from tasks_app import ids
from tasks_app.domain.tenancy import Principal, authenticate
from tasks_app.hints import Hint, HintKind
from tasks_app.instants import process_now_us
from workers_app import sessions, telemetry
from workers_app.connection import Outlet, WorkerConnection
from workers_app.control import ControlLanes
from workers_app.database_clock import DatabaseClock
from workers_app.dispatcher import Dispatcher
from workers_app.event_tail import EventTail
from workers_app.giving_way import GivingWay
from workers_app.hint_relay import HintRelay
from workers_app.pools import BoundedPool, PoolSaturated
from workers_app.protocol.messages import CancelReason, CloseCode, RevokeReason
from workers_app.reads import read_again_if_lost
from workers_app.scheduler import ClaimScheduler, Pacing, SchedulerLimits
from workers_app.sessions import Connected, WatchReport

TICK_SECONDS = 0.1
WATCH_SECONDS = 1.0
GOODBYE_SECONDS = 2.0
CLAIM_WAITING_MAX = 16
WATCH_WAITING_MAX = 512  # a full node of handshakes at once, and room for the watching beside them


class WorkersHub:
    """A part of the node (see `orbit_project.serving.node`); role `workers`."""

    name = "workers"

    def __init__(self, *, node_id: str, relay: HintRelay) -> None:
        configuration = settings.ORBIT
        self.node_id = node_id
        self.clock = DatabaseClock()
        self.lanes = ControlLanes(threads=configuration.control_pool)
        self.claim_pool = BoundedPool("orbit-claim", threads=configuration.claim_pool, waiting_max=CLAIM_WAITING_MAX)
        # Handshakes and watching have a thread of their own: they must not wait for what workers do.
        self.watch_pool = BoundedPool("orbit-watch", threads=2, waiting_max=WATCH_WAITING_MAX)
        self.dispatcher = Dispatcher(
            ClaimScheduler(
                SchedulerLimits(
                    claims_at_once=configuration.claim_pool,
                    requests_max=configuration.claim_pending,
                    claims_per_cycle=configuration.claims_per_cycle,
                    tasks_per_claim_max=configuration.claim_batch,
                    cycle_seconds=configuration.scan_cycle_ms / 1000,
                    pacing=Pacing(configuration.claim_pacing),
                )
            ),
            pool=self.claim_pool,
            database_now_us=self.clock.now_us,
            running_attempts=self._running_by_application,
        )
        self.giving_way = GivingWay(dispatcher=self.dispatcher, pool=self.claim_pool)
        self._relay = relay
        self._tail = EventTail()
        self._connections: dict[str, WorkerConnection] = {}
        self._by_session: dict[str, WorkerConnection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._watches = 0
        for figures in (self.claim_pool.figures, self.watch_pool.figures):
            telemetry.POOLS.add(figures)
        telemetry.POOLS.add(self.lanes.pool.figures)
        telemetry.POOLS.add(self.lanes.renewal_pool.figures)

    # -- A part of the node

    async def start(self) -> None:
        self._relay.subscribe(self._hint)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._every(TICK_SECONDS, self._tick)),
            loop.create_task(self._every(WATCH_SECONDS, self._watch)),
            loop.create_task(self._every(settings.ORBIT.scan_cycle_ms / 1000, self._scan)),
        ]

    def begin_drain(self) -> None:
        self._is_draining = True
        self.dispatcher.shut_down()
        for connection in list(self._connections.values()):
            connection.node_drains()

    @property
    def is_drained(self) -> bool:
        return not self.dispatcher.claims_running and all(one.is_idle for one in self._connections.values())

    @property
    def attempts_running(self) -> int:
        return sum(connection.held.running for connection in self._connections.values())

    async def stop(self) -> None:
        self.begin_drain()
        for connection in list(self._connections.values()):
            connection.end(CloseCode.NODE_RESTARTS, "the node restarts")
        # The sockets close and report back; what had not started is given back by then.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                while self._connections:  # noqa: ASYNC110 - once in the life of a node
                    await asyncio.sleep(TICK_SECONDS / 4)
        for task in self._tasks:
            task.cancel()
        self.lanes.close(wait_seconds=0.5)
        self.claim_pool.close(wait_seconds=0.5)
        self.watch_pool.close(wait_seconds=0.1)

    # -- Connections

    @property
    def connections_max(self) -> int:
        return int(settings.ORBIT.max_connections)

    @property
    def is_full(self) -> bool:
        return len(self._connections) >= self.connections_max

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    async def authenticate(self, token: str) -> Principal:
        """Who opens a handshake. Raises Unauthenticated, DatabaseError, PoolSaturated."""
        return await self.watch_pool.run(lambda: read_again_if_lost(lambda: authenticate(token)))

    def connect(self, *, principal: Principal, address: str, outlet: Outlet) -> WorkerConnection:
        """A handshake was accepted."""
        connection = WorkerConnection(
            connection_id=ids.new_id(process_now_us()), principal=principal, address=address, outlet=outlet, node=self
        )
        self._connections[connection.connection_id] = connection
        telemetry.CONNECTIONS.set(len(self._connections))
        if self._is_draining:
            connection.node_drains()
        return connection

    def speaks_for(self, session_id: str, connection: WorkerConnection) -> None:
        before = self._by_session.get(session_id)
        self._by_session[session_id] = connection
        if before is not None and before is not connection:
            before.end(CloseCode.TAKEN_OVER, "the session goes on on another connection")

    def forget(self, connection: WorkerConnection) -> None:
        self._connections.pop(connection.connection_id, None)
        if connection.session_id is not None and self._by_session.get(connection.session_id) is connection:
            del self._by_session[connection.session_id]
        telemetry.CONNECTIONS.set(len(self._connections))

    def _running_by_application(self) -> Counter[str]:
        running: Counter[str] = Counter()
        for connection in self._connections.values():
            running[connection.principal.application_id] += connection.held.running
        return running

    # -- Hints

    def _hint(self, hint: Hint) -> None:
        """From this process's own commits."""
        self._tail.own(hint)
        self._act_on(hint)

    def _act_on(self, hint: Hint) -> None:
        if hint.kind is HintKind.CANCEL_REQUESTED:
            for connection, attempt_id in self._holders(hint):
                connection.asked_to_stop(attempt_id, CancelReason.REQUESTED)
        elif hint.kind is HintKind.RESERVATION_REVOKED:
            for connection, attempt_id in self._holders(hint):
                connection.revoked(attempt_id, RevokeReason(hint.detail))
        elif hint.kind is HintKind.CREDENTIAL_CHANGED:
            self._spawn(self._watch())
        else:
            self.dispatcher.hint(hint)
            if hint.kind is HintKind.WORK_ADDED:
                self.giving_way.work_added(hint, self._connections.values())

    def _holders(self, hint: Hint) -> list[tuple[WorkerConnection, str]]:
        """Who holds the attempt that a hint is about, named by its session or, from another node, by its task."""
        if hint.session_id:
            connection = self._by_session.get(hint.session_id)
            candidates = [] if connection is None else [connection]
        else:
            candidates = [one for one in self._connections.values() if hint.namespace_id == one.principal.namespace_id]
        found = []
        for connection in candidates:
            attempt = connection.held.get(hint.attempt_id) or connection.held.of_task(hint.task_id)
            if attempt is not None and (hint.attempt_id in ("", attempt.attempt_id)):
                found.append((connection, attempt.attempt_id))
        return found

    # -- What goes on beside the connections

    async def _tick(self) -> None:
        self.dispatcher.measure()
        now_us = self.clock.now_us()
        running = reserved = 0
        for connection in list(self._connections.values()):
            connection.tick(now_us)
            running += connection.held.running
            reserved += len(connection.held) - connection.held.running
        telemetry.RUNNING.labels(state="running").set(running)
        telemetry.RUNNING.labels(state="reserved").set(reserved)
        if self._connections:
            events, read_at = await self.watch_pool.run(lambda: read_again_if_lost(self._tail.read))
            self.clock.note(read_at)
            for hint in self._tail.news(events):
                self._relay.tell(hint, but=self._hint)
                self._act_on(hint)

    async def _scan(self) -> None:
        """Each scan: has something more urgent come than what full sessions hold unstarted?"""
        self.giving_way.scan(self._connections.values())

    async def _watch(self) -> None:
        connected = [
            Connected(one.session_id, one.connection_id, one.principal.credential_id, one.queue_ids)
            for one in self._connections.values()
            if one.session_id is not None and not one.is_gone
        ]
        if not connected:
            return
        held_queues = {
            attempt.queue_id
            for one in self._connections.values()
            for attempt in one.held
            if not attempt.is_running and attempt.queue_id
        }
        self._watches += 1
        mark_seen = self._watches % sessions.SEEN_EVERY_SECONDS == 0
        report = await self.watch_pool.run(
            lambda: sessions.watch(connected, held_queues=held_queues, mark_seen=mark_seen)
        )
        self.clock.note(report.now_us)
        await self._act_on_report(report)

    async def _act_on_report(self, report: WatchReport) -> None:
        for connection in list(self._connections.values()):
            if connection.connection_id in report.taken_over:
                connection.end(CloseCode.TAKEN_OVER, "the session goes on on another connection")
            elif connection.connection_id in report.unauthorised:
                connection.end(CloseCode.CREDENTIAL, "the credential was revoked, has expired or was narrowed")
            elif report.paused_queues:
                await connection.queue_paused(report.paused_queues)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._guarded(work())

    async def _guarded(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except (DatabaseError, PoolSaturated) as error:
            telemetry.database_unavailable("watching", error)
        except Exception as error:  # the next round goes on
            telemetry.background_failed("watching", error)

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
