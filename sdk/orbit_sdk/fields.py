"""Reading the objects of an answer: every member is checked before it is believed.

All methods raise UnverifiableResponse naming the place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from orbit_sdk.credentials import is_id
from orbit_sdk.errors import UnverifiableResponse
from orbit_sdk.instants import parse_instant

E = TypeVar("E", bound=StrEnum)
V = TypeVar("V")
_REVISION = re.compile(r"[1-9]\d{0,19}", re.ASCII)


class Fields:
    """One JSON object of an answer. Members that the SDK does not know are left alone: a newer server may have them."""

    __slots__ = ("_place", "raw")

    def __init__(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise UnverifiableResponse(f"{place} must be an object")
        self.raw: dict[str, Any] = value
        self._place = place

    def _wrong(self, name: str, rule: str) -> UnverifiableResponse:
        return UnverifiableResponse(f"{self._place}.{name} {rule}")

    def has(self, name: str) -> bool:
        """Whether the member is there and not null."""
        return self.raw.get(name) is not None

    def value(self, name: str) -> Any:
        """A member of any type that must be there."""
        if name not in self.raw:
            raise self._wrong(name, "is missing")
        return self.raw[name]

    def optional(self, name: str, read: Callable[[str], V]) -> V | None:
        """What `read` makes of the member, or None where it is absent or null."""
        return read(name) if self.has(name) else None

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise self._wrong(name, "must be a string")
        return value

    def id(self, name: str) -> str:
        value = self.value(name)
        if not is_id(value):
            raise self._wrong(name, "must be 32 lower-case hex digits")
        return str(value)

    def revision(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str) or _REVISION.fullmatch(value) is None:
            raise self._wrong(name, "must be a decimal string")
        return value

    def integer(self, name: str) -> int:
        value = self.value(name)
        if type(value) is not int:
            raise self._wrong(name, "must be an integer")
        return value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "must be true or false")
        return value

    def flag(self, name: str) -> bool:
        """A boolean that is left out where it is false."""
        return self.boolean(name) if self.has(name) else False

    def instant(self, name: str) -> datetime:
        try:
            return parse_instant(self.text(name))
        except ValueError as error:
            raise self._wrong(name, str(error)) from None

    def word(self, name: str, words: type[E]) -> E:
        """A member of an enum."""
        value = self.text(name)
        try:
            return words(value)
        except ValueError:
            raise self._wrong(name, f"is {value!r}, which is no {words.__name__}") from None

    def object(self, name: str) -> Fields:
        return Fields(self.value(name), f"{self._place}.{name}")

    def objects(self, name: str) -> list[Fields]:
        return [Fields(item, f"{self._place}.{name}[{index}]") for index, item in enumerate(self.array(name))]

    def array(self, name: str) -> list[Any]:
        value = self.value(name)
        if not isinstance(value, list):
            raise self._wrong(name, "must be an array")
        return value
