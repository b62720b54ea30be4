"""Lists: one page at a time, each naming the cursor of the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from orbit_sdk.errors import InvalidRequest
from orbit_sdk.fields import Fields
from orbit_sdk.instants import format_instant
from orbit_sdk.limits import PAGE_LIMIT_MAX, PAGE_LIMIT_MIN
from orbit_sdk.wire import Answer, Call, get

T = TypeVar("T")
Filter = str | int | bool | datetime | None


@dataclass(frozen=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next_cursor: str | None


def query_of(**filters: Filter | Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Query parameters: None is left out, booleans are `true`/`false`, an iterable is repeated."""
    pairs: list[tuple[str, str]] = []
    for name, value in filters.items():
        if value is None:
            continue
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, datetime):
            try:
                pairs.append((name, format_instant(value)))
            except ValueError as error:
                raise InvalidRequest(name, str(error)) from None
        elif isinstance(value, str | int):
            pairs.append((name, str(value)))
        else:
            pairs.extend((name, str(item)) for item in value)
    return tuple(pairs)


def page_call(
    path: str,
    read: Callable[[Fields], T],
    *,
    query: tuple[tuple[str, str], ...] = (),
    page_size: int | None = None,
    cursor: str | None = None,
) -> Call[Page[T]]:
    """One page of a list. Raises InvalidRequest for a page size outside 1 to 200: it is never clamped."""
    if page_size is not None and not PAGE_LIMIT_MIN <= page_size <= PAGE_LIMIT_MAX:
        raise InvalidRequest("page_size", f"must be {PAGE_LIMIT_MIN} to {PAGE_LIMIT_MAX}")

    def verify(answer: Answer) -> Page[T]:
        fields = Fields(answer.data, "data")
        items = tuple(read(item) for item in fields.objects("items"))
        return Page(items=items, next_cursor=fields.optional("next_cursor", fields.text))

    return Call(get(path, query=(*query, *query_of(limit=page_size, cursor=cursor))), verify)
