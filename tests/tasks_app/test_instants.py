"""Instants: whole microseconds since the epoch inside, RFC 3339 at the edges, one clock that decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from tasks_app import instants, transactions
from tasks_app.fields import IdField, InstantField
from tasks_app.instants import format_rfc3339, from_datetime, parse_rfc3339, to_datetime
from tasks_app.transactions import unit
from tests.tasks_app import factories as f
from tests.tasks_app.factories import Tenant

AT = 1_789_603_200_000_000  # 2026-09-17T00:00:00Z


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-09-17T00:00:00Z", AT),
        ("2026-09-17T08:00:00+08:00", AT),
        ("2026-09-16T19:30:00-04:30", AT),
        ("2026-09-17T00:00:00+00:00", AT),
        ("2026-09-17T00:00:00-00:00", AT),
        ("2026-09-17T00:00:00.1Z", AT + 100_000),
        ("2026-09-17T00:00:00.000001Z", AT + 1),
        ("2026-09-17T00:00:00.123456Z", AT + 123_456),
        ("2024-02-29T23:59:59.999999Z", 1_709_251_199_999_999),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
    ],
)
def test_a_time_names_one_instant(text: str, at_us: int):
    assert parse_rfc3339(text) == at_us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-09-17",
        "2026-09-17T00:00:00",
        "2026-09-17 00:00:00Z",
        "2026-09-17t00:00:00Z",
        "2026-09-17T00:00:00z",
        "2026-09-17T00:00Z",
        "2026-09-17T00:00:60Z",
        "2026-09-17T24:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-09-17T00:00:00.Z",
        "2026-09-17T00:00:00.1234567Z",
        "2026-09-17T00:00:00,5Z",
        "2026-09-17T00:00:00+0800",
        "2026-09-17T00:00:00+24:00",
        "2026-09-17T00:00:00+08:60",
        "2026-09-17T00:00:00Z\n",
        " 2026-09-17T00:00:00Z",
        "\u0662026-09-17T00:00:00Z",
        "+2026-09-17T00:00:00Z",
    ],
)
def test_what_is_not_written_as_agreed_is_refused_with_a_sentence(text: str):
    with pytest.raises(ValueError, match="must be|is not|has a"):
        parse_rfc3339(text)


@pytest.mark.parametrize(
    ("at_us", "text"),
    [
        (AT, "2026-09-17T00:00:00Z"),
        (AT + 1, "2026-09-17T00:00:00.000001Z"),
        (AT + 120_000, "2026-09-17T00:00:00.120000Z"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
    ],
)
def test_an_instant_is_shown_in_utc_with_six_digits_or_none(at_us: int, text: str):
    assert format_rfc3339(at_us) == text


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_every_instant_comes_back_from_its_text_and_its_datetime(at_us: int):
    assert parse_rfc3339(format_rfc3339(at_us)) == at_us
    assert from_datetime(to_datetime(at_us)) == at_us


def test_a_datetime_of_any_zone_is_an_instant_and_a_naive_one_is_none():
    moment = datetime(2026, 9, 17, 8, tzinfo=timezone(timedelta(hours=8)))
    assert from_datetime(moment) == AT
    with pytest.raises(ValueError, match="naive"):
        from_datetime(datetime(2026, 9, 17))  # noqa: DTZ001


# -- in models


def test_an_instant_field_takes_integers_and_aware_datetimes_and_gives_datetimes():
    field = InstantField()
    assert field.get_prep_value(AT) == AT
    assert field.get_prep_value(to_datetime(AT)) == AT
    assert field.get_prep_value(None) is None
    assert field.from_db_value(AT, None, None) == datetime(2026, 9, 17, tzinfo=UTC)
    assert field.from_db_value(None, None, None) is None
    assert field.to_python(AT) == to_datetime(AT)
    with pytest.raises(ValidationError):
        field.to_python("soon")


def test_an_id_field_is_always_32_long():
    *_, kwargs = IdField(null=True).deconstruct()
    assert (IdField().max_length, kwargs) == (32, {"null": True})


# -- the clock that decides (N20, faults C14)


def test_the_clock_of_a_unit_is_close_to_the_processes_and_has_its_resolution(database: None):
    before = instants.process_now_us()
    read = [unit(lambda tx: tx.now_us) for _ in range(20)]
    assert before - 10_000 <= read[0] <= read[-1] <= instants.process_now_us() + 10_000
    assert read == sorted(read)
    assert any(at_us % 1_000 for at_us in read), "microseconds, not rounded milliseconds"


@pytest.mark.mariadb_only("on SQLite the process's clock is the database's")
@pytest.mark.parametrize("skew_us", [3_600_000_000, -3_600_000_000])
def test_a_node_with_a_wrong_clock_decides_by_the_databases(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, skew_us: int
):
    real = instants.process_now_us
    monkeypatch.setattr(transactions, "process_now_us", lambda: real() + skew_us)
    task_id = f.submit(tenant, expires_in_ms=60_000)
    offer = f.run_one(tenant)
    assert f.sweep() == 0
    assert abs(f.row(task_id).lease_until - real()) < 60_000_000
    assert f.renew(offer).answer.name == "RENEWED"
    assert f.finish(offer).answer.name == "COMMITTED"
