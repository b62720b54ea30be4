"""What a database must be like before Orbit trusts it with a receipt (design 0, Database). Asked at start, once per
process.
"""

from __future__ import annotations

import re
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

MARIADB_VERSION_MIN = (10, 6)
MYSQL_VERSION_MIN = (8, 0, 17)  # the first with utf8mb4_0900_bin; CHECK is enforced from 8.0.16
SQLITE_VERSION_MIN = (3, 37)
SQLITE_SYNCHRONOUS_MIN = 2  # FULL: a commit is on the disk before it is answered


def server_faults(connection: BaseDatabaseWrapper, *, relaxed_durability: bool) -> list[str]:
    """One sentence for everything that would break a promise; empty when the server is right.

    `relaxed_durability` (ORBIT_ACCEPT_RELAXED_DURABILITY) accepts a server that may lose its last second of commits.
    """
    return (
        _sqlite_faults(connection) if connection.vendor == "sqlite" else _mysql_faults(connection, relaxed_durability)
    )


def _mysql_faults(connection: BaseDatabaseWrapper, relaxed_durability: bool) -> list[str]:
    # MariaDB renamed tx_isolation in 11.1 and keeps both for now; MySQL 8 has only the new name.
    version_text, time_zone, sql_mode, flush = _row(
        connection,
        "SELECT VERSION(), @@session.time_zone, @@session.sql_mode, @@global.innodb_flush_log_at_trx_commit",
    )
    isolation = _row(
        connection, "SHOW SESSION VARIABLES WHERE Variable_name IN ('transaction_isolation', 'tx_isolation')"
    )[1]
    faults: list[str] = []
    is_mariadb = "mariadb" in version_text.lower()
    least = MARIADB_VERSION_MIN if is_mariadb else MYSQL_VERSION_MIN
    if _version(version_text) < least:
        name = "MariaDB" if is_mariadb else "MySQL"
        faults.append(
            f"{name} {_dotted(least)} or newer is needed, this is {version_text}: older ones have no SKIP LOCKED or"
            " do not enforce CHECK constraints"
        )
    if isolation.upper() != "READ-COMMITTED":
        faults.append(f"the session's isolation must be READ-COMMITTED, it is {isolation}")
    if time_zone != "+00:00":
        faults.append(f"the session's time_zone must be +00:00, it is {time_zone}")
    if "STRICT_TRANS_TABLES" not in sql_mode and "STRICT_ALL_TABLES" not in sql_mode:
        faults.append(f"sql_mode must be strict, it is {sql_mode or 'empty'}")
    if int(flush) != 1 and not relaxed_durability:
        faults.append(
            f"innodb_flush_log_at_trx_commit is {flush}: the server may lose commits that it has confirmed. Set it to"
            " 1, or say ORBIT_ACCEPT_RELAXED_DURABILITY=1 if losing the last second is wanted"
        )
    return faults


def _sqlite_faults(connection: BaseDatabaseWrapper) -> list[str]:
    faults: list[str] = []
    (version,) = _row(connection, "SELECT sqlite_version()")
    if _version(version) < SQLITE_VERSION_MIN:
        faults.append(f"SQLite {_dotted(SQLITE_VERSION_MIN)} or newer is needed, this is {version}")
    (journal,) = _row(connection, "PRAGMA journal_mode")
    if journal != "wal":
        faults.append(f"journal_mode must be wal, it is {journal}")
    (synchronous,) = _row(connection, "PRAGMA synchronous")
    if int(synchronous) < SQLITE_SYNCHRONOUS_MIN:
        faults.append(f"synchronous must be FULL (2), it is {synchronous}")
    return faults


def _row(connection: BaseDatabaseWrapper, sql: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
    assert row is not None
    return row


def _version(text: str) -> tuple[int, ...]:
    # "5.5.5-10.11.19-MariaDB": old MariaDB servers put a replication prefix ahead of their version.
    return tuple(int(number) for number in re.findall(r"\d+", text.removeprefix("5.5.5-"))[:3])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)
