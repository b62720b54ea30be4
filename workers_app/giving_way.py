"""Yield in a STRICT namespace: a full session's unstarted reservations make room for more urgent work (design 3.3, G2).

Looked for at once when an urgent task comes in on this node, and on each scan. One look a connection at a time; what
comes meanwhile is looked for once more afterwards. The decision is pure (`yielding.py`), the row's transaction has the
last word (`tasks_app.domain.yields`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from django.conf import settings
from django.db import DatabaseError

from tasks_app.domain import yields
from tasks_app.domain.attempts import Held
from tasks_app.domain.claims import ClaimOrder
from tasks_app.hints import Hint
from tasks_app.states import Policy
from tasks_app.transactions import CommitOutcomeUnknown
from workers_app import telemetry
from workers_app.connection import WorkerConnection
from workers_app.dispatcher import Claimer, Dispatcher
from workers_app.held_attempts import HeldAttempt
from workers_app.pools import BoundedPool, PoolSaturated
from workers_app.protocol.messages import RevokeReason
from workers_app.yielding import Reservation, reservations_that_give_way


class GivingWay:
    """The looks of one node. Belongs to the event loop; only the unit itself runs in a thread of the claim pool."""

    def __init__(self, *, dispatcher: Dispatcher, pool: BoundedPool) -> None:
        self._dispatcher = dispatcher
        self._pool = pool
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._look_again: set[str] = set()

    def work_added(self, hint: Hint, connections: Iterable[WorkerConnection]) -> None:
        """A task became claimable: look in the full sessions that serve it and hold something less urgent unstarted."""
        for connection in connections:
            claimer = self._strict_claimer(connection)
            if claimer is None or hint.queue_id not in claimer.queue_ids:
                continue
            if hint.handler_ref and hint.handler_ref not in claimer.handler_refs:
                continue
            unstarted = connection.reservations_that_could_yield()
            if unstarted and _could_be_urgent(hint, unstarted):
                self._look(connection)

    def scan(self, connections: Iterable[WorkerConnection]) -> None:
        """Look in every full session that holds something unstarted: urgent work may have come by another node."""
        for connection in connections:
            if self._strict_claimer(connection) is not None and connection.reservations_that_could_yield():
                self._look(connection)

    def _strict_claimer(self, connection: WorkerConnection) -> Claimer | None:
        if connection.principal.policy is not Policy.STRICT:
            return None
        return self._dispatcher.claimer(connection.connection_id)

    def _look(self, connection: WorkerConnection) -> None:
        if connection.connection_id in self._looking:
            self._look_again.add(connection.connection_id)
            return
        task = asyncio.get_running_loop().create_task(self._look_in(connection))
        self._looking[connection.connection_id] = task

    async def _look_in(self, connection: WorkerConnection) -> None:
        try:
            await self._make_room(connection)
        except (DatabaseError, CommitOutcomeUnknown, PoolSaturated) as error:
            # What yielded although we were not told ends by its lease, as a reservation whose offer was lost does.
            telemetry.database_unavailable("yield", error)
        except Exception as error:  # the next scan looks again
            telemetry.background_failed("yield", error)
        finally:
            del self._looking[connection.connection_id]
        if connection.connection_id in self._look_again:
            self._look_again.discard(connection.connection_id)
            if not connection.is_gone and connection.reservations_that_could_yield():
                self._look(connection)

    async def _make_room(self, connection: WorkerConnection) -> None:
        claimer, unstarted = self._strict_claimer(connection), connection.reservations_that_could_yield()
        if claimer is None or not unstarted:
            return
        held = [Held(one.task_id, one.attempt_id, one.fencing_token, claimer.namespace_id) for one in unstarted]
        order = ClaimOrder(
            application_id=claimer.application_id,
            namespace_id=claimer.namespace_id,
            queue_ids=claimer.queue_ids,
            handler_refs=claimer.handler_refs,
            resource_keys=claimer.resource_keys,
            limit=min(len(held), settings.ORBIT.claim_batch),
            session_id=claimer.session_id,
        )
        choose = _Choice({one.attempt_id: one.order for one in unstarted}, connection.free_urgent_slots)
        yielded = await self._pool.run(lambda: yields.give_way(order, held, choose))
        for one in yielded:
            connection.revoked(one.attempt_id, RevokeReason.YIELDED)
        if yielded:
            self._dispatcher.look_again(claimer)


def _could_be_urgent(hint: Hint, unstarted: Sequence[HeldAttempt]) -> bool:
    """Spares the look where the new task is no more urgent than anything that is held."""
    if hint.priority is None:
        return True
    return hint.priority - min(one.priority for one in unstarted) >= settings.ORBIT.yield_min_delta


class _Choice:
    """The pure decision, with what only this node knows: the order of the claims and the free urgent slots."""

    def __init__(self, claimed_order: dict[str, int], free_urgent_slots: int | None) -> None:
        self._claimed_order = claimed_order
        self._free_urgent_slots = free_urgent_slots

    def __call__(self, present: Sequence[yields.Reservation], urgent: Sequence[int]) -> list[Held]:
        by_attempt = {one.held.attempt_id: one.held for one in present}
        giving_way = reservations_that_give_way(
            [
                Reservation(
                    attempt_id=one.held.attempt_id,
                    priority=one.priority,
                    claimed_order=self._claimed_order[one.held.attempt_id],
                    yieldable=one.yieldable,
                    yields=one.yields,
                )
                for one in present
            ],
            free_capacity=0,
            urgent_priorities=urgent,
            yield_min_delta=settings.ORBIT.yield_min_delta,
            max_yields=settings.ORBIT.max_yields,
            free_urgent_slots=self._free_urgent_slots,
        )
        return [by_attempt[one.attempt_id] for one in giving_way]
