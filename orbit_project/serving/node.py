"""One node: the server, its parts by role, and the way it goes down (design 5.2).

Order of a drain, on SIGTERM or SIGINT:
1. `/readyz` and every new request answer 503; requests that wait (long polls) are answered now.
2. The parts are told: workers hear `drain`, no claim begins any more.
3. Requests in flight and running attempts may end, for at most the drain time-out.
4. The parts stop: sockets close with 1012, what the time-out cut short is counted in one log line.
5. Who is still in the middle of sending a request is told 503 and cut; the process exits with 0.
A second signal skips to step 4.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from orbit_project.serving import telemetry
from orbit_project.serving.client_addresses import Network
from orbit_project.serving.daphne_server import AsgiApplication, OrbitServer
from orbit_project.serving.doors import API_WAITING_PER_THREAD
from orbit_project.serving.http_front import HttpFront
from orbit_project.serving.long_polls import Key, LongPolls, Wait
from orbit_project.serving.pooled_wsgi import PooledWsgi, WsgiApplication
from workers_app.hint_relay import HintRelay
from workers_app.pools import BoundedPool
from workers_app.telemetry import POOLS

ROLES = ("api", "workers", "nodes", "maintenance", "admin")
FLUSH_SECONDS = 0.5  # for the last close frames and refusals to leave
POOL_CLOSE_SECONDS = 1.0
DRAIN_LOOK_SECONDS = 0.05


class Part(Protocol):
    """Something that a role brings to the node. Everything is called in the event loop."""

    name: str

    async def start(self) -> None:
        """Begin to work. What is raised here ends the node with an error."""

    def begin_drain(self) -> None:
        """Begin nothing new."""

    @property
    def is_drained(self) -> bool:
        """Nothing is left that is worth waiting for."""

    @property
    def attempts_running(self) -> int:
        """Attempts that run under a lease and hold the drain up."""

    async def stop(self) -> None:
        """Leave, within a moment."""


@dataclass(frozen=True)
class NodeOptions:
    """How one node is to run."""

    node_id: str
    listener: socket.socket  # bound, not listening yet
    roles: Collection[str]
    drain_timeout_seconds: float
    api_pool_threads: int
    silence_seconds: float
    trusted_proxies: Sequence[Network] = ()


class Node:
    """A node of Orbit. `run()` serves until it is told to go."""

    def __init__(
        self,
        options: NodeOptions,
        *,
        wsgi_application: WsgiApplication,
        websocket_application: AsgiApplication,
        changed: Callable[[Sequence[Wait]], set[Key]],
        relay: HintRelay,
        parts: Sequence[Part] = (),
        on_ready: Callable[[str], None] = lambda url: None,
    ) -> None:
        self.options = options
        self._parts = list(parts)
        self._on_ready = on_ready
        self._changed = changed
        self._relay = relay
        threads = options.api_pool_threads
        self.api_pool = BoundedPool("orbit-api", threads=threads, waiting_max=threads * API_WAITING_PER_THREAD)
        self.server = OrbitServer(
            websocket_application=websocket_application,
            silence_seconds=options.silence_seconds,
            trusted_proxies=options.trusted_proxies,
        )
        self.long_polls = LongPolls(look=self._look, look_failed=lambda error: telemetry.role_failed("api", error))
        self.server.front = HttpFront(
            wsgi=PooledWsgi(wsgi_application, self.api_pool),
            long_polls=self.long_polls,
            roles=options.roles,
            is_draining=lambda: self.server.is_draining,
            reruns_max=max(1, threads // 2),
        )
        relay.subscribe(self.long_polls.hint)
        POOLS.add(self.api_pool.figures)
        self._stop_wanted = asyncio.Event()
        self._hurry = asyncio.Event()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain. What a part raises while it starts is raised here."""
        self.server.serve(self._main)

    async def _look(self, waits: Sequence[Wait]) -> set[Key]:
        return await self.api_pool.run(lambda: self._changed(waits))

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        self._relay.start()
        started: list[Part] = []
        try:
            for part in self._parts:
                await part.start()
                started.append(part)
            url = self.server.listen(self.options.listener)
            telemetry.node_ready(node_id=self.options.node_id, address=url, roles=",".join(self._roles()))
            self._on_ready(url)
            await self._stop_wanted.wait()
            await self._drain()
        finally:
            self._relay.stop()
            for part in reversed(started):
                await self._stop(part)
            await self._say_goodbye()
            self.api_pool.close(wait_seconds=POOL_CLOSE_SECONDS)

    def _roles(self) -> list[str]:
        return [role for role in ROLES if role in self.options.roles]

    def _signalled(self) -> None:
        if self._stop_wanted.is_set():
            self._hurry.set()
        self._stop_wanted.set()

    async def _drain(self) -> None:
        seconds = self.options.drain_timeout_seconds
        telemetry.drain_begins(seconds=seconds)
        self.server.is_draining = True
        self.long_polls.drain()
        for part in self._parts:
            part.begin_drain()
        await self._until(
            lambda: not self.server.exchanges and all(part.is_drained for part in self._parts), seconds=seconds
        )
        telemetry.drain_ended(
            attempts_running=sum(part.attempts_running for part in self._parts),
            requests_open=len(self.server.exchanges),
        )

    async def _stop(self, part: Part) -> None:
        try:
            await part.stop()
        except Exception as error:  # the others must still be stopped
            telemetry.role_failed(part.name, error)

    async def _say_goodbye(self) -> None:
        self.server.refuse_the_unfinished()
        await self._until(lambda: not (self.server.channels or self.server.websockets), seconds=FLUSH_SECONDS)

    async def _until(self, holds: Callable[[], bool], *, seconds: float) -> None:
        """Wait until something holds, `seconds` are over or a second signal came. Looks now and then: what is waited
        for ends in many places, once in the life of a node."""
        end = time.monotonic() + seconds
        while not holds() and time.monotonic() < end and not self._hurry.is_set():  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_LOOK_SECONDS)


def parse_roles(text: str) -> tuple[str, ...]:
    """`api,workers` as a tuple in the usual order. Raises ValueError for an unknown or missing role."""
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    unknown = sorted(set(wanted) - set(ROLES))
    if unknown:
        raise ValueError(f"unknown role {unknown[0]}; the roles are {', '.join(ROLES)}")
    if not wanted:
        raise ValueError(f"at least one role is needed: {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in wanted)
