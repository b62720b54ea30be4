"""Two small pure modules: ISO weeks, and the evidence of an intent."""

import json
from datetime import UTC, datetime

import pytest

from lifecycle_app.evidence import Kind, entries_of, with_entry
from lifecycle_app.weeks import iso_week, ms_to_next_week
from tasks_app.instants import from_datetime


def at(*moment: int) -> int:
    return from_datetime(datetime(*moment, tzinfo=UTC))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("moment", "week"),
    [
        ((2026, 11, 30, 0, 0), "2026-W49"),
        ((2026, 11, 29, 23, 59, 59, 999999), "2026-W48"),
        ((2026, 1, 1), "2026-W01"),
        ((2027, 1, 1), "2026-W53"),
        ((2024, 12, 30), "2025-W01"),
    ],
)
def test_the_week_is_that_of_iso_8601_in_utc(moment, week):
    assert iso_week(at(*moment)) == week


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        ((2026, 11, 29, 23, 59, 59), 1_000),
        ((2026, 11, 30, 0, 0), 7 * 86_400_000),
        ((2026, 12, 2, 12, 0), 4 * 86_400_000 + 43_200_000),
        ((2026, 11, 29, 23, 59, 59, 999_500), 1),
    ],
)
def test_the_next_week_begins_on_monday_at_midnight_utc(moment, ms):
    assert ms_to_next_week(at(*moment)) == ms


def test_evidence_grows_in_the_order_in_which_it_was_learned():
    text = with_entry(None, Kind.SUBMIT, at(2026, 11, 30), {"request": "POST /submissions", "fault": "TIMED_OUT"})
    text = with_entry(text, Kind.LOOKUP, at(2026, 11, 30, 1), {"found": True})
    assert json.loads(text) == [
        {"kind": "SUBMIT", "at": "2026-11-30T00:00:00Z", "request": "POST /submissions", "fault": "TIMED_OUT"},
        {"kind": "LOOKUP", "at": "2026-11-30T01:00:00Z", "found": True},
    ]


@pytest.mark.parametrize(("kind", "kept"), [(Kind.REPORT, 20), (Kind.NODE_ERROR, 20), (Kind.LOOKUP, 5)])
def test_what_comes_again_and_again_is_kept_as_far_as_the_latest(kind, kept):
    text = with_entry(None, Kind.SUBMIT, 0, {"request": "POST /submissions"})
    for number in range(30):
        text = with_entry(text, kind, number, {"n": number})
    entries = entries_of(text)
    assert entries[0]["kind"] == "SUBMIT"
    assert [entry["n"] for entry in entries[1:]] == list(range(30 - kept, 30))


def test_words_of_any_language_stay_readable():
    assert "提交" in with_entry(None, Kind.NODE_ERROR, 0, {"error": "提交"})
