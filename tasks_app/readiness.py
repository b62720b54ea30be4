"""What must hold before this node may be given requests (`/readyz`). Whoever needs something registers a check for
it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from django.db import DatabaseError, InterfaceError, connections
from django.db.migrations.executor import MigrationExecutor

from tasks_app.transactions import DATABASE, reading

Check = Callable[[], str | None]  # what is wrong, in one sentence; None when all is well


@dataclass(frozen=True)
class Finding:
    name: str
    problem: str | None


_checks: dict[str, Check] = {}
_migrated = threading.Event()


def register(name: str, check: Check) -> None:
    """Adds a check under its name; a second one of the same name takes the place of the first."""
    _checks[name] = check


def findings() -> list[Finding]:
    """Every check, in the order in which they were registered. A database that does not answer is a finding, not an
    error."""
    return [Finding(name, _run(check)) for name, check in _checks.items()]


def _run(check: Check) -> str | None:
    try:
        return check()
    except (DatabaseError, InterfaceError) as error:
        # The driver's words may hold host names and users: its class is enough for a page that is open to all.
        return f"the database does not answer ({type(error).__name__})"


def _database() -> str | None:
    with reading() as tx:
        tx.row("SELECT 1")
    return None


def _migrations() -> str | None:
    """Looked at until they are applied, then never again: they are not taken back under a running node."""
    if not _migrated.is_set():
        executor = MigrationExecutor(connections[DATABASE])
        missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        if missing:
            return f"{missing} migrations are not applied"
        _migrated.set()
    return None


register("database", _database)
register("migrations", _migrations)
