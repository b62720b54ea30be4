"""Who makes the one call to the upstream: an Orbit node and its incarnation, with a heartbeat in the database.

An intent in RESERVED or SUBMITTING belongs to the process that made it. If that process is gone, nobody can know the
outcome any more, and recovery says so; as long as it lives, nobody else may touch the intent. Whoever composes a node
(`orbit_serve`) registers its identity and beats for it. A process without one, such as a plain WSGI server, gets an
identity of its own here, because several of them may share one ORBIT_NODE_ID.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from tasks_app import ids
from tasks_app.instants import process_now_us, to_datetime
from tasks_app.models import Node, NodeState
from tasks_app.transactions import Tx, unit

_NODE_ID_LENGTH_MAX = 64


@dataclass(frozen=True)
class Owner:
    node_id: str
    incarnation: str


_lock = threading.Lock()
_registered: Owner | None = None
_in_flight: set[str] = set()


def register(owner: Owner) -> None:
    """This process is that node from now on; whoever calls this also keeps its heartbeat."""
    global _registered
    with _lock:
        _registered = owner


def registered() -> Owner | None:
    return _registered


def new_process_owner() -> Owner:
    """An identity for a process that nobody gave one to."""
    suffix = f"~{os.getpid()}"
    node_id: str = settings.ORBIT.node_id
    return Owner(node_id[: _NODE_ID_LENGTH_MAX - len(suffix)] + suffix, ids.new_id(process_now_us()))


def beat(
    owner: Owner, *, roles: str, version: str = "", state: NodeState = NodeState.SERVING, take_name: bool = False
) -> bool:
    """One heartbeat. False when a newer process has taken the node's name: this one is fenced and owns nothing.

    `take_name`: the first beat of a start, which supersedes an older incarnation of the same name.
    """

    def run(tx: Tx) -> bool:
        now = to_datetime(tx.now_us)
        columns: dict[str, Any] = {"state": state.value, "roles": roles, "version": version, "heartbeat_at": now}
        node = Node.objects.select_for_update().filter(node_id=owner.node_id).first()
        if node is None:
            Node.objects.create(node_id=owner.node_id, incarnation=owner.incarnation, started_at=now, **columns)
            return True
        if node.incarnation != owner.incarnation:
            if not take_name:
                return False
            columns |= {"incarnation": owner.incarnation, "started_at": now}
        Node.objects.filter(node_id=owner.node_id).update(**columns)
        return True

    return unit(run)


# -- The calls that this process is making right now. What is owned by it and not among them was left behind by a fault.


@contextmanager
def in_flight(operation_id: str) -> Iterator[None]:
    with _lock:
        _in_flight.add(operation_id)
    try:
        yield
    finally:
        with _lock:
            _in_flight.discard(operation_id)


def is_in_flight(operation_id: str) -> bool:
    with _lock:
        return operation_id in _in_flight
