"""Query parameters, strictly: unknown ones, repeated ones and values of the wrong kind are 400, never guessed (1.1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import parse_qsl

from tasks_app.errors import InvalidArgument
from tasks_app.ids import is_id
from tasks_app.instants import parse_rfc3339
from tasks_app.json_fields import refusal
from tasks_app.limits import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, PAGE_LIMIT_MIN

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)
_PARAMETERS_MAX: Final = 64
_VALUE_LENGTH_MAX: Final = 2048
PAGE_PARAMETERS: Final = frozenset({"limit", "cursor"})


class Query:
    """The parameters of one request. A reader of an absent parameter gives None (or its default)."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        values = self._values.get(name)
        return values[0] if values else None

    def texts(self, name: str) -> list[str]:
        return list(self._values.get(name, ()))

    def identity(self, name: str) -> str | None:
        text = self.text(name)
        if text is not None and not is_id(text):
            raise InvalidArgument.field(name, "must be an id: 32 lower-case hex digits")
        return text

    def instant(self, name: str) -> int | None:
        """Microseconds since the epoch."""
        text = self.text(name)
        try:
            return None if text is None else parse_rfc3339(text)
        except ValueError as fault:
            raise InvalidArgument.field(name, str(fault)) from None

    def integer(self, name: str, *, minimum: int, maximum: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if _INTEGER.fullmatch(text) is None or not minimum <= int(text) <= maximum:
            raise InvalidArgument.field(
                name, f"must be an integer from {minimum} to {maximum}", minimum=minimum, maximum=maximum
            )
        return int(text)

    def flag(self, name: str) -> bool | None:
        text = self.text(name)
        if text not in (None, "true", "false"):
            raise InvalidArgument.field(name, "must be true or false")
        return None if text is None else text == "true"

    def choices(self, name: str, allowed: Sequence[str]) -> list[str]:
        """The values of a parameter that may repeat, each one of `allowed`, without doubles and in their order."""
        for text in self.texts(name):
            if text not in allowed:
                raise InvalidArgument.field(name, f"must be one of {', '.join(allowed)}", allowed=list(allowed))
        chosen = self._values.get(name, ())
        return [value for value in allowed if value in chosen]

    def page_limit(self) -> int:
        limit = self.integer("limit", minimum=PAGE_LIMIT_MIN, maximum=PAGE_LIMIT_MAX)
        return PAGE_LIMIT_DEFAULT if limit is None else limit


def parse_query(query_string: str, *, known: Collection[str], repeatable: Collection[str] = ()) -> Query:
    """The parameters of a query string as WSGI gives it (bytes as latin-1). Raises InvalidArgument."""
    if not query_string:
        return Query({})
    try:
        text = query_string.encode("latin-1").decode("utf-8")
        pairs = parse_qsl(
            text, keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=_PARAMETERS_MAX
        )
    except UnicodeError:
        raise InvalidArgument("the query must be valid UTF-8") from None
    except ValueError:
        raise InvalidArgument(f"the query must have at most {_PARAMETERS_MAX} parameters") from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    faults = [{"field": _shown(name), "reason": "is not known here"} for name in values if name not in known]
    faults += [
        {"field": name, "reason": "must be given once"}
        for name, given in values.items()
        if name in known and len(given) > 1 and name not in repeatable
    ]
    faults += [
        {"field": name, "reason": f"must be at most {_VALUE_LENGTH_MAX} characters without U+0000"}
        for name, given in values.items()
        if name in known and any("\0" in value or len(value) > _VALUE_LENGTH_MAX for value in given)
    ]
    if faults:
        raise refusal(faults)
    return Query(values)


def _shown(name: str) -> str:
    return ascii(name)[1:-1][:64]
