"""Retry policies and back-off (design 1.2 and 3.6). Pure: randomness and time are arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tasks_app.instants import US_PER_MS
from tasks_app.limits import (
    RETRY_ATTEMPTS_DEFAULT,
    RETRY_INITIAL_BACKOFF_MS_DEFAULT,
    RETRY_JITTER_RATIO,
    RETRY_MAX_BACKOFF_MS_DEFAULT,
    RETRY_MULTIPLIER_DEFAULT,
)
from tasks_app.states import RetryMode


@dataclass(frozen=True)
class RetryPolicy:
    """What may be done after an attempt failed, every default filled in.

    `mode` is a `RetryMode`, or the text that was sent where that is none: `submission_request.semantic_fault` refuses
    it before it goes anywhere. `written` names the members that the request had.
    """

    mode: str
    max_attempts: int
    initial_backoff_ms: int
    max_backoff_ms: int
    multiplier: int
    written: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def never(cls, *, max_attempts: int = 1) -> RetryPolicy:
        return cls(
            mode=RetryMode.NEVER, max_attempts=max_attempts, initial_backoff_ms=0, max_backoff_ms=0, multiplier=1
        )

    @classmethod
    def safe(
        cls,
        *,
        max_attempts: int | None = None,
        initial_backoff_ms: int | None = None,
        max_backoff_ms: int | None = None,
        multiplier: int | None = None,
    ) -> RetryPolicy:
        """SAFE with the defaults of 1.2 for what is None."""
        initial = RETRY_INITIAL_BACKOFF_MS_DEFAULT if initial_backoff_ms is None else initial_backoff_ms
        return cls(
            mode=RetryMode.SAFE,
            max_attempts=RETRY_ATTEMPTS_DEFAULT if max_attempts is None else max_attempts,
            initial_backoff_ms=initial,
            max_backoff_ms=max(RETRY_MAX_BACKOFF_MS_DEFAULT, initial) if max_backoff_ms is None else max_backoff_ms,
            multiplier=RETRY_MULTIPLIER_DEFAULT if multiplier is None else multiplier,
        )


NEVER: Final = RetryPolicy.never()


def backoff_ms(policy: RetryPolicy, attempt_n: int, random_unit: float) -> int:
    """How long to wait after the `attempt_n`th attempt (from 1): `initial × multiplier^(n−1)`, capped, then ± 20 %.

    `random_unit` in [0, 1] places the jitter: 0 is −20 %, 0.5 none, 1 is +20 %.
    """
    if attempt_n < 1 or not 0 <= random_unit <= 1:
        raise ValueError("attempts count from 1 and the random unit lies in [0, 1]")
    # Whole numbers of any size until the cap: 10^99 ms is no problem for them, and would be one for a float.
    capped = min(policy.initial_backoff_ms * policy.multiplier ** (attempt_n - 1), policy.max_backoff_ms)
    return round(capped * (1 + RETRY_JITTER_RATIO * (2 * random_unit - 1)))


def retry_at(
    policy: RetryPolicy,
    *,
    attempt_n: int,
    now_us: int,
    deadline_at: int | None,
    random_unit: float,
    retry_after_ms: int | None = None,
) -> int | None:
    """When the next attempt may start (microseconds), or None if that would not be before the deadline.

    A worker's own `retry_after_ms` is taken as it is, in place of the back-off.
    """
    delay_ms = backoff_ms(policy, attempt_n, random_unit) if retry_after_ms is None else retry_after_ms
    at = now_us + delay_ms * US_PER_MS
    return at if deadline_at is None or at < deadline_at else None
