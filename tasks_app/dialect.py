"""The few places where the engines' SQL differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

# NOW(6) is fixed for the statement; UNIX_TIMESTAMP of it is exact because the session's zone is +00:00.
MYSQL_NOW_US = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"


def is_mysql(connection: BaseDatabaseWrapper) -> bool:
    return connection.vendor == "mysql"


def for_update(connection: BaseDatabaseWrapper, *, skip_locked: bool = False) -> str:
    """Row locks. SQLite has none and needs none: BEGIN IMMEDIATE admits one writer."""
    if not is_mysql(connection):
        return ""
    return " FOR UPDATE SKIP LOCKED" if skip_locked else " FOR UPDATE"


def insert_ignore(connection: BaseDatabaseWrapper) -> str:
    """Insert unless the identity exists already."""
    return "INSERT IGNORE INTO" if is_mysql(connection) else "INSERT OR IGNORE INTO"


def force_index(connection: BaseDatabaseWrapper, name: str) -> str:
    return f" FORCE INDEX ({name})" if is_mysql(connection) else f" INDEXED BY {name}"


def least(connection: BaseDatabaseWrapper) -> str:
    return "LEAST" if is_mysql(connection) else "MIN"


def placeholders(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def union_all(connection: BaseDatabaseWrapper, selects: Sequence[str]) -> str:
    """Arms that each have their own ORDER BY and LIMIT."""
    if is_mysql(connection):
        return " UNION ALL ".join(f"({select})" for select in selects)
    return " UNION ALL ".join(f"SELECT * FROM ({select})" for select in selects)


def case_by_id(column: str, keyed: Sequence[tuple[str, Any]]) -> tuple[str, list[Any]]:
    """`CASE column WHEN id THEN value …`: a different value for each row of one UPDATE."""
    arms = " ".join(["WHEN %s THEN %s"] * len(keyed))
    return f"CASE {column} {arms} END", [part for pair in keyed for part in pair]
