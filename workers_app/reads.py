"""Reads that survive a connection which was lost while its thread was idle.

A thread of a pool keeps its connection. If the server was restarted meanwhile, the first statement finds out. A unit
is retried anyway; for a plain read it would be an error although the database is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import InterfaceError, OperationalError, connections

from tasks_app.transactions import DATABASE, is_lost

T = TypeVar("T")


def read_again_if_lost(read: Callable[[], T]) -> T:
    """What `read` gives; once more on a new connection if the one it had was lost. Only for work that changes nothing.

    Raises what the second read raises: then the database really does not answer.
    """
    try:
        return read()
    except (OperationalError, InterfaceError) as error:
        if not is_lost(error):
            raise
        connections[DATABASE].close()
        return read()
