"""Ids: 32 lower-case hex digits, strictly rising in one process, sorted by the clock that was given."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app import ids

NOW = 1_800_000_000_000_000


@pytest.fixture(autouse=True)
def fresh_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has made no id yet."""
    monkeypatch.setattr(ids, "_last", 0)


def test_an_id_is_a_uuid_of_version_7_without_hyphens():
    made = uuid.UUID(hex=ids.new_id(NOW))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_an_id_says_when_it_was_made_to_the_millisecond():
    assert ids.id_instant(ids.new_id(NOW + 1_999)) == NOW + 1_000


def test_ids_of_one_moment_rise_strictly():
    made = [ids.new_id(NOW) for _ in range(10_000)]
    assert made == sorted(set(made))


def test_ids_of_many_threads_are_all_different():
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [ids.new_id(NOW) for _ in range(500)], range(8)))
    assert len({one for some in made for one in some}) == 4_000


@given(st.lists(st.integers(0, 900_000), min_size=2, max_size=20))
def test_a_clock_that_wavers_by_less_than_a_second_never_breaks_the_order(steps: list[int]):
    made = [ids.new_id(NOW + step) for step in steps]
    assert made == sorted(set(made))


def test_a_clock_that_was_far_ahead_once_does_not_freeze_the_order():
    ahead = ids.new_id(NOW + 3_600_000_000)
    back = ids.new_id(NOW)
    assert back < ahead
    assert ids.id_instant(back) == NOW


def test_later_moments_sort_behind_earlier_ones():
    assert ids.new_id(NOW) < ids.new_id(NOW + 1_000) < ids.new_id(NOW + 1_001)


@given(st.integers(NOW, NOW + 10**12))
def test_the_floor_of_a_moment_is_below_its_ids_and_above_the_ids_of_the_moment_before(at_us: int):
    ids._last = 0
    earlier, made = ids.new_id(at_us - 1_000), ids.new_id(at_us)
    assert earlier < ids.id_floor(at_us) <= made


@pytest.mark.parametrize("text", ["0" * 32, "f" * 32, "0123456789abcdef" * 2])
def test_what_is_an_id(text: str):
    assert ids.is_id(text)


@pytest.mark.parametrize(
    "text",
    ["", "0" * 31, "0" * 33, "F" * 32, "g" * 32, "0" * 31 + "\n", "0" * 32 + "\n", "\u0660" * 32, None, 7, b"0" * 32],
)
def test_what_is_none(text: object):
    assert not ids.is_id(text)
