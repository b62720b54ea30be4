"""STRICT tier allocation (design 3.3): who gets how much of a claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers_app.tiers import CreditKey, Take, Tier, allocate, settle

NAMESPACE = "n"


def plan(
    limit: int,
    *tiers: tuple[int, Mapping[str, int]],
    weights: Mapping[str, int],
    credits: dict[CreditKey, int] | None = None,
    urgent_limit: int | None = None,
) -> list[tuple[int, str, int]]:
    """The takes of one claim that commits."""
    kept = {} if credits is None else credits
    allocation = allocate(
        namespace_id=NAMESPACE,
        limit=limit,
        tiers=(Tier(priority, available) for priority, available in tiers),
        weights=weights,
        credits=kept,
        urgent_limit=urgent_limit,
    )
    settle(kept, allocation.credits)
    assert allocation.count <= max(limit, 0)
    return [(take.priority, take.queue_id, take.count) for take in allocation.takes]


def shares(limits: list[int], available: Mapping[str, int], weights: Mapping[str, int]) -> Counter[str]:
    """What each queue got over one claim after the other, with ever the same work available."""
    credits: dict[CreditKey, int] = {}
    got: Counter[str] = Counter()
    for limit in limits:
        for _, queue, count in plan(limit, (0, available), weights=weights, credits=credits):
            got[queue] += count
    return got


# -- Tiers


def test_the_highest_tier_is_served_first_across_all_queues() -> None:
    takes = plan(3, (9, {"a": 0, "b": 2}), (0, {"a": 5, "b": 5}), weights={"a": 1, "b": 1})
    assert takes == [(9, "b", 2), (0, "a", 1)]


def test_weights_do_not_count_across_tiers() -> None:
    assert plan(2, (1, {"light": 2}), (0, {"heavy": 9}), weights={"light": 1, "heavy": 100}) == [(1, "light", 2)]


def test_a_lower_tier_is_not_even_looked_at_once_the_claim_is_full() -> None:
    def tiers() -> Iterator[Tier]:
        yield Tier(5, {"a": 4})
        raise AssertionError("the claim was full")

    allocation = allocate(namespace_id=NAMESPACE, limit=4, tiers=tiers(), weights={"a": 1}, credits={})
    assert allocation.takes == (Take(5, "a", 4),)


@pytest.mark.parametrize("limit", [0, -1])
def test_no_room_takes_nothing(limit: int) -> None:
    assert plan(limit, (0, {"a": 1}), weights={"a": 1}) == []


def test_nothing_available_takes_nothing() -> None:
    assert plan(5, weights={"a": 1}) == []
    assert plan(5, (0, {"a": 0}), weights={"a": 1}) == []


def test_urgent_tasks_take_no_more_than_their_slots_and_normal_ones_take_the_rest() -> None:
    tiers = ((9, {"a": 5}), (1, {"a": 5}), (0, {"a": 2}), (-3, {"a": 5}))
    assert plan(6, *tiers, weights={"a": 1}, urgent_limit=2) == [(9, "a", 2), (0, "a", 2), (-3, "a", 2)]
    assert plan(6, *tiers, weights={"a": 1}, urgent_limit=0) == [(0, "a", 2), (-3, "a", 4)]
    assert plan(6, *tiers, weights={"a": 1}, urgent_limit=99) == [(9, "a", 5), (1, "a", 1)]


# -- Shares inside a tier


@pytest.mark.parametrize(
    ("limit", "weights", "expected"),
    [
        pytest.param(8, {"a": 3, "b": 1}, {"a": 6, "b": 2}, id="by weight"),
        pytest.param(8, {"a": 1, "b": 1}, {"a": 4, "b": 4}, id="equal weights"),
        pytest.param(2, {"a": 3, "b": 1}, {"a": 1, "b": 1}, id="at least one each"),
        pytest.param(3, {"a": 100, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}, id="however small the weight"),
        pytest.param(10, {"a": 100, "b": 1}, {"a": 9, "b": 1}, id="one each, then by weight"),
        pytest.param(7, {"a": 3, "b": 1}, {"a": 5, "b": 2}, id="rounded down to 5 and 1, the rest by credit"),
        pytest.param(5, {"a": 3, "b": 1}, {"a": 4, "b": 1}, id="rounded down to 3 and 1, the rest by credit"),
        pytest.param(3, {"a": 1, "b": 1}, {"a": 2, "b": 1}, id="ties by queue id"),
        pytest.param(1, {"a": 1, "b": 1}, {"a": 1}, id="ties by queue id with limit 1"),
    ],
)
def test_one_claim_is_shared_by_weight(limit: int, weights: dict[str, int], expected: dict[str, int]) -> None:
    assert shares([limit], dict.fromkeys(weights, 100), weights) == expected


def test_what_a_queue_cannot_use_goes_to_the_others_by_weight() -> None:
    takes = plan(20, (0, {"a": 1, "b": 100, "c": 100}), weights={"a": 10, "b": 3, "c": 1})
    got = {queue: count for _, queue, count in takes}
    assert got["a"] == 1
    assert got["b"] + got["c"] == 19
    assert abs(got["b"] - 19 * 3 / 4) < 1


def test_a_queue_without_such_work_takes_no_part() -> None:
    takes = plan(8, (0, {"a": 0, "b": 100, "c": 100}), weights={"a": 100, "b": 3, "c": 1})
    assert {queue: count for _, queue, count in takes} == {"b": 6, "c": 2}


def test_where_not_all_can_be_served_each_claim_serves_different_queues_until_all_were() -> None:
    weights = {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}
    assert shares([2, 3], dict.fromkeys(weights, 100), weights) == dict.fromkeys(weights, 1)


def test_credit_from_earlier_claims_takes_nobodys_rounded_down_share() -> None:
    credits: dict[CreditKey, int] = {(NAMESPACE, 0, "a"): -4, (NAMESPACE, 0, "b"): 4}
    takes = plan(8, (0, {"a": 99, "b": 99}), weights={"a": 3, "b": 1}, credits=credits)
    assert {queue: count for _, queue, count in takes} == {"a": 6, "b": 2}


# -- Smooth weighted round robin


def test_with_limit_1_the_picks_are_smooth() -> None:
    credits: dict[CreditKey, int] = {}
    weights = {"a": 5, "b": 1, "c": 1}
    picks = [plan(1, (0, dict.fromkeys(weights, 99)), weights=weights, credits=credits)[0][1] for _ in range(14)]
    assert "".join(picks) == "aabacaa" * 2


@pytest.mark.parametrize("limit", [1, 4, 5, 6, 7, 8, 32])
def test_shares_follow_the_weights_over_time(limit: int) -> None:
    got = shares([limit] * 40, {"a": 1000, "b": 1000}, {"a": 3, "b": 1})
    assert abs(got["a"] - 30 * limit) <= 1


@pytest.mark.parametrize(("weights", "ratio"), [({"a": 3, "b": 1}, (75, 25)), ({"a": 1, "b": 1}, (50, 50))])
@pytest.mark.parametrize("limit", [1, 4, 10, 20])
def test_of_100_and_100_tasks_the_first_hundred_follow_the_weights(
    weights: dict[str, int], ratio: tuple[int, int], limit: int
) -> None:
    """The strict-priority seed, §9: two queues of one tier, 100 tasks in each."""
    left, credits, order = {"a": 100, "b": 100}, {}, []
    while any(left.values()):
        for _, queue, count in plan(limit, (0, dict(left)), weights=weights, credits=credits):
            left[queue] -= count
            order += [queue] * count
    assert len(order) == 200
    first = Counter(order[:100])
    assert (first["a"], first["b"]) == ratio


def test_what_one_each_withholds_for_ever_is_not_saved_up_for_ever() -> None:
    credits: dict[CreditKey, int] = {}
    for _ in range(100):
        plan(2, (0, {"a": 99, "b": 99}), weights={"a": 3, "b": 1}, credits=credits)
    assert credits == {(NAMESPACE, 0, "a"): 4, (NAMESPACE, 0, "b"): -4}


def test_a_queue_found_without_such_work_loses_its_credit() -> None:
    credits: dict[CreditKey, int] = {}
    weights = {"a": 1, "b": 2}
    assert plan(1, (0, {"a": 9, "b": 9}), weights=weights, credits=credits) == [(0, "b", 1)]
    assert credits == {(NAMESPACE, 0, "a"): 1, (NAMESPACE, 0, "b"): -1}
    plan(1, (0, {"a": 0, "b": 9}), weights=weights, credits=credits)
    assert (NAMESPACE, 0, "a") not in credits


def test_a_queue_that_runs_out_in_the_middle_of_a_claim_loses_its_credit() -> None:
    credits: dict[CreditKey, int] = {}
    plan(5, (0, {"a": 1, "b": 9}), weights={"a": 1, "b": 1}, credits=credits)
    assert (NAMESPACE, 0, "a") not in credits


def test_credits_are_kept_apart_by_namespace_and_tier() -> None:
    credits: dict[CreditKey, int] = {("other", 0, "a"): -50, (NAMESPACE, 1, "a"): -50}
    assert plan(1, (0, {"a": 9, "b": 9}), weights={"a": 1, "b": 1}, credits=credits) == [(0, "a", 1)]
    assert credits["other", 0, "a"] == credits[NAMESPACE, 1, "a"] == -50


def test_several_sessions_of_a_node_share_the_credits() -> None:
    """Two sessions that claim one task at a time: together, not each by itself, they follow the weights."""
    credits: dict[CreditKey, int] = {}
    got: Counter[str] = Counter()
    for claim in range(40):
        session_queues = {"a": 9, "b": 9} if claim % 2 else {"b": 9, "a": 9}
        got[plan(1, (0, session_queues), weights={"a": 3, "b": 1}, credits=credits)[0][1]] += 1
    assert got == {"a": 30, "b": 10}


def test_a_claim_that_was_rolled_back_leaves_the_credits_alone() -> None:
    credits: dict[CreditKey, int] = {(NAMESPACE, 0, "b"): 1}
    allocate(
        namespace_id=NAMESPACE, limit=3, tiers=[Tier(0, {"a": 9, "b": 9})], weights={"a": 1, "b": 1}, credits=credits
    )
    assert credits == {(NAMESPACE, 0, "b"): 1}


# -- Properties

queue_names = st.sampled_from(["a", "b", "c", "d", "e"])
weighted = st.dictionaries(queue_names, st.integers(1, 100), min_size=1)


@given(
    weights=weighted,
    limit=st.integers(1, 40),
    data=st.data(),
    urgent_limit=st.none() | st.integers(0, 10),
)
def test_a_claim_keeps_its_bounds_and_leaves_nobody_unserved_while_it_can(
    weights: dict[str, int], limit: int, data: st.DataObject, urgent_limit: int | None
) -> None:
    counts = st.fixed_dictionaries({queue: st.integers(0, 12) for queue in weights})
    priorities = sorted(data.draw(st.sets(st.integers(-9, 9), max_size=4)), reverse=True)
    tiers = [(priority, data.draw(counts)) for priority in priorities]
    bound = sum(weights.values())
    credit = st.integers(-bound, bound)
    credits = {(NAMESPACE, priority, queue): data.draw(credit) for priority in priorities[:1] for queue in weights}
    takes = plan(limit, *tiers, weights=weights, credits=credits, urgent_limit=urgent_limit)

    room, urgent_room = limit, limit if urgent_limit is None else urgent_limit
    for priority, available in tiers:
        got = {queue: count for tier, queue, count in takes if tier == priority}
        assert all(1 <= count <= available[queue] for queue, count in got.items())
        tier_room = min(room, urgent_room) if priority > 0 else room
        assert sum(got.values()) == min(tier_room, sum(available.values()))  # nothing is left while there is room
        competing = [queue for queue, count in available.items() if count]
        assert len(got) == min(max(tier_room, 0), len(competing))
        if tier_room >= len(competing):
            total = sum(weights[queue] for queue in competing)
            floors = {queue: max(1, tier_room * weights[queue] // total) for queue in competing}
            if sum(floors.values()) <= tier_room:
                assert all(got[queue] >= min(floors[queue], available[queue]) for queue in competing)
        room -= sum(got.values())
        urgent_room -= sum(got.values()) if priority > 0 else 0
    assert all(-bound <= credit <= bound for credit in credits.values())


@given(
    weights=st.dictionaries(queue_names, st.integers(1, 10), min_size=2),
    limits=st.lists(st.integers(1, 1), min_size=100, max_size=100),
)
def test_with_limit_1_every_share_is_within_one_task_of_its_weight(weights: dict[str, int], limits: list[int]) -> None:
    got = shares(limits, dict.fromkeys(weights, 1000), weights)
    total = sum(weights.values())
    for queue, weight in weights.items():
        assert abs(got[queue] - len(limits) * weight / total) < len(weights)


@given(
    weights=st.dictionaries(queue_names, st.integers(1, 6), min_size=2, max_size=3),
    limits=st.lists(st.integers(18, 32), min_size=20, max_size=60),
)
def test_shares_follow_the_weights_whatever_the_limits_where_one_each_takes_nothing_away(
    weights: dict[str, int], limits: list[int]
) -> None:
    """18 is the largest sum of weights here, so every queue's part of a claim is at least one task."""
    got = shares(limits, dict.fromkeys(weights, 1000), weights)
    total = sum(weights.values())
    for queue, weight in weights.items():
        assert abs(got[queue] - sum(limits) * weight / total) < len(weights)
