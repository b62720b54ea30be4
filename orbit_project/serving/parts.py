"""What each role brings to a node, and how a node is put together from the settings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Sequence
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from lifecycle_app.consumers import NodeConsumer
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.parts import LifecyclePart
from orbit_project.serving.changes import changed
from orbit_project.serving.node import Node, NodeOptions, Part
from tasks_app import ids
from tasks_app.instants import process_now_us
from workers_app.consumers import WorkerConsumer
from workers_app.hint_relay import HintRelay
from workers_app.hub import WorkersHub
from workers_app.maintenance import Maintenance

WORKERS_PATH, NODES_PATH = "/v1/workers/connect", "/v1/nodes/connect"
CLOSE_NOT_FOUND = 4404
MAINTENANCE_STOP_SECONDS = 1.0

Consumer = Callable[[dict[str, Any], Any, Any], Any]


class Sockets:
    """The WebSocket application of a node: one consumer per path, nothing else."""

    def __init__(self) -> None:
        self._consumers: dict[str, Consumer] = {}

    def add(self, path: str, consumer: Consumer) -> None:
        self._consumers[path] = consumer

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        consumer = self._consumers.get(scope["path"])
        if consumer is None:
            await receive()
            await send({"type": "websocket.close", "code": CLOSE_NOT_FOUND})
        else:
            await consumer(scope, receive, send)


class MaintenancePart:
    """The sweeps, in threads of their own. They go on through a drain: what time does to tasks does not wait."""

    name = "maintenance"
    is_drained = True
    attempts_running = 0

    def __init__(self) -> None:
        self._maintenance = Maintenance()

    async def start(self) -> None:
        self._maintenance.start()

    def begin_drain(self) -> None:
        """Nothing: other nodes may be gone already."""

    async def stop(self) -> None:
        self._maintenance.ask_to_stop()
        await asyncio.to_thread(self._maintenance.stop, wait_seconds=MAINTENANCE_STOP_SECONDS)


def compose(
    *,
    listener: socket.socket,
    roles: Collection[str],
    drain_timeout_seconds: float,
    on_ready: Callable[[str], None],
) -> Node:
    """The node that `settings.ORBIT` describes, listening on `listener` (bound, not listening yet)."""
    configuration = settings.ORBIT
    relay = HintRelay()
    sockets = Sockets()
    parts: list[Part] = [_lifecycle(roles)]
    if "nodes" in roles:
        sockets.add(NODES_PATH, NodeConsumer.as_asgi())
    if "workers" in roles:
        hub = WorkersHub(node_id=configuration.node_id, relay=relay)
        sockets.add(WORKERS_PATH, WorkerConsumer.as_asgi(hub=hub))
        parts.append(hub)
    if "maintenance" in roles:
        parts.append(MaintenancePart())
    return Node(
        NodeOptions(
            node_id=configuration.node_id,
            listener=listener,
            roles=roles,
            drain_timeout_seconds=drain_timeout_seconds,
            api_pool_threads=configuration.api_pool,
            silence_seconds=configuration.silence_timeout_ms / 1000,
            trusted_proxies=configuration.trusted_proxies,
        ),
        wsgi_application=get_wsgi_application(),
        websocket_application=sockets,
        changed=changed,
        relay=relay,
        parts=parts,
        on_ready=on_ready,
    )


def _lifecycle(roles: Collection[str]) -> LifecyclePart:
    address = settings.ORBIT.node_addr
    return LifecyclePart(
        owner=Owner(settings.ORBIT.node_id, ids.new_id(process_now_us())),
        roles=roles,
        node_address=None if address is None or "nodes" not in roles else (address.host, address.port),
    )


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free one. Raises OSError if the address cannot be had."""
    choices: Sequence[Any] = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = choices[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound
