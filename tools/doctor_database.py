"""The part of `make doctor` that needs Django: looks at the configured database and prints findings as JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SKEW_SECONDS_MAX = 1.0
MARIADB_MIN, MYSQL_MIN = (10, 6), (8, 0, 16)


def say(name: str, ok: bool, seen: str, mend: str = "") -> bool:
    """One finding; whether it is well."""
    print(json.dumps({"name": name, "ok": ok, "seen": seen, "mend": mend}), flush=True)
    return ok


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")
    import django

    django.setup()
    from django.conf import settings
    from django.db import DatabaseError, connection

    try:
        connection.ensure_connection()
    except DatabaseError as error:
        say(
            "database", False, f"{settings.ORBIT.database_url}: {error}", "start the server, or mend ORBIT_DATABASE_URL"
        )
        return 1
    say("database", True, str(settings.ORBIT.database_url))
    if connection.vendor == "sqlite":
        _look_at_sqlite(connection)
    else:
        _look_at_mysql(connection)
    _look_at_migrations(connection)
    return 0


def _look_at_sqlite(connection: Any) -> None:
    mode = _ask(connection, "PRAGMA journal_mode")
    say("journal", mode == "wal", str(mode), "put the file on a local disk: WAL needs shared memory")


def _look_at_mysql(connection: Any) -> None:
    mariadb, version = connection.mysql_is_mariadb, connection.mysql_version
    least = MARIADB_MIN if mariadb else MYSQL_MIN
    name = "MariaDB" if mariadb else "MySQL"
    say(name, version >= least, _dotted(version), f"{name} {_dotted(least)} or newer: older ones have no SKIP LOCKED")
    isolation = _ask(connection, "SELECT @@session." + ("tx_isolation" if mariadb else "transaction_isolation"))
    say(
        "isolation",
        isolation == "READ-COMMITTED",
        str(isolation),
        "remove what overrides the session's isolation level",
    )
    flush = _ask(connection, "SELECT @@global.innodb_flush_log_at_trx_commit")
    say(
        "durability",
        int(flush) == 1,
        f"innodb_flush_log_at_trx_commit={flush}",
        "set it to 1: else a crash loses receipts",
    )
    skew = float(_ask(connection, "SELECT UNIX_TIMESTAMP(NOW(6))")) - time.time()
    say(
        "clock",
        abs(skew) < SKEW_SECONDS_MAX,
        f"the database is {skew:+.3f} s off this machine",
        "run NTP on both machines",
    )


def _look_at_migrations(connection: Any) -> None:
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    waiting = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    say(
        "migrations",
        waiting == 0,
        f"{waiting} to apply" if waiting else "all applied",
        "make run   (or .venv/bin/python manage.py migrate)",
    )


def _ask(connection: Any, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


if __name__ == "__main__":
    sys.exit(main())
