"""How long to wait before trying again."""

from __future__ import annotations

import random


def backoff_seconds(failures: int, *, first: float, longest: float, chance: float) -> float:
    """The delay after the n-th failure in a row (n ≥ 1): doubling, capped, and spread over its upper half by
    `chance` (0 to 1).
    """
    ceiling = min(longest, first * 2.0 ** min(failures - 1, 32))
    return ceiling * (0.5 + 0.5 * chance)


def jittered(failures: int, *, first: float, longest: float) -> float:
    """`backoff_seconds` with a chance of this process, so that many clients do not come back together."""
    return backoff_seconds(failures, first=first, longest=longest, chance=random.random())  # noqa: S311 (not a secret)
