"""The worker as its users see it."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import ConfigError, InvalidRequest
from orbit_sdk.limits import CAPACITY_MAX, CAPACITY_MIN, HELLO_QUEUES_MAX, NAME_LENGTH_MAX
from orbit_sdk.names import checked_name
from orbit_sdk.states import Policy
from orbit_sdk.version import VERSION
from orbit_sdk.worker.events import Announcer
from orbit_sdk.worker.handlers import Handlers, RunIn
from orbit_sdk.worker.protocol import Profile
from orbit_sdk.worker.runtime import Runtime, RuntimeSettings

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_CONCURRENCY = 10
DEFAULT_DRAIN_SECONDS = 30.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Runs tasks of some queues.

    `concurrency` handlers run at once. `prefetch` (default: the same) attempts are held at once; more keeps the pipe
    full where tasks take milliseconds, at the price of reservations that wait here. `normal_reserved_slots` (STRICT
    namespaces) are kept free of tasks with a priority above 0. `drain_timeout` is in seconds; attempts that have not
    ended by then are left to their leases. `tracebacks` puts them, cut, into the details of unforeseen errors.

        worker = Worker.from_env(queues=["reports"], concurrency=16)

        @worker.handler("object.prepare", version="v1")
        def prepare(ctx, payload): ...

        worker.run()
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        queues: Sequence[str],
        concurrency: int = DEFAULT_CONCURRENCY,
        prefetch: int | None = None,
        name: str | None = None,
        resource_keys: bool = True,
        normal_reserved_slots: int = 0,
        drain_timeout: float = DEFAULT_DRAIN_SECONDS,
        tracebacks: bool = True,
        decimals: bool = False,
    ) -> None:
        self._set_up(
            Credentials(url=url, token=token),
            queues=queues,
            concurrency=concurrency,
            prefetch=prefetch,
            name=name,
            resource_keys=resource_keys,
            normal_reserved_slots=normal_reserved_slots,
            drain_timeout=drain_timeout,
            tracebacks=tracebacks,
            decimals=decimals,
        )

    @classmethod
    def from_credentials(cls, credentials: Credentials, *, queues: Sequence[str], **options: Any) -> Self:
        """A worker for credentials that were read before; options as for the class. Raises ConfigError."""
        worker = cls.__new__(cls)
        worker._set_up(credentials, queues=queues, **options)
        return worker

    @classmethod
    def from_credentials_file(
        cls, path: str | os.PathLike[str], *, queues: Sequence[str], url: str | None = None, **options: Any
    ) -> Self:
        """A worker of a file that `orbit_bootstrap --worker-access` wrote; queues by name. Raises ConfigError."""
        return cls.from_credentials(Credentials.from_file(path, url=url), queues=queues, **options)

    @classmethod
    def from_env(cls, *, queues: Sequence[str], **options: Any) -> Self:
        """`ORBIT_URL` with `ORBIT_CREDENTIALS_FILE` or `ORBIT_TOKEN`. Raises ConfigError."""
        return cls.from_credentials(Credentials.from_env(), queues=queues, **options)

    def _set_up(
        self,
        credentials: Credentials,
        *,
        queues: Sequence[str],
        concurrency: int = DEFAULT_CONCURRENCY,
        prefetch: int | None = None,
        name: str | None = None,
        resource_keys: bool = True,
        normal_reserved_slots: int = 0,
        drain_timeout: float = DEFAULT_DRAIN_SECONDS,
        tracebacks: bool = True,
        decimals: bool = False,
    ) -> None:
        self.credentials = credentials
        self.concurrency = _checked_integer(concurrency, "concurrency", CAPACITY_MIN, CAPACITY_MAX)
        self.prefetch = self.concurrency if prefetch is None else prefetch
        _checked_integer(self.prefetch, "prefetch", self.concurrency, CAPACITY_MAX)
        self.normal_reserved_slots = _checked_integer(
            normal_reserved_slots, "normal_reserved_slots", 0, self.prefetch - 1
        )
        if self.normal_reserved_slots and credentials.policy is Policy.AGED:
            raise ConfigError("normal_reserved_slots has no meaning in an AGED namespace")
        self.name = checked_name(name or _default_name(), "the worker's name")
        self.queue_ids = _checked_queues(credentials, queues)
        self.resource_keys = resource_keys
        if not drain_timeout >= 0:
            raise ConfigError("drain_timeout must not be negative")
        self._settings = RuntimeSettings(drain_timeout, tracebacks, decimals)
        self.handlers = Handlers()
        self._runtime: Runtime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._left = 0

    def __repr__(self) -> str:
        return f"<Worker {self.name!r} of {self.credentials.url}, {len(self.handlers)} handlers>"

    # -- Handlers

    def handler(self, name: str, *, version: str = "v1", process: bool = False) -> Callable[[F], F]:
        """Register a function `(ctx, payload)` for a handler name; the function itself is returned unchanged.

        A coroutine function runs in an event loop of the worker's, any other in a thread, or with `process=True` in a
        process of its own (it must be importable). An annotated payload (dataclass, TypedDict, pydantic model) is
        checked before the call. Raises ConfigError.
        """
        return self.handlers.decorator(name, version=version, process=process)

    # -- Running

    def run(self, *, json: bool = False, quiet: bool = False, signals: bool = True) -> int:
        """Work until SIGTERM, SIGINT or `stop`, then drain; a second signal leaves at once.

        Prints one line at the start and one for each change of state (`json=True`: as JSON objects; `quiet`: none). The
        number of attempts that were left to their leases: 0 is a clean end. Raises WorkerRefused and ConfigError.
        """
        announcer = Announcer(print_line=None if quiet else _print_line, as_json=json)
        in_main_thread = threading.current_thread() is threading.main_thread()
        return asyncio.run(self._work(announcer, signals=signals and in_main_thread))

    async def run_async(self, *, json: bool = False, quiet: bool = True) -> int:
        """`run` inside an event loop that is running already; no signals are taken over."""
        announcer = Announcer(print_line=None if quiet else _print_line, as_json=json)
        return await self._work(announcer, signals=False)

    async def _work(self, announcer: Announcer, *, signals: bool, ready: Callable[[], None] | None = None) -> int:
        if self._runtime is not None:
            raise ConfigError(f"{self!r} is running already")
        runtime = Runtime(self._profile(), self.handlers, self.credentials, self._settings, announcer)
        self._loop, self._runtime = asyncio.get_running_loop(), runtime
        previous = self._take_signals() if signals else {}
        try:
            return await runtime.run(ready=ready)
        finally:
            self._runtime = self._loop = None
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _take_signals(self) -> dict[signal.Signals, Any]:
        def on_signal(number: int, frame: FrameType | None) -> None:
            self.stop()

        return {number: signal.signal(number, on_signal) for number in _STOP_SIGNALS}

    def start(self) -> Self:
        """Work in a background thread; `close` (or leaving the `with`) drains and waits. Raises ConfigError."""
        if self._thread is not None:
            raise ConfigError(f"{self!r} was started already")
        self._profile()  # what is wrong with it is said here
        ready = threading.Event()
        self._failure, self._left = None, 0

        def work() -> None:
            try:
                self._left = asyncio.run(self._work(Announcer(), signals=False, ready=ready.set))
            except BaseException as error:
                self._failure = error
            finally:
                ready.set()

        self._thread = threading.Thread(target=work, name=f"orbit-{self.name}", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def stop(self) -> None:
        """Begin to drain; called again, leave at once. From any thread, and from signal handlers."""
        self._tell(lambda runtime: runtime.stop())

    def close(self) -> int:
        """Drain, and wait for the background thread. The number of attempts left to their leases.

        Raises what ended the worker before, such as WorkerRefused.
        """
        if self._thread is None:
            return 0
        self.stop()
        return self.join()

    def join(self, timeout: float | None = None) -> int:
        """Wait for the background thread to end by itself. Raises TimeoutError, and what ended the worker."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise TimeoutError(f"{self!r} still runs")
            self._thread = None
        if self._failure is not None:
            raise self._failure
        return self._left

    def pause(self) -> None:
        """Take no new tasks; what runs goes on."""
        self._tell(lambda runtime: runtime.pause(True))

    def resume(self) -> None:
        self._tell(lambda runtime: runtime.pause(False))

    @property
    def connected(self) -> bool:
        """Whether the worker is welcome on a node at this moment."""
        return self._runtime is not None and self._runtime.connected

    @property
    def running(self) -> int:
        """How many handlers run at this moment."""
        return 0 if self._runtime is None else self._runtime.running

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, act: Callable[[Runtime], None]) -> None:
        loop, runtime = self._loop, self._runtime
        if loop is not None and runtime is not None:
            try:
                loop.call_soon_threadsafe(act, runtime)
            except RuntimeError:  # the loop has just ended by itself
                return

    def _profile(self) -> Profile:
        if not len(self.handlers):
            raise ConfigError("a worker needs a handler: use @worker.handler(…)")
        for handler in self.handlers:
            if handler.run_in is RunIn.PROCESS:
                try:
                    pickle.dumps(handler)
                except (pickle.PicklingError, AttributeError, TypeError) as error:
                    raise ConfigError(f"{handler.label} cannot run in a process of its own: {error}") from None
        return Profile(
            worker_name=self.name,
            concurrency=self.concurrency,
            capacity=self.prefetch,
            queue_ids=self.queue_ids,
            handlers=[(handler.name, handler.version) for handler in self.handlers],
            resource_keys=self.resource_keys,
            normal_reserved_slots=self.normal_reserved_slots,
            sdk=f"orbit-sdk/{VERSION} python",
        )


def _default_name() -> str:
    name = f"{socket.gethostname()}-{os.getpid()}"
    return "".join(character if character.isprintable() else "?" for character in name)[-NAME_LENGTH_MAX:].strip()


def _checked_integer(value: object, what: str, minimum: int, maximum: int) -> int:
    if type(value) is not int or not minimum <= value <= maximum:
        raise ConfigError(f"{what} must be an integer from {minimum} to {maximum}, not {value!r}")
    return value


def _checked_queues(credentials: Credentials, queues: Sequence[str]) -> list[str]:
    if isinstance(queues, str) or not 1 <= len(queues) <= HELLO_QUEUES_MAX:
        raise ConfigError(f"queues must be a list of 1 to {HELLO_QUEUES_MAX} names or ids")
    try:
        queue_ids = [credentials.queue_id(queue, place="queues") for queue in queues]
    except InvalidRequest as error:
        raise ConfigError(str(error)) from None
    if len(set(queue_ids)) != len(queue_ids):
        raise ConfigError("queues names a queue twice")
    return queue_ids


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
