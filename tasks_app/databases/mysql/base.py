"""MySQL/MariaDB back end: Django's own, with cheap transactions and connections that survive an idle night.

- Django opens a transaction with `SET autocommit=0` and ends it with `COMMIT; SET autocommit=1`: three round trips.
  Here the server stays in autocommit; START TRANSACTION waits for the first statement and travels with it where that
  is a script (`transactions.Tx`), so that a transaction costs one round trip of its own: COMMIT.
- A connection that was idle for a while is pinged before its next use outside a transaction. A ping at every use would
  cost a round trip, no ping at all gives the first caller after `wait_timeout` an error (faults C4).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from django.db.backends.mysql import base as mysql_base
from django.db.backends.mysql import features as mysql_features
from django.db.backends.mysql import schema as mysql_schema

IDLE_SECONDS_BEFORE_PING = 3.0


class DatabaseFeatures(mysql_features.DatabaseFeatures):
    # What makes Atomic call `_start_transaction_under_autocommit` below.
    autocommits_when_autocommit_is_off = True


class DatabaseSchemaEditor(mysql_schema.DatabaseSchemaEditor):
    def _iter_column_sql(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        # Django writes COMMENT before GENERATED ALWAYS, which the servers refuse: a comment goes last.
        parts = list(super()._iter_column_sql(*args, **kwargs))  # type: ignore[misc]
        comments = [part for part in parts if part.lstrip().startswith("COMMENT ")]
        yield from (part for part in parts if not part.lstrip().startswith("COMMENT "))
        yield from comments


class CursorWrapper(mysql_base.CursorWrapper):
    """Sends a pending START TRANSACTION before the first statement."""

    def __init__(self, cursor: Any, connection: DatabaseWrapper) -> None:
        super().__init__(cursor)
        self._connection = connection

    def execute(self, query: Any, args: Any = None) -> Any:
        if self._connection.begin_pending and self._connection.take_begin():
            self.cursor.execute("START TRANSACTION")
        return super().execute(query, args)

    def executemany(self, query: Any, args: Any) -> Any:
        if self._connection.begin_pending and self._connection.take_begin():
            self.cursor.execute("START TRANSACTION")
        return super().executemany(query, args)


class DatabaseWrapper(mysql_base.DatabaseWrapper):
    features_class = DatabaseFeatures
    SchemaEditorClass = DatabaseSchemaEditor
    _used_at = 0.0
    begin_pending = False

    def _set_autocommit(self, autocommit: bool) -> None:
        with self.wrap_database_errors:
            # The driver knows the server's flag from the last packet: asking costs nothing, setting costs a round trip.
            if bool(self.connection.get_autocommit()) != autocommit:
                self.connection.autocommit(autocommit)

    def _start_transaction_under_autocommit(self) -> None:
        self.begin_pending = True

    def take_begin(self) -> bool:
        """Whether START TRANSACTION is still to be sent; the caller sends it now."""
        pending, self.begin_pending = self.begin_pending, False
        return pending

    def create_cursor(self, name: Any = None) -> CursorWrapper:
        return CursorWrapper(self.connection.cursor(), self)

    def _commit(self) -> None:
        if not self.take_begin():  # else nothing was ever sent
            super()._commit()  # type: ignore[misc]

    def _rollback(self) -> None:
        if not self.take_begin():
            super()._rollback()  # type: ignore[misc]

    def close(self) -> None:
        self.begin_pending = False
        super().close()

    def ensure_connection(self) -> None:
        now = time.monotonic()
        if (
            self.connection is not None
            and not self.in_atomic_block
            and now - self._used_at > IDLE_SECONDS_BEFORE_PING
            and not self.is_usable()
        ):
            self.close()
        self._used_at = now
        super().ensure_connection()

    @property
    def collation_exact(self) -> str:
        """The collation under which `A` is not `a`, `é` is not `e`, and a trailing blank counts."""
        return "utf8mb4_nopad_bin" if self.mysql_is_mariadb else "utf8mb4_0900_bin"
