"""ISO weeks in UTC. Pure."""

from __future__ import annotations

from datetime import timedelta

from tasks_app.instants import to_datetime


def iso_week(at_us: int) -> str:
    """The week of an instant, such as `2026-W48`; at a year's end the year is that of the week, not of the day."""
    year, week, _ = to_datetime(at_us).isocalendar()
    return f"{year:04d}-W{week:02d}"


def ms_to_next_week(at_us: int) -> int:
    """How long until the week changes: Monday 00:00 UTC."""
    moment = to_datetime(at_us)
    monday = (moment + timedelta(days=7 - moment.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    return -((moment - monday) // timedelta(milliseconds=1))
