"""Instants are integers: microseconds since the epoch, UTC. Text and `datetime` exist only at the edges.

Why integers: the generated `dispatch_at` column, comparisons with the database's clock and SQLite's arithmetic are then
exact, and no session time zone or daylight-saving fold can move them.
"""

import re
import time
from datetime import UTC, datetime, timedelta

US_PER_MS = 1_000
US_PER_SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)


def process_now_us() -> int:
    """The process's own clock. Inside a unit use `tx.now_us` instead: nodes may be skewed, the database is one."""
    return time.time_ns() // 1_000


def parse_rfc3339(text: str) -> int:
    """The instant that `text` names, by the rule of chapter 1.1: `T`, `Z` or `±hh:mm`, at most 6 digits, no second 60.

    Raises ValueError with a sentence for the caller.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("must be an RFC 3339 time such as 2026-09-17T00:00:00Z, with at most 6 fractional digits")
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = match.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        raise ValueError("is not a moment that exists") from None
    result = (moment - _EPOCH) // timedelta(microseconds=1) + int((fraction or "").ljust(6, "0"))
    if sign:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            raise ValueError("has a time zone offset that does not exist")
        offset_us = (int(offset_hour) * 60 + int(offset_minute)) * 60 * US_PER_SECOND
        result += -offset_us if sign == "+" else offset_us
    return result


def format_rfc3339(at_us: int) -> str:
    """UTC with `Z`; exactly 6 fractional digits when they are not zero, else none."""
    whole, fraction = divmod(at_us, US_PER_SECOND)
    moment = _EPOCH + timedelta(seconds=whole)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(len("2026-09-17T00:00:00"), "0")
    return f"{text}.{fraction:06d}Z" if fraction else f"{text}Z"


def to_datetime(at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_us)


def from_datetime(moment: datetime) -> int:
    """Raises ValueError for a naive datetime: which instant it means would be a guess."""
    if moment.tzinfo is None:
        raise ValueError("a naive datetime names no instant")
    return (moment - _EPOCH) // timedelta(microseconds=1)
