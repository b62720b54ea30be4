"""200 intents with a hostile upstream: at most one submit each, nothing revived, the books balance (design 7.3)."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from django.db import connection

from lifecycle_app.states import AckResult, Decision, IntentState
from tasks_app.errors import OrbitError
from tests.lifecycle_app.site import Site, confirm, progress, rows_of

SEED = 20261130
INTENTS = 200
SUBMIT_WORDS = [
    "accept", "accept", "accept", "accept_200", "refuse", "error", "error_after_effect", "drop_before_effect",
    "drop_after_effect", "garbage", "not_json", "array", "accepted_202", "redirect", "cut", "not_http",
]  # fmt: skip
PREPARE_WORDS = ["ok", "ok", "ok", "ok", "size:3", "refuse", "error", "drop", "garbage", "bad_size"]


def test_at_most_one_submit_per_generation_whatever_the_upstream_does(site: Site):
    dice = random.Random(SEED)
    for gid in range(1, INTENTS + 1):
        site.play.script("prepare", gid, dice.choice(PREPARE_WORDS))
        site.play.script("submit", gid, dice.choice(SUBMIT_WORDS))

    def attempt(gid: int) -> None:
        try:
            for _ in range(2):  # the second click asks nobody, unless the first left nothing behind
                site.create(gid)
        except OrbitError:
            return
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(attempt, range(1, INTENTS + 1)))
    submits = Counter(e["operation_id"] for e in site.play.fake.journal if e["step"] == "submit")
    assert max(submits.values()) == 1, f"seed {SEED}"
    states = Counter(row.state for row in rows_of("orbit_operation_intent"))
    assert set(states) <= {"SUBMITTED", "UNKNOWN"}, f"seed {SEED}"
    assert min(states.values()) >= 20, f"seed {SEED}: the dice were kind: {states}"

    node = site.connect()
    for row in rows_of("orbit_operation_intent"):
        if row.state == "UNKNOWN":
            found = site.reconcile(row.gid, Decision.LOOKUP).found
            assert found is (row.operation_id in site.play.fake.submissions.get(str(row.gid), []))
            site.reconcile(row.gid, Decision.SUBMITTED if found else Decision.NOT_SUBMITTED)
    while site.told(node):
        continue
    for row in rows_of("orbit_operation_intent"):
        assert site.report(node, progress(row.gid, row.operation_id, 4)) is AckResult.APPLIED
        delete_id = site.delete(row.gid).delete_operation_id
        assert site.report(node, confirm(row.gid, delete_id)) is AckResult.APPLIED
        assert site.report(node, progress(row.gid, row.operation_id, 1), revision=9) is AckResult.IGNORED
    assert {row.state for row in rows_of("orbit_operation_intent")} == {IntentState.DELETED.value}
    assert rows_of("orbit_lifecycle_task") == []
    effects = {done for all_done in site.play.fake.submissions.values() for done in all_done}
    metered = [row.operation_id for row in rows_of("orbit_usage_entry")]
    assert len(metered) == len(set(metered))
    assert set(metered) <= effects
