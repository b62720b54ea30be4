"""Resource keys and the claim order against a simple model: whatever is done in whatever order, the next claim gets
exactly the tasks that a walk along the line would take while permits last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tasks_app.domain.claims import Offer
from tasks_app.domain.reconciliation import Decision
from tasks_app.endings import Report
from tasks_app.states import TaskState
from tests.tasks_app import books
from tests.tasks_app import factories as f
from tests.tasks_app.conftest import empty_tables
from tests.tasks_app.factories import NEVER, SAFE_AT_ONCE, Tenant

S = TaskState
KEYS, HANDLERS = ("k0", "k1", None), ("a", "b")
HOLDING = (S.RESERVED, S.RUNNING, S.UNKNOWN)


@dataclass
class ModelTask:
    task_id: str
    queue_id: str
    handler: str
    key: str | None
    state: TaskState = S.READY
    offer: Offer | None = None

    @property
    def place(self) -> tuple[int, int, str]:
        task = f.row(self.task_id)
        return (task.available_at - task.priority * 30 * f.SECOND, task.available_at, self.task_id)


class ResourceKeys(RuleBasedStateMachine):
    tenant: Tenant
    limit: int
    queues: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[ModelTask] = []

    @initialize(limit=st.integers(1, 3))
    def make(self, limit: int) -> None:
        empty_tables()
        self.limit = limit
        self.tenant = f.make_tenant(resource_limit=limit)
        self.queues = [self.tenant.queue_id, self.tenant.queue()]

    # -- what the model says

    def in_state(self, *states: TaskState) -> list[ModelTask]:
        return [task for task in self.tasks if task.state in states]

    def expected(self, queue_id: str, handlers: set[str], limit: int) -> list[ModelTask]:
        """A walk along the line: each task that finds a free permit is taken."""
        free = {key: self.limit - sum(task.key == key for task in self.in_state(*HOLDING)) for key in KEYS if key}
        taken: list[ModelTask] = []
        line = [task for task in self.in_state(S.READY) if task.queue_id == queue_id and task.handler in handlers]
        for task in sorted(line, key=lambda one: one.place):
            if len(taken) == limit:
                break
            if task.key is not None:
                if free[task.key] < 1:
                    continue
                free[task.key] -= 1
            taken.append(task)
        return taken

    # -- what may happen

    @rule(
        queue=st.integers(0, 1),
        handler=st.sampled_from(HANDLERS),
        key=st.sampled_from(KEYS),
        priority=st.sampled_from([0, 0, 4, 9]),
        retry=st.sampled_from([NEVER, SAFE_AT_ONCE]),
    )
    def submit(self, queue: int, handler: str, key: str | None, priority: int, retry: Any) -> None:
        queue_id = self.queues[queue]
        task_id = f.submit(
            self.tenant, queue_id=queue_id, handler=handler, resource_key=key, priority=priority, retry=retry
        )
        self.tasks.append(ModelTask(task_id, queue_id, handler, key))

    @precondition(lambda self: self.in_state(S.READY))
    @rule(
        queue=st.integers(0, 1),
        handlers=st.sets(st.sampled_from(HANDLERS), min_size=1),
        limit=st.integers(1, 4),
    )
    def claim(self, queue: int, handlers: set[str], limit: int) -> None:
        expected = self.expected(self.queues[queue], handlers, limit)
        outcome = f.claim(self.tenant, queue_ids=[self.queues[queue]], handlers=tuple(sorted(handlers)), limit=limit)
        assert [offer.task.task_id for offer in outcome.offers] == [task.task_id for task in expected]
        for task, offer in zip(expected, outcome.offers, strict=True):
            task.state, task.offer = S.RESERVED, offer

    def pick(self, data: Any, *states: TaskState) -> ModelTask:
        return data.draw(st.sampled_from(self.in_state(*states)))

    @precondition(lambda self: self.in_state(S.RESERVED))
    @rule(data=st.data())
    def start(self, data: Any) -> None:
        task = self.pick(data, S.RESERVED)
        f.start(self.tenant, task.offer)  # type: ignore[arg-type]
        task.state = S.RUNNING

    @precondition(lambda self: self.in_state(S.RESERVED))
    @rule(data=st.data(), by_sweep=st.booleans())
    def give_back(self, data: Any, by_sweep: bool) -> None:
        task = self.pick(data, S.RESERVED)
        if by_sweep:
            f.expire_lease(task.task_id)
            f.sweep()
        else:
            f.release(task.offer)  # type: ignore[arg-type]
        task.state = S.READY

    @precondition(lambda self: self.in_state(S.RUNNING))
    @rule(
        data=st.data(), report=st.sampled_from([Report.SUCCEEDED, Report.FAILED]), wait_ms=st.sampled_from([0, 60_000])
    )
    def finish(self, data: Any, report: Report, wait_ms: int) -> None:
        task = self.pick(data, S.RUNNING)
        result = f.finish(task.offer, report, retry_after_ms=wait_ms)  # type: ignore[arg-type]
        assert result.state is not None
        task.state = result.state

    @precondition(lambda self: self.in_state(S.RUNNING))
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        task = self.pick(data, S.RUNNING)
        f.lose(task.offer)  # type: ignore[arg-type]
        task.state = f.state(task.task_id)

    @precondition(lambda self: self.in_state(S.UNKNOWN))
    @rule(data=st.data(), decision=st.sampled_from(Decision))
    def reconcile(self, data: Any, decision: Decision) -> None:
        task = self.pick(data, S.UNKNOWN)
        task.state = f.reconcile(self.tenant, task.task_id, decision).state

    @precondition(lambda self: self.in_state(S.SCHEDULED, S.READY, S.RESERVED))
    @rule(data=st.data(), expires=st.booleans())
    def end_early(self, data: Any, expires: bool) -> None:
        task = self.pick(data, S.SCHEDULED, S.READY, S.RESERVED)
        if expires:
            f.pass_deadline(task.task_id)
            f.sweep()
        else:
            f.cancel(self.tenant, task.task_id)
        task.state = S.EXPIRED if expires else S.CANCELED

    @precondition(lambda self: self.in_state(S.SCHEDULED))
    @rule(data=st.data())
    def come_due(self, data: Any) -> None:
        task = self.pick(data, S.SCHEDULED)
        f.due(task.task_id, seconds_ago=0)
        f.sweep()
        task.state = S.READY

    # -- what always holds

    @invariant()
    def rows_are_in_the_states_of_the_model(self) -> None:
        states = {row.task_id: row.state for row in f.rows_of("orbit_task")}
        for task in self.tasks:
            assert states[task.task_id] == task.state

    @invariant()
    def books_balance(self) -> None:
        books.assert_balanced()


def test_claims_take_what_a_walk_along_the_line_would_take(database: None):
    run_state_machine_as_test(
        ResourceKeys,
        settings=settings(
            max_examples=20,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
