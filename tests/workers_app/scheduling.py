"""Words for the scheduler tests: claimants, a clock, a driver that counts; and a plain model of the rules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from tasks_app.states import Policy
from workers_app.scheduler import Claimant, ClaimOrder, ClaimScheduler, Pacing, SchedulerLimits

RENDER = ("render", "v1")
PREPARE = ("prepare", "v1")


def claimant(
    application: str = "app",
    *queues: str,
    policy: Policy = Policy.AGED,
    namespace: str | None = None,
    handlers: tuple[Hashable, ...] = (RENDER,),
    resource_keys: bool = False,
) -> Claimant:
    return Claimant(
        application_id=application,
        namespace_id=namespace or f"{application}/default",
        policy=policy,
        queue_ids=queues or (f"{application}-q",),
        capabilities=frozenset(handlers),
        resource_keys=resource_keys,
    )


@dataclass
class Node:
    """A scheduler with a clock that only the test moves."""

    limits: SchedulerLimits = field(default_factory=SchedulerLimits)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.scheduler = ClaimScheduler(self.limits)

    def connect(self, connection: Hashable, who: Claimant | None = None, *, capacity: int = 0) -> None:
        self.scheduler.register(connection, who or claimant())
        if capacity:
            self.request(connection, capacity)

    def request(self, connection: Hashable, capacity: int, *, urgent_capacity: int | None = None) -> None:
        self.scheduler.request(connection, capacity, self.now, urgent_capacity=urgent_capacity)

    def next(self, running_attempts: Mapping[str, int] | None = None) -> list[ClaimOrder]:
        return self.scheduler.next(self.now, running_attempts or {})

    def one(self) -> ClaimOrder:
        """The single claim to be run now."""
        orders = self.next()
        assert len(orders) == 1, orders
        return orders[0]

    def finish(self, order: ClaimOrder, claimed: int | None, *, dry: bool = False) -> None:
        self.scheduler.finished(order, claimed, self.now, dry=dry)

    def next_cycle(self) -> None:
        self.now += self.limits.cycle_seconds

    def probe(self, *, answers: int | None = 0, at_most: int = 50) -> list[Hashable]:
        """Run claims one after the other, all answered alike, until none is due; who they were for."""
        served: list[Hashable] = []
        while len(served) < at_most and (orders := self.next()):
            for order in orders:
                served.append(order.connection_id)
                self.finish(order, answers if answers is None else min(answers, order.limit))
        return served


# -- The model: the rules of design 3.4 over plain lists, every question answered by looking at everything.


@dataclass(eq=False)
class ModelConnection:
    id: Hashable
    who: Claimant
    state: str = "idle"  # idle, placed, unqueued, running
    paced: bool = False
    ticket: int = 0
    capacity: int = 0
    urgent: int | None = None
    claims: int = 0
    last_full: bool = False
    freed: bool = False
    gone: bool = False
    stands_in: list[tuple[object, ...]] = field(default_factory=list)

    def keys(self, *, takes_urgent: bool) -> list[tuple[object, ...]]:
        strict = self.who.policy == Policy.STRICT
        sets = [tuple(sorted(self.who.queue_ids))] if strict else [(queue,) for queue in self.who.queue_ids]
        rest = (self.who.capabilities, self.who.resource_keys, takes_urgent or not strict)
        return [(self.who.namespace_id, queues, *rest) for queues in sets]

    def current_keys(self) -> list[tuple[object, ...]]:
        return self.keys(takes_urgent=self.urgent is None or self.urgent > 0)

    def all_keys(self) -> list[tuple[object, ...]]:
        return list(dict.fromkeys(self.keys(takes_urgent=True) + self.keys(takes_urgent=False)))


@dataclass(eq=False)
class ModelApplication:
    round: int
    served: int
    turns: int = 0
    queues: dict[object, list[int]] = field(default_factory=dict)  # key -> [last turn, number]


class ModelScheduler:
    def __init__(self, limits: SchedulerLimits, now: float) -> None:
        self.limits = limits
        self.began = now
        self.connections: dict[Hashable, ModelConnection] = {}
        self.applications: dict[str, ModelApplication] = {}
        self.places: list[ModelConnection] = []
        self.unqueued: list[tuple[ModelConnection, int]] = []
        self.empty: list[tuple[object, ...]] = []  # used longest ago first
        self.promising: set[tuple[object, ...]] = set()
        self.hinted: set[tuple[object, ...]] = set()  # since the last claim there began
        self.promised: set[tuple[object, ...]] = set()  # since then, with known work
        self.lines: dict[tuple[object, ...], int] = {}  # those that somebody may stand in -> since when
        self.running: dict[int, tuple[ModelConnection, tuple[object, ...], int]] = {}  # order -> … limit
        self.cycle = 0
        self.round = 0
        self.clock = 0

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    # -- What happens

    def register(self, connection_id: Hashable, who: Claimant) -> None:
        if who.application_id not in self.applications:
            self.applications[who.application_id] = ModelApplication(self.round + 1, self.tick())
        connection = self.connections[connection_id] = ModelConnection(connection_id, who)
        application = self.applications[who.application_id]
        for key in connection.all_keys():
            application.queues.setdefault(key[:2], [application.turns, self.tick()])
            self.lines.setdefault(key, self.tick())

    def unregister(self, connection_id: Hashable) -> None:
        connection = self.connections.pop(connection_id)
        connection.gone = True
        self.withdraw(connection)
        self.forget_what_nobody_uses()
        self.queue_unqueued()

    def forget_what_nobody_uses(self) -> None:
        busy = {connection.who.application_id for connection, _, _ in self.running.values()}
        names = {connection.who.application_id for connection in self.connections.values()}
        self.applications = {n: a for n, a in self.applications.items() if n in names | busy}
        known = {key for connection in self.connections.values() for key in connection.all_keys()}
        self.lines = {key: since for key, since in self.lines.items() if key in known}
        self.empty = [key for key in self.empty if key in known]
        self.promising &= known
        self.hinted &= known
        self.promised &= known
        for application in self.applications.values():
            queues = {key[:2] for key in known}
            application.queues = {key: value for key, value in application.queues.items() if key in queues}

    def request(self, connection_id: Hashable, capacity: int, now: float, urgent: int | None) -> None:
        self.advance(now)
        connection = self.connections[connection_id]
        connection.freed = connection.freed or capacity > connection.capacity
        connection.capacity, connection.urgent = capacity, urgent
        if connection.state == "running":
            return
        if capacity == 0:
            self.withdraw(connection)
            self.queue_unqueued()
        elif connection.state == "idle":
            self.queue(connection)
        elif connection.state == "placed":
            if connection.current_keys() != connection.stands_in or (
                connection.paced and not self.has_spent(connection)
            ):
                self.enter(connection)

    def next(self, now: float, attempts: Mapping[str, int]) -> list[tuple[Hashable, object, int, bool]]:
        self.advance(now)
        orders = []
        while len(self.running) < self.limits.claims_at_once and (pick := self.pick(attempts)):
            connection, key = pick
            application = self.applications[connection.who.application_id]
            work = self.limits.pacing is Pacing.WORK
            counted = not (work and (key in self.promising or (connection.last_full and connection.freed)))
            connection.claims += counted
            connection.freed = False
            self.hinted.discard(key)
            self.promised.discard(key)
            connection.state = "running"
            self.round = max(application.round, self.round)
            application.round = self.round + 1
            application.served = self.tick()
            application.turns += 1
            application.queues[key[:2]][0] = application.turns
            limit = min(connection.capacity, self.limits.tasks_per_claim_max)
            self.running[self.tick()] = (connection, key, limit)
            orders.append((connection.id, key[1], limit, counted))
        return orders

    def pick(self, attempts: Mapping[str, int]) -> tuple[ModelConnection, tuple[object, ...]] | None:
        busy = {connection.who.application_id for connection, _, _ in self.running.values()}
        best = None
        for connection in self.places:
            name = connection.who.application_id
            if connection.state != "placed" or name in busy:
                continue
            application = self.applications[name]
            for key in connection.current_keys():
                if not self.serves(connection, key):
                    continue
                rank = (
                    max(application.round, self.round),
                    attempts.get(name, 0),
                    application.served,
                    *application.queues[key[:2]],
                    connection.ticket,
                )
                if best is None or rank < best[0]:
                    best = (rank, connection, key)
        return None if best is None else best[1:]

    def serves(self, connection: ModelConnection, key: tuple[object, ...]) -> bool:
        if key in self.empty:
            return False
        return not connection.paced or (key in self.promising and self.limits.pacing is Pacing.WORK)

    def finished(self, connection_id: Hashable, claimed: int | None, now: float, dry: bool) -> None:
        self.advance(now)
        number = next(n for n, (connection, _, _) in self.running.items() if connection.id == connection_id)
        connection, key, limit = self.running.pop(number)
        connection.last_full = claimed == limit
        same_line = self.lines.get(key, number) < number  # not one that came after the claim began
        if not connection.last_full and key not in self.promised and same_line:
            self.promising.discard(key)
        if claimed is None:
            connection.claims = self.limits.claims_per_cycle
        else:
            connection.capacity = max(0, connection.capacity - claimed)
            if connection.urgent is not None:
                connection.urgent = max(0, connection.urgent - claimed)
            if (claimed == 0 or dry) and key not in self.hinted and same_line:
                self.empty.append(key)
                del self.empty[: -self.limits.empty_answers_max]
        self.places.remove(connection)
        connection.state = "idle"
        self.forget_what_nobody_uses()
        self.queue_unqueued()
        if connection.capacity and not connection.gone:
            self.queue(connection)

    def clear(self, matches: Mapping[str, str], capability: Hashable | None, resource_key: bool, known: bool) -> None:
        for connection in self.connections.values():
            names = {"namespace": connection.who.namespace_id, "application": connection.who.application_id}
            for key in connection.all_keys():
                if any(names.get(kind) != name for kind, name in matches.items() if kind != "queue"):
                    continue
                if "queue" in matches and matches["queue"] not in key[1]:  # type: ignore[operator]
                    continue
                if (capability is not None and capability not in key[2]) or (resource_key and not key[3]):  # type: ignore[operator]
                    continue
                self.hinted.add(key)
                if known:
                    self.promising.add(key)
                    self.promised.add(key)
                if key in self.empty:
                    self.empty.remove(key)

    # -- Cycles, places

    def advance(self, now: float) -> None:
        cycles = int((now - self.began) // self.limits.cycle_seconds)
        if cycles < 1:
            return
        self.began += cycles * self.limits.cycle_seconds
        self.cycle += cycles
        self.empty.clear()
        for connection in self.connections.values():
            connection.claims = 0
        for connection, _, _ in self.running.values():
            connection.claims = 0
        for connection in sorted(self.places, key=lambda each: each.ticket):
            if connection.state == "placed" and connection.paced:
                self.enter(connection)
        self.queue_unqueued()

    def has_spent(self, connection: ModelConnection) -> bool:
        has_work = connection.last_full and connection.freed and self.limits.pacing is Pacing.WORK
        return connection.claims >= self.limits.claims_per_cycle and not has_work

    def queue(self, connection: ModelConnection) -> None:
        if (self.unqueued and self.unqueued[0][1] < self.cycle) or not self.make_room():
            connection.state = "unqueued"
            self.unqueued.append((connection, self.cycle))
        else:
            self.places.append(connection)
            self.enter(connection)

    def queue_unqueued(self) -> None:
        while self.unqueued and self.unqueued[0][1] < self.cycle and self.make_room():
            connection, _ = self.unqueued.pop(0)
            self.places.append(connection)
            self.enter(connection)

    def make_room(self) -> bool:
        if len(self.places) < self.limits.requests_max:
            return True
        for connection in self.places:
            resting = not any(self.serves(connection, key) for key in connection.current_keys())
            if connection.state == "placed" and resting:
                self.withdraw(connection)
                connection.state = "unqueued"
                self.unqueued.append((connection, self.cycle))
                return True
        return False

    def withdraw(self, connection: ModelConnection) -> None:
        if connection.state == "running":
            return
        self.places = [each for each in self.places if each is not connection]
        self.unqueued = [entry for entry in self.unqueued if entry[0] is not connection]
        connection.state = "idle"

    def enter(self, connection: ModelConnection) -> None:
        connection.state = "placed"
        connection.paced = self.has_spent(connection)
        connection.ticket = self.tick()
        keys = connection.current_keys()
        connection.stands_in = keys
        for key in keys:
            if key in self.empty:
                self.empty.remove(key)
                self.empty.append(key)
