"""One process migrates a database at a time; the others wait and then find nothing to do.

On a server database it is a row lock in a small table, held by a connection of its own for as long as the migration
takes; it vanishes with that connection, whatever happens to the process. (`GET_LOCK` does not exist on Galera.) SQLite
is migrated by processes of one machine only, so a lock on a file beside it is enough.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

WAIT_SECONDS_MAX: Final = 1_800.0
HOLD_SECONDS_MAX: Final = 86_400
FILE_POLL_SECONDS: Final = 0.2
SOMEBODY_ELSE: Final = (1205, 1213)  # waited for too long; or several were let go at once, and one was chosen
TABLE: Final = "orbit_migration_lock"


class MigrationLockTimeout(Exception):
    """Somebody else has been migrating for longer than anybody should wait."""


@contextlib.contextmanager
def migration_lock(connection: BaseDatabaseWrapper, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of the connection's database; `waiting` is called once if another process has it.

    Raises MigrationLockTimeout.
    """
    lock = _file_lock(connection, waiting) if connection.vendor == "sqlite" else _row_lock(connection, waiting)
    with lock:
        yield


@contextlib.contextmanager
def _file_lock(connection: Any, waiting: Callable[[], None]) -> Iterator[None]:
    if connection.is_in_memory_db():
        yield
        return
    path = Path(f"{connection.settings_dict['NAME']}.migrating")
    with path.open("w") as file:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        told = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    waiting()
                    told = True
                if time.monotonic() > deadline:
                    raise MigrationLockTimeout from None
                time.sleep(FILE_POLL_SECONDS)
        yield


@contextlib.contextmanager
def _row_lock(connection: BaseDatabaseWrapper, waiting: Callable[[], None]) -> Iterator[None]:
    holder = connection.copy()
    try:
        with holder.cursor() as cursor:
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (id INT PRIMARY KEY) ENGINE=InnoDB")
            cursor.execute(f"SET SESSION wait_timeout = {HOLD_SECONDS_MAX}")  # it idles while another one migrates
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            told = False
            while True:
                cursor.execute("START TRANSACTION")
                try:
                    # Inserting waits for the holder just as locking does; the row itself need never be committed.
                    cursor.execute(f"INSERT IGNORE INTO {TABLE} (id) VALUES (1)")  # noqa: S608  (a constant)
                    cursor.execute(f"SELECT id FROM {TABLE} WHERE id = 1 FOR UPDATE")  # noqa: S608  (a constant)
                    break
                except OperationalError as error:
                    cursor.execute("ROLLBACK")
                    if error.args[0] not in SOMEBODY_ELSE:
                        raise
                    if not told:
                        waiting()
                        told = True
                    if time.monotonic() > deadline:
                        raise MigrationLockTimeout from None
        yield
    finally:
        holder.close()
