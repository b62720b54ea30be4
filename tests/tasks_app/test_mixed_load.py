"""Everything at once (Solid Queue 531 and 99, faults C8, F10): no error reaches a caller, nothing is lost or doubled.

The books are counted again by the fixture; here it is said that every task that was accepted came to its end.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest

from tasks_app.domain import attempts, claims, sweeps
from tasks_app.domain.attempts import Answer
from tasks_app.endings import Report
from tasks_app.telemetry import DATABASE_RETRIES
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import together
from tests.tasks_app.factories import SAFE_AT_ONCE, Tenant, make_tenant

SUBMITTERS, WORKERS, PER_SUBMITTER = 3, 4, 30
KEYS = (None, None, "k0", "k1", "k2")


def deadlocks() -> float:
    return DATABASE_RETRIES.labels(code="1213")._value.get()


@pytest.mark.parametrize("policy", ["AGED", "STRICT"])
def test_submitters_workers_and_sweepers_at_once_do_every_task(database: None, policy: str):
    tenant = make_tenant(policy=policy, resource_limit=2)
    queues = [tenant.queue_id, tenant.queue(max_running=5)]
    submitting = threading.Semaphore(0)
    before = deadlocks()

    def submit_some(number: int) -> list[str]:
        choose = random.Random(number)
        ids = []
        for step in range(PER_SUBMITTER):
            ids.append(
                f.submit(
                    tenant,
                    key=f"s{number}-{step}",
                    queue_id=choose.choice(queues),
                    resource_key=choose.choice(KEYS),
                    priority=choose.choice([0, 1, 9]),
                    delay_ms=choose.choice([None, None, 1]),
                    retry=SAFE_AT_ONCE,
                )
            )
        submitting.release()
        return ids

    def all_submitted() -> bool:
        return submitting._value == SUBMITTERS  # type: ignore[attr-defined]

    def work(number: int) -> Counter[str]:
        choose = random.Random(100 + number)
        orders = [f.order(tenant, queue_ids=[queue], limit=4) for queue in queues]
        answers: Counter[str] = Counter()
        while not (all_submitted() and unfinished(queues) == 0):
            order = order_of(tenant, orders[choose.randrange(2)])
            offers = list(claims.claim(order).offers)
            if not offers:
                continue
            if choose.random() < 0.15:
                f.release(*offers)
                continue
            started = [
                offer
                for offer, result in zip(offers, f.start_all(tenant, offers), strict=True)
                if result.answer is Answer.STARTED
            ]
            attempts.renew([attempts.RenewItem(f.held(offer)) for offer in started])
            reports = [
                f.report_of(offer, Report.FAILED if choose.random() < 0.1 else Report.SUCCEEDED, **at_once(choose))
                for offer in started
            ]
            answers.update(result.answer.value for result in attempts.finish(reports))
        return answers

    def sweep_until_done() -> None:
        while not (all_submitted() and unfinished(queues) == 0):
            sweeps.sweep_due()
            sweeps.recheck_resource_keys()

    outcomes = together(
        [
            *(lambda n=n: submit_some(n) for n in range(SUBMITTERS)),
            *(lambda n=n: work(n) for n in range(WORKERS)),
            sweep_until_done,
            sweep_until_done,
        ]
    )
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert errors == []
    ids = [task_id for some in outcomes[:SUBMITTERS] for task_id in some]  # type: ignore[union-attr]
    assert len(set(ids)) == SUBMITTERS * PER_SUBMITTER
    states = Counter(row.state for row in f.rows_of("orbit_task"))
    assert set(states) <= {"SUCCEEDED", "FAILED"}
    assert sum(states.values()) == len(ids)
    ran = sum(row.attempts for row in f.rows_of("orbit_task"))
    assert ran == len(f.rows_of("orbit_attempt")) == sum(sum(answers.values()) for answers in outcomes[3:7])  # type: ignore[union-attr]
    # Retries are there to be used, but a storm of them would be a fault of the lock order.
    assert deadlocks() - before <= len(ids)


def order_of(tenant: Tenant, order: Any) -> Any:
    """The same order with the handlers that are known by now."""
    return order if order.handler_refs else f.order(tenant, queue_ids=order.queue_ids, limit=order.limit)


def at_once(choose: random.Random) -> dict[str, Any]:
    return {"retry_after_ms": choose.choice([0, 1])}


def unfinished(queues: list[str]) -> int:
    return sum(f.queue_row(queue_id).unfinished for queue_id in queues)
