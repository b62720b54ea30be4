"""One worker connection: hello, offers, notices, drain and end (design, chapter 2).

    hello -> open -> (drain) -> ended -> gone

The control loop never waits for a claim: messages are answered by tasks of their own, at most 64 at a time, each
message exactly once; offers come in from the dispatcher. A connection is *ended* when its close was decided and *gone*
when the socket is; only then its unstarted reservations go back.

No sockets here: `Outlet` is what a consumer gives, `Node` what the node gives. Everything belongs to the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from django.conf import settings
from django.db import DatabaseError

from tasks_app.domain.attempts import Starter
from tasks_app.domain.claims import Offer
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import OrbitError
from tasks_app.limits import FRAME_BYTES_MAX, INBOUND_FRAMES_IN_FLIGHT_MAX
from tasks_app.states import TaskState
from workers_app import sessions, telemetry
from workers_app.control import ControlLanes, is_unavailable
from workers_app.control_loop import ControlLoop
from workers_app.database_clock import DatabaseClock
from workers_app.dispatcher import Claimer, Dispatcher
from workers_app.held_attempts import Due, HeldAttempt, HeldAttempts
from workers_app.pools import PoolSaturated
from workers_app.protocol import messages
from workers_app.protocol.messages import CancelReason, Capability, CloseCode, ProtocolError, RevokeReason
from workers_app.sessions import OpenedSession
from workers_app.yielding import free_urgent_slots

ENDING_SECONDS = 1.0  # for answers that are under way when the close is decided


class Outlet(Protocol):
    """The socket. Both wait while the peer does not read and are harmless after the end."""

    async def send(self, text: str) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...


class Node(Protocol):
    """What a connection needs of its node."""

    node_id: str
    lanes: ControlLanes
    dispatcher: Dispatcher
    clock: DatabaseClock

    def speaks_for(self, session_id: str, connection: WorkerConnection) -> None:
        """From now on `connection` speaks for the session; one that did before is told."""

    def forget(self, connection: WorkerConnection) -> None:
        """The connection is gone."""


class WorkerConnection:
    """See the module. `principal` is who opened the handshake."""

    def __init__(self, *, connection_id: str, principal: Principal, address: str, outlet: Outlet, node: Node) -> None:
        self.connection_id = connection_id
        self.principal = principal
        self.session_id: str | None = None
        self.queue_ids: tuple[str, ...] = ()
        self.held = HeldAttempts()
        self.capacity = 0
        self._address = address
        self._outlet = outlet
        self._node = node
        self._loop: ControlLoop | None = None
        self._normal_reserved_slots = 0
        self._capabilities: dict[int, Capability] = {}
        self._undelivered: deque[Offer] = deque()
        self._delivery: asyncio.Task[None] | None = None
        self._in_flight = asyncio.Semaphore(INBOUND_FRAMES_IN_FLIGHT_MAX)
        self._answering: set[asyncio.Task[None]] = set()
        self._background: set[asyncio.Task[None]] = set()
        self._hello_timer: asyncio.TimerHandle | None = None
        self._is_draining = False
        self._is_drained_sent = False
        self._is_node_draining = False
        self._ended: CloseCode | None = None
        self._is_gone = False

    # -- What the socket brings

    def opened(self) -> None:
        """The handshake is done: the worker has some seconds for its hello."""
        seconds = settings.ORBIT.hello_timeout_ms / 1000
        self._hello_timer = asyncio.get_running_loop().call_later(
            seconds, self.end, CloseCode.SILENT, f"no hello within {seconds:g} s"
        )

    async def received(self, text: str | None) -> None:
        """A frame (None: a binary one). Waits while 64 messages are being answered."""
        if self._ended is not None:
            return
        try:
            if text is None:
                raise ProtocolError("frames must be text")
            message = messages.parse_client_message(text)
            if isinstance(message, messages.Hello):
                if self._hello_timer is None:
                    raise ProtocolError("hello was said already")
                await self._hello(message)
                return
            if self._loop is None:
                raise ProtocolError("the first message must be hello", seq=message.seq)
        except ProtocolError as fault:
            self.end(fault.close_code, fault.message, re=fault.seq)
            return
        await self._in_flight.acquire()
        task = asyncio.get_running_loop().create_task(self._answer(message, self._loop))
        self._answering.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._in_flight.release()

    async def lost(self) -> None:
        """The socket is gone. What has not started goes back at once, what runs goes on under its lease."""
        if self._is_gone:
            return
        self._is_gone = True
        self._stop_claiming()
        self._undelivered.clear()
        try:
            if self.session_id is not None and self._loop is not None:
                await self._leave_session(self.session_id, self._loop)
        finally:
            self._node.forget(self)

    async def _leave_session(self, session_id: str, loop: ControlLoop) -> None:
        unstarted = [attempt for attempt in self.held if not attempt.is_running]
        telemetry.connection_lost(session_id=session_id, reserved=len(unstarted), running=self.held.running)
        try:
            if self._ended is not CloseCode.TAKEN_OVER:  # else they are the new connection's
                await loop.give_back(unstarted)
            await self._node.lanes.pool.run(lambda: sessions.close_session(session_id, self.connection_id))
        except (DatabaseError, PoolSaturated) as error:
            telemetry.database_unavailable("close of a session", error)  # what it holds returns by its leases

    # -- Hello

    async def _hello(self, hello: messages.Hello) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None
        hello.check_policy(self.principal.policy)
        try:
            opened = await self._node.lanes.pool.run(
                lambda: sessions.open_session(
                    self.principal, hello, node_id=self._node.node_id, connection_id=self.connection_id
                )
            )
        except OrbitError as error:
            self.end(messages.CLOSE_CODES.get(error.code, CloseCode.PROTOCOL), error.message)
            return
        except Exception as error:  # nothing was promised yet: the worker connects again
            self._failed("hello", error)
            self.end(CloseCode.NODE_RESTARTS, "the session could not be opened now; connect again")
            return
        if self._is_gone:
            await self._node.lanes.pool.run(lambda: sessions.close_session(opened.session_id, self.connection_id))
            return
        self._open(hello, opened)
        await self._outlet.send(_welcome(opened, node_id=self._node.node_id, policy=self.principal.policy))
        for task in opened.held:
            if task.cancel_requested:
                self.asked_to_stop(task.attempt_id, CancelReason.REQUESTED)
        if self._is_node_draining:
            await self._outlet.send(messages.drain())
        elif self._ended is None:
            self._node.dispatcher.register(self._claimer(hello, opened))
            await self._shrink()
            self._changed()

    def _open(self, hello: messages.Hello, opened: OpenedSession) -> None:
        self.session_id = opened.session_id
        self.queue_ids = hello.queue_ids
        self.capacity = hello.capacity
        self._normal_reserved_slots = hello.normal_reserved_slots
        self._capabilities = {ref: capability for capability, ref in opened.handler_refs.items()}
        self._node.clock.note(opened.now_us)
        self._loop = ControlLoop(
            held=self.held,
            lanes=self._node.lanes,
            clock=self._node.clock,
            namespace_id=self.principal.namespace_id,
            starter=Starter(self.principal.credential_id, opened.session_id, hello.worker_name),
        )
        for task in opened.held:
            self.held.add(
                HeldAttempt(
                    attempt_id=task.attempt_id,
                    task_id=task.task_id,
                    fencing_token=task.fencing_token,
                    queue_id=task.queue_id,
                    priority=task.priority,
                    is_running=task.state is TaskState.RUNNING,
                    lease_until=task.lease_until,
                    deadline_at=task.deadline_at,
                    attempt_timeout_ms=task.attempt_timeout_ms,
                    timeout_at=task.timeout_at,
                )
            )
        self._node.speaks_for(opened.session_id, self)
        telemetry.session_opened(
            session_id=opened.session_id,
            worker_name=hello.worker_name,
            resumed=opened.resumed,
            held=len(self.held),
            address=self._address,
        )

    def _claimer(self, hello: messages.Hello, opened: OpenedSession) -> Claimer:
        return Claimer(
            connection=self,
            session_id=opened.session_id,
            application_id=self.principal.application_id,
            namespace_id=self.principal.namespace_id,
            policy=self.principal.policy,
            queue_ids=hello.queue_ids,
            handler_refs=tuple(sorted(self._capabilities)),
            resource_keys=hello.resource_keys,
        )

    # -- The control loop

    async def _answer(self, message: messages.SequencedMessage, loop: ControlLoop) -> None:
        kind = type(message).__name__.lower()
        telemetry.MESSAGES.labels(type=kind).inc()
        try:
            answer = await self._answer_to(message, loop)
        except Exception as error:
            self._failed(kind, error)
            busy = is_unavailable(error) or isinstance(error, PoolSaturated)
            code, words = ("UNAVAILABLE", "repeat the same message") if busy else ("INTERNAL", "something went wrong")
            answer = messages.error(code=code, message=words, re=message.seq)
        await self._outlet.send(answer)
        self._changed()
        self._announce_drained()

    async def _answer_to(self, message: messages.SequencedMessage, loop: ControlLoop) -> str:
        match message:
            case messages.Heartbeat():
                return messages.heartbeat_ack(re=message.seq, server_time=self._node.clock.now_us())
            case messages.Start():
                return await loop.start(message)
            case messages.Renew():
                answer, asked_to_stop = await loop.renew(message)
                for attempt_id in asked_to_stop:
                    self.asked_to_stop(attempt_id, CancelReason.REQUESTED)
                return answer
            case messages.Finish():
                return await loop.finish(message)
            case messages.Release():
                return await loop.release(message)
            case messages.Resize():
                return await self._resize(message)
            case messages.Drain():
                return await self._drain(message, loop)

    async def _resize(self, message: messages.Resize) -> str:
        self.capacity = message.capacity
        self._changed()
        await self._shrink()
        self._announce()
        return messages.resized(re=message.seq, capacity=message.capacity)

    async def _shrink(self) -> None:
        """Revoke unstarted reservations beyond the capacity, newest first."""
        surplus = self.held.unstarted_newest_first()[: max(0, len(self.held) - self.capacity)]
        if surplus and self._loop is not None:
            for attempt_id in await self._loop.give_back(surplus):
                await self._revoke(attempt_id, RevokeReason.CAPACITY)

    async def _drain(self, message: messages.Drain, loop: ControlLoop) -> str:
        self._is_draining = True
        self._changed()
        await loop.give_back(self.held.unstarted_newest_first())
        self._announce()
        return messages.draining(re=message.seq, running=self.held.running)

    def _announce(self) -> None:
        """Write down what the worker said, for people who look; nobody waits for it."""
        session_id, capacity, draining = self.session_id, self.capacity, self._is_draining
        if session_id is not None:
            self._spawn(
                self._node.lanes.pool.run(
                    lambda: sessions.announce(session_id, self.connection_id, capacity=capacity, draining=draining)
                )
            )

    def _announce_drained(self) -> None:
        """After the last answer: nothing of the session runs any more."""
        if self._is_draining and not len(self.held) and not self._is_drained_sent and self._ended is None:
            self._is_drained_sent = True
            self._spawn(self._say_drained())

    async def _say_drained(self) -> None:
        await self._outlet.send(messages.drained())
        self.end(CloseCode.NORMAL, "drained")

    # -- Offers

    @property
    def _takes_offers(self) -> bool:
        return self._ended is None and not (self._is_gone or self._is_draining or self._is_node_draining)

    def offered(self, offers: Sequence[Offer]) -> None:
        """Committed reservations: delivered as far as there is room, the others given back."""
        room = max(0, self.capacity - len(self.held)) if self._takes_offers else 0
        for offer in offers:
            self.held.add(_held_of(offer))
        if len(offers) > room and self._loop is not None:
            telemetry.OFFERS_UNDELIVERED.inc(len(offers) - room)
            surplus = [self.held.get(offer.task.attempt_id or "") for offer in offers[room:]]
            self._spawn(self._give_back_unsent([attempt for attempt in surplus if attempt is not None], self._loop))
        self._undelivered.extend(offers[:room])
        if self._undelivered and self._delivery is None:
            self._delivery = self._spawn(self._deliver())
            # Runs after the first step of the delivery: a slow reader wants nothing until it has read these.
            asyncio.get_running_loop().call_soon(self._changed)

    async def _give_back_unsent(self, attempts: Sequence[HeldAttempt], loop: ControlLoop) -> None:
        await loop.give_back(attempts)
        self._changed()

    async def _deliver(self) -> None:
        try:
            while self._undelivered and self._takes_offers:
                offer = self._undelivered.popleft()
                attempt_id = offer.task.attempt_id or ""
                attempt = self.held.get(attempt_id)
                if attempt is None:
                    continue  # revoked or run out before it could be sent
                attempt.is_delivered = True
                telemetry.OFFERS.inc()
                await self._outlet.send(self._offer_text(offer))
        finally:
            self._delivery = None
            self._changed()

    def _offer_text(self, offer: Offer) -> str:
        task, capability = offer.task, self._capabilities[offer.task.handler_ref]
        return messages.offer(
            attempt_id=task.attempt_id or "",
            fencing_token=task.fencing_token,
            reserved_until=task.lease_until or 0,
            task=messages.OfferedTask(
                task_id=task.task_id,
                queue_id=task.queue_id,
                handler=capability.handler,
                handler_version=capability.handler_version,
                payload_version=offer.payload_version,
                payload=offer.payload,
                priority=task.priority,
                policy=self.principal.policy,
                attempt=task.attempts + 1,
                available_at=task.available_at,
                deadline_at=task.deadline_at,
                attempt_timeout_ms=task.attempt_timeout_ms,
                resource_key=offer.resource_key,
                parent_task_id=offer.parent_task_id,
                traceparent=offer.traceparent,
            ),
        )

    def _changed(self) -> None:
        """What is held or may be held changed: tell the dispatcher what is wanted now."""
        free = max(0, self.capacity - len(self.held))
        if not self._takes_offers or self._undelivered:
            free = 0
        self._node.dispatcher.want(self.connection_id, free, urgent_capacity=self.free_urgent_slots)

    def _stop_claiming(self) -> None:
        if self._hello_timer is not None:
            self._hello_timer.cancel()
            self._hello_timer = None
        self._node.dispatcher.unregister(self.connection_id)

    # -- Giving way (STRICT)

    def reservations_that_could_yield(self) -> list[HeldAttempt]:
        """Unstarted reservations of a full session; with a free slot an urgent task needs nobody's place."""
        if not self._takes_offers or len(self.held) < self.capacity:
            return []
        return self.held.unstarted_newest_first()

    @property
    def free_urgent_slots(self) -> int | None:
        """What `normal_reserved_slots` leaves for priorities above 0; None where it reserves nothing."""
        if not self._normal_reserved_slots:
            return None
        return free_urgent_slots(
            capacity=self.capacity, normal_reserved_slots=self._normal_reserved_slots, urgent_held=self.held.urgent
        )

    # -- Notices

    def revoked(self, attempt_id: str, reason: RevokeReason) -> None:
        """The database took an attempt away: its reservation is no longer the worker's, or its lease was lost."""
        attempt = self.held.drop(attempt_id)
        if attempt is not None and not attempt.is_running and attempt.is_delivered:
            self._spawn(self._revoke(attempt_id, reason))
        self._changed()
        self._announce_drained()

    async def _revoke(self, attempt_id: str, reason: RevokeReason) -> None:
        telemetry.REVOKES.labels(reason=reason.value).inc()
        await self._outlet.send(messages.revoke(attempt_id=attempt_id, reason=reason))

    def asked_to_stop(self, attempt_id: str, reason: CancelReason) -> None:
        """A running attempt should stop: told once for a request, once for a limit that it passed."""
        attempt = self.held.get(attempt_id)
        if attempt is None or not attempt.is_running or reason in attempt.told:
            return
        attempt.told |= {reason}
        telemetry.CANCEL_NOTICES.labels(reason=reason.value).inc()
        self._spawn(self._outlet.send(messages.cancel(attempt_id=attempt_id, reason=reason)))

    async def queue_paused(self, queue_ids: frozenset[str]) -> None:
        """Reservations in paused queues go back: they could not start."""
        unstarted = [attempt for attempt in self.held.unstarted_newest_first() if attempt.queue_id in queue_ids]
        if unstarted and self._loop is not None:
            for attempt_id in await self._loop.give_back(unstarted):
                await self._revoke(attempt_id, RevokeReason.QUEUE_PAUSED)
            self._changed()

    def tick(self, now_us: int) -> None:
        """Look at what time has done, by the database's clock."""
        for attempt, due in self.held.due(now_us):
            if due is Due.LEASE:
                self.revoked(attempt.attempt_id, RevokeReason.LEASE_LOST)
            elif due is Due.DEADLINE:
                self.asked_to_stop(attempt.attempt_id, CancelReason.DEADLINE)
            else:
                self.asked_to_stop(attempt.attempt_id, CancelReason.ATTEMPT_TIMEOUT)

    # -- The end

    def node_drains(self) -> None:
        """The node goes down: no more offers; the worker finishes or lets go and connects elsewhere."""
        if not self._is_node_draining:
            self._is_node_draining = True
            self._stop_claiming()
            self._undelivered.clear()
            if self._loop is not None and self._ended is None:
                self._spawn(self._outlet.send(messages.drain()))
                self._spawn(self._loop.give_back([one for one in self.held if not one.is_delivered]))

    @property
    def is_idle(self) -> bool:
        """Nothing runs and no message is being answered."""
        return not self.held.running and not self._answering

    @property
    def is_gone(self) -> bool:
        return self._is_gone

    def end(self, code: CloseCode, reason: str, *, re: int | None = None) -> None:
        """Close the connection. Answers that are under way still go out, for a moment."""
        if self._ended is None:
            self._ended = code
            self._stop_claiming()
            telemetry.connection_closed(session_id=self.session_id, code=code, reason=reason)
            self._spawn(self._close(code, reason, re))

    async def _close(self, code: CloseCode, reason: str, re: int | None) -> None:
        if self._answering:
            await asyncio.wait(self._answering, timeout=ENDING_SECONDS)
        if code in messages.ERROR_CODES:
            await self._outlet.send(messages.error(code=messages.ERROR_CODES[code], message=reason, re=re))
        await self._outlet.close(code, reason)

    # -- Work that nobody awaits

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except Exception as error:  # told where it can be acted on; nothing of the connection depends on it
            self._failed("background", error)

    @staticmethod
    def _failed(what: str, error: BaseException) -> None:
        if is_unavailable(error) or isinstance(error, PoolSaturated):
            telemetry.database_unavailable(what, error)
        else:
            telemetry.message_failed(what, error)


def _held_of(offer: Offer) -> HeldAttempt:
    task = offer.task
    return HeldAttempt(
        attempt_id=task.attempt_id or "",
        task_id=task.task_id,
        fencing_token=task.fencing_token,
        queue_id=task.queue_id,
        priority=task.priority,
        is_running=False,
        lease_until=task.lease_until or 0,
        deadline_at=task.deadline_at,
        attempt_timeout_ms=task.attempt_timeout_ms,
        is_delivered=False,
    )


def _welcome(opened: OpenedSession, *, node_id: str, policy: Any) -> str:
    configuration = settings.ORBIT
    return messages.welcome(
        session_id=opened.session_id,
        node_id=node_id,
        server_time=opened.now_us,
        scan_cycle_ms=configuration.scan_cycle_ms,
        reservation_ms=configuration.reservation_ms,
        lease_ms=configuration.lease_ms,
        max_message_bytes=FRAME_BYTES_MAX,
        namespace_policy=policy,
        resumed=opened.resumed,
        held=[
            messages.HeldAttempt(
                attempt_id=task.attempt_id,
                fencing_token=task.fencing_token,
                task_id=task.task_id,
                state=task.state,
                lease_until=task.lease_until,
            )
            for task in opened.held
        ],
    )
