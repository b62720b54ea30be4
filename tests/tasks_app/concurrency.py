"""Several actors at once, each in a thread with a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import connection, connections

from tests.support.waiting import DEFAULT_TIMEOUT_SECONDS, eventually

T = TypeVar("T")


class Actor(threading.Thread):
    """Runs one action beside the test; `result()` waits for it and gives its answer or raises its error."""

    def __init__(self, action: Callable[[], Any], ready: threading.Barrier | None = None) -> None:
        super().__init__(daemon=True)
        self._action = action
        self._ready = ready
        self._answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if self._ready is not None:
                connection.ensure_connection()
                self._ready.wait(DEFAULT_TIMEOUT_SECONDS)
            self._answer = self._action()
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self.error = error
        finally:
            connections.close_all()

    def result(self) -> Any:
        self.join(60)
        assert not self.is_alive(), "the actor did not come to an end"
        if self.error is not None:
            raise self.error
        return self._answer


def beside(action: Callable[[], Any]) -> Actor:
    """Starts an action in a thread of its own."""
    actor = Actor(action)
    actor.start()
    return actor


def together(actions: Sequence[Callable[[], T]]) -> list[T | BaseException]:
    """Runs the actions at the same moment; the answer or the error of each, in order."""
    ready = threading.Barrier(len(actions))
    actors = [Actor(action, ready) for action in actions]
    for actor in actors:
        actor.start()
    outcomes: list[T | BaseException] = []
    for actor in actors:
        try:
            outcomes.append(actor.result())
        except Exception as error:  # noqa: BLE001 - the caller judges it
            outcomes.append(error)
    return outcomes


def connect_outside() -> Any:
    """A plain connection of somebody else to the same server database: autocommit, READ COMMITTED (MariaDB)."""
    import MySQLdb

    other = MySQLdb.connect(**connection.get_connection_params())
    other.autocommit(True)
    other.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return other


# The server refreshes its table of transactions only when nobody has looked at it for a tenth of a second.
_SECONDS_BETWEEN_LOOKS = 0.11


def await_lock_wait(*, at_least: int = 1) -> None:
    """Waits until so many transactions of this test's database wait for a row lock (MariaDB)."""

    def waiting() -> bool:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p"
                " ON p.id = t.trx_mysql_thread_id WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()"
            )
            return bool(cursor.fetchone()[0] >= at_least)

    eventually(waiting)
