"""Model fields that mean the same on every engine: exact instants, exact text, ids."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models

from tasks_app import instants


class InstantField(models.DateTimeField):
    """An instant, stored as microseconds since the epoch (BIGINT); an aware UTC `datetime` in Python.

    Date-part lookups (`__year`, `__date`) do not exist for it; ranges do.
    """

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def db_type(self, connection: Any) -> str:
        return "bigint"

    def from_db_value(self, value: int | None, expression: Any, connection: Any) -> datetime | None:
        return None if value is None else instants.to_datetime(value)

    def get_prep_value(self, value: Any) -> int | None:
        if value is None or isinstance(value, int):
            return value
        moment = self.to_python(value)
        return None if moment is None else instants.from_datetime(moment)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> int | None:
        return value if prepared else self.get_prep_value(value)

    def to_python(self, value: Any) -> Any:
        return instants.to_datetime(value) if isinstance(value, int) else super().to_python(value)


class _CollatedText(models.CharField):
    """Text that is an identity: compared byte for byte on every engine."""

    def _collation(self, connection: Any) -> str:
        return connection.collation_exact

    def db_type(self, connection: Any) -> str | None:
        column = super().db_type(connection)
        if connection.vendor != "mysql":
            return column  # SQLite compares bytes by default
        return (
            f"{column} CHARACTER SET {self._collation(connection).split('_')[0]} COLLATE {self._collation(connection)}"
        )


class ExactTextField(_CollatedText):
    """Names, keys, handlers: any Unicode, byte-wise."""


class AsciiField(_CollatedText):
    """Enum words, ids, prefixes: ASCII, one byte a character in every index."""

    def _collation(self, connection: Any) -> str:
        return "ascii_bin"


class IdField(AsciiField):
    """32 lower-case hex digits (`ids.new_id`)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["max_length"] = 32
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["max_length"]
        return name, path, args, kwargs


class LongTextField(models.TextField):
    """JSON of users and other long text, exactly as written: byte-wise, up to 16 MiB, never a JSON column."""

    def db_type(self, connection: Any) -> str | None:
        if connection.vendor != "mysql":
            return super().db_type(connection)
        return f"mediumtext CHARACTER SET utf8mb4 COLLATE {connection.collation_exact}"


class DigestField(models.BinaryField):
    """A SHA-256: 32 bytes that can stand in a UNIQUE (Django's BinaryField is a BLOB and cannot)."""

    def db_type(self, connection: Any) -> str | None:
        return "binary(32)" if connection.vendor == "mysql" else super().db_type(connection)
