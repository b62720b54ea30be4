"""When a plan fires (design 1.6). Pure: the clock is an argument, instants are microseconds since the epoch.

Cron expressions have exactly five fields and are read in a time zone:
- a local time that does not exist (clocks go forward) fires once, after the gap;
- a local time that comes twice (clocks go back) fires once, the first time;
- patterns whose minutes or hours begin with `*` go by instants: every one of them whose local time fits.
Intervals are counted from the activation of the version; its first firing is one interval later.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import Enum
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from tasks_app.instants import US_PER_MS, from_datetime, to_datetime
from tasks_app.limits import (
    CATCH_UP_LIMIT_DEFAULT,
    CATCH_UP_LIMIT_MAX,
    CRON_LENGTH_MAX,
    MISFIRE_AFTER_MS,
    PLAN_INTERVAL_MS_MAX,
    PLAN_INTERVAL_MS_MIN,
)

CRON_FIELDS: Final = 5
TIMES_PER_LOOK_MAX: Final = 5_000  # fire times that one look works through; the rest is for the next look

assert CATCH_UP_LIMIT_MAX < TIMES_PER_LOOK_MAX


class Misfire(Enum):
    """What becomes of fire times that were noticed too late."""

    SKIP = "SKIP"  # all of them are missed
    FIRE_ONCE = "FIRE_ONCE"  # the newest fires, the others are missed
    CATCH_UP = "CATCH_UP"  # the newest `catch_up_limit` fire, the others are missed


class Overlap(Enum):
    """What becomes of a fire time while a task of the plan is unfinished."""

    ALLOW = "ALLOW"
    SKIP = "SKIP"


class BadSchedule(ValueError):
    """The schedule means nothing; the text says why."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone. Raises BadSchedule when made of something that is none."""

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        _check_expression(self.expression)
        _zone(self.timezone)

    def next_after(self, after: int, *, anchor: int) -> int | None:
        """The first fire time later than `after`; None if there is none within 50 years."""
        return next(self.times_after(after, anchor=anchor), None)

    def times_after(self, after: int, *, anchor: int) -> Iterator[int]:
        """Every fire time later than `after`, in order; `anchor` means nothing to a cron expression."""
        last = after
        local = to_datetime(after).astimezone(_zone(self.timezone))
        for moment in CronSim(self.expression, local):
            at = from_datetime(moment)
            # Between the two passes of a repeated hour the next local time may name an instant that has passed.
            if at > last:
                last = at
                yield at


@dataclass(frozen=True, slots=True)
class Interval:
    """Every `interval_ms`, counted from the anchor. Raises BadSchedule for one out of range."""

    interval_ms: int

    def __post_init__(self) -> None:
        if not PLAN_INTERVAL_MS_MIN <= self.interval_ms <= PLAN_INTERVAL_MS_MAX:
            raise BadSchedule(f"must be {PLAN_INTERVAL_MS_MIN} to {PLAN_INTERVAL_MS_MAX}")

    def next_after(self, after: int, *, anchor: int) -> int | None:
        """The first fire time later than `after`."""
        step = self.interval_ms * US_PER_MS
        return anchor + step * max(1, (after - anchor) // step + 1)

    def times_after(self, after: int, *, anchor: int) -> Iterator[int]:
        at = self.next_after(after, anchor=anchor)
        while at is not None:
            yield at
            at += self.interval_ms * US_PER_MS


Schedule = Cron | Interval


@dataclass(frozen=True, slots=True)
class Timing:
    """The schedule of a version and its rules."""

    schedule: Schedule
    misfire: Misfire
    overlap: Overlap
    catch_up_limit: int = CATCH_UP_LIMIT_DEFAULT


@dataclass(frozen=True, slots=True)
class Due:
    """What to do about the fire times that have come. All instants in order; `missed` are the ones not to be fired.

    `next_fire_at` is when to look again, at once if it is not later than now; None if the plan never fires again.
    """

    fire: tuple[int, ...]
    missed: tuple[int, ...]
    next_fire_at: int | None


def due(timing: Timing, *, anchor: int, next_fire_at: int, now_us: int) -> Due:
    """What is due at `now_us` of a plan whose next fire time is `next_fire_at`.

    A fire time noticed up to 5 s late is on time and fires whatever the misfire rule says.
    """
    times: list[int] = []
    following: int | None = None
    for at in _times_from(timing.schedule, next_fire_at, anchor):
        if at > now_us or len(times) == TIMES_PER_LOOK_MAX:
            following = at
            break
        times.append(at)
    misfires = [at for at in times if at < now_us - MISFIRE_AFTER_MS * US_PER_MS]
    on_time = times[len(misfires) :]
    given_up = max(0, len(misfires) - _kept(timing))
    missed, fire = tuple(misfires[:given_up]), (*misfires[given_up:], *on_time)
    if following is not None and following <= now_us:
        # More has passed than one look works through. There are enough newer fire times, so the oldest are missed
        # whatever the rule; what this look would fire is decided by the look that sees the end.
        return Due((), missed, fire[0] if fire else following)
    return Due(fire, missed, following)


def next_fire_times(schedule: Schedule, *, after: int, anchor: int, count: int) -> list[int]:
    """The next `count` fire times later than `after`, fewer where there are no more."""
    return [at for at, _ in zip(schedule.times_after(after, anchor=anchor), range(count), strict=False)]


def _kept(timing: Timing) -> int:
    """How many misfires are made up for, at most."""
    if timing.misfire is Misfire.SKIP:
        return 0
    return 1 if timing.misfire is Misfire.FIRE_ONCE else timing.catch_up_limit


def _times_from(schedule: Schedule, first: int, anchor: int) -> Iterator[int]:
    """`first`, which is a fire time of the plan by its row, and all later ones."""
    yield first
    yield from schedule.times_after(first, anchor=anchor)


def _check_expression(expression: str) -> None:
    if len(expression) > CRON_LENGTH_MAX:
        raise BadSchedule(f"must be at most {CRON_LENGTH_MAX} characters long")
    if not (expression.isascii() and expression.isprintable()) or len(expression.split()) != CRON_FIELDS:
        raise BadSchedule("must have exactly five fields, separated by blanks")
    try:
        fires = next(iter(CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))), None)
    except CronSimError as error:
        raise BadSchedule(f"is not a cron expression: {error}") from None
    if fires is None:
        raise BadSchedule("names a time that never comes")


@functools.lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones())


@functools.lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # also where the machine has no zone files
    # Asked of the list first: a name that is a folder of zone files, or leaves it, is not even looked for.
    if name not in _zone_names():
        raise BadSchedule("is not the name of a time zone, such as Europe/Berlin or UTC")
    return ZoneInfo(name)
