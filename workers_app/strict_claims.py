"""Claims of a STRICT namespace: the node's credits, and the allocation that a claim takes with it (design 3.3)."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Mapping, Sequence

from tasks_app.domain.claims import Candidate
from workers_app.tiers import CreditKey, Tier, allocate, settle


class Allocation:
    """The allocation of one claim. `keep()` once it has committed; what was rolled back leaves the credits alone."""

    def __init__(self, credits: dict[CreditKey, int], namespace_id: str) -> None:
        self._credits = credits
        self._changed: dict[CreditKey, int] = {}
        self._namespace_id = namespace_id

    def __call__(self, candidates: Sequence[Candidate], limit: int, weights: Mapping[str, int]) -> list[Candidate]:
        """Share `limit` among the queues, the most urgent tier first. Runs in the thread of the claim."""
        by_place: dict[tuple[int, str], list[Candidate]] = defaultdict(list)
        for candidate in sorted(candidates, key=lambda one: one.place):
            by_place[-candidate.tier, candidate.queue_id].append(candidate)
        priorities = sorted({priority for priority, _ in by_place}, reverse=True)
        plan = allocate(
            namespace_id=self._namespace_id,
            limit=limit,
            tiers=(
                Tier(priority, {queue_id: len(by_place.get((priority, queue_id), ())) for queue_id in weights})
                for priority in priorities
            ),
            weights=weights,
            credits=ChainMap(self._changed, self._credits),
        )
        self._changed.update(plan.credits)
        return [candidate for take in plan.takes for candidate in by_place[take.priority, take.queue_id][: take.count]]

    def keep(self) -> None:
        settle(self._credits, self._changed)


class StrictShares:
    """The credits of this node, by (namespace, tier, queue)."""

    def __init__(self) -> None:
        self._credits: dict[CreditKey, int] = {}

    def allocation(self, namespace_id: str) -> Allocation:
        return Allocation(self._credits, namespace_id)
