"""The worker at work: one connection in an event loop, handlers in threads, coroutines or processes.

The loop never waits for a handler and never runs one, so that leases are renewed whatever handlers do. Handlers put
their reports into a deque and wake the loop at most once for however many are ready; the loop gathers what it finds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from orbit_sdk.backoff import jittered
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import OrbitError
from orbit_sdk.jsoncodec import Numbers
from orbit_sdk.limits import FRAME_BYTES_MAX
from orbit_sdk.version import USER_AGENT
from orbit_sdk.worker.attempts import Attempt
from orbit_sdk.worker.context import Context, OfferedTask
from orbit_sdk.worker.coroutines import CoroutineLoop
from orbit_sdk.worker.events import Announcer, logger
from orbit_sdk.worker.execution import execute, execute_coroutine
from orbit_sdk.worker.handlers import Handler, Handlers, RunIn
from orbit_sdk.worker.outcomes import Report
from orbit_sdk.worker.processes import ProcessHandlers
from orbit_sdk.worker.protocol import Profile, ProtocolViolation, WorkerProtocol
from orbit_sdk.worker.publishing import ChildPublisher
from orbit_sdk.worker.threads import ThreadPool

SUBPROTOCOL = Subprotocol("orbit.worker.v1")
OPEN_SECONDS = 10.0  # for the handshake, and again for `welcome`
CLOSE_SECONDS = 2.0
STUCK_SECONDS_MAX = 10.0  # a send that the peer does not take for so long is a dead connection
RECONNECT_SECONDS_MIN, RECONNECT_SECONDS_MAX = 0.1, 10.0
VIOLATIONS_MAX = 3  # in a row: then it is no accident, and coming back only repeats it
JOIN_SECONDS = 0.5
TICK_SECONDS = 0.2
DRAINED_SECONDS = (
    1.0  # an idle worker waits so long for `drained`; the node may still wait for a lease that was given up
)
_REFUSING_STATUSES = frozenset({400, 401, 403})
_CREDENTIAL_REFUSED, _FORBIDDEN, _PROTOCOL_ERROR, _TAKEN_OVER = 4401, 4403, 4400, 4409


class WorkerRefused(OrbitError):
    """Orbit will not have this worker: credential, rights, queues or protocol. Coming back would change nothing."""


@dataclass(frozen=True)
class RuntimeSettings:
    drain_timeout: float
    with_traceback: bool
    decimals: bool


class Runtime:
    """Runs in one event loop from `run` until it is drained. Not to be used twice."""

    def __init__(
        self,
        profile: Profile,
        handlers: Handlers,
        credentials: Credentials,
        settings: RuntimeSettings,
        announcer: Announcer,
    ) -> None:
        self._profile = profile
        self._handlers = handlers
        self._credentials = credentials
        self._settings = settings
        self._announcer = announcer
        numbers = Numbers.DECIMAL if settings.decimals else Numbers.EXACT
        self._protocol = WorkerProtocol(profile, self, numbers=numbers)
        self._publisher = ChildPublisher(credentials)
        self._threads = ThreadPool(profile.concurrency, name=f"orbit-{profile.worker_name}")
        self._coroutines = CoroutineLoop(name=f"orbit-{profile.worker_name}-coroutines")
        self._processes = ProcessHandlers(credentials)
        self._contexts: dict[str, Context] = {}
        self._ended: deque[tuple[Attempt, Report | None]] = deque()
        self._progressed: deque[tuple[Attempt, int, str | None]] = deque()
        self._awake = False
        self._loop: asyncio.AbstractEventLoop
        self._due: asyncio.Event
        self._leaving: asyncio.Event
        self._connection: ClientConnection | None = None
        self._sending_since: float | None = None
        self._reachable = True
        self._was_connected = False
        self._violations = 0
        self._idle_since: float | None = None

    # -- Life

    async def run(self, *, ready: Callable[[], None] | None = None) -> int:
        """Work until drained. The number of attempts that were left to their leases. Raises WorkerRefused.

        `ready` is called with the loop's own thread once `stop` and the others may be called.
        """
        self._loop = asyncio.get_running_loop()
        self._due, self._leaving = asyncio.Event(), asyncio.Event()
        if ready is not None:
            ready()
        ticker = asyncio.ensure_future(self._tick())
        try:
            await self._stay_connected()
        finally:
            ticker.cancel()
            left = self._protocol.unreported
            self._threads.stop(timeout=0.0 if left else JOIN_SECONDS)
            self._coroutines.stop()
            self._processes.stop()
            self._publisher.close()
            self._announcer.tell("stopped", left=len(left))
        return len(left)

    def stop(self) -> None:
        """Drain and leave; called again, leave at once. To be called in the loop's thread, like the next two."""
        if self._protocol.draining:
            self._leave()
            return
        self._announcer.tell(
            "draining", running=self._protocol.running, drain_timeout=f"{self._settings.drain_timeout:g}"
        )
        self._protocol.drain()
        self._loop.call_later(self._settings.drain_timeout, self._leave)
        if self._connection is None and self._protocol.idle:
            self._leave()
        self._due.set()

    def pause(self, paused: bool) -> None:
        if paused != self._protocol.paused:
            self._protocol.pause(paused)
            if paused:
                self._announcer.tell("paused", running=self._protocol.running)
            else:
                self._announcer.tell("resumed")
            self._due.set()

    @property
    def connected(self) -> bool:
        return self._protocol.welcomed

    @property
    def running(self) -> int:
        return self._protocol.running

    def _leave(self) -> None:
        self._leaving.set()
        self._due.set()
        self._loop.call_later(CLOSE_SECONDS, self._cut)  # if the peer does not let itself be closed

    def _cut(self) -> None:
        if self._connection is not None:
            self._connection.transport.abort()

    # -- Connections

    async def _stay_connected(self) -> None:
        failures = 0
        while not self._leaving.is_set():
            try:
                await self._one_connection()
                failures = 0
            except _Failure as failure:
                failures = 1 if self._was_connected_now else failures + 1
                self._on_failure(failure)
            finally:
                self._connection = None
                self._protocol.disconnected()
            if self._leaving.is_set() or (self._protocol.draining and self._protocol.idle):
                return
            delay = jittered(max(1, failures), first=RECONNECT_SECONDS_MIN, longest=RECONNECT_SECONDS_MAX)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), delay)

    async def _one_connection(self) -> None:
        """From the handshake to the close. Returns when this worker closed it; raises _Failure otherwise."""
        self._was_connected_now = False
        websocket = await self._open()
        writer: asyncio.Task[None] | None = None
        try:
            await websocket.send(self._protocol.connected(time.monotonic()))
            async with asyncio.timeout(OPEN_SECONDS):
                while not self._protocol.welcomed:
                    self._receive(await websocket.recv())
            self._on_welcome()
            self._connection = websocket
            writer = asyncio.ensure_future(self._write(websocket))
            self._due.set()
            while True:
                self._receive(await websocket.recv())
                self._due.set()
        except ConnectionClosed as closed:
            if not self._is_farewell(closed):
                raise _Failure.of_close(closed) from closed
        except TimeoutError as error:
            raise _Failure("no welcome came in time") from error
        except ProtocolViolation as violation:
            raise _Failure(str(violation), close_code=_PROTOCOL_ERROR) from violation
        finally:
            self._connection = None
            if writer is not None:
                writer.cancel()
            with contextlib.suppress(ConnectionClosed):
                await websocket.close()

    async def _open(self) -> ClientConnection:
        url = self._credentials.url.replace("http", "ws", 1) + "/v1/workers/connect"
        try:
            return await connect(
                url,
                subprotocols=[SUBPROTOCOL],
                additional_headers={"Authorization": f"Bearer {self._credentials.token}"},
                user_agent_header=USER_AGENT,
                compression=None,
                open_timeout=OPEN_SECONDS,
                close_timeout=CLOSE_SECONDS,
                ping_interval=None,  # heartbeats do this, and their answers come from Orbit itself
                max_size=FRAME_BYTES_MAX,
                max_queue=1024,
            )
        except InvalidStatus as refusal:
            status = refusal.response.status_code
            raise _Failure(f"HTTP {status}", status=status) from refusal
        except (OSError, TimeoutError, InvalidHandshake) as error:
            raise _Failure(str(error) or type(error).__name__) from error

    def _receive(self, frame: str | bytes) -> None:
        if not isinstance(frame, str):
            raise ProtocolViolation("a binary frame")
        self._protocol.receive(frame, time.monotonic())

    def _on_welcome(self) -> None:
        self._was_connected_now = True
        self._reachable = True
        if self._was_connected:
            self._announcer.tell("reconnected", node=self._protocol.node_id, running=self._protocol.running)
            return
        self._was_connected = True
        profile = self._profile
        self._announcer.tell(
            "started",
            name=profile.worker_name,
            queues=[self._credentials.queue_name(queue_id) for queue_id in profile.queue_ids],
            handlers=[handler.label for handler in self._handlers],
            concurrency=profile.concurrency,
            prefetch=profile.capacity,
            node=self._protocol.node_id,
        )

    def _is_farewell(self, closed: ConnectionClosed) -> bool:
        """Whether the close is what this worker was waiting for."""
        done = self._leaving.is_set() or self._protocol.drained or (self._protocol.node_drains and self._protocol.idle)
        return done and (closed.rcvd is None or closed.rcvd.code in (1000, 1001, 1012))

    def _on_failure(self, failure: _Failure) -> None:
        """Decide what a lost or refused connection means. Raises WorkerRefused if there is no use in coming back."""
        code, status = failure.close_code, failure.status
        if status == 401 or code == _CREDENTIAL_REFUSED:
            fresh = self._credentials.read_again()
            if fresh.token == self._credentials.token:
                raise self._refused(failure, "the credential is not valid (any more)")
            self._announcer.tell("credential_renewed", path=str(fresh.path))
            self._credentials = fresh
            self._publisher.use(fresh)
        elif status in _REFUSING_STATUSES or code == _FORBIDDEN:
            raise self._refused(failure, failure.reason)
        elif code == _PROTOCOL_ERROR:
            self._violations += 1
            if self._violations >= VIOLATIONS_MAX:
                raise self._refused(failure, failure.reason)
        elif code == _TAKEN_OVER:
            self._protocol.forget_session()
        if code != _PROTOCOL_ERROR:
            self._violations = 0
        if self._was_connected_now:
            self._announcer.tell("disconnected", reason=failure.reason, running=self._protocol.running)
        elif self._reachable:
            self._reachable = False
            self._announcer.tell("unreachable", url=self._credentials.url, reason=failure.reason)

    def _refused(self, failure: _Failure, reason: str) -> WorkerRefused:
        self._announcer.tell("refused", reason=reason)
        return WorkerRefused(f"{self._credentials.url} refuses this worker: {reason} ({failure.reason})")

    # -- The loop's side of the work

    async def _write(self, websocket: ClientConnection) -> None:
        """Send what is due, gathered. Ends with the connection."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                await self._due.wait()
                self._due.clear()
                for frame in self._protocol.frames(time.monotonic()):
                    self._sending_since = time.monotonic()
                    await websocket.send(frame)
                self._sending_since = None
                if self._is_time_to_close():
                    await websocket.close()
                    return

    def _is_time_to_close(self) -> bool:
        protocol = self._protocol
        if self._leaving.is_set() or protocol.drained:
            return True
        if protocol.drain_acknowledged and protocol.idle and self._idle_since is None:
            self._idle_since = time.monotonic()
            self._loop.call_later(DRAINED_SECONDS, self._leave)
        return protocol.node_drains and protocol.idle

    async def _tick(self) -> None:
        """What happens because time passes: renewals, heartbeats, dead connections."""
        while True:
            await asyncio.sleep(min(TICK_SECONDS, self._protocol.lease_seconds / 15))
            self._due.set()
            now = time.monotonic()
            stuck = self._sending_since is not None and now - self._sending_since > STUCK_SECONDS_MAX
            if self._connection is not None and (stuck or self._protocol.is_silent(now)):
                self._cut()
            if self._protocol.draining and self._connection is None and self._protocol.idle:
                self._leave()

    def _wake(self) -> None:
        """From a handler's thread: at most one wake-up of the loop for however many reports are ready."""
        if not self._awake:
            self._awake = True
            try:
                self._loop.call_soon_threadsafe(self._gather)
            except RuntimeError:
                # The worker has left; it said then that this attempt is left to its lease.
                logger.debug("a handler ended after its worker had left")

    def _gather(self) -> None:
        self._awake = False  # before looking: what is put in after this wakes the loop again
        while self._progressed:
            self._protocol.progress(*self._progressed.popleft())
        while self._ended:
            attempt, report = self._ended.popleft()
            self._contexts.pop(attempt.attempt_id, None)
            if report is None:
                self._protocol.abandon(attempt)
            else:
                self._protocol.report(attempt, report)
        self._due.set()

    # -- What the protocol asks for

    def execute(self, attempt: Attempt) -> None:
        handler = self._handlers.get(attempt.task["handler"], attempt.task["handler_version"])
        context = _AttemptContext(self, attempt)
        self._contexts[attempt.attempt_id] = context
        if handler is None:
            message = f"this worker has no handler for {attempt.label}"
            self._end(attempt, Report("FAILED", code="HANDLER_MISSING", message=message))
        elif handler.run_in is RunIn.COROUTINE:
            self._coroutines.submit(attempt.attempt_id, self._run_coroutine(attempt, handler, context))
        else:
            in_process = handler.run_in is RunIn.PROCESS
            run = self._run_in_process if in_process else self._run_in_thread
            self._threads.submit(lambda: run(attempt, handler, context), busy=self._protocol.running)

    def cancel(self, attempt: Attempt, reason: str) -> None:
        context = self._contexts.get(attempt.attempt_id)
        if context is not None:
            context._cancel(reason)
            self._coroutines.cancel(attempt.attempt_id)

    def note(self, event: str, **fields: Any) -> None:
        self._announcer.tell(event, **fields)

    # -- In the handlers' threads

    def _run_in_thread(self, attempt: Attempt, handler: Handler, context: Context) -> None:
        self._end(attempt, execute(handler, context, with_traceback=self._settings.with_traceback))

    def _run_in_process(self, attempt: Attempt, handler: Handler, context: Context) -> None:
        report = self._processes.execute(
            handler, context, dict(attempt.task), with_traceback=self._settings.with_traceback
        )
        self._end(attempt, report)

    async def _run_coroutine(self, attempt: Attempt, handler: Handler, context: Context) -> None:
        self._end(attempt, await execute_coroutine(handler, context, with_traceback=self._settings.with_traceback))

    def _end(self, attempt: Attempt, report: Report | None) -> None:
        self._ended.append((attempt, report))
        self._wake()

    def report_progress(self, attempt: Attempt, percent: int, message: str | None) -> None:
        self._progressed.append((attempt, percent, message))
        self._wake()


class _AttemptContext(Context):
    """A context whose progress goes to the runtime."""

    def __init__(self, runtime: Runtime, attempt: Attempt) -> None:
        super().__init__(
            attempt_id=attempt.attempt_id,
            fencing_token=attempt.fencing_token,
            task=OfferedTask(attempt.task),
            publisher=runtime._publisher,
        )
        self._runtime = runtime
        self._attempt = attempt

    def _report_progress(self, percent: int, message: str | None) -> None:
        self._runtime.report_progress(self._attempt, percent, message)


class _Failure(Exception):
    """A connection that was refused or lost."""

    def __init__(self, reason: str, *, status: int | None = None, close_code: int | None = None) -> None:
        self.reason = reason
        self.status = status
        self.close_code = close_code
        super().__init__(reason)

    @classmethod
    def of_close(cls, closed: ConnectionClosed) -> _Failure:
        if closed.rcvd is None:
            return cls(str(closed.__cause__ or "cut"))
        return cls(f"{closed.rcvd.code} {closed.rcvd.reason}".strip(), close_code=closed.rcvd.code)
