"""Back-off: design 3.6."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.retries import NEVER, RetryPolicy, backoff_ms, retry_at
from tasks_app.states import RetryMode

NOW = 1_800_000_000_000_000

policies = st.builds(
    lambda initial, extra, multiplier: RetryPolicy.safe(
        max_attempts=100, initial_backoff_ms=initial, max_backoff_ms=initial + extra, multiplier=multiplier
    ),
    st.integers(0, 86_400_000),
    st.integers(0, 86_400_000),
    st.integers(1, 10),
)


def test_the_defaults_of_a_safe_retry_are_those_of_the_contract():
    assert RetryPolicy.safe() == RetryPolicy(RetryMode.SAFE, 3, 1_000, 60_000, 2)


def test_the_default_cap_is_the_initial_back_off_where_that_is_larger():
    assert RetryPolicy.safe(initial_backoff_ms=60_001).max_backoff_ms == 60_001


def test_never_has_one_attempt():
    assert NEVER == RetryPolicy(RetryMode.NEVER, 1, 0, 0, 1)


@pytest.mark.parametrize(
    ("attempt_n", "expected"),
    [(1, 1_000), (2, 2_000), (3, 4_000), (6, 32_000), (7, 60_000), (8, 60_000), (100, 60_000)],
)
def test_back_off_grows_by_the_multiplier_up_to_its_cap(attempt_n: int, expected: int):
    assert backoff_ms(RetryPolicy.safe(), attempt_n, 0.5) == expected


@pytest.mark.parametrize(
    ("random_unit", "expected"), [(0.0, 800), (0.25, 900), (0.5, 1_000), (0.75, 1_100), (1.0, 1_200)]
)
def test_jitter_moves_the_back_off_by_at_most_a_fifth(random_unit: float, expected: int):
    assert backoff_ms(RetryPolicy.safe(), 1, random_unit) == expected


@given(policies, st.integers(1, 100), st.floats(0, 1))
def test_back_off_stays_within_a_fifth_of_the_capped_value_for_every_policy(policy, attempt_n, random_unit):
    exact = min(policy.initial_backoff_ms * policy.multiplier ** (attempt_n - 1), policy.max_backoff_ms)
    assert 0.8 * exact - 1 <= backoff_ms(policy, attempt_n, random_unit) <= 1.2 * exact + 1


@given(policies, st.integers(1, 99))
def test_back_off_never_shrinks_from_one_attempt_to_the_next(policy, attempt_n):
    assert backoff_ms(policy, attempt_n, 0.5) <= backoff_ms(policy, attempt_n + 1, 0.5)


def test_a_hundredth_attempt_with_the_largest_multiplier_does_not_overflow():
    policy = RetryPolicy.safe(initial_backoff_ms=86_400_000, max_backoff_ms=86_400_000, multiplier=10)
    assert backoff_ms(policy, 100, 0.5) == 86_400_000


def next_start(*, deadline_at: int | None, retry_after_ms: int | None = None) -> int | None:
    return retry_at(
        RetryPolicy.safe(),
        attempt_n=1,
        now_us=NOW,
        deadline_at=deadline_at,
        random_unit=0.5,
        retry_after_ms=retry_after_ms,
    )


def test_the_next_attempt_comes_after_the_back_off():
    assert next_start(deadline_at=None) == NOW + 1_000_000


def test_there_is_no_attempt_at_or_past_the_deadline():
    assert next_start(deadline_at=NOW + 1_000_001) == NOW + 1_000_000
    assert next_start(deadline_at=NOW + 1_000_000) is None
    assert next_start(deadline_at=NOW + 999_999) is None


def test_the_wish_of_the_worker_takes_the_place_of_the_back_off_without_jitter():
    assert next_start(deadline_at=None, retry_after_ms=250) == NOW + 250_000
    assert next_start(deadline_at=None, retry_after_ms=0) == NOW
    assert next_start(deadline_at=NOW + 250_000, retry_after_ms=250) is None
