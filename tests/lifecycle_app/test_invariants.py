"""Each rule over the whole database finds what breaks it, and nothing else."""

from __future__ import annotations

import pytest
from django.db import connection

from lifecycle_app.domain import favorites, invariants
from lifecycle_app.domain.invariants import RULES, broken_rules
from tests.lifecycle_app.site import Site

BREAKS = {
    "an intent that is not DELETED has its visible row": "DELETE FROM orbit_lifecycle_task WHERE gid = 1",
    "a tombstone has no visible row": "UPDATE orbit_lifecycle_task SET gid = 4 WHERE gid = 1",
    "a tombstone has no favourites": "UPDATE orbit_favorite SET gid = 4",
    "what a row shows fits its intent's state": (
        "UPDATE orbit_lifecycle_task SET status = 'DELETE_FAILED' WHERE gid = 1"
    ),
    "what was submitted through Orbit is metered": "DELETE FROM orbit_usage_entry WHERE gid = 1",
    "what is not certain is not metered": (
        "UPDATE orbit_usage_entry SET operation_id = (SELECT operation_id FROM orbit_operation_intent WHERE gid = 2)"
        " WHERE gid = 1"
    ),
    "the weekly sums are the sums of their entries": "UPDATE orbit_weekly_usage SET quantity = quantity + 1",
    "every entry is in a weekly sum": "DELETE FROM orbit_weekly_usage",
}


def test_every_rule_is_broken_here_once():
    assert set(BREAKS) == set(RULES)


@pytest.mark.parametrize("rule", BREAKS)
def test_a_rule_finds_what_breaks_it(site: Site, rule: str):
    site.submitted(1)
    favorites.add(site.namespace_id, 1, "ana")
    site.unknown(2)
    site.submitted(3)
    site.deleted(4)
    assert broken_rules() == {}
    with connection.cursor() as cursor:
        cursor.execute(BREAKS[rule])
    found = broken_rules()
    assert rule in found and found[rule]
    for table in ("operation_intent", "lifecycle_task", "usage_entry", "weekly_usage", "favorite"):
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM orbit_{table}")


def test_the_rules_are_plain_selects():
    assert all(query.startswith("SELECT ") and ";" not in query for query in invariants.RULES.values())
