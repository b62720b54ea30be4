"""A scripted peer that speaks `orbit.worker.v1`, with the server's own reader and writer of messages.

By itself it offers what stands in `backlog` while there is room, answers every start with STARTED and every finish with
COMMITTED. A test changes that with `script` (what to do with the next message of a kind) or by pushing frames itself.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Request, Response, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tasks_app.states import Policy, TaskState
from workers_app.protocol import messages as wire

QUEUE = "1" * 32
NOW_US = 1_789_000_000_000_000
DEADLINE_SECONDS = 10.0


@dataclass
class Held:
    """An attempt as the node knows it."""

    attempt_id: str
    token: int
    task_id: str
    state: TaskState = TaskState.RESERVED
    report: wire.FinishItem | None = None
    lost: bool = False


@dataclass
class Session:
    session_id: str
    attempts: dict[str, Held] = field(default_factory=dict)


# What a script may make of the next message of a kind; without a script it is served.
UNAVAILABLE = "unavailable"  # error with `re`, nothing done
CUT = "cut"  # nothing done, connection gone
CUT_AFTER = "cut after"  # done, but the answer is lost
SWALLOW = "swallow"  # done, but no answer comes


class FakeNode:
    def __init__(self, *, policy: Policy = Policy.AGED, lease_ms: int = 30_000) -> None:
        self.policy = policy
        self.lease_ms = lease_ms
        self.frame_bytes_max = 1024 * 1024
        self.backlog: deque[tuple[str, wire.OfferedTask]] = deque()
        self.received: list[wire.ClientMessage] = []
        self.hellos: list[wire.Hello] = []
        self.authorizations: list[str] = []
        self.script: dict[str, deque[str]] = defaultdict(deque)
        self.refuse_start: dict[str, wire.StartRefusal] = {}
        self.invalid_finish: dict[str, int] = {}  # attempt id -> how often its finish is INVALID
        self.sessions: dict[str, Session] = {}
        self.all: dict[str, Held] = {}
        self.connection: ServerConnection | None = None
        self.connections = 0
        self.handshake_status: deque[int] = deque()  # the next handshakes are refused with these
        self.close_at_hello: deque[int] = deque()  # the next hellos are answered with these close codes
        self.resume = True
        self.capacity = 0
        self.draining = False
        self.cancel_in_renewal: set[str] = set()
        self.lost: set[str] = set()  # attempts that are LOST in every answer
        self.protocol_errors: list[str] = []
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()

    # -- For tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def submit(self, handler: str = "noop", payload: Any = None, *, version: str = "v1", **task: Any) -> str:
        """Put a task into the backlog and offer it if there is room. Its attempt id."""
        number = next(self._numbers)
        attempt_id = f"{number:032x}"
        offered = wire.OfferedTask(
            **{
                "task_id": f"{number:030x}aa",
                "queue_id": QUEUE,
                "handler": handler,
                "handler_version": version,
                "payload_version": "v1",
                "payload": payload if isinstance(payload, Raw) else json.dumps(payload),
                "priority": 0,
                "policy": self.policy,
                "attempt": 1,
                "available_at": NOW_US,
                **task,
            }
        )

        async def put() -> None:
            self.backlog.append((attempt_id, offered))
            await self._offer()

        self.do(put())
        return attempt_id

    def do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_SECONDS)

    def lose(self, attempt_id: str) -> None:
        """The lease of a running attempt ends."""
        self.lost.add(attempt_id)
        for session in self.sessions.values():
            session.attempts.pop(attempt_id, None)

    def push(self, text: str) -> None:
        """Send a frame on the current connection."""

        async def send() -> None:
            assert self.connection is not None
            await self.connection.send(text)

        self.do(send())

    def cut(self) -> None:
        """End the current connection without a close frame."""

        async def abort() -> None:
            assert self.connection is not None
            self.connection.transport.abort()

        self.do(abort())

    def close_with(self, code: int, reason: str = "") -> None:
        async def close() -> None:
            assert self.connection is not None
            await self.connection.close(code, reason)

        self.do(close())

    def wait(self, condition: Callable[[], Any], what: str = "") -> Any:
        """Until `condition` is true, looked at after every message; fails after ten seconds."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        with self._changed:
            while not (result := condition()):
                left = deadline - time.monotonic()
                assert left > 0, f"not in time: {what or condition}; received {self.received[-5:]}"
                self._changed.wait(min(left, 0.05))
        return result

    def of_kind(self, kind: type) -> list[Any]:
        return [message for message in self.received if isinstance(message, kind)]

    def report_of(self, attempt_id: str) -> wire.FinishItem:
        """The report that was committed, waited for."""
        return self.wait(lambda: self.all.get(attempt_id) and self.all[attempt_id].report, f"report of {attempt_id}")

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            await self._server.wait_closed()

        self.do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_SECONDS)

    # -- The node

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._loop.run_forever()

    async def _start(self) -> None:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            subprotocols=[Subprotocol("orbit.worker.v1")],
            compression=None,
            process_request=self._handshake,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        self._ready.set()

    def _handshake(self, connection: ServerConnection, request: Request) -> Response | None:
        self.authorizations.append(request.headers.get("Authorization", ""))
        if self.handshake_status:
            status = self.handshake_status.popleft()
            return Response(status, HTTPStatus(status).phrase, Headers(), b"")
        assert request.path == "/v1/workers/connect"
        return None

    async def _serve(self, websocket: ServerConnection) -> None:
        session: Session | None = None
        try:
            async for text in websocket:
                assert isinstance(text, str)
                try:
                    message = wire.parse_client_message(text)
                except wire.ProtocolError as error:
                    self.protocol_errors.append(str(error))
                    await websocket.close(4400)
                    return
                if isinstance(message, wire.Hello):
                    session = await self._hello(websocket, message)
                    if session is None:
                        return
                else:
                    assert session is not None
                    await self._serve_message(websocket, session, message)
                with self._changed:
                    self.received.append(message)
                    self._changed.notify_all()
        except ConnectionClosed:
            pass
        finally:
            if self.connection is websocket:
                self.connection = None
            with self._changed:
                self._changed.notify_all()

    async def _hello(self, websocket: ServerConnection, hello: wire.Hello) -> Session | None:
        hello.check_policy(self.policy)
        self.hellos.append(hello)
        if self.close_at_hello:
            await websocket.close(self.close_at_hello.popleft())
            return None
        known = self.sessions.get(hello.session_id or "") if self.resume else None
        session = known or Session(f"{next(self._numbers):032x}")
        self.sessions[session.session_id] = session
        self.connection = websocket
        self.connections += 1
        self.capacity = hello.capacity
        self.draining = False
        await websocket.send(
            wire.welcome(
                session_id=session.session_id,
                node_id="node-a",
                server_time=NOW_US,
                scan_cycle_ms=1000,
                reservation_ms=10_000,
                lease_ms=self.lease_ms,
                max_message_bytes=self.frame_bytes_max,
                namespace_policy=self.policy,
                resumed=known is not None,
                held=[
                    wire.HeldAttempt(held.attempt_id, held.token, held.task_id, held.state, NOW_US)
                    for held in session.attempts.values()
                ],
            )
        )
        self._session = session
        await self._offer()
        return session

    async def _offer(self) -> None:
        if self.connection is None or self.draining:
            return
        session = self._session
        while self.backlog and len(session.attempts) < self.capacity:
            attempt_id, task = self.backlog.popleft()
            held = self.all.setdefault(attempt_id, Held(attempt_id, 0, task.task_id))
            held.token += 1
            session.attempts[attempt_id] = held
            text = wire.offer(attempt_id=attempt_id, fencing_token=held.token, reserved_until=NOW_US, task=task)
            await self.connection.send(text)

    async def _serve_message(
        self, websocket: ServerConnection, session: Session, message: wire.SequencedMessage
    ) -> None:
        kind = type(message).__name__.lower()
        what = self.script[kind].popleft() if self.script[kind] else ""
        if what == UNAVAILABLE:
            await websocket.send(wire.error(code="UNAVAILABLE", message="the database", re=message.seq))
            return
        if what == CUT:
            websocket.transport.abort()
            return
        answer = self._answer(session, message)
        if what == CUT_AFTER:
            websocket.transport.abort()
            return
        if what != SWALLOW:
            await websocket.send(answer)
        if isinstance(message, wire.Drain) or self.draining:
            self.draining = True
            if not session.attempts:
                await websocket.send(wire.drained())
                await websocket.close(1000)
                return
        await self._offer()

    def _answer(self, session: Session, message: wire.SequencedMessage) -> str:
        match message:
            case wire.Heartbeat():
                return wire.heartbeat_ack(re=message.seq, server_time=NOW_US)
            case wire.Resize():
                self.capacity = message.capacity
                return wire.resized(re=message.seq, capacity=message.capacity)
            case wire.Drain():
                for held in [held for held in session.attempts.values() if held.state is TaskState.RESERVED]:
                    del session.attempts[held.attempt_id]
                return wire.draining(re=message.seq, running=len(session.attempts))
            case wire.Start():
                return wire.started(re=message.seq, items=[self._start_one(session, item) for item in message.items])
            case wire.Renew():
                return wire.renewed(re=message.seq, items=[self._renew_one(item) for item in message.items])
            case wire.Finish():
                return wire.finished(re=message.seq, items=[self._finish_one(session, item) for item in message.items])
            case wire.Release():
                return wire.released(re=message.seq, items=[self._release_one(session, item) for item in message.items])

    def _holder(self, item: wire.HeldItem) -> Held | None:
        held = self.all.get(item.attempt_id)
        if held is None or held.token != item.fencing_token or item.attempt_id in self.lost:
            return None
        return held

    def _start_one(self, session: Session, item: wire.HeldItem) -> wire.StartAnswer:
        held = self._holder(item)
        if item.attempt_id in self.refuse_start:
            session.attempts.pop(item.attempt_id, None)
            return wire.StartRefused(item.attempt_id, self.refuse_start[item.attempt_id])
        if held is None or item.attempt_id not in session.attempts:
            return wire.StartRefused(item.attempt_id, wire.StartRefusal.LEASE_LOST)
        held.state = TaskState.RUNNING
        return wire.Started(item.attempt_id, NOW_US)

    def _renew_one(self, item: wire.RenewItem) -> wire.RenewAnswer:
        held = self._holder(item)
        if held is None or held.state is not TaskState.RUNNING:
            return wire.Lost(item.attempt_id)
        return wire.Renewed(item.attempt_id, NOW_US, item.attempt_id in self.cancel_in_renewal, item.progress_fault)

    def _finish_one(self, session: Session, item: wire.FinishItem) -> wire.FinishAnswer:
        held = self._holder(item)
        if held is None:
            return wire.Lost(item.attempt_id)
        if item.fault is not None or self.invalid_finish.get(item.attempt_id, 0) > 0:
            self.invalid_finish[item.attempt_id] = self.invalid_finish.get(item.attempt_id, 1) - 1
            return wire.FinishInvalid(item.attempt_id, "INVALID_ARGUMENT", str(item.fault or "no"))
        repeated = held.report is not None
        held.report = item
        session.attempts.pop(item.attempt_id, None)
        held.state = TaskState.SUCCEEDED
        return wire.Finished(item.attempt_id, TaskState(item.outcome), 3, repeated)

    def _release_one(self, session: Session, item: wire.HeldItem) -> wire.ReleaseAnswer:
        return (
            wire.Released(item.attempt_id)
            if session.attempts.pop(item.attempt_id, None)
            else wire.Lost(item.attempt_id)
        )


class Raw(str):
    """A payload as JSON text, so that its digits are the test's."""


@contextmanager
def running_node(**options: Any) -> Iterator[FakeNode]:
    node = FakeNode(**options)
    try:
        yield node
    finally:
        node.close()
