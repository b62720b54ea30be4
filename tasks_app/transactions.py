"""`unit(fn)`: the one way to change the database, used at the outermost level only (design 0, Database).

    error inside                         what happens
    1213 deadlock, 1205 lock wait,       the whole unit is rolled back and run again, a bounded number of times, with
    1020 record changed, locked (SQLite) jitter; 1213 at COMMIT is a definite rollback too
    connection lost before COMMIT        rolled back by the server: run again on a new connection, bounded
    connection lost during COMMIT        `CommitOutcomeUnknown`; with `on_unknown` the identity is looked up first
    any other error                      rolled back, raised

A unit that failed in any way leaves nothing behind: `fn` must have no effect outside the database but
`tx.after_commit`. A statement that failed dooms the unit even if `fn` goes on: a lock wait that timed out, for one,
took back that statement alone, and half a unit must never be committed.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from django.db import DatabaseError, Error, InterfaceError, OperationalError, connections, transaction

from tasks_app import dialect, telemetry
from tasks_app.instants import process_now_us

logger = logging.getLogger(__name__)
T = TypeVar("T")

DATABASE = "default"
TRIES_MAX = 8
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.005, 0.5

ROLLED_BACK_CODES = frozenset({1213, 1205, 1020})  # deadlock, lock wait time-out, record has changed
# no connection, gone away, lost, reset, shutting down, killed, disconnected for inactivity, too many connections
LOST_CODES = frozenset({2002, 2003, 2006, 2013, 2055, 2027, 1053, 1927, 1928, 4031, 1040, 1129})


class CommitOutcomeUnknown(Exception):
    """The answer to COMMIT was lost: the unit may have taken effect or not. Never retried blindly."""


class Refused(Exception):
    """Raised by a unit to roll back with an answer; carries no meaning of its own."""


class Tx:
    """A cursor inside a unit: plain SQL for the hot verbs, the database's clock, and what to do after commit."""

    def __init__(self) -> None:
        self.connection: Any = connections[DATABASE]
        self._cursor = self.connection.cursor()
        self._now_us: int | None = None
        self._after_commit: list[Callable[[], None]] = []
        self._failure: Error | None = None
        self.is_mysql = dialect.is_mysql(self.connection)

    @property
    def now_us(self) -> int:
        """The database's clock, read once per unit (SQLite: the process's clock)."""
        if self._now_us is None:
            self._now_us = (
                int(self.row(f"SELECT {dialect.MYSQL_NOW_US}")[0]) if self.is_mysql else process_now_us()  # type: ignore[index]
            )
        return self._now_us

    @property
    def now_sql(self) -> str:
        """An expression for `now_us`, to be selected along with something else; hand the value to `saw_now`."""
        return dialect.MYSQL_NOW_US if self.is_mysql else str(self.now_us)

    def saw_now(self, now_us: Any) -> None:
        if self._now_us is None:
            self._now_us = int(now_us)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> int:
        """The number of rows matched."""
        return self._one(sql, params, lambda: self._cursor.rowcount)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._one(sql, params, lambda: list(self._cursor.fetchall()))

    def row(self, sql: str, params: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return self._one(sql, params, self._cursor.fetchone)

    def _one(self, sql: str, params: Sequence[Any], read: Callable[[], T]) -> T:
        if self.is_mysql and self.connection.begin_pending:
            return self._send([(sql, params)], read)[0]
        try:
            self._cursor.execute(sql, params)
            return read()
        except Error as error:
            self._failure = error
            raise

    def queries(self, *queries: tuple[str, Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
        """The rows of several SELECTs, in one round trip where the driver allows it."""
        if not self.is_mysql:
            return [self.rows(sql, params) for sql, params in queries]
        return self._send(queries, lambda: list(self._cursor.fetchall()))

    def script(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[int]:
        """Several statements, one round trip where the driver allows it. Returns the rows matched by each.

        The first statement that fails ends the script with its error.
        """
        if not statements:
            return []
        if not self.is_mysql or len(statements) == 1:
            return [self.execute(sql, params) for sql, params in statements]
        return self._send(statements, lambda: self._cursor.rowcount)

    def _send(self, statements: Sequence[tuple[str, Sequence[Any]]], read: Callable[[], T]) -> list[T]:
        """One packet, with START TRANSACTION ahead if it is still to be sent; `read` is called at every answer."""
        texts = [sql for sql, _ in statements]
        begin = self.connection.take_begin()
        if begin:
            texts.insert(0, "START TRANSACTION")
        try:
            self._cursor.execute("; ".join(texts), [value for _, params in statements for value in params])
            if begin:
                self._cursor.nextset()
            answers = [read()]
            while self._cursor.nextset():
                answers.append(read())
        except Error as error:
            self._failure = error
            raise
        return answers

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """All rows in one statement."""
        if rows:
            self.execute(*insert_statement(table, columns, rows))

    def after_commit(self, action: Callable[[], None]) -> None:
        self._after_commit.append(action)

    def require_sound(self) -> None:
        """Raises what a statement of this unit failed with, if `fn` did not."""
        if self._failure is not None:
            raise self._failure
        if self.connection.needs_rollback:
            raise transaction.TransactionManagementError("a statement of the unit failed: nothing of it is committed")

    def run_after_commit(self) -> None:
        for action in self._after_commit:
            action()


def insert_statement(table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[str, list[Any]]:
    one = f"({dialect.placeholders(columns)})"
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([one] * len(rows))}"
    return sql, [value for row in rows for value in row]


# SQLite lets one writer in and makes the others poll for it; a lock of our own keeps this process's threads in line.
# Reentrant, so that a unit inside a unit is refused by `durable` and does not wait for itself.
_sqlite_writer = threading.RLock()


def unit(fn: Callable[[Tx], T], *, on_unknown: Callable[[], T] | None = None) -> T:
    """Runs `fn` in one transaction and returns what it returned, once that transaction is committed.

    `on_unknown` is called when the answer to COMMIT was lost; it looks the identity up (with a unit of its own, whose
    locking read waits for the lost transaction to end) and returns the true answer.

    Raises CommitOutcomeUnknown when even that fails, OperationalError when the database cannot be reached or the tries
    are used up, and whatever `fn` raises.
    """
    connection = connections[DATABASE]
    for attempt in range(1, TRIES_MAX + 1):
        committing = False
        tx: Tx | None = None
        try:
            with _writer(connection), transaction.atomic(using=DATABASE, durable=True):
                tx = Tx()
                result = fn(tx)
                tx.require_sound()
                committing = True
        except (OperationalError, InterfaceError) as error:
            code = error_code(error)
            if code in ROLLED_BACK_CODES or _is_sqlite_locked(error):
                telemetry.database_retried(code)
                if attempt == TRIES_MAX:
                    raise
            elif is_lost(error):
                _drop(connection)
                if committing:
                    telemetry.commit_outcome_unknown()
                    return _resolve(on_unknown, error)
                telemetry.database_retried(code)
                # A database that is down is not worth waiting for here: the caller has a bound of its own.
                if attempt >= 2:
                    raise
            else:
                raise
            time.sleep(_backoff_seconds(attempt))
        else:
            # Outside the `try`: whatever goes wrong now, the commit has happened and must not be run again.
            tx.run_after_commit()
            return result
    raise AssertionError("unreachable: the last try returns or raises")


def _resolve(on_unknown: Callable[[], T] | None, cause: Exception) -> T:
    if on_unknown is None:
        raise CommitOutcomeUnknown(str(cause)) from cause
    try:
        return on_unknown()
    except (OperationalError, InterfaceError) as error:
        raise CommitOutcomeUnknown(str(error)) from error


def error_code(error: Exception) -> int:
    """The server's or client library's number, 0 when there is none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_lost(error: Exception) -> bool:
    return isinstance(error, InterfaceError) or error_code(error) in LOST_CODES


def is_unreachable(error: DatabaseError) -> bool:
    """The database cannot answer now: the caller says UNAVAILABLE, not INTERNAL."""
    return isinstance(error, OperationalError | InterfaceError)


def _is_sqlite_locked(error: Exception) -> bool:
    return connections[DATABASE].vendor == "sqlite" and "locked" in str(error)


def _writer(connection: Any) -> Any:
    return _sqlite_writer if connection.vendor == "sqlite" else nullcontext()


def _drop(connection: Any) -> None:
    try:
        connection.close()
    except DatabaseError:
        logger.debug("closing a lost connection failed", exc_info=True)


def _backoff_seconds(attempt: int) -> float:
    ceiling = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN * 2**attempt)
    return random.uniform(BACKOFF_SECONDS_MIN, ceiling)  # noqa: S311 - jitter


@contextmanager
def reading() -> Iterator[Tx]:
    """A cursor for reads that need no transaction; each statement sees what is committed."""
    yield Tx()
