"""Django's `migrate`, safe to run from many nodes at once, and with time for large tables."""

from __future__ import annotations

from typing import Any, Final

from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as DjangoMigrate
from django.db import connections

from orbit_project.migration_lock import MigrationLockTimeout, migration_lock

STATEMENT_SECONDS_MAX: Final = 86_400  # a change of a table of ten million rows is one statement


class Command(DjangoMigrate):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if connection.vendor == "mysql":
            # The short time-outs that protect a node from a stuck server would cut a long migration in two.
            connection.close()
            connection.settings_dict["OPTIONS"].update(
                read_timeout=STATEMENT_SECONDS_MAX, write_timeout=STATEMENT_SECONDS_MAX
            )
        try:
            with migration_lock(connection, waiting=self._say_waiting):
                super().handle(*args, **options)
        except MigrationLockTimeout:
            raise CommandError("another process has been migrating this database for too long") from None

    def _say_waiting(self) -> None:
        self.stderr.write("another process migrates this database; waiting for it")
