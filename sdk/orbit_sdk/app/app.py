"""The App: a set of tasks that share a configuration, a client and a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from orbit_sdk.app.config import Config, QueueConfig
from orbit_sdk.app.tasks import AppTask
from orbit_sdk.client import OrbitClient
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import AlreadyExists, ConfigError
from orbit_sdk.models.queues import Queue
from orbit_sdk.models.tasks import RetryPolicy
from orbit_sdk.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """Tasks of a STRICT namespace (an AGED one takes priorities from 0 to 9 and no weights).

        app = App(Config(queues={"email": QueueConfig(weight=3)}))

        @app.task(queue="email", priority=Priority.HIGH)
        def send_email(to: str) -> str: ...

        send_email.delay("a@b.com", priority=Priority.CRITICAL)
        app.run_worker()

    Raises ConfigError for anything in the configuration that is out of range. `client` replaces the one that would be
    made from the credentials, for tests.
    """

    def __init__(self, config: Config | None = None, *, client: OrbitClient | None = None) -> None:
        self.config = config or Config()
        self.config.check()
        self.tasks: dict[str, AppTask[Any, Any]] = {}
        self._client = client
        self._lock = threading.Lock()

    @property
    def credentials(self) -> Credentials:
        """Those of the configuration, or of the environment. Raises ConfigError."""
        return self.client.credentials

    @property
    def client(self) -> OrbitClient:
        """The client of this app, made with the first use."""
        with self._lock:
            if self._client is None:
                self._client = OrbitClient.from_credentials(self.config.credentials or Credentials.from_env())
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def task(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        version: str = "v1",
        retry: RetryPolicy | int | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[P, R]], AppTask[P, R]]:
        """Make a function a task. `retry` is a policy, or a number of attempts of work that is safe to repeat.

        Raises ConfigError for a priority out of range, a name that is taken, or a signature that cannot be sent.
        """

        def make(function: Callable[P, R]) -> AppTask[P, R]:
            task = AppTask(self, function, name=name, queue=queue, priority=priority, version=version, retry=retry)
            if f"{task.name}@{task.version}" in self.tasks:
                raise ConfigError(f"there is a task {task.name!r} in version {task.version!r} already")
            self.tasks[f"{task.name}@{task.version}"] = task
            return task

        return make

    @property
    def queue_names(self) -> list[str]:
        """The queues of the configuration and of the tasks."""
        return sorted({*self.config.queues, *(task.queue for task in self.tasks.values())})

    def ensure_queues(self) -> list[Queue]:
        """Make the queues that are missing, and give all of them the weights and default priorities of the
        configuration.

        Needs queues:manage. Not done by itself: what stands in the namespace may be meant.
        """
        return [self._ensure_queue(name, self.config.queues.get(name)) for name in self.queue_names]

    def _ensure_queue(self, name: str, wanted: QueueConfig | None) -> Queue:
        weight = None if wanted is None else wanted.weight
        default_priority = None if wanted is None else wanted.default_priority
        try:
            return self.client.create_queue(
                name, weight=None if weight == 1 else weight, default_priority=default_priority
            )
        except AlreadyExists as exists:
            queue = self.client.get_queue(str(exists.detail("queue_id")))
        self.client.credentials = self.client.credentials.with_queues({name: queue.queue_id})
        if wanted is None or (queue.weight, queue.default_priority) == (wanted.weight, wanted.default_priority):
            return queue
        return self.client.update_queue(
            queue.queue_id, queue.revision, weight=wanted.weight, default_priority=wanted.default_priority
        )

    def worker(
        self,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int | None = None,
        prefetch: int | None = None,
        normal_reserved_slots: int = 0,
        name: str | None = None,
    ) -> Worker:
        """A worker for the app's tasks, of all its queues unless some are named.

        `prefetch` (default: concurrency) attempts are held at once; `normal_reserved_slots` of them are kept free of
        tasks with a priority above 0. Raises ConfigError.
        """
        if not self.tasks:
            raise ConfigError("this app has no tasks: use @app.task(…)")
        worker = Worker.from_credentials(
            self.credentials,
            queues=list(queues) if queues is not None else self.queue_names,
            concurrency=self.config.concurrency if concurrency is None else concurrency,
            prefetch=prefetch,
            normal_reserved_slots=normal_reserved_slots,
            name=name,
            drain_timeout=self.config.drain_timeout,
        )
        for task in self.tasks.values():
            worker.handler(task.name, version=task.version)(task.handler())
        return worker

    def run_worker(
        self,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int | None = None,
        prefetch: int | None = None,
        normal_reserved_slots: int = 0,
        name: str | None = None,
        json: bool = False,
    ) -> int:
        """Run a worker here until a signal drains it. The number of attempts that were left to their leases."""
        worker = self.worker(
            queues=queues,
            concurrency=concurrency,
            prefetch=prefetch,
            normal_reserved_slots=normal_reserved_slots,
            name=name,
        )
        return worker.run(json=json)
