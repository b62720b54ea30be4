"""STRICT tier allocation (design 3.3): how many tasks a claim takes from which queue of which priority tier.

The highest tier that a session can claim from is served first; only what is left of the claim's limit reaches the next
tier. Inside a tier the queues that have such work share the limit by weight, in three stages:

1. one each, while the limit allows;
2. up to `limit × weight / Σ weight`, rounded down;
3. the rest, one by one, which is also how what a queue cannot use reaches the others.

Every single task handed out is one *pick* of a smooth weighted round robin: each competing queue gains its weight, the
winner pays the sum. The stage says who may win, the largest credit who does, the smaller queue id on a tie. Because the
picks of all stages are paid for, what the rounding of one claim withholds from a queue comes back to it in the next:
over time the shares are the weights, with a limit of 1 and with a limit of 6 alike. Only "one each" can hold a share
away from its weight for good (two queues weighted 3:1 under a limit of 2), so no credit passes one sum of weights.

Pure: the node keeps the credits, by (namespace, tier, queue), and hands them in. One application has at most one claim
in flight on a node (`scheduler.py`), so nobody else moves the credits of its namespaces in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass

CreditKey = tuple[str, int, str]  # (namespace_id, priority, queue_id)
Credits = Mapping[CreditKey, int]  # a queue without an entry has no credit


@dataclass(frozen=True, slots=True)
class Tier:
    """What a session can claim at one priority: how many tasks each of its queues could give now.

    A queue that was looked at and has nothing counts 0 and is to be listed: it loses its credit.
    """

    priority: int
    available: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Take:
    """Take `count` ≥ 1 tasks of `priority` from the queue, in the queue's own order."""

    priority: int
    queue_id: str
    count: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """The takes in the order in which they are to be claimed, and the credits that changed (0: to be dropped)."""

    takes: tuple[Take, ...]
    credits: Mapping[CreditKey, int]

    @property
    def count(self) -> int:
        return sum(take.count for take in self.takes)


def allocate(
    *,
    namespace_id: str,
    limit: int,
    tiers: Iterable[Tier],
    weights: Mapping[str, int],
    credits: Credits,
    urgent_limit: int | None = None,
) -> Allocation:
    """Share `limit` tasks over the tiers, which come highest priority first.

    `tiers` may be a generator: a tier is asked for only while there is room for it, so that a claim that fills up in
    the first tier never looks at the second. `urgent_limit` bounds what is taken at priorities above 0 (the session's
    `normal_reserved_slots`); None is no such bound. Weights are ≥ 1; a queue missing from `weights` is an error.

    The credits describe the plan. Keep them (`settle`) once the claim has committed; a claim that was rolled back
    leaves them as they were.
    """
    room = limit
    urgent_room = limit if urgent_limit is None else min(limit, urgent_limit)
    takes: list[Take] = []
    changed: dict[CreditKey, int] = {}
    remaining = iter(tiers)
    while room > 0 and (tier := next(remaining, None)) is not None:
        tier_room = min(room, urgent_room) if tier.priority > 0 else room
        if tier_room <= 0:
            continue
        counts, after = allocate_tier(
            limit=tier_room,
            available=tier.available,
            weights=weights,
            credits={queue: credits.get((namespace_id, tier.priority, queue), 0) for queue in tier.available},
        )
        takes += (Take(priority=tier.priority, queue_id=queue, count=count) for queue, count in counts.items())
        changed.update({(namespace_id, tier.priority, queue): credit for queue, credit in after.items()})
        taken = sum(counts.values())
        room -= taken
        if tier.priority > 0:
            urgent_room -= taken
    return Allocation(takes=tuple(takes), credits=changed)


def allocate_tier(
    *, limit: int, available: Mapping[str, int], weights: Mapping[str, int], credits: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Share `limit` inside one tier: (tasks to take by queue, credits afterwards by queue).

    Every queue in `available` gets its credit back, those without such work a credit of 0. Queues stand in the result
    in the order in which they were first picked.
    """
    left = dict(available)
    credit = {queue: credits.get(queue, 0) for queue in available}
    taken: dict[str, int] = {}
    competing = _competing(left, credit)
    total_weight = sum(weights[queue] for queue in competing)
    bound = total_weight
    floors = {queue: limit * weights[queue] // total_weight for queue in competing} if competing else {}

    for _ in range(limit):
        if not competing:
            break
        unserved = [queue for queue in competing if queue not in taken]
        below_floor = [queue for queue in competing if taken.get(queue, 0) < floors[queue]]
        candidates = unserved or below_floor or competing
        for queue in competing:
            credit[queue] += weights[queue]
        winner = min(candidates, key=lambda queue: (-credit[queue], queue))
        credit[winner] -= total_weight
        taken[winner] = taken.get(winner, 0) + 1
        left[winner] -= 1
        if left[winner] == 0 and sum(taken.values()) < limit:
            # The next pick would find it without such work.
            competing = _competing(left, credit)
            total_weight = sum(weights[queue] for queue in competing)
    for queue in competing:
        credit[queue] = max(-bound, min(bound, credit[queue]))
    return taken, credit


def _competing(left: Mapping[str, int], credit: dict[str, int]) -> list[str]:
    """The queues that have such work, by id; the others lose their credit here."""
    for queue in left:
        if left[queue] <= 0:
            credit[queue] = 0
    return sorted(queue for queue in left if left[queue] > 0)


def settle(credits: MutableMapping[CreditKey, int], changed: Mapping[CreditKey, int]) -> None:
    """Write the changes of a claim that committed into the node's credits. A queue without credit takes no memory."""
    for key, credit in changed.items():
        if credit:
            credits[key] = credit
        else:
            credits.pop(key, None)
