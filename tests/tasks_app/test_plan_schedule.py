"""When a plan fires: cron in a time zone over both clock changes, intervals, misfires (design 1.6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks_app.domain import plan_schedule
from tasks_app.domain.plan_schedule import (
    BadSchedule,
    Cron,
    Interval,
    Misfire,
    Overlap,
    Timing,
    due,
    next_fire_times,
)
from tasks_app.instants import format_rfc3339, from_datetime, parse_rfc3339, to_datetime

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def at(text: str) -> int:
    return parse_rfc3339(text)


def times(cron: str, zone: str, after: str, count: int) -> list[str]:
    return [format_rfc3339(t) for t in next_fire_times(Cron(cron, zone), after=at(after), anchor=0, count=count)]


# -- cron


def test_every_five_minutes() -> None:
    assert times("*/5 * * * *", "UTC", "2026-09-17T00:00:00Z", 3) == [
        "2026-09-17T00:05:00Z",
        "2026-09-17T00:10:00Z",
        "2026-09-17T00:15:00Z",
    ]


def test_local_times_are_those_of_the_zone() -> None:
    assert times("0 9 * * 1-5", "Asia/Shanghai", "2026-09-18T00:00:00Z", 2) == [
        "2026-09-18T01:00:00Z",  # Friday 09:00
        "2026-09-21T01:00:00Z",  # Monday
    ]


@pytest.mark.parametrize("after", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2025-12-31T23:59:59.999999Z"])
def test_fire_times_are_later_than_what_was_asked_for(after: str) -> None:
    (first,) = next_fire_times(Cron("0 * * * *", "UTC"), after=at(after), anchor=0, count=1)
    assert first > at(after) and first % HOUR == 0 and first - at(after) <= HOUR


# Berlin: 2026-03-29 02:00 → 03:00 (01:00Z); 2026-10-25 03:00 → 02:00 (01:00Z)


def test_a_time_that_does_not_exist_fires_once_after_the_gap() -> None:
    assert times("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3) == [
        "2026-03-28T01:30:00Z",
        "2026-03-29T01:00:00Z",  # 03:00, the first moment after the gap
        "2026-03-30T00:30:00Z",
    ]


def test_a_time_that_comes_twice_fires_once() -> None:
    assert times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2) == [
        "2026-10-25T00:30:00Z",  # the first 02:30
        "2026-10-26T01:30:00Z",
    ]


@pytest.mark.parametrize("after", ["2026-10-25T00:30:00Z", "2026-10-25T01:10:00Z", "2026-10-25T01:45:00Z"])
def test_the_second_pass_of_an_hour_is_not_fired_again(after: str) -> None:
    """Asked between the two 02:30: the first one has passed, the second is none."""
    assert times("30 2 * * *", "Europe/Berlin", after, 1) == ["2026-10-26T01:30:00Z"]


def test_hourly_and_finer_patterns_go_by_instants_when_clocks_go_back() -> None:
    assert times("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:59:00Z", 6) == [
        "2026-10-25T00:00:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-25T02:00:00Z",
        "2026-10-25T02:30:00Z",
    ]


def test_every_minute_does_not_stop_for_an_hour_when_clocks_go_back() -> None:
    found = next_fire_times(
        Cron("* * * * *", "America/New_York"), after=at("2026-11-01T05:00:00Z"), anchor=0, count=180
    )
    assert [later - earlier for earlier, later in zip(found, found[1:], strict=False)] == [MINUTE] * 179


def test_hourly_goes_on_through_the_gap() -> None:
    assert times("0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3) == [
        "2026-03-29T01:00:00Z",
        "2026-03-29T02:00:00Z",
        "2026-03-29T03:00:00Z",
    ]


def test_a_day_that_a_zone_left_out_fires_once_after_it() -> None:
    """Samoa had no 30 December 2011."""
    assert times("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", 1) == ["2011-12-30T10:00:00Z"]


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "Africa/Casablanca", "UTC"]
CLOCK_CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"],
    "America/New_York": ["2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"],
    "Australia/Lord_Howe": ["2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z"],  # half an hour
    "Africa/Casablanca": ["2026-02-15T02:00:00Z", "2026-03-22T02:00:00Z"],
    "Asia/Shanghai": ["2026-06-01T00:00:00Z"],
    "UTC": ["2026-06-01T00:00:00Z"],
}


def fires_by_the_book(
    minute: set[int], hour: set[int], zone: ZoneInfo, start: int, end: int, by_instants: bool
) -> list[int]:
    """Every minute of the window is looked at, by the sentences of the design alone."""
    if by_instants:
        every = range(start - start % MINUTE + MINUTE, end, MINUTE)
        return [t for t in every if (local := to_datetime(t).astimezone(zone)).minute in minute and local.hour in hour]
    found = set()
    first_day = to_datetime(start).astimezone(zone).date() - timedelta(days=1)
    midnight = datetime.min.time()
    for day in (first_day + timedelta(days=n) for n in range((end - start) // (24 * HOUR) + 4)):
        for hh in hour:
            for mm in minute:
                wanted = datetime.combine(day, midnight).replace(hour=hh, minute=mm)
                found.add(first_moment_at_or_after(wanted, zone))
    return sorted(t for t in found if start < t < end)


def first_moment_at_or_after(wanted: datetime, zone: ZoneInfo) -> int:
    """The first instant at which the local clock shows `wanted`; in a gap, the first later minute that it shows."""
    while True:
        moment = wanted.replace(tzinfo=zone, fold=0)
        if moment.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wanted:
            return from_datetime(moment.astimezone(UTC))
        wanted += timedelta(minutes=1)


@pytest.mark.slow
@settings(deadline=None)
@given(
    zone=st.sampled_from(ZONES),
    which=st.integers(0, 1),
    minute=st.sets(st.integers(0, 59), min_size=1, max_size=3),
    hour=st.one_of(st.sets(st.integers(0, 4), min_size=1, max_size=3), st.just(set(range(24)))),
    offset=st.integers(-30 * 60, 30 * 60),
)
def test_fires_exactly_as_the_design_says_around_clock_changes(
    zone: str, which: int, minute: set[int], hour: set[int], offset: int
) -> None:
    change = CLOCK_CHANGES[zone][which % len(CLOCK_CHANGES[zone])]
    start = at(change) + offset * MINUTE
    end = start + 48 * HOUR
    every_hour = len(hour) == 24
    expression = f"{','.join(map(str, sorted(minute)))} {'*' if every_hour else ','.join(map(str, sorted(hour)))} * * *"
    schedule = Cron(expression, zone)
    found = [t for t in islice(schedule.times_after(start, anchor=0), 500) if t < end]
    wanted = fires_by_the_book(minute, hour, ZoneInfo(zone), start, end, by_instants=every_hour)
    # A pattern of fixed times that meets the same moment twice (a gap's two times) fires once there.
    assert found == wanted, (expression, [format_rfc3339(t) for t in set(found) ^ set(wanted)])


@settings(deadline=None)
@given(
    expression=st.sampled_from(
        ["30 2 * * *", "0 0 1 * *", "15 1,2,3 * * 0", "*/7 */3 * * *", "5 2 29 2 *", "0 0 L * *"]
    ),
    zone=st.sampled_from(ZONES),
    after=st.integers(at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z")),
)
def test_the_next_fire_time_does_not_depend_on_where_one_starts(expression: str, zone: str, after: int) -> None:
    """A node that restarts computes the same future."""
    schedule = Cron(expression, zone)
    first, second, third = next_fire_times(schedule, after=after, anchor=0, count=3)
    assert after < first < second < third
    assert schedule.next_after(first, anchor=0) == second
    assert schedule.next_after((first + second) // 2, anchor=0) == second
    assert schedule.next_after(second - 1, anchor=0) == second


@pytest.mark.parametrize(
    "expression",
    [
        "* * * *", "* * * * * *", "", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8",
        "*/0 * * * *", "1-0 * * * *", "a b c d e", "0 0 30 2 *", "*\t* * * *", "٣ * * * *", "* * * * *\n",
        "0 0 * * " + "1," * 60 + "1",
    ],
)  # fmt: skip
def test_what_is_no_cron_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadSchedule):
        Cron(expression, "UTC")


@pytest.mark.parametrize("expression", ["*/5 * * * *", "0 0 L * *", "0 9 * * mon-fri", "0 0 * * 1#2", "0  0 * * *"])
def test_cron_expressions_as_people_write_them(expression: str) -> None:
    Cron(expression, "UTC")


def test_an_expression_may_have_100_characters() -> None:
    longest = "0 0 * * " + "1," * 45 + "1"
    assert len(Cron(longest.ljust(100), "UTC").expression) == 100
    with pytest.raises(BadSchedule, match="at most 100"):
        Cron(longest.ljust(101), "UTC")


@pytest.mark.parametrize(
    "zone", ["", "Berlin", "europe/berlin", "Asia", "../etc/passwd", "/etc/localtime", "UTC+2", "\0"]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(BadSchedule, match="time zone"):
        Cron("* * * * *", zone)


# -- intervals


def test_first_interval_firing_is_one_interval_after_activation_then_evenly() -> None:
    anchor = at("2026-01-01T00:00:07Z")
    found = next_fire_times(Interval(90_000), after=anchor, anchor=anchor, count=3)
    assert [t - anchor for t in found] == [90 * SECOND, 180 * SECOND, 270 * SECOND]


@given(interval_ms=st.integers(1000, 10**8), anchor=st.integers(0, 10**15), ahead=st.integers(-(10**12), 10**14))
def test_intervals_are_even_from_wherever_one_looks(interval_ms: int, anchor: int, ahead: int) -> None:
    schedule, after = Interval(interval_ms), anchor + ahead
    first, second = next_fire_times(schedule, after=after, anchor=anchor, count=2)
    step = interval_ms * 1000
    assert first > after and first > anchor and (first - anchor) % step == 0 and second - first == step
    assert first - step <= max(after, anchor)


@pytest.mark.parametrize("interval_ms", [999, 0, -1, 366 * 86_400_000 + 1])
def test_intervals_out_of_range_are_refused(interval_ms: int) -> None:
    with pytest.raises(BadSchedule):
        Interval(interval_ms)


@pytest.mark.parametrize("interval_ms", [1000, 366 * 86_400_000])
def test_ends_of_the_range_are_intervals(interval_ms: int) -> None:
    Interval(interval_ms)


# -- misfires

ANCHOR = at("2026-01-01T00:00:00Z")


def timing(misfire: Misfire, **more: int) -> Timing:
    return Timing(Interval(60_000), misfire, Overlap.ALLOW, **more)


def minutes(*numbers: int) -> tuple[int, ...]:
    return tuple(ANCHOR + number * MINUTE for number in numbers)


def look(rule: Timing, now: int, first: int = 1) -> plan_schedule.Due:
    return due(rule, anchor=ANCHOR, next_fire_at=ANCHOR + first * MINUTE, now_us=now)


@pytest.mark.parametrize("misfire", list(Misfire))
@pytest.mark.parametrize("late", [0, 1, 5 * SECOND])
def test_a_fire_time_noticed_within_five_seconds_is_on_time(misfire: Misfire, late: int) -> None:
    found = look(timing(misfire), ANCHOR + MINUTE + late)
    assert found == plan_schedule.Due(minutes(1), (), minutes(2)[0])


def test_before_its_time_nothing_is_due() -> None:
    assert look(timing(Misfire.CATCH_UP), ANCHOR + MINUTE - 1) == plan_schedule.Due((), (), minutes(1)[0])


@pytest.mark.parametrize(
    ("misfire", "fire", "missed"),
    [(Misfire.SKIP, (), (1,)), (Misfire.FIRE_ONCE, (1,), ()), (Misfire.CATCH_UP, (1,), ())],
)
def test_noticed_later_than_five_seconds_it_is_a_misfire(
    misfire: Misfire, fire: tuple[int, ...], missed: tuple[int, ...]
) -> None:
    found = look(timing(misfire), ANCHOR + MINUTE + 5 * SECOND + 1)
    assert found == plan_schedule.Due(minutes(*fire), minutes(*missed), minutes(2)[0])


@pytest.mark.parametrize(
    ("rule", "fire", "missed"),
    [
        (timing(Misfire.SKIP), (), (1, 2, 3, 4)),
        (timing(Misfire.FIRE_ONCE), (4,), (1, 2, 3)),
        (timing(Misfire.CATCH_UP), (1, 2, 3, 4), ()),
        (timing(Misfire.CATCH_UP, catch_up_limit=3), (2, 3, 4), (1,)),
    ],
)
def test_after_an_outage_the_rule_decides(rule: Timing, fire: tuple[int, ...], missed: tuple[int, ...]) -> None:
    found = look(rule, ANCHOR + 4 * MINUTE + 30 * SECOND)
    assert found == plan_schedule.Due(minutes(*fire), minutes(*missed), minutes(5)[0])


@pytest.mark.parametrize(
    ("rule", "fire", "missed"),
    [
        (timing(Misfire.SKIP), (3,), (1, 2)),
        (timing(Misfire.FIRE_ONCE), (2, 3), (1,)),
        (timing(Misfire.CATCH_UP, catch_up_limit=1), (2, 3), (1,)),
    ],
)
def test_what_is_on_time_fires_beside_what_is_made_up_for(
    rule: Timing, fire: tuple[int, ...], missed: tuple[int, ...]
) -> None:
    found = look(rule, ANCHOR + 3 * MINUTE + SECOND)
    assert found == plan_schedule.Due(minutes(*fire), minutes(*missed), minutes(4)[0])


def test_default_limit_of_catching_up_is_100() -> None:
    found = look(timing(Misfire.CATCH_UP), ANCHOR + 150 * MINUTE + 30 * SECOND)
    assert (len(found.fire), len(found.missed)) == (100, 50)
    assert found.fire[-1] == minutes(150)[0]


@pytest.mark.parametrize("misfire", list(Misfire))
@pytest.mark.parametrize("extra", [0, 1, 3])
def test_a_long_outage_is_worked_through_in_looks_and_ends_as_one_would(
    misfire: Misfire, extra: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Timing(Interval(1000), misfire, Overlap.ALLOW, catch_up_limit=4)
    now = ANCHOR + (97 + extra) * SECOND + 500_000

    def whole(per_look: int) -> tuple[list[int], list[int], int]:
        monkeypatch.setattr(plan_schedule, "TIMES_PER_LOOK_MAX", per_look)
        fired: list[int] = []
        missed: list[int] = []
        next_at: int | None = ANCHOR + SECOND
        while next_at is not None and next_at <= now:
            found = due(rule, anchor=ANCHOR, next_fire_at=next_at, now_us=now)
            assert found.next_fire_at is None or found.next_fire_at > next_at, "every look goes on"
            fired += found.fire
            missed += found.missed
            next_at = found.next_fire_at
        assert next_at is not None
        return fired, missed, next_at

    assert whole(10) == whole(10_000)


def test_a_plan_that_never_fires_again_has_no_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interval, "times_after", lambda self, after, *, anchor: iter(()))
    assert look(timing(Misfire.SKIP), ANCHOR + MINUTE) == plan_schedule.Due(minutes(1), (), None)
