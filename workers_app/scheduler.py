"""The fair claim scheduler of one node (design 3.4): which connection may ask the database for tasks next.

Pure: it takes what happened (`request`, `finished`, `clear`) with the moment in monotonic seconds, and says what is to
be run (`next`) and when to look again (`next_wake_up`). It knows no tasks: a claim that it orders may come back empty,
and nothing that it remembers or forgets can authorise anything. Whose turn it is stands in `turns.py`.

**Requests.** A connection has one request or none. It holds a place from its request to the end of its claim, and asks
again by itself while it has free capacity. Where all places are taken it waits unqueued for the next cycle and is then
queued before any later request; a request that no claim could serve now gives up its place if others wait.

**Pace.** A connection has a few speculative claims per scan cycle. A claim is not speculative if there is a reason to
expect work: the connection's last claim came back full and capacity was freed since, or a hint told of work in this
very line and no claim there has come back short since. `Pacing.LITERAL` counts every claim.

**Empty answers.** A line whose claim came back empty rests until the scan cycle ends, a hint clears it, or it is the
one used longest ago among more than can be remembered. A line is one namespace, one queue (or set), one exact
capability set, one declaration on resource keys; a session that could take no urgent task now (its slots are kept for
normal work) stands in a line of its own, because its empty answer says nothing about urgent ones.

A step costs a few dictionary operations for each queue of the one connection that it concerns and a look over the
applications that wait; never a walk over all connections, but at the start of a cycle and where places have run out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Final

from tasks_app.limits import EMPTY_ANSWERS_MAX
from tasks_app.states import Policy
from workers_app.turns import Connection, Line, LineKey, Pacing, Standing, Turns

__all__ = ["ClaimOrder", "ClaimScheduler", "Claimant", "Occupancy", "Pacing", "SchedulerLimits"]

_NOBODY_RUNS: Final[Mapping[str, int]] = MappingProxyType({})
_Scope = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The bounds of design 3.4."""

    claims_at_once: int = 4
    requests_max: int = 128  # waiting and running together
    claims_per_cycle: int = 4  # of one connection
    tasks_per_claim_max: int = 32
    cycle_seconds: float = 1.0
    empty_answers_max: int = EMPTY_ANSWERS_MAX
    pacing: Pacing = Pacing.WORK


@dataclass(frozen=True, slots=True)
class Claimant:
    """What a connection may claim. The application comes from the credential's namespace, never from the client.

    `capabilities` are the handlers with their versions, in whatever form the caller gives them; they are only compared.
    """

    application_id: str
    namespace_id: str
    policy: Policy
    queue_ids: tuple[str, ...]
    capabilities: frozenset[Hashable]
    resource_keys: bool


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """One claim to be run now: at most `limit` tasks, of one queue (AGED) or across the queues (STRICT).

    At most `urgent_limit` of them may have a priority above 0; None is no such bound. `counted`: it is one of the
    connection's claims of this cycle.
    """

    number: int
    connection_id: Hashable
    application_id: str
    namespace_id: str
    policy: Policy
    queue_ids: tuple[str, ...]
    limit: int
    urgent_limit: int | None
    counted: bool


@dataclass(frozen=True, slots=True)
class Occupancy:
    """For the metrics: requests that have a place (`waiting` and `running`) and those that have none."""

    waiting: int
    running: int
    unqueued: int
    empty_answers: int


class ClaimScheduler:
    """See the module. Not thread-safe: it belongs to the node's event loop."""

    def __init__(self, limits: SchedulerLimits | None = None) -> None:
        self.limits = limits or SchedulerLimits()
        self._turns = Turns()
        self._connections: dict[Hashable, Connection] = {}
        self._claimants: dict[Connection, Claimant] = {}
        self._lines: dict[LineKey, Line] = {}
        self._lines_by_scope: dict[_Scope, dict[Line, None]] = {}
        self._empty: OrderedDict[Line, None] = OrderedDict()  # used longest ago first
        self._places: dict[Connection, None] = {}
        self._paced: dict[Connection, None] = {}
        self._unqueued: OrderedDict[Connection, int] = OrderedDict()  # -> the cycle in which it found no place
        self._running: dict[int, tuple[ClaimOrder, Connection, Line]] = {}
        self._tickets = count(1)
        self._cycle = 0
        self._cycle_began: float | None = None
        self._shut_down = False

    # -- Connections

    def register(self, connection_id: Hashable, claimant: Claimant) -> None:
        """A connection has said hello. It wants nothing yet. Raises ValueError if the id is in use."""
        if connection_id in self._connections:
            raise ValueError(f"connection {connection_id!r} is registered already")
        application = self._turns.application(claimant.application_id)
        application.connections += 1
        connection = Connection(connection_id, application)
        self._connections[connection_id] = connection
        self._claimants[connection] = claimant
        connection.line_sets = self._line_sets(connection, claimant)

    def unregister(self, connection_id: Hashable) -> None:
        """The connection is gone. A claim that is being run for it still takes its application's and the node's room
        until `finished`. Unknown ids are ignored: a close may be noticed twice."""
        connection = self._connections.pop(connection_id, None)
        if connection is None:
            return
        connection.gone = True
        self._withdraw(connection)
        for lines in connection.line_sets:
            for line in lines:
                self._leave_for_good(line)
        del self._claimants[connection]
        connection.application.connections -= 1
        self._turns.drop_if_unused(connection.application)
        self._queue_unqueued()

    def request(
        self, connection_id: Hashable, capacity: int, now: float, *, urgent_capacity: int | None = None
    ) -> None:
        """The connection can take `capacity` tasks more, at most `urgent_capacity` of them urgent (STRICT; None: all).

        To be told whenever it changes; 0 withdraws the request. The tasks of a claim that is being run are not to be
        taken off: that happens in `finished`.
        """
        if capacity < 0:
            raise ValueError("capacity must not be negative")
        self._advance(now)
        connection = self._connections[connection_id]
        connection.freed = connection.freed or capacity > connection.capacity
        connection.capacity = capacity
        connection.urgent_capacity = urgent_capacity
        if self._shut_down or connection.standing is Standing.RUNNING:
            return
        if capacity == 0:
            self._withdraw(connection)
            self._queue_unqueued()
        elif connection.standing is Standing.IDLE:
            self._queue(connection)
        elif connection.standing is not Standing.UNQUEUED:
            may_claim_again = connection.standing is Standing.PACED and not self._has_spent_its_claims(connection)
            if may_claim_again or connection.lines != connection.lines_to_stand_in:
                self._leave(connection)
                self._enter(connection)

    # -- Claims

    def next(self, now: float, running_attempts: Mapping[str, int] = _NOBODY_RUNS) -> list[ClaimOrder]:
        """The claims to be run now, in order; each is to be reported by `finished`, whatever becomes of it.

        `running_attempts` by application decides where turns coincide.
        """
        self._advance(now)
        orders: list[ClaimOrder] = []
        while self._turns.any_open and len(self._running) < self.limits.claims_at_once:
            line, connection = self._turns.take(running_attempts)
            orders.append(self._order(line, connection))
        return orders

    def finished(self, order: ClaimOrder, claimed: int | None, now: float, *, dry: bool = False) -> None:
        """The claim has ended: `claimed` tasks were reserved; None if that could not be learned or nothing was asked.

        `dry`: the claim saw that nothing else of this line can be claimed now, so that the answer is as good as an
        empty one. The connection goes on wanting what it has not got; where it counts urgent slots, tell the new count
        by `request`. Raises ValueError for an order that is not being run.
        """
        if order.number not in self._running:
            raise ValueError(f"claim {order.number} is not being run")
        if claimed is not None and not 0 <= claimed <= order.limit:
            raise ValueError(f"claimed {claimed} of at most {order.limit}")
        self._advance(now)
        _, connection, line = self._running.pop(order.number)
        connection.last_full = claimed == order.limit
        if not connection.last_full:
            line.promising = line.promised
        if claimed is None:
            # Nobody knows why. Its next try is for the next cycle, so that a database in trouble is not stormed.
            connection.claims, connection.claims_cycle = self.limits.claims_per_cycle, self._cycle
        else:
            connection.capacity = max(0, connection.capacity - claimed)
            if connection.urgent_capacity is not None:
                connection.urgent_capacity = max(0, connection.urgent_capacity - claimed)
            if (claimed == 0 or dry) and not line.hinted and line.alive:
                self._remember_empty(line)
        self._turns.refresh([line])
        self._turns.ended(connection.application)
        self._places.pop(connection, None)
        connection.standing = Standing.IDLE
        self._queue_unqueued()
        if connection.capacity and not connection.gone and not self._shut_down:
            self._queue(connection)

    # -- Hints

    def clear(
        self,
        *,
        queue_id: str | None = None,
        namespace_id: str | None = None,
        application_id: str | None = None,
        capability: Hashable | None = None,
        resource_key: bool = False,
        work_known: bool = True,
    ) -> None:
        """Something changed: forget the empty answers that it touches, and do not believe those of claims being run.

        A task was accepted, came due or was given back: tell its queue, with `capability` and `resource_key` as the
        task has them, and lines that could not take it are left alone. A permit was freed: tell the queue, namespace or
        application whose it is. Without any scope, everything. `work_known` False: to look is still speculative.
        """
        named = (("queue", queue_id), ("namespace", namespace_id), ("application", application_id))
        scopes = [(kind, name) for kind, name in named if name is not None]
        nearest = self._lines_by_scope.get(scopes[0], {}) if scopes else self._lines.values()
        for line in tuple(nearest):
            if capability is not None and capability not in line.capabilities:
                continue
            if (resource_key and not line.resource_keys) or not set(scopes).issubset(_scopes_of(line)):
                continue
            line.hinted = True
            if work_known:
                line.promising = line.promised = True
            self._forget_empty(line)
            self._turns.refresh([line])

    # -- The node

    def next_wake_up(self, now: float) -> float | None:
        """When to call `next` although nothing happens: `now`, the start of the next cycle, or None (nobody waits)."""
        if self._turns.any_open and len(self._running) < self.limits.claims_at_once:
            return now
        if self._cycle_began is None or not (self._places or self._unqueued):
            return None
        return self._cycle_began + self.limits.cycle_seconds

    def shut_down(self) -> tuple[Hashable, ...]:
        """Cancel what waits and order nothing more; gives the connections whose requests ended so. Claims that are
        being run (`running`) are to be awaited and reported as ever."""
        self._shut_down = True
        held = (*self._places, *self._unqueued)
        waiting = [connection for connection in held if connection.standing is not Standing.RUNNING]
        for connection in waiting:
            self._withdraw(connection)
        return tuple(connection.id for connection in waiting)

    @property
    def running(self) -> tuple[ClaimOrder, ...]:
        return tuple(order for order, _, _ in self._running.values())

    @property
    def occupancy(self) -> Occupancy:
        return Occupancy(
            waiting=len(self._places) - len(self._running),
            running=len(self._running),
            unqueued=len(self._unqueued),
            empty_answers=len(self._empty),
        )

    # -- Cycles and pace

    def _advance(self, now: float) -> None:
        if self._cycle_began is None:
            self._cycle_began = now
        cycles = int((now - self._cycle_began) // self.limits.cycle_seconds)
        if cycles < 1:
            return
        self._cycle_began += cycles * self.limits.cycle_seconds
        self._cycle += cycles
        rested = tuple(self._empty)
        for line in rested:
            self._forget_empty(line)
        self._turns.refresh(rested)
        for connection in tuple(self._paced):
            self._leave(connection)
            self._enter(connection)
        self._queue_unqueued()

    def _has_spent_its_claims(self, connection: Connection) -> bool:
        if connection.claims_cycle != self._cycle or connection.claims < self.limits.claims_per_cycle:
            return False
        return self.limits.pacing is Pacing.LITERAL or not connection.has_work

    def _order(self, line: Line, connection: Connection) -> ClaimOrder:
        counted = self.limits.pacing is Pacing.LITERAL or not (line.promising or connection.has_work)
        if counted:
            if connection.claims_cycle != self._cycle:
                connection.claims, connection.claims_cycle = 0, self._cycle
            connection.claims += 1
        claimant = self._claimants[connection]
        limit = min(connection.capacity, self.limits.tasks_per_claim_max)
        urgent = connection.urgent_capacity
        order = ClaimOrder(
            number=next(self._tickets),
            connection_id=connection.id,
            application_id=claimant.application_id,
            namespace_id=claimant.namespace_id,
            policy=claimant.policy,
            queue_ids=line.queue_ids,
            limit=limit,
            urgent_limit=None if urgent is None else min(urgent, limit),
            counted=counted,
        )
        connection.freed = False
        line.hinted = line.promised = False
        self._leave(connection)
        connection.standing = Standing.RUNNING
        self._running[order.number] = (order, connection, line)
        return order

    # -- Requests

    def _queue(self, connection: Connection) -> None:
        """Give the request of this connection a place, or leave it unqueued."""
        others_waited_longer = next(iter(self._unqueued.values()), self._cycle) < self._cycle
        if others_waited_longer or not self._make_room():
            self._leave_unqueued(connection)
        else:
            self._places[connection] = None
            self._enter(connection)

    def _queue_unqueued(self) -> None:
        """Places for those who found none in an earlier cycle, in the order in which they asked."""
        while self._unqueued:
            connection, cycle = next(iter(self._unqueued.items()))
            if cycle == self._cycle or not self._make_room():
                return
            del self._unqueued[connection]
            self._places[connection] = None
            self._enter(connection)

    def _make_room(self) -> bool:
        """True if there is a free place, if need be that of a request which no claim could serve now."""
        if len(self._places) < self.limits.requests_max:
            return True
        resting = next((connection for connection in self._places if self._rests(connection)), None)
        if resting is None:
            return False
        self._withdraw(resting)
        self._leave_unqueued(resting)
        return True

    def _rests(self, connection: Connection) -> bool:
        if connection.standing is Standing.RUNNING:
            return False
        paced = connection.standing is Standing.PACED
        return not any(line.serves(paced=paced) for line in connection.lines)

    def _leave_unqueued(self, connection: Connection) -> None:
        connection.standing = Standing.UNQUEUED
        self._unqueued[connection] = self._cycle

    def _withdraw(self, connection: Connection) -> None:
        """Without a request, and without a place unless its claim is being run."""
        if connection.standing is Standing.RUNNING:
            return
        self._leave(connection)
        self._places.pop(connection, None)
        self._unqueued.pop(connection, None)
        connection.standing = Standing.IDLE

    def _enter(self, connection: Connection) -> None:
        """Stand at the end of its lines."""
        paced = self._has_spent_its_claims(connection)
        connection.standing = Standing.PACED if paced else Standing.WAITING
        connection.lines = connection.lines_to_stand_in
        ticket = next(self._tickets)
        if paced:
            self._paced[connection] = None
        for line in connection.lines:
            (line.paced if paced else line.waiting)[connection] = ticket
            if line.empty:
                self._empty.move_to_end(line)
        self._turns.refresh(connection.lines)

    def _leave(self, connection: Connection) -> None:
        lines, connection.lines = connection.lines, ()
        self._paced.pop(connection, None)
        for line in lines:
            line.waiting.pop(connection, None)
            line.paced.pop(connection, None)
        self._turns.refresh(lines)

    # -- Lines

    def _line_sets(self, connection: Connection, claimant: Claimant) -> tuple[tuple[Line, ...], ...]:
        """The lines for a connection that could take an urgent task, then those for one that could not.

        In a STRICT namespace a claim looks across all queues of the session, so it is one line; in an AGED one it is
        one line for each queue, and no slot is kept for normal work.
        """
        if claimant.policy == Policy.STRICT:
            queue_set = tuple(sorted(claimant.queue_ids))
            return tuple((self._line(connection, claimant, queue_set, takes_urgent),) for takes_urgent in (True, False))
        queues = dict.fromkeys(claimant.queue_ids)
        return (tuple(self._line(connection, claimant, (queue_id,), True) for queue_id in queues),)

    def _line(self, connection: Connection, claimant: Claimant, queue_ids: tuple[str, ...], takes_urgent: bool) -> Line:
        key = (claimant.namespace_id, queue_ids, claimant.capabilities, claimant.resource_keys, takes_urgent)
        line = self._lines.get(key)
        if line is None:
            queue = self._turns.queue(connection.application, (claimant.namespace_id, queue_ids))
            queue.lines += 1
            line = self._lines[key] = Line(key, queue, self.limits.pacing)
            for scope in _scopes_of(line):
                self._lines_by_scope.setdefault(scope, {})[line] = None
        line.members += 1
        return line

    def _leave_for_good(self, line: Line) -> None:
        line.members -= 1
        if line.members:
            return
        line.alive = False
        self._forget_empty(line)
        del self._lines[line.key]
        for scope in _scopes_of(line):
            lines = self._lines_by_scope[scope]
            del lines[line]
            if not lines:
                del self._lines_by_scope[scope]
        line.queue.lines -= 1
        if not line.queue.lines:
            del line.queue.application.queues[line.queue.key]

    def _remember_empty(self, line: Line) -> None:
        line.empty = True
        self._empty[line] = None
        if len(self._empty) > self.limits.empty_answers_max:
            oldest = next(iter(self._empty))
            self._forget_empty(oldest)
            self._turns.refresh([oldest])

    def _forget_empty(self, line: Line) -> None:
        line.empty = False
        self._empty.pop(line, None)


def _scopes_of(line: Line) -> Iterable[_Scope]:
    yield from (("queue", queue_id) for queue_id in line.queue_ids)
    yield "namespace", line.key[0]
    yield "application", line.queue.application.name
