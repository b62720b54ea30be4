"""SQLite back end: Django's own; its session (WAL, IMMEDIATE, synchronous) is fixed by the settings."""

from django.db.backends.sqlite3 import base as sqlite_base


class DatabaseWrapper(sqlite_base.DatabaseWrapper):
    pass
