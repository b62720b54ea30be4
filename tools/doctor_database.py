"""The part of `make doctor` that needs Django: looks at the configured database and prints findings as JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SKEW_SECONDS_MAX = 1.0


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
    _look_at_the_server(connection)
    _look_at_migrations(connection)
    return 0


def _look_at_the_server(connection: Any) -> None:
    """What Orbit asks of a database before it trusts it with a receipt, and that its clock agrees with ours."""
    from django.conf import settings

    from tasks_app.databases.assertions import server_faults

    faults = server_faults(connection, relaxed_durability=settings.ORBIT.accept_relaxed_durability)
    for fault in faults:
        say("server", False, fault, "docs/settings.md, Databases")
    if connection.vendor == "sqlite":
        if not faults:
            say("server", True, f"SQLite {_ask(connection, 'SELECT sqlite_version()')}, WAL, synchronous")
        return
    if not faults:
        say("server", True, f"{_ask(connection, 'SELECT VERSION()')}, READ COMMITTED, UTC, strict, durable")
    skew = float(_ask(connection, "SELECT UNIX_TIMESTAMP(NOW(6))")) - time.time()
    say("clock", abs(skew) < SKEW_SECONDS_MAX, f"the database is {skew:+.3f} s off this machine", "run NTP on both")


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


if __name__ == "__main__":
    sys.exit(main())
