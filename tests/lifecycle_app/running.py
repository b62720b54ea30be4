"""The lifecycle's part of a node, running in this process on an event loop of its own, and nodes that connect to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from lifecycle_app import gateway as gateways
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.fakes.storage_node import FakeStorageNode
from lifecycle_app.models import StorageNode
from lifecycle_app.parts import LifecyclePart
from tests.support.waiting import eventually


class RunningPart:
    """`LifecyclePart` with TCP on a free port."""

    def __init__(self, owner: Owner, *, roles: tuple[str, ...] = ("nodes", "maintenance")) -> None:
        self.part = LifecyclePart(owner=owner, roles=roles, node_address=("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> RunningPart:
        self._thread.start()
        self._call(self.part.start())
        return self

    def __exit__(self, *unused: object) -> None:
        self._call(self.part.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @property
    def port(self) -> int:
        assert self.part.address is not None
        return self.part.address[1]

    @property
    def gateway(self) -> gateways.NodeGateway:
        found = self.part._gateway
        assert found is not None
        return found

    @property
    def connected(self) -> int:
        """How many storage nodes are connected here."""
        return len(self.gateway._all())

    def node(self, token: str, name: str = "node-1", **more: Any) -> FakeStorageNode:
        """A storage node that has not connected yet."""
        return FakeStorageNode(name=name, token=token, port=self.port, **more)

    def negotiated(self, token: str, name: str = "node-1", **more: Any) -> FakeStorageNode:
        """A storage node that is connected and has negotiated."""
        node = self.node(token, name, **more)
        node.connect()
        eventually(lambda: protocol_of(name) == ("V2" if node.speaks_v2 else "LEGACY"))
        return node


def protocol_of(name: str) -> str | None:
    row = StorageNode.objects.filter(name=name, connection_id__isnull=False).first()
    return None if row is None else row.protocol


def is_ack(report_id: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["event"] == "ack" and event["reportId"] == report_id


def is_command(gid: int, action: str = "DOWNLOAD") -> Callable[[dict[str, Any]], bool]:
    def test(event: dict[str, Any]) -> bool:
        told = event.get("action") or {1: "DOWNLOAD", 2: "DELETE"}.get(event.get("type", 0))
        return event["event"] == "command" and event["gid"] == gid and told == action

    return test


def is_closed(event: dict[str, Any]) -> bool:
    return bool(event["event"] == "closed")
