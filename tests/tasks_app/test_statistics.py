"""Counting what stands in a queue (design 1.5) costs no look at the rows of a long backlog."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.domain import statistics
from tasks_app.transactions import Tx, reading
from tests.tasks_app import factories
from tests.tasks_app.factories import Tenant


@pytest.mark.mariadb_only("EXPLAIN names the index of each step")
def test_every_look_at_the_tasks_of_a_queue_is_answered_from_an_index_alone(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    for number in range(10):
        factories.submit(tenant, priority=number)
    asked: list[tuple[str, Any]] = []
    for name in ("row", "rows"):
        real = getattr(Tx, name)

        def ask(self: Tx, sql: str, params: Any = (), real: Any = real) -> Any:
            asked.append((sql, params))
            return real(self, sql, params)

        monkeypatch.setattr(Tx, name, ask)
    statistics.of_queue(tenant.principal, tenant.queue_id)
    monkeypatch.undo()
    steps = [step for sql, params in asked if "orbit_task" in sql for step in explained(sql, params)]
    of_tasks = [step for step in steps if step["table"] == "orbit_task"]
    assert len(of_tasks) >= 4
    for step in of_tasks:
        assert step["key"] in ("task_to_claim", "task_to_wake"), step
        if step["key"] == "task_to_claim":
            assert "Using index" in step["Extra"].split("; "), step


def explained(sql: str, params: Any) -> list[dict[str, Any]]:
    names = ("id", "select_type", "table", "type", "possible_keys", "key", "key_len", "ref", "rows", "Extra")
    with reading() as tx:
        return [dict(zip(names, row, strict=True)) for row in tx.rows(f"EXPLAIN {sql}", params)]
