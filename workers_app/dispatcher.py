"""The dispatcher of one node: drives the claim scheduler, runs its claims in the claim pool, hands offers on.

Everything here belongs to the event loop; only the claim itself runs in a thread. The control loop of a connection
never waits for any of it: a connection says what it wants (`want`) and is told what it got (`offered`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from django.db import DatabaseError

from tasks_app.domain import claims
from tasks_app.domain.claims import ClaimOutcome, EmptyReason, Offer
from tasks_app.hints import Hint, HintKind
from tasks_app.instants import US_PER_SECOND, process_now_us
from tasks_app.states import Policy
from tasks_app.transactions import CommitOutcomeUnknown
from workers_app import telemetry
from workers_app.pools import BoundedPool, PoolSaturated
from workers_app.scheduler import Claimant, ClaimOrder, ClaimScheduler
from workers_app.strict_claims import StrictShares


class Claiming(Protocol):
    """A connection as the dispatcher sees it."""

    connection_id: str

    def offered(self, offers: Sequence[Offer]) -> None:
        """Committed reservations that are this connection's now, to be delivered or given back."""


@dataclass(frozen=True, slots=True)
class Claimer:
    """What a connection's claims are made of."""

    connection: Claiming
    session_id: str
    application_id: str
    namespace_id: str
    policy: Policy
    queue_ids: tuple[str, ...]
    handler_refs: tuple[int, ...]
    resource_keys: bool


class Dispatcher:
    """See the module. `running_attempts()` counts attempts by application, for the order of turns that coincide."""

    def __init__(
        self,
        scheduler: ClaimScheduler,
        *,
        pool: BoundedPool,
        database_now_us: Callable[[], int] = process_now_us,
        running_attempts: Callable[[], Mapping[str, int]] = Counter,
        claim: Callable[[claims.ClaimOrder], ClaimOutcome] = claims.claim,
    ) -> None:
        self._scheduler = scheduler
        self._pool = pool
        self._database_now_us = database_now_us
        self._running_attempts = running_attempts
        self._claim = claim
        self._claimers: dict[str, Claimer] = {}
        self._shares = StrictShares()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake_up: asyncio.TimerHandle | None = None
        self._is_pumping = False
        # Queues and applications whose limit closed a claim: what frees a permit there is news for these lines.
        self._limited_queues: set[str] = set()
        self._limited_applications: set[str] = set()

    # -- Connections

    def register(self, claimer: Claimer) -> None:
        """A connection has been welcomed. It wants nothing yet."""
        self._claimers[claimer.connection.connection_id] = claimer
        self._scheduler.register(
            claimer.connection.connection_id,
            Claimant(
                application_id=claimer.application_id,
                namespace_id=claimer.namespace_id,
                policy=claimer.policy,
                queue_ids=claimer.queue_ids,
                capabilities=frozenset(claimer.handler_refs),
                resource_keys=claimer.resource_keys,
            ),
        )

    def unregister(self, connection_id: str) -> None:
        """The connection makes no claims any more. What a running claim still brings is handed to `offered`."""
        if connection_id in self._claimers:
            self._scheduler.unregister(connection_id)
            del self._claimers[connection_id]
            self._pump_soon()

    def want(self, connection_id: str, capacity: int, *, urgent_capacity: int | None = None) -> None:
        """The connection can hold `capacity` tasks more; told whenever that changes."""
        if connection_id in self._claimers:
            self._scheduler.request(connection_id, capacity, time.monotonic(), urgent_capacity=urgent_capacity)
            self._pump_soon()

    def claimer(self, connection_id: str) -> Claimer | None:
        """What the connection's claims are made of, while it makes any."""
        return self._claimers.get(connection_id)

    # -- Hints

    def hint(self, hint: Hint) -> None:
        """Something changed, here or on another node."""
        if hint.kind is HintKind.WORK_ADDED:
            self._scheduler.clear(queue_id=hint.queue_id, capability=hint.handler_ref or None)
        elif hint.kind is HintKind.PERMIT_FREED:
            self._permit_freed(hint)
        else:
            return
        self._pump_soon()

    def _permit_freed(self, hint: Hint) -> None:
        if hint.queue_id in self._limited_queues:
            self._limited_queues.discard(hint.queue_id)
            self._scheduler.clear(queue_id=hint.queue_id)
        if self._limited_applications:
            for application_id in self._applications_of(hint.namespace_id):
                self._limited_applications.discard(application_id)
                self._scheduler.clear(application_id=application_id)
        # A permit of a resource key may have gone to a waiter in another queue: to look there is speculative.
        self._scheduler.clear(namespace_id=hint.namespace_id, resource_key=True, work_known=False)

    def _applications_of(self, namespace_id: str) -> set[str]:
        return {
            claimer.application_id
            for claimer in self._claimers.values()
            if claimer.namespace_id == namespace_id and claimer.application_id in self._limited_applications
        }

    # -- Claims

    def _pump_soon(self) -> None:
        """Once per turn of the loop, after everything that it brought was told to the scheduler."""
        if not self._is_pumping:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        now = time.monotonic()
        for order in self._scheduler.next(now, self._running_attempts()):
            claimer = self._claimers[str(order.connection_id)]
            task = asyncio.get_running_loop().create_task(self._run(order, claimer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        at = self._scheduler.next_wake_up(now)
        if at is not None:
            self._wake_up = asyncio.get_running_loop().call_later(max(0.0, at - now), self._pump)

    async def _run(self, order: ClaimOrder, claimer: Claimer) -> None:
        allocation = self._shares.allocation(order.namespace_id) if order.policy is Policy.STRICT else None
        wanted = claims.ClaimOrder(
            application_id=order.application_id,
            namespace_id=order.namespace_id,
            queue_ids=order.queue_ids,
            handler_refs=claimer.handler_refs,
            resource_keys=claimer.resource_keys,
            limit=order.limit,
            session_id=claimer.session_id,
            urgent_limit=order.urgent_limit,
            **({} if allocation is None else {"allocate": allocation}),
        )
        outcome: ClaimOutcome | None = None
        try:
            outcome = await self._pool.run(lambda: self._claim(wanted))
        except (DatabaseError, CommitOutcomeUnknown, PoolSaturated) as error:
            # Reservations of unknown fate return by their lease; the next cycle asks again.
            telemetry.database_unavailable("claim", error)
        except Exception as error:  # a fault of ours must not take the scheduler's place away for ever
            telemetry.claim_failed(error)
        finally:
            self._ended(order, claimer, outcome)
        if allocation is not None and outcome is not None:
            allocation.keep()

    def _ended(self, order: ClaimOrder, claimer: Claimer, outcome: ClaimOutcome | None) -> None:
        now = time.monotonic()
        if outcome is None:
            self._scheduler.finished(order, None, now)
        else:
            count = len(outcome.offers)
            self._scheduler.finished(order, count, now, dry=0 < count < order.limit)
            self._note_limits(order, outcome)
            if outcome.offers:
                # Also to a connection that is gone by now: it gives them back.
                claimer.connection.offered(outcome.offers)
        self._pump_soon()

    def _note_limits(self, order: ClaimOrder, outcome: ClaimOutcome) -> None:
        """Remember what may have closed the claim, so that a permit which frees there is answered at once."""
        is_short = 0 < len(outcome.offers) < order.limit  # by a limit or by the end of the work: not told which
        across = order.policy is Policy.STRICT and not outcome.offers  # one of several queues may be at its limit
        if is_short or across or outcome.reason in (EmptyReason.QUEUE_LIMIT, EmptyReason.QUEUE_PAUSED):
            self._limited_queues.update(order.queue_ids)
        if is_short or outcome.reason is EmptyReason.APPLICATION_LIMIT:
            self._limited_applications.add(order.application_id)
        if outcome.retry_at is not None and outcome.reason is EmptyReason.START_RATE:
            seconds = (outcome.retry_at - self._database_now_us()) / US_PER_SECOND
            queue_id = order.queue_ids[0]
            if seconds < self._scheduler.limits.cycle_seconds:  # later the cycle's end comes first
                asyncio.get_running_loop().call_later(max(0.0, seconds), self._budget_freed, queue_id)

    def look_again(self, claimer: Claimer) -> None:
        """Something urgent waits for a slot that has just become free: empty answers of its lines are out of date."""
        for queue_id in claimer.queue_ids:
            self._scheduler.clear(queue_id=queue_id)
        self._pump_soon()

    def _budget_freed(self, queue_id: str) -> None:
        self._scheduler.clear(queue_id=queue_id)
        self._pump_soon()

    def measure(self) -> None:
        """Show what the scheduler is doing; called now and then."""
        occupancy = self._scheduler.occupancy
        telemetry.CLAIM_REQUESTS.labels(standing="waiting").set(occupancy.waiting)
        telemetry.CLAIM_REQUESTS.labels(standing="running").set(occupancy.running)
        telemetry.CLAIM_REQUESTS.labels(standing="unqueued").set(occupancy.unqueued)
        telemetry.EMPTY_ANSWERS.set(occupancy.empty_answers)

    # -- Shutting down

    def shut_down(self) -> None:
        """Cancel waiting requests; running claims end, and what they bring is handed on to be given back."""
        self._scheduler.shut_down()
        if self._wake_up is not None:
            self._wake_up.cancel()

    @property
    def claims_running(self) -> int:
        return len(self._tasks)
