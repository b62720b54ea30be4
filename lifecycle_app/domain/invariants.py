"""What must hold over the whole database, beyond what CHECKs can say (for `orbit_check` and for tests)."""

from __future__ import annotations

from typing import Final

from lifecycle_app.states import HAS_TASK, NOT_CERTAIN, IntentState
from tasks_app.transactions import Tx, reading

_FOUND_MAX = 100


def _words(states: frozenset[IntentState]) -> str:
    return ", ".join(f"'{state.value}'" for state in sorted(states))


_CERTAIN: Final = f"state IN ({_words(HAS_TASK - NOT_CERTAIN)})"

# Each query finds what breaks the rule; its first column names the gid or the requester.
RULES: Final[dict[str, str]] = {
    "an intent that is not DELETED has its visible row": (
        "SELECT i.gid FROM orbit_operation_intent i LEFT JOIN orbit_lifecycle_task t"
        " ON t.task_id = i.task_id AND t.namespace_id = i.namespace_id AND t.gid = i.gid"
        " WHERE i.state <> 'DELETED' AND t.task_id IS NULL"
    ),
    "a tombstone has no visible row": (
        "SELECT i.gid FROM orbit_operation_intent i JOIN orbit_lifecycle_task t"
        " ON t.namespace_id = i.namespace_id AND t.gid = i.gid WHERE i.state = 'DELETED'"
    ),
    "a tombstone has no favourites": (
        "SELECT i.gid FROM orbit_operation_intent i JOIN orbit_favorite f"
        " ON f.namespace_id = i.namespace_id AND f.gid = i.gid WHERE i.state = 'DELETED'"
    ),
    "what a row shows fits its intent's state": (
        "SELECT i.gid FROM orbit_operation_intent i JOIN orbit_lifecycle_task t ON t.task_id = i.task_id"
        " WHERE (i.state IN ('RESERVED', 'SUBMITTING')) <> (t.status = 'SUBMITTING')"
        " OR (i.state = 'UNKNOWN') <> (t.status = 'SUBMIT_UNKNOWN')"
        " OR (i.state = 'DELETE_PENDING') <> (t.status IN ('DELETE_PENDING', 'DELETE_FAILED'))"
    ),
    "what was submitted through Orbit is metered": (
        "SELECT i.gid FROM orbit_operation_intent i LEFT JOIN orbit_usage_entry u ON u.operation_id = i.operation_id"
        f" WHERE i.{_CERTAIN} AND i.owner_node_id <> '-' AND u.entry_id IS NULL"
    ),
    "what is not certain is not metered": (
        "SELECT i.gid FROM orbit_operation_intent i JOIN orbit_usage_entry u ON u.operation_id = i.operation_id"
        f" WHERE i.state IN ({_words(NOT_CERTAIN)})"
    ),
    "the weekly sums are the sums of their entries": (
        "SELECT w.requester FROM orbit_weekly_usage w LEFT JOIN orbit_usage_entry u"
        " ON u.namespace_id = w.namespace_id AND u.requester = w.requester AND u.week = w.week"
        " GROUP BY w.usage_id, w.requester, w.quantity HAVING w.quantity <> COALESCE(SUM(u.quantity), 0)"
    ),
    "every entry is in a weekly sum": (
        "SELECT u.gid FROM orbit_usage_entry u LEFT JOIN orbit_weekly_usage w"
        " ON u.namespace_id = w.namespace_id AND u.requester = w.requester AND u.week = w.week WHERE w.usage_id IS NULL"
    ),
}


def broken_rules() -> dict[str, list[str]]:
    """The rules that do not hold, each with who breaks it (up to a hundred); empty when all is well."""
    with reading() as tx:
        found = {rule: _breakers(tx, query) for rule, query in RULES.items()}
    return {rule: breakers for rule, breakers in found.items() if breakers}


def _breakers(tx: Tx, query: str) -> list[str]:
    return [str(row[0]) for row in tx.rows(f"{query} LIMIT {_FOUND_MAX}")]
