"""A site with its upstream, its Orbit nodes and its storage nodes, each in a process of its own."""

from __future__ import annotations

from typing import Any

from tests.lifecycle_app.processes import NodeProcess, Outside, UpstreamProcess
from tests.support.api import Api
from tests.support.server import Credentials, ServerProcess, free_port


class World:
    """`start()` starts an Orbit node; whatever still runs is stopped by `stop()`."""

    def __init__(self, database_url: str, credentials: Credentials, upstream: UpstreamProcess) -> None:
        self.database_url = database_url
        self.token = credentials.token
        self.upstream = upstream
        self.node_port = free_port()
        self.outside = Outside(database_url)
        self.orbit: ServerProcess | None = None
        self.nodes: list[NodeProcess] = []
        self._servers: list[ServerProcess] = []

    def start(
        self, *, node_port: int | None = None, arguments: tuple[str, ...] = (), wait: bool = True, **settings: str
    ) -> ServerProcess:
        """`node_port` 0: no TCP for storage nodes."""
        port = self.node_port if node_port is None else node_port
        if port:
            settings["ORBIT_NODE_ADDR"] = f"127.0.0.1:{port}"
        self.orbit = ServerProcess(
            self.database_url,
            arguments=arguments,
            ORBIT_UPSTREAM_URL=self.upstream.url,
            ORBIT_UPSTREAM_TIMEOUT_MS="3000",
            **settings,
        )
        self._servers.append(self.orbit)
        return self.orbit.start(wait=wait)

    def storage_node(self, name: str = "node-1", *arguments: str, port: int | None = None) -> NodeProcess:
        """A storage node that has connected."""
        where = ("--port", str(port or self.node_port)) if "--url" not in arguments else ()
        node = NodeProcess(name, self.token, *where, *arguments)
        self.nodes.append(node)
        node.connect()
        return node

    def api(self, orbit: ServerProcess | None = None) -> Api:
        orbit = orbit or self.orbit
        assert orbit is not None
        return Api(orbit.url, self.token)

    def assert_sound(self) -> None:
        self.outside.assert_sound(self.upstream, *self.nodes)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        for server in self._servers:
            if server.process is not None and server.process.poll() is None:
                server.stop()


def create(api: Api, gid: int, status: int = 201) -> dict[str, Any]:
    body = {"gid": gid, "name": f"gallery {gid}", "requester": "ana"}
    return dict(api.post("/v1/operations", body).expect(status).data["operation"])


def operation(api: Api, gid: int) -> dict[str, Any]:
    return dict(api.get(f"/v1/operations/{gid}").expect(200).data["operation"])


def reconcile(api: Api, gid: int, decision: str) -> dict[str, Any]:
    seen = operation(api, gid)
    body = {"operation_id": seen["operation_id"], "state": seen["state"], "decision": decision, "reason": "test"}
    return dict(api.post(f"/v1/operations/{gid}:reconcile", body).expect(200).data)
