"""The fair claim scheduler, row by row of the table in design 3.4. `test_scheduler_model.py` drives it at random."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.states import Policy
from tests.workers_app.scheduling import PREPARE, RENDER, Node, claimant
from workers_app.scheduler import ClaimOrder, Occupancy, Pacing, SchedulerLimits

LITERAL = SchedulerLimits(pacing=Pacing.LITERAL)


def served(orders: list[ClaimOrder]) -> list[object]:
    return [order.connection_id for order in orders]


# -- claim operations in the database at once: 4 per node


def test_a_node_runs_4_claims_at_once() -> None:
    node = Node()
    for number in range(6):
        node.connect(number, claimant(f"app-{number}"), capacity=1)
    orders = node.next()
    assert served(orders) == [0, 1, 2, 3]
    assert node.next() == []
    node.finish(orders[2], 1)
    assert served(node.next()) == [4]


def test_a_claim_of_a_connection_that_is_gone_keeps_its_room_until_it_ends() -> None:
    node = Node()
    for number in range(6):
        node.connect(number, claimant(f"app-{number}"), capacity=1)
    orders = node.next()
    node.scheduler.unregister(0)
    assert node.next() == []
    assert orders[0] in node.scheduler.running
    node.finish(orders[0], 1)
    assert served(node.next()) == [4]


# -- of one application at once: 1; others go on


def test_an_application_has_one_claim_at_once_and_others_go_on() -> None:
    node = Node()
    node.connect("a1", claimant("a", "q1"), capacity=1)
    node.connect("a2", claimant("a", "q2"), capacity=1)
    node.connect("a3", claimant("a", "q3", namespace="a/second"), capacity=1)
    node.connect("b1", claimant("b"), capacity=1)
    orders = node.next()
    assert served(orders) == ["a1", "b1"]
    node.finish(orders[0], 0)
    assert served(node.next()) == ["a2"]


def test_one_claim_at_once_holds_for_an_application_that_reconnects_during_its_claim() -> None:
    node = Node()
    node.connect("a1", capacity=1)
    order = node.one()
    node.scheduler.unregister("a1")
    node.connect("a2", capacity=1)
    assert node.next() == []
    node.finish(order, 0)
    assert served(node.next()) == ["a2"]


# -- waiting + running claim requests: 128 per node; past that a request waits unqueued for the next cycle


def test_a_node_holds_128_requests_and_the_next_waits_unqueued_for_the_next_cycle() -> None:
    node = Node()
    for number in range(130):
        node.connect(number, claimant(f"app-{number}"), capacity=1)
    assert node.scheduler.occupancy == Occupancy(waiting=128, running=0, unqueued=2, empty_answers=0)
    first_cycle = node.probe(answers=1, at_most=200)
    assert first_cycle == list(range(128))
    node.next_cycle()
    assert node.probe(answers=1) == [128, 129]


def test_an_unqueued_request_is_queued_before_any_later_one() -> None:
    node = Node(SchedulerLimits(requests_max=2))
    for name in ("a", "b", "c"):
        node.connect(name, claimant(name), capacity=40)
    first, second = node.next()
    node.next_cycle()
    assert node.next() == []
    node.finish(first, 32)
    assert served(node.next()) == ["c"]
    assert node.scheduler.occupancy.unqueued == 1  # a asks again and finds no place
    node.finish(second, 32)
    (again,) = node.next()
    assert again.connection_id == "b"  # a waits for the next cycle, so the place is free until then
    node.next_cycle()
    node.finish(again, 1)
    assert served(node.next()) == ["a"]


def test_a_request_that_no_claim_could_serve_gives_its_place_to_one_that_waits() -> None:
    node = Node(SchedulerLimits(requests_max=2))
    node.connect("a", claimant("a"), capacity=1)
    node.connect("b", claimant("b"), capacity=1)
    assert node.probe() == ["a", "b"]
    node.connect("c", claimant("c"), capacity=1)
    assert served(node.next()) == ["c"]
    assert node.scheduler.occupancy == Occupancy(waiting=1, running=1, unqueued=1, empty_answers=2)


def test_with_a_single_place_nobody_starves() -> None:
    node = Node(SchedulerLimits(requests_max=1))
    for name in "abcd":
        node.connect(name, claimant(name), capacity=1)
    assert node.probe() == ["a"]
    for _ in range(5):
        node.next_cycle()
        assert sorted(node.probe(), key=str) == ["a", "b", "c", "d"]


# -- unfinished claim requests of one connection: 1


def test_a_connection_has_one_unfinished_request_however_often_it_asks() -> None:
    node = Node()
    node.connect("a", claimant("a", "q1", "q2"), capacity=5)
    node.request("a", 7)
    order = node.one()
    assert order.limit == 7
    node.request("a", 9)
    assert node.next() == []
    assert node.scheduler.occupancy == Occupancy(waiting=0, running=1, unqueued=0, empty_answers=0)


# -- order: active applications in turn → queues in turn → connections in request order


def test_applications_take_turns_whatever_they_bring() -> None:
    node = Node(SchedulerLimits(claims_at_once=1))
    for number in range(20):
        node.connect(f"a{number}", claimant("a", f"a-q{number}", namespace=f"a/{number}"), capacity=1)
    node.connect("b", claimant("b"), capacity=100)
    turns = []
    for _ in range(10):
        order = node.one()
        turns.append(order.application_id)
        node.finish(order, 1)
        node.scheduler.clear()
    assert turns == ["a", "b"] * 5


def test_one_urgent_task_of_another_application_does_not_wait_behind_a_backlog() -> None:
    node = Node(SchedulerLimits(claims_at_once=1))
    for number in range(50):
        node.connect(f"a{number}", claimant("a"), capacity=32)
    for _ in range(5):
        node.finish(node.one(), 32)
    node.connect("b", claimant("b"), capacity=1)
    applications = []
    for _ in range(2):
        order = node.one()
        applications.append(order.application_id)
        node.finish(order, order.limit)
    assert "b" in applications


def test_where_turns_coincide_the_application_with_fewer_running_attempts_goes_first() -> None:
    node = Node(SchedulerLimits(claims_at_once=1))
    for name in ("a", "b", "c"):
        node.connect(name, claimant(name), capacity=32 * 50)
    attempts = {"a": 7, "b": 0, "c": 3}
    turns = []
    for _ in range(6):
        (order,) = node.next(attempts)
        turns.append(order.application_id)
        node.finish(order, order.limit)
        node.scheduler.clear()
    assert turns == ["b", "c", "a"] * 2  # still one each per round: fewer running attempts win no further turns


def test_an_application_saves_up_no_turns_while_it_wants_nothing() -> None:
    node = Node(SchedulerLimits(claims_at_once=1))
    node.connect("a", claimant("a"), capacity=32 * 100)
    node.connect("b", claimant("b"))
    for _ in range(20):
        node.finish(node.one(), 32)
        node.scheduler.clear()
    node.request("b", 32 * 100)
    turns = []
    for _ in range(6):
        order = node.one()
        turns.append(order.application_id)
        node.finish(order, 32)
        node.scheduler.clear()
    assert turns == ["b", "a"] * 3


def test_an_application_gains_no_turns_by_reconnecting() -> None:
    node = Node(SchedulerLimits(claims_at_once=1))
    node.connect("b", claimant("b"), capacity=32 * 100)
    turns = []
    for number in range(20):
        node.connect(f"a{number}", claimant("a"), capacity=1)
        order = node.one()
        turns.append(order.application_id)
        node.finish(order, 1)
        node.scheduler.unregister(f"a{number}")
        node.scheduler.clear()
    assert turns.count("b") >= 10


def test_queues_of_an_application_take_turns_whatever_connections_they_have() -> None:
    node = Node()
    for number in range(5):
        node.connect(f"busy-{number}", claimant("a", "busy"), capacity=32 * 10)
    node.connect("lone", claimant("a", "lone"), capacity=32 * 10)
    turns = []
    for _ in range(8):
        order = node.one()
        turns.append(order.queue_ids)
        node.finish(order, 32)
        node.scheduler.clear()
    assert turns == [("busy",), ("lone",)] * 4


def test_a_connection_in_an_aged_namespace_takes_turns_over_its_queues() -> None:
    node = Node()
    node.connect("a", claimant("a", "q1", "q2", "q3"), capacity=1000)
    node.scheduler.clear()
    turns = []
    for _ in range(6):
        order = node.one()
        turns.append(order.queue_ids)
        node.finish(order, 32)
    assert turns == [("q1",), ("q2",), ("q3",)] * 2


def test_a_claim_in_a_strict_namespace_is_for_the_sessions_whole_queue_set() -> None:
    node = Node()
    node.connect("a", claimant("a", "q2", "q1", policy=Policy.STRICT), capacity=5)
    order = node.one()
    assert order.queue_ids == ("q1", "q2")
    assert order.policy == Policy.STRICT


def test_queue_sets_of_a_strict_namespace_take_turns() -> None:
    node = Node()
    for number in range(3):
        node.connect(f"wide-{number}", claimant("a", "q1", "q2", policy=Policy.STRICT), capacity=500)
    node.connect("narrow", claimant("a", "q2", policy=Policy.STRICT), capacity=500)
    turns = []
    for _ in range(4):
        order = node.one()
        turns.append(order.queue_ids)
        node.finish(order, 32)
        node.scheduler.clear()
    assert turns == [("q1", "q2"), ("q2",)] * 2


def test_connections_of_a_queue_are_served_in_request_order() -> None:
    node = Node()
    for name in ("first", "second", "third"):
        node.connect(name)
    for name in ("second", "third", "first"):
        node.request(name, 1)
    turns = []
    for _ in range(3):
        order = node.one()
        turns.append(order.connection_id)
        node.finish(order, 1)
    assert turns == ["second", "third", "first"]


def test_request_order_holds_between_connections_of_different_capabilities() -> None:
    node = Node()
    node.connect("prepare", claimant("a", "q", handlers=(PREPARE,)))
    node.connect("render", claimant("a", "q", handlers=(RENDER,)))
    node.request("render", 1)
    node.request("prepare", 1)
    order = node.one()
    assert order.connection_id == "render"
    node.finish(order, 1)
    assert node.one().connection_id == "prepare"


def test_a_connection_that_asks_again_stands_behind_those_that_wait() -> None:
    node = Node()
    node.connect("a", capacity=64)
    node.connect("b", capacity=64)
    turns = []
    for _ in range(4):
        order = node.one()
        turns.append(order.connection_id)
        node.finish(order, 32)
    assert turns == ["a", "b", "a", "b"]


# -- pace of one connection


def probe_with_one_result(node: Node, times: int) -> list[bool]:
    """Claims that each come back short, as long as they are ordered; whether each was counted."""
    counted = []
    for _ in range(times):
        if not (orders := node.next()):
            break
        counted.append(orders[0].counted)
        node.finish(orders[0], 1)
    return counted


def test_a_connection_makes_4_speculative_claims_per_cycle() -> None:
    node = Node()
    node.connect("a", capacity=1000)
    assert probe_with_one_result(node, 10) == [True] * 4
    node.now += 0.999
    assert node.next() == []
    node.now += 0.001
    assert probe_with_one_result(node, 10) == [True] * 4


def test_pace_is_per_connection() -> None:
    node = Node()
    node.connect("a", capacity=1000)
    node.connect("b", capacity=1000)
    assert probe_with_one_result(node, 20) == [True] * 8


def test_a_connection_whose_last_claim_was_full_and_which_has_freed_capacity_claims_again_at_once() -> None:
    node = Node()
    node.connect("a", capacity=2)
    node.finish(node.one(), 2)
    for _ in range(50):
        assert node.next() == []
        node.request("a", 2)
        order = node.one()
        assert not order.counted
        node.finish(order, 2)


def test_a_full_claim_without_freed_capacity_is_no_reason_to_claim_uncounted() -> None:
    node = Node()
    node.connect("a", capacity=1000)
    for _ in range(4):
        order = node.one()
        assert order.counted
        node.finish(order, 32)
    assert node.next() == []


def test_freed_capacity_after_a_short_claim_is_no_reason_to_claim_uncounted() -> None:
    node = Node()
    node.connect("a", capacity=2)
    for _ in range(4):
        node.finish(node.one(), 1)
        node.request("a", 2)
    assert node.next() == []


def test_capacity_that_is_freed_while_a_full_claim_was_run_counts_as_freed_since() -> None:
    node = Node()
    node.connect("a", capacity=2)
    order = node.one()
    node.request("a", 3)  # one of its attempts ended meanwhile
    node.finish(order, 2)
    follower = node.one()
    assert (follower.limit, follower.counted) == (1, False)


def test_a_paced_connection_claims_as_soon_as_it_frees_capacity_after_a_full_claim() -> None:
    node = Node()
    node.connect("a", capacity=1000)
    for _ in range(4):
        node.finish(node.one(), 32)
    assert node.next() == []
    node.request("a", 873)  # it had 872 left
    assert not node.one().counted


def test_literal_pacing_counts_every_claim() -> None:
    node = Node(LITERAL)
    node.connect("a", capacity=2)
    for _ in range(4):
        order = node.one()
        assert order.counted
        node.finish(order, 2)
        node.scheduler.clear()
        node.request("a", 2)
    assert node.next() == []
    node.next_cycle()
    assert node.one().counted


def test_a_hint_of_work_is_a_reason_to_claim_uncounted_until_a_claim_comes_back_short() -> None:
    node = Node()
    node.connect("a", capacity=1000)
    assert probe_with_one_result(node, 10) == [True] * 4
    node.scheduler.clear(queue_id="app-q")
    orders = []
    for claimed in (32, 32, 7):
        orders.append(node.one())
        node.finish(orders[-1], claimed)
    assert [order.counted for order in orders] == [False] * 3
    assert node.next() == []


def test_a_hint_without_known_work_clears_and_leaves_the_pace_alone() -> None:
    node = Node()
    node.connect("a", capacity=10)
    for _ in range(4):
        assert node.probe() == ["a"]
        node.scheduler.clear(queue_id="app-q", work_known=False)
    assert node.next() == []


def test_hints_without_known_work_keep_no_promise_alive() -> None:
    """On a busy node permits are freed during every claim; that must not let probing run free."""
    node = Node()
    node.connect("a", capacity=1000)
    node.scheduler.clear(queue_id="app-q")
    counted = []
    for _ in range(10):
        if not (orders := node.next()):
            break
        node.scheduler.clear(queue_id="app-q", work_known=False)
        node.finish(orders[0], 1)
        counted.append(orders[0].counted)
    assert counted == [False, True, True, True, True]


def test_sharing_an_empty_answer_costs_no_claim_of_the_cycle() -> None:
    node = Node()
    node.connect("a", capacity=1)
    node.connect("b", capacity=1)
    assert node.probe() == ["a"]
    for _ in range(3):
        node.scheduler.clear(work_known=False)
        node.probe()
    node.scheduler.clear(work_known=False)
    node.request("a", 0)
    assert node.one().connection_id == "b"


# -- tasks per claim: min(free capacity, 32)


@pytest.mark.parametrize(("capacity", "limit"), [(1, 1), (31, 31), (32, 32), (33, 32), (1000, 32)])
def test_a_claim_takes_at_most_the_free_capacity_and_32(capacity: int, limit: int) -> None:
    node = Node()
    node.connect("a", capacity=capacity)
    assert node.one().limit == limit


def test_what_a_claim_did_not_fill_is_asked_for_again() -> None:
    node = Node()
    node.connect("a", capacity=40)
    node.finish(node.one(), 32)
    assert node.one().limit == 8


def test_no_capacity_is_no_request() -> None:
    node = Node()
    node.connect("a", capacity=5)
    node.request("a", 0)
    assert node.next() == []
    assert node.scheduler.next_wake_up(node.now) is None


def test_urgent_slots_bound_a_claim_of_a_strict_session() -> None:
    node = Node()
    node.connect("a", claimant("a", policy=Policy.STRICT))
    node.request("a", 40, urgent_capacity=3)
    order = node.one()
    assert (order.limit, order.urgent_limit) == (32, 3)
    node.finish(order, 2)
    assert node.one().urgent_limit == 1


# -- empty results


def test_connections_of_one_line_share_an_empty_answer_for_a_cycle() -> None:
    node = Node()
    for number in range(10):
        node.connect(number, capacity=1)
    assert node.probe() == [0]
    node.now += 0.999
    node.connect("late", capacity=1)
    assert node.next() == []
    node.now += 0.001
    assert len(node.probe()) == 1


OTHERS = {
    "handlers": claimant("app", "q", handlers=(RENDER, PREPARE)),
    "handler version": claimant("app", "q", handlers=(("render", "v2"),)),
    "resource keys": claimant("app", "q", resource_keys=True),
    "queue": claimant("app", "other"),
    "namespace": claimant("app", "q", namespace="app/other"),
    "queue set": claimant("app", "q", "q2", policy=Policy.STRICT),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_lines_that_differ_never_share_an_empty_answer(other: object) -> None:
    node = Node()
    policy = Policy.STRICT if getattr(other, "policy", None) == Policy.STRICT else Policy.AGED
    node.connect("a", claimant("app", "q", policy=policy), capacity=1)
    assert node.probe() == ["a"]
    node.connect("b", other, capacity=1)  # type: ignore[arg-type]
    assert node.probe() == ["b"]


def test_capabilities_are_compared_as_sets() -> None:
    node = Node()
    node.connect("a", claimant("app", "q", handlers=(RENDER, PREPARE)), capacity=1)
    node.connect("b", claimant("app", "q", handlers=(PREPARE, RENDER)), capacity=1)
    assert node.probe() == ["a"]


def test_a_session_without_urgent_slots_shares_no_empty_answer_with_one_that_has() -> None:
    node = Node()
    strict = claimant("a", policy=Policy.STRICT)
    node.connect("full of urgent", strict)
    node.connect("free", strict)
    node.request("full of urgent", 2, urgent_capacity=0)
    assert node.probe() == ["full of urgent"]
    node.request("free", 2)
    assert node.probe() == ["free"]
    node.request("full of urgent", 2, urgent_capacity=1)
    assert node.next() == []  # now it shares the other's answer


def test_one_queue_of_a_connection_may_rest_while_another_is_served() -> None:
    node = Node()
    node.connect("a", claimant("a", "empty", "full"), capacity=1000)
    node.finish(node.one(), 0)
    for _ in range(3):
        order = node.one()
        assert order.queue_ids == ("full",)
        node.finish(order, 32)


def test_a_short_answer_is_no_empty_answer_unless_the_claim_says_so() -> None:
    node = Node()
    node.connect("a", capacity=5)
    node.finish(node.one(), 1)
    order = node.one()
    node.finish(order, 1, dry=True)
    assert node.next() == []
    node.next_cycle()
    assert node.one().limit == 3


def test_at_most_128_empty_answers_are_remembered_and_the_one_used_longest_ago_goes_first() -> None:
    node = Node(SchedulerLimits(claims_per_cycle=1000, requests_max=1000))
    for number in range(128):
        node.connect(number, claimant("a", f"q{number}"), capacity=1)
    assert node.probe(at_most=128) == list(range(128))
    node.connect("also 0", claimant("a", "q0"), capacity=1)  # uses the oldest answer
    assert node.next() == []
    node.connect("new", claimant("a", "new"), capacity=1)
    node.finish(node.one(), 0)
    assert node.scheduler.occupancy.empty_answers == 128
    assert node.one().queue_ids == ("q1",)


def test_a_hint_clears_what_it_touches_at_once_and_nothing_else() -> None:
    node = Node()
    node.connect("a", claimant("a", "q1"), capacity=1)
    node.connect("b", claimant("a", "q2"), capacity=1)
    node.connect("c", claimant("c", "q3"), capacity=1)
    assert set(node.probe()) == {"a", "b", "c"}
    node.scheduler.clear(queue_id="q2")
    assert node.scheduler.next_wake_up(node.now) == node.now
    assert node.probe() == ["b"]
    node.scheduler.clear(application_id="a")
    assert set(node.probe()) == {"a", "b"}
    node.scheduler.clear(namespace_id="c/default")
    assert node.probe() == ["c"]
    node.scheduler.clear()
    assert set(node.probe()) == {"a", "b", "c"}


def test_a_hint_reaches_every_queue_set_that_holds_the_queue() -> None:
    node = Node()
    node.connect("a", claimant("a", "q1", "q2", policy=Policy.STRICT), capacity=1)
    node.connect("b", claimant("a", "q2", "q3", policy=Policy.STRICT), capacity=1)
    assert set(node.probe()) == {"a", "b"}
    node.scheduler.clear(queue_id="q2")
    assert set(node.probe()) == {"a", "b"}
    node.scheduler.clear(queue_id="q3")
    assert node.probe() == ["b"]


def test_a_hint_leaves_lines_alone_that_could_not_take_the_task() -> None:
    node = Node()
    node.connect("render", claimant("a", "q", handlers=(RENDER,)), capacity=1)
    node.connect("prepare", claimant("a", "q", handlers=(PREPARE,)), capacity=1)
    node.connect("keys", claimant("a", "q", handlers=(PREPARE,), resource_keys=True), capacity=1)
    assert set(node.probe()) == {"render", "prepare", "keys"}
    node.scheduler.clear(queue_id="q", capability=PREPARE)
    assert set(node.probe()) == {"prepare", "keys"}
    node.scheduler.clear(queue_id="q", capability=PREPARE, resource_key=True)
    assert node.probe() == ["keys"]


def test_an_empty_answer_is_not_believed_if_a_hint_came_while_the_claim_was_run() -> None:
    node = Node()
    node.connect("a", capacity=1)
    order = node.one()
    node.scheduler.clear(queue_id="app-q")
    node.finish(order, 0)
    follower = node.one()
    assert not follower.counted
    node.finish(follower, 0)
    assert node.next() == []


def test_hints_while_a_claim_is_run_ask_for_one_more_claim_not_for_one_each() -> None:
    node = Node()
    node.connect("a", capacity=10)
    order = node.one()
    for _ in range(100):
        node.scheduler.clear(queue_id="app-q")
    node.finish(order, 0)
    assert node.probe() == ["a"]


# -- Claims that fail, connections that vanish


def test_a_claim_of_which_nothing_was_learned_is_tried_again_in_the_next_cycle() -> None:
    node = Node()
    node.connect("a", capacity=2)
    node.connect("b", capacity=2)
    assert node.probe(answers=None) == ["a", "b"]
    assert node.scheduler.occupancy.empty_answers == 0
    node.next_cycle()
    assert node.one().connection_id == "a"


def test_a_request_that_vanishes_is_not_served() -> None:
    node = Node()
    node.connect("a", capacity=1)
    node.connect("b", capacity=1)
    node.scheduler.unregister("a")
    node.scheduler.unregister("a")
    assert served(node.next()) == ["b"]


def test_a_vanished_connection_does_not_ask_again() -> None:
    node = Node()
    node.connect("a", capacity=100)
    order = node.one()
    node.scheduler.unregister("a")
    node.finish(order, 32)
    assert node.next() == []
    assert node.scheduler.next_wake_up(node.now) is None
    assert node.scheduler.occupancy == Occupancy(waiting=0, running=0, unqueued=0, empty_answers=0)


def test_a_connection_id_may_be_used_again_while_the_claim_of_the_old_one_is_run() -> None:
    node = Node()
    node.connect("a", capacity=100)
    order = node.one()
    node.scheduler.unregister("a")
    node.connect("a", capacity=3)
    node.finish(order, 32)
    assert node.one().limit == 3


def test_orders_are_reported_once_and_within_their_limit() -> None:
    node = Node()
    node.connect("a", capacity=2)
    order = node.one()
    with pytest.raises(ValueError, match="at most 2"):
        node.finish(order, 3)
    node.finish(order, 2)
    with pytest.raises(ValueError, match="not being run"):
        node.finish(order, 2)


def test_a_connection_registers_once() -> None:
    node = Node()
    node.connect("a")
    with pytest.raises(ValueError, match="registered already"):
        node.connect("a")
    with pytest.raises(ValueError, match="negative"):
        node.request("a", -1)


def test_nothing_is_kept_of_connections_that_are_gone() -> None:
    node = Node()
    for number in range(20):
        node.connect(number, claimant(f"app-{number}", "q1", "q2"), capacity=40)
    node.probe()
    for number in range(20):
        node.scheduler.unregister(number)
    scheduler = node.scheduler
    kept = [scheduler._connections, scheduler._claimants, scheduler._lines, scheduler._lines_by_scope]
    kept += [scheduler._empty, scheduler._places, scheduler._paced, scheduler._unqueued, scheduler._running]
    assert [len(one) for one in (*kept, scheduler._turns.applications)] == [0] * 10


# -- Wake-ups and shutting down


def test_a_node_wakes_up_at_the_next_cycle_while_somebody_rests_and_not_at_all_otherwise() -> None:
    node = Node()
    assert node.scheduler.next_wake_up(node.now) is None
    node.connect("a")
    assert node.scheduler.next_wake_up(node.now) is None
    node.request("a", 1)
    assert node.scheduler.next_wake_up(node.now) == node.now
    node.now += 0.25
    node.probe()
    assert node.scheduler.next_wake_up(node.now) == 1001.0
    node.now = 1001.0
    assert node.one().connection_id == "a"


def test_cycles_keep_their_rhythm_when_nobody_looked_for_a_while() -> None:
    node = Node()
    node.connect("a", capacity=1)
    node.probe()
    node.now += 7.5
    node.probe()
    assert node.scheduler.next_wake_up(node.now) == 1008.0


def test_shutting_down_cancels_what_waits_and_awaits_what_runs() -> None:
    node = Node()
    node.connect("a", claimant("a"), capacity=100)
    node.connect("b", claimant("a"), capacity=100)
    order = node.one()
    assert node.scheduler.shut_down() == ("b",)
    assert node.scheduler.running == (order,)
    node.request("b", 5)
    node.finish(order, 32)
    node.next_cycle()
    assert node.next() == []
    assert node.scheduler.running == ()
    assert node.scheduler.next_wake_up(node.now) is None


def test_shutting_down_cancels_unqueued_and_paced_requests_too() -> None:
    node = Node(SchedulerLimits(requests_max=1, claims_per_cycle=1))
    node.connect("paced", claimant("a"), capacity=100)
    node.finish(node.one(), 32)
    node.connect("placed", claimant("b"), capacity=1)
    node.connect("unqueued", claimant("c"), capacity=1)
    assert set(node.scheduler.shut_down()) == {"paced", "placed", "unqueued"}
    assert node.scheduler.occupancy == Occupancy(waiting=0, running=0, unqueued=0, empty_answers=0)


# -- Fairness as a property


@given(
    connections=st.lists(
        st.tuples(st.sampled_from("abcd"), st.lists(st.sampled_from(["q1", "q2", "q3"]), min_size=1, unique=True)),
        min_size=1,
        max_size=12,
    ),
    at_once=st.integers(1, 4),
    attempts=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 5)),
    choices=st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
def test_more_queues_or_connections_win_no_further_turns_and_nobody_starves(
    connections: list[tuple[str, list[str]]], at_once: int, attempts: dict[str, int], choices: list[int]
) -> None:
    """All applications have requests waiting all the time; claims end in any order, but none is held for ever."""
    node = Node(SchedulerLimits(claims_at_once=at_once, claims_per_cycle=10_000))
    names = {name for name, _ in connections}
    for number, (name, queues) in enumerate(connections):
        node.connect(number, claimant(name, *(f"{name}/{queue}" for queue in queues)), capacity=32 * 1000)
        node.connect(f"{number} too", claimant(name, f"{name}/{queues[0]}"), capacity=32 * 1000)
    history: list[str] = []
    running: list[ClaimOrder] = []
    for choice in choices * 3:
        for order in node.next(attempts):
            history.append(order.application_id)
            running.append(order)
        node.finish(running.pop(choice % len(running)), 32)
    if at_once == 1:
        for mine in names:
            places = [place for place, name in enumerate(history) if name == mine]
            for before, after in pairwise([-1, *places]):
                assert max(Counter(history[before + 1 : after]).values(), default=0) <= 2
        counts = [history.count(name) for name in names]
        assert max(counts) - min(counts) <= 1
    else:
        assert set(history[: 2 * len(names) + at_once]) >= names


@given(
    answers=st.lists(st.sampled_from([0, 1, "full", None]), min_size=1, max_size=80),
    hints=st.lists(st.booleans(), min_size=80, max_size=80),
    queues=st.integers(1, 5),
)
def test_probing_without_a_hint_of_work_never_exceeds_the_pace(
    answers: list[int | str | None], hints: list[bool], queues: int
) -> None:
    node = Node()
    node.connect("a", claimant("a", *(f"q{number}" for number in range(queues))), capacity=1000)
    claims: Counter[int] = Counter()
    for answer, hint in zip(answers, hints, strict=False):
        if hint:
            node.scheduler.clear(work_known=False)
        for order in node.next():
            claims[int(node.now)] += 1
            node.finish(order, order.limit if answer == "full" else answer)  # type: ignore[arg-type]
        node.now += 0.1
    assert max(claims.values()) <= 4
