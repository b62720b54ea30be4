"""The loops of maintenance: plans fire, old rows go (design 3.6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tasks_app.domain import plans
from tasks_app.domain.audit import SYSTEM
from tests.support.waiting import eventually
from tests.tasks_app.factories import make_tenant, now, rows_of
from tests.tasks_app.test_plans import definition
from workers_app.maintenance import LOOPS, Maintenance

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def maintenance() -> Iterator[None]:
    """What every node of the role runs, without the pause of a minute before retention."""
    running = Maintenance([loop for loop in LOOPS if loop.seconds <= 1])
    running.start()
    try:
        yield
    finally:
        running.stop(wait_seconds=10)


def test_time_has_a_loop_for_everything_it_does() -> None:
    assert {loop.name for loop in LOOPS} >= {"sweep", "resource keys", "plans", "sessions", "retention"}
    paces = {loop.name: loop.seconds for loop in LOOPS}
    assert paces["sweep"] == paces["plans"] == 1.0, "what is late shows within 2 s"


def test_a_plan_whose_time_has_come_is_fired(maintenance: None) -> None:
    tenant = make_tenant()
    plan = plans.create(tenant.principal, "p", definition(tenant), actor=SYSTEM)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_plan SET next_fire_at = %s WHERE plan_id = %s", [now(), plan.plan_id])
    (firing,) = eventually(lambda: rows_of("orbit_plan_firing", "plan_id = %s", [plan.plan_id]))
    assert firing.status == "ACCEPTED"
