"""CHECK constraints that several tables need, each named after what is true."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import CheckConstraint, Q

from tasks_app import limits


def at_least(name: str, column: str, minimum: int, *, null: bool = False) -> CheckConstraint:
    rule = Q(**{f"{column}__gte": minimum})
    return CheckConstraint(name=name, condition=rule | Q(**{f"{column}__isnull": True}) if null else rule)


def in_range(name: str, column: str, minimum: int, maximum: int, *, null: bool = False) -> CheckConstraint:
    rule = Q(**{f"{column}__gte": minimum, f"{column}__lte": maximum})
    return CheckConstraint(name=name, condition=rule | Q(**{f"{column}__isnull": True}) if null else rule)


def is_member(name: str, column: str, values: Iterable[str]) -> CheckConstraint:
    return CheckConstraint(name=name, condition=Q(**{f"{column}__in": list(values)}))


def exactly_when(name: str, column: str, *, condition: Q) -> CheckConstraint:
    """`column` is set exactly when `condition` holds."""
    is_set = Q(**{f"{column}__isnull": False})
    return CheckConstraint(name=name, condition=(is_set & condition) | (~is_set & ~condition))


def only_when(name: str, column: str, *, condition: Q) -> CheckConstraint:
    return CheckConstraint(name=name, condition=Q(**{f"{column}__isnull": True}) | condition)


def bucket_is_whole(name: str) -> CheckConstraint:
    """A start rate has both of its numbers or neither, each in range.

    "Is set" is said apart from the range: a CHECK that comes out as NULL, as `NULL >= 1` does, refuses nothing.
    """
    return CheckConstraint(
        name=name,
        condition=Q(start_rate_starts__isnull=True, start_rate_per_ms__isnull=True)
        | Q(
            start_rate_starts__isnull=False,
            start_rate_per_ms__isnull=False,
            start_rate_starts__gte=1,
            start_rate_starts__lte=limits.START_RATE_STARTS_MAX,
            start_rate_per_ms__gte=1,
            start_rate_per_ms__lte=limits.START_RATE_PER_MS_MAX,
        ),
    )
