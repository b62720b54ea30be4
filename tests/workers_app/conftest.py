"""Words of the worker tests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import engine
from tests.support.api import Api
from tests.support.fixtures import RunningOrbit, Site
from tests.support.server import Credentials, ServerProcess
from tests.support.worker_sockets import WorkerSocket

_numbers = itertools.count(1)


@pytest.fixture
def issue_credential() -> Callable[..., Credentials]:
    """A further credential of a namespace: `issue_credential(running, actions="…", queues=("name",))`."""

    def issue(
        running: RunningOrbit, *, actions: str, queues: tuple[str, ...] = (), more: tuple[str, ...] = ()
    ) -> Credentials:
        path = engine.directory() / f"issued-{next(_numbers)}.json"
        scope = [part for queue in queues for part in ("--queue-scope", queue)]
        running.manage(
            "orbit_credential", "issue", "--application", "tests", "--namespace", "aged", "--actions", actions,
            *scope, *more, "--output", str(path),
        )  # fmt: skip
        return Credentials(path, json.loads(path.read_text()))

    return issue


@pytest.fixture
def queue_id(api: Api) -> str:
    """A queue of the test's own on the shared server."""
    return str(api.make_queue()["queue_id"])


@pytest.fixture
def worker(connect_worker: Callable[..., WorkerSocket], queue_id: str) -> WorkerSocket:
    """A worker of capacity 4 on that queue."""
    socket = connect_worker()
    socket.hello([queue_id], capacity=4)
    return socket


@pytest.fixture
def claim_one(api: Api, queue_id: str, worker: WorkerSocket) -> Callable[..., dict[str, Any]]:
    """Submit a task and give its offer: `claim_one(retry={"mode": "SAFE"})`."""

    def claim(**fields: Any) -> dict[str, Any]:
        api.submit(queue_id, **fields).expect(201)
        return worker.expect("offer")

    return claim


@pytest.fixture
def start_one(claim_one: Callable[..., dict[str, Any]], worker: WorkerSocket) -> Callable[..., dict[str, Any]]:
    """Submit a task, take its offer and start it; the offer."""

    def start(**fields: Any) -> dict[str, Any]:
        offer = claim_one(**fields)
        assert worker.start(offer)[0]["status"] == "STARTED"
        return offer

    return start


class Node:
    """A running node as a test sees it: its API, the test's queue, workers that are closed with the test."""

    def __init__(self, running: RunningOrbit, queue_id: str | None = None) -> None:
        self.running = running
        self.api = Api(running.url, running.aged.token)
        self.queue_id = queue_id or str(self.api.make_queue()["queue_id"])
        self._sockets: list[WorkerSocket] = []

    def socket(self, *, token: str | None = None) -> WorkerSocket:
        """A connection that has not said hello."""
        socket = WorkerSocket(self.running.websocket_url, token or self.running.aged.token)
        self._sockets.append(socket)
        return socket

    def worker(self, *, capacity: int = 4, **hello: Any) -> WorkerSocket:
        socket = self.socket()
        socket.hello([self.queue_id], capacity=capacity, **hello)
        return socket

    def submit(self, **fields: Any) -> dict[str, Any]:
        return dict(self.api.submit(self.queue_id, **fields).expect(201).data["task"])

    def state(self, task_id: str) -> str:
        return str(self.api.task(task_id)["state"])

    def close(self) -> None:
        for socket in self._sockets:
            socket.close()
        self.api.close()


@pytest.fixture
def start_node(orbit_site: Site) -> Iterator[Callable[..., Node]]:
    """Start further nodes on the shared database: `start_node(ORBIT_LEASE_MS="2000")`. The nodes of one test share a
    queue of its own. Only their workers are theirs: other nodes sweep the same rows."""
    nodes: list[Node] = []

    def start(*, arguments: tuple[str, ...] = (), **settings: str) -> Node:
        server = ServerProcess(orbit_site.database_url, arguments=arguments, **settings)
        server.start()
        node = Node(RunningOrbit(orbit_site, server), nodes[0].queue_id if nodes else None)
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        node.close()
        if node.running.server.process is not None and node.running.server.process.poll() is None:
            node.running.server.stop()


@pytest.fixture(scope="module")
def _other_server(orbit_site: Site) -> Iterator[ServerProcess]:
    with ServerProcess(orbit_site.database_url) as server:
        yield server


@pytest.fixture
def here(orbit_server: RunningOrbit) -> Iterator[Node]:
    """The shared node, with a queue of the test's own."""
    node = Node(orbit_server)
    yield node
    node.close()


@pytest.fixture
def there(here: Node, _other_server: ServerProcess) -> Iterator[Node]:
    """Another node on the same database, for the same queue."""
    node = Node(RunningOrbit(here.running.site, _other_server), here.queue_id)
    yield node
    node.close()
