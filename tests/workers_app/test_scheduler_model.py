"""The scheduler against a plain model of the rules, over whatever may happen to a node."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from tasks_app.states import Policy
from tests.workers_app.scheduling import PREPARE, RENDER, ModelScheduler, claimant
from workers_app.scheduler import Claimant, ClaimOrder, ClaimScheduler, Pacing, SchedulerLimits

APPLICATIONS = ("a", "b", "c")


@st.composite
def claimants(draw: st.DrawFn) -> Claimant:
    application = draw(st.sampled_from(APPLICATIONS))
    policy = draw(st.sampled_from(Policy))
    queues = draw(st.lists(st.sampled_from(["q1", "q2", "q3"]), min_size=1, max_size=3, unique=True))
    handlers = draw(st.sampled_from([(RENDER,), (PREPARE,), (RENDER, PREPARE)]))
    namespace = f"{application}/{policy}"
    return claimant(
        application,
        *(f"{namespace}/{queue}" for queue in queues),
        policy=policy,
        namespace=namespace,
        handlers=handlers,
        resource_keys=draw(st.booleans()),
    )


class SchedulerAgainstModel(RuleBasedStateMachine):
    connections = Bundle("connections")

    @initialize(
        requests_max=st.integers(1, 6),
        at_once=st.integers(1, 3),
        per_cycle=st.integers(1, 3),
        remembered=st.integers(1, 4),
        pacing=st.sampled_from(Pacing),
    )
    def start(self, requests_max: int, at_once: int, per_cycle: int, remembered: int, pacing: Pacing) -> None:
        self.limits = SchedulerLimits(
            claims_at_once=at_once,
            requests_max=requests_max,
            claims_per_cycle=per_cycle,
            tasks_per_claim_max=4,
            empty_answers_max=remembered,
            pacing=pacing,
        )
        self.now = 50.0
        self.scheduler = ClaimScheduler(self.limits)
        self.scheduler.next(self.now)
        self.model = ModelScheduler(self.limits, self.now)
        self.orders: list[ClaimOrder] = []
        self.alive: dict[Hashable, Claimant] = {}
        self.numbers = 0
        self.counted: dict[tuple[Hashable, int], int] = {}

    @rule(target=connections, who=claimants(), capacity=st.integers(0, 6))
    def connect(self, who: Claimant, capacity: int) -> Hashable:
        self.numbers += 1
        connection = f"c{self.numbers}"
        self.alive[connection] = who
        self.scheduler.register(connection, who)
        self.model.register(connection, who)
        if capacity:
            self.ask(connection, capacity, None)
        return connection

    @rule(connection=consumes(connections))
    def vanish(self, connection: Hashable) -> None:
        del self.alive[connection]
        self.scheduler.unregister(connection)
        self.model.unregister(connection)

    @rule(
        connection=connections,
        capacity=st.integers(0, 6),
        urgent=st.none() | st.integers(0, 2),
        seconds=st.sampled_from([0.0, 0.1]),
    )
    def request(self, connection: Hashable, capacity: int, urgent: int | None, seconds: float) -> None:
        self.now += seconds
        self.ask(connection, capacity, urgent)

    def ask(self, connection: Hashable, capacity: int, urgent: int | None) -> None:
        self.scheduler.request(connection, capacity, self.now, urgent_capacity=urgent)
        self.model.request(connection, capacity, self.now, urgent)

    @rule(
        attempts=st.fixed_dictionaries({}, optional={name: st.integers(0, 2) for name in APPLICATIONS}),
        seconds=st.sampled_from([0.0, 0.0, 0.3, 1.0, 2.5]),
    )
    def run_next(self, attempts: dict[str, int], seconds: float) -> None:
        self.now += seconds
        wakes_at = self.scheduler.next_wake_up(self.now)
        orders = self.scheduler.next(self.now, attempts)
        expected = self.model.next(self.now, attempts)
        told = [(order.connection_id, order.queue_ids, order.limit, order.counted) for order in orders]
        assert told == expected
        assert not orders or (wakes_at is not None and wakes_at <= self.now)
        for order in orders:
            assert 1 <= order.limit <= self.limits.tasks_per_claim_max
            assert order.urgent_limit is None or 0 <= order.urgent_limit <= order.limit
            who = self.alive[order.connection_id]
            assert set(order.queue_ids) <= set(who.queue_ids)
            assert (order.application_id, order.namespace_id) == (who.application_id, who.namespace_id)
            key = (order.connection_id, self.model.cycle)
            self.counted[key] = self.counted.get(key, 0) + order.counted
            assert self.counted[key] <= self.limits.claims_per_cycle
        self.orders += orders

    @precondition(lambda self: self.orders)
    @rule(
        data=st.data(),
        answer=st.sampled_from(["full", "some", "none", "none", "failed"]),
        dry=st.booleans(),
        seconds=st.sampled_from([0.0, 0.2, 1.0]),
    )
    def finish(self, data: st.DataObject, answer: str, dry: bool, seconds: float) -> None:
        self.now += seconds
        order = self.orders.pop(data.draw(st.integers(0, len(self.orders) - 1)))
        claimed = {"full": order.limit, "some": order.limit // 2, "none": 0, "failed": None}[answer]
        self.scheduler.finished(order, claimed, self.now, dry=dry)
        self.model.finished(order.connection_id, claimed, self.now, dry)

    @rule(
        where=st.sampled_from(["queue", "namespace", "application", "everything", "queue of another namespace"]),
        application=st.sampled_from(APPLICATIONS),
        policy=st.sampled_from(Policy),
        queue=st.sampled_from(["q1", "q2", "q3"]),
        capability=st.none() | st.sampled_from([RENDER, PREPARE, ("other", "v1")]),
        resource_key=st.booleans(),
        known=st.booleans(),
    )
    def hint(
        self,
        where: str,
        application: str,
        policy: Policy,
        queue: str,
        capability: Hashable | None,
        resource_key: bool,
        known: bool,
    ) -> None:
        namespace = f"{application}/{policy}"
        matches = {
            "queue": {"queue": f"{namespace}/{queue}"},
            "namespace": {"namespace": namespace},
            "application": {"application": application},
            "everything": {},
            "queue of another namespace": {"queue": f"{namespace}/{queue}", "namespace": "z/AGED"},
        }[where]
        self.scheduler.clear(
            **{f"{kind}_id": name for kind, name in matches.items()},
            capability=capability,
            resource_key=resource_key,
            work_known=known,
        )
        self.model.clear(matches, capability, resource_key, known)

    @invariant()
    def bounds_hold(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        running, occupancy = self.scheduler.running, self.scheduler.occupancy
        assert len(running) <= self.limits.claims_at_once
        assert len({order.application_id for order in running}) == len(running)
        assert len({order.connection_id for order in running}) == len(running)
        assert occupancy.waiting + occupancy.running <= self.limits.requests_max
        assert occupancy.empty_answers <= self.limits.empty_answers_max
        assert occupancy.running == len(self.model.running)
        assert occupancy.waiting == sum(1 for connection in self.model.places if connection.state == "placed")
        assert occupancy.unqueued == len(self.model.unqueued)
        assert occupancy.empty_answers == len(self.model.empty)

    @invariant()
    def nobody_with_free_capacity_is_forgotten(self) -> None:
        if hasattr(self, "scheduler") and self.model.places + [entry for entry, _ in self.model.unqueued]:
            assert self.scheduler.next_wake_up(self.now) is not None


TestSchedulerAgainstModel = pytest.mark.slow(pytest.mark.timeout(300)(SchedulerAgainstModel.TestCase))
TestSchedulerAgainstModel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
