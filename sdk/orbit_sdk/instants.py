"""Instants as the API writes them: RFC 3339, UTC, at most microseconds. In Python they are aware `datetime`s."""

import re
from datetime import UTC, datetime, timedelta

_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)


def parse_instant(text: str) -> datetime:
    """The aware UTC datetime that `text` names. Raises ValueError."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("is not an RFC 3339 time")
    year, month, day, hour, minute, second, fraction, sign, offset_hour, offset_minute = match.groups()
    microsecond = int((fraction or "").ljust(6, "0"))
    moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), microsecond, tzinfo=UTC)
    if sign:
        offset = timedelta(hours=int(offset_hour), minutes=int(offset_minute))
        moment = moment - offset if sign == "+" else moment + offset
    return moment


def format_instant(moment: datetime) -> str:
    """`moment` as the API writes it.

    Raises ValueError for a naive datetime: which instant it means would be a guess.
    """
    if moment.tzinfo is None:
        raise ValueError("a datetime without a time zone names no instant")
    moment = moment.astimezone(UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return f"{text}.{moment.microsecond:06d}Z" if moment.microsecond else f"{text}Z"
