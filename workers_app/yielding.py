"""Which unstarted reservations of a session give way, and how many slots urgent tasks may take (design 3.3).

Pure decisions: the row's transaction alone says whether a reservation still could be given back; a `start` that comes
in meanwhile wins or loses there. What has started is never part of the input, so it can not be touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks_app.limits import YIELD_JITTER_RATIO


@dataclass(frozen=True, slots=True)
class Reservation:
    """An unstarted reservation of a session. `claimed_order` rises with the moment of the claim.

    `yieldable` protects the reservation of a task that has given way often enough; it does not lower its urgency.
    """

    attempt_id: str
    priority: int
    claimed_order: int
    yieldable: bool
    yields: int


@dataclass(frozen=True, slots=True)
class Yield:
    """The reservation goes back. `yields` and `yieldable` are what its task is to have afterwards."""

    attempt_id: str
    yields: int
    yieldable: bool


def reservations_that_give_way(
    reservations: Iterable[Reservation],
    *,
    free_capacity: int,
    urgent_priorities: Sequence[int],
    yield_min_delta: int,
    max_yields: int,
    free_urgent_slots: int | None = None,
) -> tuple[Yield, ...]:
    """What the session gives back so that more urgent tasks find a slot, in the order in which it goes.

    `urgent_priorities` are those of the tasks that this session could claim now if it had a slot (handler and gates are
    judged), in any order; more than there are reservations need not be told. One reservation goes for each task that is
    more urgent than it by `yield_min_delta`: the most urgent task takes the place of the lowest priority, among equals
    of the newest claim. A session with free capacity gives nothing back: its next claim seats the urgent tasks.

    `free_urgent_slots` is what `normal_reserved_slots` leaves for priorities above 0 (`free_urgent_slots()`; None: no
    such bound). Where none is left, a task above 0 can only take the place of another above 0.
    """
    if free_capacity > 0:
        return ()
    candidates = sorted(
        (reservation for reservation in reservations if reservation.yieldable),
        key=lambda reservation: (reservation.priority, -reservation.claimed_order),
    )
    normal = [reservation for reservation in candidates if reservation.priority <= 0]
    urgent = [reservation for reservation in candidates if reservation.priority > 0]
    normal.reverse()  # so that the next one to go is at the end
    urgent.reverse()
    giving_way: list[Reservation] = []
    for priority in sorted(urgent_priorities, reverse=True):
        may_take_normal = priority <= 0 or free_urgent_slots is None or free_urgent_slots > 0
        pool = normal if may_take_normal and normal else urgent
        if not pool or priority - pool[-1].priority < yield_min_delta:
            continue
        if pool is normal and priority > 0 and free_urgent_slots is not None:
            free_urgent_slots -= 1
        giving_way.append(pool.pop())
    return tuple(
        Yield(
            attempt_id=reservation.attempt_id,
            yields=reservation.yields + 1,
            yieldable=reservation.yields + 1 < max_yields,
        )
        for reservation in giving_way
    )


def reservations_beyond_capacity(
    reservations: Iterable[Reservation], *, running: int, capacity: int
) -> tuple[Reservation, ...]:
    """The unstarted reservations that no longer fit after a `resize`, newest claim first (revoked with `CAPACITY`)."""
    newest_first = sorted(reservations, key=lambda reservation: reservation.claimed_order, reverse=True)
    return tuple(newest_first[: max(0, running + len(newest_first) - capacity)])


def free_urgent_slots(*, capacity: int, normal_reserved_slots: int, urgent_held: int) -> int:
    """How many tasks above priority 0 the session could still take: they hold at most `capacity -
    normal_reserved_slots` slots. `urgent_held` counts what it holds above 0, started or not."""
    return max(0, max(0, capacity - normal_reserved_slots) - urgent_held)


def jittered_delay_ms(delay_ms: int, random_unit: float) -> int:
    """`delay_ms` ± 20 %, for `random_unit` in [0, 1): yielded tasks do not come back all in one moment."""
    return round(delay_ms * (1 + YIELD_JITTER_RATIO * (2 * random_unit - 1)))
