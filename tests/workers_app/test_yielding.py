"""Which reservations give way (design 3.3, Yield), as a table and as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers_app.yielding import (
    Reservation,
    free_urgent_slots,
    jittered_delay_ms,
    reservations_beyond_capacity,
    reservations_that_give_way,
)


def reserved(*priorities: int, yieldable: bool = True, yields: int = 0, first: int = 1) -> list[Reservation]:
    """Reservations `r1`, `r2`, … in the order of their claims."""
    return [
        Reservation(f"r{number}", priority, claimed_order=number, yieldable=yieldable, yields=yields)
        for number, priority in enumerate(priorities, start=first)
    ]


def give_way(
    reservations: list[Reservation],
    urgent: list[int],
    *,
    free: int = 0,
    delta: int = 1,
    max_yields: int = 100,
    urgent_slots: int | None = None,
) -> list[str]:
    yields = reservations_that_give_way(
        reservations,
        free_capacity=free,
        urgent_priorities=urgent,
        yield_min_delta=delta,
        max_yields=max_yields,
        free_urgent_slots=urgent_slots,
    )
    return [one.attempt_id for one in yields]


def test_of_8_unstarted_reservations_exactly_one_gives_way_to_one_urgent_task() -> None:
    """The strict-priority seed, §9 G2."""
    assert give_way(reserved(*[0] * 8), [9]) == ["r8"]


@pytest.mark.parametrize(
    ("held", "urgent", "going"),
    [
        pytest.param([0, 0, 0], [], [], id="nothing urgent, nothing goes"),
        pytest.param([], [9], [], id="nothing held, nothing goes"),
        pytest.param([0, 0, 0], [9, 9], ["r3", "r2"], id="as few as there are urgent tasks"),
        pytest.param([0, 0], [9, 9, 9, 9], ["r2", "r1"], id="at most what is held"),
        pytest.param([5, -3, 2], [9], ["r2"], id="the lowest priority first"),
        pytest.param([5, -3, 2], [9, 9], ["r2", "r3"], id="then the next lowest"),
        pytest.param([1, 0, 1, 0], [9], ["r4"], id="among equals the newest claim"),
        pytest.param([3, 3], [3], [], id="equals do not give way to each other"),
        pytest.param([3], [2], [], id="nor to less urgent ones"),
        pytest.param([0, 5], [9, 5], ["r1"], id="the second urgent task would gain nothing"),
        pytest.param([0, 0, 5], [9, 5], ["r2", "r1"], id="each urgent task takes the place of the lowest left"),
        pytest.param([-9], [-8], ["r1"], id="also below 0"),
    ],
)
def test_fewest_lowest_newest(held: list[int], urgent: list[int], going: list[str]) -> None:
    assert give_way(reserved(*held), urgent) == going


def test_the_order_in_which_tasks_and_reservations_are_told_does_not_matter() -> None:
    held = reserved(4, 0, 2)
    assert give_way(held, [3, 9]) == give_way(held[::-1], [9, 3]) == ["r2", "r3"]


@pytest.mark.parametrize("free", [1, 5])
def test_a_session_with_free_capacity_gives_nothing_back(free: int) -> None:
    assert give_way(reserved(0, 0), [9, 9], free=free) == []


@pytest.mark.parametrize(
    ("delta", "urgent", "going"), [(1, 1, ["r1"]), (2, 1, []), (2, 2, ["r1"]), (9, 8, []), (9, 9, ["r1"])]
)
def test_yield_min_delta_is_the_least_difference(delta: int, urgent: int, going: list[str]) -> None:
    assert give_way(reserved(0), [urgent], delta=delta) == going


def test_an_unyieldable_reservation_is_protected() -> None:
    held = reserved(-9, yieldable=False) + reserved(0, first=2)
    assert give_way(held, [9, 9]) == ["r2"]
    assert give_way(reserved(-9, yieldable=False), [9]) == []


@pytest.mark.parametrize(
    ("yields", "max_yields", "yieldable_afterwards"),
    [(0, 100, True), (98, 100, True), (99, 100, False), (0, 1, False), (0, 2, True)],
)
def test_at_the_last_yield_allowed_the_task_becomes_unyieldable(
    yields: int, max_yields: int, yieldable_afterwards: bool
) -> None:
    (gone,) = reservations_that_give_way(
        reserved(0, yields=yields),
        free_capacity=0,
        urgent_priorities=[1],
        yield_min_delta=1,
        max_yields=max_yields,
    )
    assert (gone.yields, gone.yieldable) == (yields + 1, yieldable_afterwards)


@pytest.mark.parametrize(
    ("held", "urgent", "slots", "going"),
    [
        pytest.param([0, 0], [9, 9], 2, ["r2", "r1"], id="enough urgent slots"),
        pytest.param([0, 0], [9, 9], 1, ["r2"], id="one urgent slot seats one"),
        pytest.param([0, 0], [9], 0, [], id="no urgent slot: a normal place is of no use"),
        pytest.param([0, 5], [9], 0, ["r2"], id="then an urgent reservation gives its own slot"),
        pytest.param([0, 5], [9, 8], 1, ["r1", "r2"], id="the free slot first, then the urgent reservation"),
        pytest.param([0, 5], [5], 0, [], id="equals do not give way there either"),
        pytest.param([-5, 3], [9, 0], 0, ["r2", "r1"], id="a normal task may take a normal place"),
        pytest.param([-5], [9, 0], 0, ["r1"], id="although a more urgent one can not"),
    ],
)
def test_urgent_slots_bound_what_can_be_seated(
    held: list[int], urgent: list[int], slots: int, going: list[str]
) -> None:
    assert give_way(reserved(*held), urgent, urgent_slots=slots) == going


priorities = st.integers(-9, 9)
held_ones = st.lists(st.tuples(priorities, st.booleans(), st.integers(0, 4)), max_size=8).map(
    lambda rows: [
        Reservation(f"r{number}", priority, number, yieldable, yields)
        for number, (priority, yieldable, yields) in enumerate(rows)
    ]
)


@given(
    held=held_ones,
    urgent=st.lists(priorities, max_size=8),
    delta=st.integers(1, 5),
    slots=st.none() | st.integers(0, 4),
)
def test_every_yield_seats_one_task_that_is_more_urgent_by_the_delta(
    held: list[Reservation], urgent: list[int], delta: int, slots: int | None
) -> None:
    """Applied as the claim that follows would: the most urgent tasks first, within the slots."""
    by_id = {reservation.attempt_id: reservation for reservation in held}
    going = [by_id[name] for name in give_way(held, urgent, delta=delta, urgent_slots=slots)]
    assert len(set(going)) == len(going)
    assert all(reservation.yieldable for reservation in going)

    freed_urgent = sum(reservation.priority > 0 for reservation in going)
    room, urgent_room = len(going), None if slots is None else slots + freed_urgent
    seated = []
    for priority in sorted(urgent, reverse=True):
        if room == 0:
            break
        if priority > 0 and urgent_room is not None:
            if urgent_room == 0:
                continue
            urgent_room -= 1
        room -= 1
        seated.append(priority)
    assert len(seated) == len(going)
    for taken, given_up in zip(sorted(seated), sorted(one.priority for one in going), strict=True):
        assert taken - given_up >= delta
    staying = [reservation for reservation in held if reservation.yieldable and reservation not in going]
    for gone in going:
        for kept in staying:
            if slots is None or (gone.priority > 0) == (kept.priority > 0):
                assert (gone.priority, -gone.claimed_order) < (kept.priority, -kept.claimed_order)


@given(held=held_ones, urgent=st.lists(priorities, max_size=8), delta=st.integers(1, 5))
def test_no_urgent_task_is_left_that_could_take_the_place_of_a_reservation(
    held: list[Reservation], urgent: list[int], delta: int
) -> None:
    going = give_way(held, urgent, delta=delta)
    left = sorted(urgent, reverse=True)[len(going) :]
    staying = [one.priority for one in held if one.yieldable and one.attempt_id not in going]
    assert not left or not staying or left[0] - min(staying) < delta


@given(held=held_ones, urgent=st.lists(priorities, max_size=8), delta=st.integers(1, 5))
def test_a_session_that_has_yielded_and_been_seated_yields_no_further(
    held: list[Reservation], urgent: list[int], delta: int
) -> None:
    """No flapping: what was seated is held, what went back waits, and nobody goes for the same tasks again."""
    going = give_way(held, urgent, delta=delta)
    seated = sorted(urgent, reverse=True)[: len(going)]
    remaining = sorted(urgent, reverse=True)[len(going) :] + [one.priority for one in held if one.attempt_id in going]
    now_held = [one for one in held if one.attempt_id not in going]
    now_held += [Reservation(f"s{n}", priority, 100 + n, True, 0) for n, priority in enumerate(seated)]
    assert give_way(now_held, remaining, delta=delta) == []


@pytest.mark.parametrize(
    ("capacity", "reserved_slots", "urgent_held", "free"),
    [(8, 0, 0, 8), (8, 2, 0, 6), (8, 2, 5, 1), (8, 2, 6, 0), (8, 2, 7, 0), (4, 7, 0, 0), (0, 0, 0, 0), (8, 7, 0, 1)],
)
def test_urgent_tasks_hold_at_most_capacity_less_the_normal_reserved_slots(
    capacity: int, reserved_slots: int, urgent_held: int, free: int
) -> None:
    assert free_urgent_slots(capacity=capacity, normal_reserved_slots=reserved_slots, urgent_held=urgent_held) == free


@pytest.mark.parametrize(
    ("running", "capacity", "going"),
    [
        (0, 5, []),
        (0, 3, []),
        (0, 2, ["r3"]),
        (1, 2, ["r3", "r2"]),
        (2, 2, ["r3", "r2", "r1"]),
        (9, 0, ["r3", "r2", "r1"]),
    ],
)
def test_reservations_beyond_a_smaller_capacity_go_newest_first(running: int, capacity: int, going: list[str]) -> None:
    gone = reservations_beyond_capacity(reserved(9, -9, 0), running=running, capacity=capacity)
    assert [reservation.attempt_id for reservation in gone] == going


def test_unyieldable_reservations_go_too_when_capacity_shrinks() -> None:
    assert len(reservations_beyond_capacity(reserved(0, yieldable=False), running=0, capacity=0)) == 1


@pytest.mark.parametrize(("unit", "delay"), [(0.0, 80), (0.5, 100), (0.25, 90), (0.999999, 120)])
def test_a_yield_delay_varies_by_a_fifth(unit: float, delay: int) -> None:
    assert jittered_delay_ms(100, unit) == delay


@given(delay=st.integers(0, 10**7), unit=st.floats(0, 1, exclude_max=True))
def test_a_jittered_delay_stays_within_its_bounds(delay: int, unit: float) -> None:
    assert round(delay * 0.8) <= jittered_delay_ms(delay, unit) <= round(delay * 1.2)
