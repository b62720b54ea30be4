"""The blocking client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from orbit_sdk.calls import operations, plans, queues, tasks
from orbit_sdk.calls.pages import Page
from orbit_sdk.calls.queues import UNSET, Unset
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import OrbitError
from orbit_sdk.jsoncodec import Numbers
from orbit_sdk.models import (
    Accepted,
    BatchItem,
    BatchResult,
    Event,
    EventPage,
    Firing,
    Operation,
    Plan,
    PlanVersion,
    Queue,
    QueueStats,
    Reconciliation,
    StartRate,
    SubmitTask,
    Task,
    TaskSummary,
)
from orbit_sdk.repeating import Repetition, TaskWait
from orbit_sdk.states import Decision, OperationDecision, OperationState, RetryPriority, TaskState
from orbit_sdk.transport import HttpTransport, Transport
from orbit_sdk.wire import Call, conclude

T = TypeVar("T")
DEFAULT_TIMEOUT_SECONDS = 30.0


class OrbitClient:
    """Orbit over HTTP, one method per verb. Safe to share between threads; close it, or use it in a `with`.

    Every method raises `ApiError` (Orbit refused; a class per code), `ConnectionLost` (no answer),
    `UnverifiableResponse` (an answer that does not fit) or `InvalidRequest` (refused here, nothing sent). Nothing is
    repeated, split or given a key behind the caller's back; `submit_task_until_known` repeats, because that is what it
    is for.

    `timeout` is in seconds. With `decimals=True`, numbers with a fraction in payloads and results come back as
    `Decimal` digit for digit; otherwise as `float` where that is the same number, else as `Decimal`.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        decimals: bool = False,
        queues: Mapping[str, str] | None = None,
    ) -> None:
        self._set_up(Credentials(url=url, token=token, queues=queues or {}), timeout=timeout, decimals=decimals)

    def _set_up(
        self, credentials: Credentials, *, timeout: float, decimals: bool, transport: Transport | None = None
    ) -> None:
        self.credentials = credentials
        self.timeout = timeout
        self._numbers = Numbers.DECIMAL if decimals else Numbers.EXACT
        self._transport: Transport = transport or HttpTransport(credentials)

    @classmethod
    def from_credentials(
        cls,
        credentials: Credentials,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        decimals: bool = False,
        transport: Transport | None = None,
    ) -> Self:
        client = cls.__new__(cls)
        client._set_up(credentials, timeout=timeout, decimals=decimals, transport=transport)
        return client

    @classmethod
    def from_credentials_file(
        cls,
        path: str | os.PathLike[str],
        *,
        url: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        decimals: bool = False,
    ) -> Self:
        """A client of a file that `orbit_bootstrap` wrote; its queues may be given by name. Raises ConfigError."""
        return cls.from_credentials(Credentials.from_file(path, url=url), timeout=timeout, decimals=decimals)

    @classmethod
    def from_env(cls, *, timeout: float = DEFAULT_TIMEOUT_SECONDS, decimals: bool = False) -> Self:
        """`ORBIT_URL` with `ORBIT_CREDENTIALS_FILE` or `ORBIT_TOKEN`. Raises ConfigError."""
        return cls.from_credentials(Credentials.from_env(), timeout=timeout, decimals=decimals)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.credentials.url!r}, token=<hidden>)"

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, call: Call[T], *, timeout: float | None = None) -> T:
        """Send one prepared call and verify its answer."""
        response = self._transport.send(call.request, timeout=self.timeout if timeout is None else timeout)
        return conclude(call, response, numbers=self._numbers)

    def _pages(self, page_of: Callable[[str | None], Call[Page[T]]]) -> Iterator[T]:
        first = page_of(None)  # built here, so that a wrong filter is refused where it is written

        def items() -> Iterator[T]:
            call: Call[Page[T]] | None = first
            while call is not None:
                page = self.call(call)
                yield from page.items
                call = None if page.next_cursor is None else page_of(page.next_cursor)

        return items()

    # -- Tasks

    def submit_task(self, key: str, task: SubmitTask) -> Accepted:
        """Hand one task over.

        `key` is yours: store it before sending, repeat it with the same content until the outcome is known.
        """
        return self.call(tasks.submit_task(self.credentials, key, task))

    def submit_task_until_known(self, key: str, task: SubmitTask, *, deadline: float) -> Accepted:
        """Repeat the very same request with back-off until its outcome is known, for at most `deadline` seconds.

        A refusal is known and raised at once. When the time is up, the last error is raised: keep the key.
        """
        call = tasks.submit_task(self.credentials, key, task)
        repetition = Repetition(deadline=time.monotonic() + deadline)
        while True:
            try:
                return self.call(call, timeout=repetition.timeout(self.timeout, now=time.monotonic()))
            except OrbitError as error:
                time.sleep(repetition.delay_after(error, now=time.monotonic()))

    def submit_tasks(self, items: Sequence[BatchItem]) -> BatchResult:
        """Hand over 1 to 32 independent tasks in one request. Not atomic: each has its own answer; read every one."""
        return self.call(tasks.submit_tasks(self.credentials, items))

    def get_task(self, task_id: str, *, wait_ms: int | None = None, revision: str | None = None) -> Task:
        """The task now; with `wait_ms` (at most 30000) once its revision is newer than `revision`, or time is up."""
        return self.call(tasks.get_task(task_id, wait_ms=wait_ms, revision=revision))

    def wait_task(self, task_id: str, *, timeout: float | None = None) -> Task:
        """The task once it ended or its outcome is UNKNOWN (which is no end: look at `state`).

        Waits on the server, over interruptions of the connection too. Raises WaitTimeout after `timeout` seconds.
        """
        wait = TaskWait(task_id, started=time.monotonic(), timeout=timeout)
        while True:
            try:
                task = self.call(wait.next_call(now=time.monotonic()))
            except OrbitError as error:
                time.sleep(wait.delay_after(error, now=time.monotonic()))
                continue
            if wait.is_over(task):
                return task
            time.sleep(wait.pause(now=time.monotonic()))

    def list_tasks(
        self,
        *,
        queue: str | None = None,
        states: Iterable[TaskState | str] = (),
        handler: str | None = None,
        priority: int | None = None,
        resource_key: str | None = None,
        created_from: datetime | None = None,
        created_to: datetime | None = None,
        dead: bool | None = None,
        page_size: int | None = None,
    ) -> Iterator[TaskSummary]:
        """All matching tasks, newest first, page by page. `dead` = FAILED, neither replayed nor dismissed."""
        chosen = tuple(states)
        return self._pages(
            lambda cursor: tasks.list_tasks(
                self.credentials,
                queue=queue,
                states=chosen,
                handler=handler,
                priority=priority,
                resource_key=resource_key,
                created_from=created_from,
                created_to=created_to,
                dead=dead,
                page_size=page_size,
                cursor=cursor,
            )
        )

    def cancel_task(self, task_id: str, revision: str, *, reason: str | None = None) -> Task:
        """Cancel a task as it was seen at `revision`. A running one is asked to stop. Repeatable."""
        return self.call(tasks.cancel_task(task_id, revision, reason=reason))

    def reconcile_task(
        self,
        task_id: str,
        revision: str,
        decision: Decision | str,
        reason: str,
        *,
        result: Any = None,
        error: Mapping[str, Any] | None = None,
    ) -> Task:
        """Settle an UNKNOWN task: SUCCEEDED, FAILED or RETRY, with the reason that goes into the audit."""
        return self.call(tasks.reconcile_task(task_id, revision, decision, reason, result=result, error=error))

    def replay_task(
        self, key: str, task_id: str, *, priority: int | None = None, delay_ms: int | None = None
    ) -> Accepted:
        """Submit a FAILED, EXPIRED or CANCELED task again as a new one. The priority is kept unless given."""
        return self.call(tasks.replay_task(key, task_id, priority=priority, delay_ms=delay_ms))

    def replay_tasks(
        self,
        key: str,
        queue: str,
        *,
        limit: int,
        states: Sequence[TaskState | str] | None = None,
        handler: str | None = None,
        priority: int | None = None,
    ) -> BatchResult:
        """Replay up to `limit` (1 to 500) tasks of a queue, oldest first.

        The same key covers the same tasks for ever.
        """
        call = tasks.replay_tasks(
            self.credentials, key, queue, limit=limit, states=states, handler=handler, priority=priority
        )
        return self.call(call)

    def dismiss_task(self, task_id: str, revision: str, reason: str) -> Task:
        """Take a failed task out of the dead letters."""
        return self.call(tasks.dismiss_task(task_id, revision, reason))

    # -- Events

    def task_events(self, task_id: str, *, page_size: int | None = None) -> Iterator[Event]:
        """What happened to one task."""
        return self._pages(lambda cursor: tasks.task_events(task_id, page_size=page_size, cursor=cursor))

    def events(self, *, after: str | None = None, limit: int | None = None, wait_ms: int | None = None) -> EventPage:
        """A piece of the namespace's feed after `after`.

        At least once: an event may come again, none is ever missed.
        """
        return self.call(tasks.events(after=after, limit=limit, wait_ms=wait_ms))

    def follow_events(self, *, after: str | None = None, wait_ms: int = 20_000) -> Iterator[Event]:
        """The feed without an end. To go on later, give the `cursor` of the last event you dealt with."""
        while True:
            page = self.events(after=after, wait_ms=wait_ms)
            yield from page.items
            after = page.next_cursor

    # -- Queues

    def create_queue(
        self,
        name: str,
        *,
        max_unfinished: int | None = None,
        max_running: int | None = None,
        start_rate: StartRate | None = None,
        weight: int | None = None,
        default_priority: int | None = None,
        retry_priority: RetryPriority | str | None = None,
    ) -> Queue:
        """Make a queue; this client knows it by name from then on. Limits that are None do not exist."""
        call = queues.create_queue(
            name,
            max_unfinished=max_unfinished,
            max_running=max_running,
            start_rate=start_rate,
            weight=weight,
            default_priority=default_priority,
            retry_priority=retry_priority,
        )
        queue = self.call(call)
        self.credentials = self.credentials.with_queues({name: queue.queue_id})
        return queue

    def list_queues(self, *, page_size: int | None = None) -> Iterator[Queue]:
        return self._pages(lambda cursor: queues.list_queues(page_size=page_size, cursor=cursor))

    def get_queue(self, queue: str) -> Queue:
        return self.call(queues.get_queue(self.credentials, queue))

    def update_queue(
        self,
        queue: str,
        revision: str,
        *,
        max_unfinished: int | None | Unset = UNSET,
        max_running: int | None | Unset = UNSET,
        start_rate: StartRate | None | Unset = UNSET,
        weight: int | Unset = UNSET,
        default_priority: int | None | Unset = UNSET,
        retry_priority: RetryPriority | str | Unset = UNSET,
    ) -> Queue:
        """Change a queue as it was seen at `revision`. None lifts a limit; what is not given stays."""
        call = queues.update_queue(
            self.credentials,
            queue,
            revision,
            max_unfinished=max_unfinished,
            max_running=max_running,
            start_rate=start_rate,
            weight=weight,
            default_priority=default_priority,
            retry_priority=retry_priority,
        )
        return self.call(call)

    def pause_queue(self, queue: str, *, reason: str | None = None) -> Queue:
        """Stop claims and starts of a queue; it goes on accepting. Repeatable."""
        return self.call(queues.pause_queue(self.credentials, queue, reason=reason))

    def resume_queue(self, queue: str) -> Queue:
        return self.call(queues.resume_queue(self.credentials, queue))

    def queue_stats(self, queue: str) -> QueueStats:
        return self.call(queues.queue_stats(self.credentials, queue))

    # -- Plans

    def plan_definition(
        self,
        task: SubmitTask,
        *,
        cron: str | None = None,
        timezone: str | None = None,
        interval_ms: int | None = None,
        misfire: str = "FIRE_ONCE",
        catch_up_limit: int | None = None,
        overlap: str = "ALLOW",
    ) -> dict[str, Any]:
        """The document of a plan: `cron` (five fields) with `timezone`, or `interval_ms` (at least 1000)."""
        return plans.plan_definition(
            self.credentials,
            task,
            cron=cron,
            timezone=timezone,
            interval_ms=interval_ms,
            misfire=misfire,
            catch_up_limit=catch_up_limit,
            overlap=overlap,
        )

    def create_plan(self, name: str, definition: Mapping[str, Any]) -> Plan:
        return self.call(plans.create_plan(name, definition))

    def list_plans(self, *, page_size: int | None = None) -> Iterator[Plan]:
        return self._pages(lambda cursor: plans.list_plans(page_size=page_size, cursor=cursor))

    def get_plan(self, plan_id: str) -> Plan:
        return self.call(plans.get_plan(plan_id))

    def create_plan_version(self, plan_id: str, definition: Mapping[str, Any]) -> PlanVersion:
        """Add the next immutable version; it fires only once it is activated."""
        return self.call(plans.create_plan_version(plan_id, definition))

    def list_plan_versions(self, plan_id: str, *, page_size: int | None = None) -> Iterator[PlanVersion]:
        return self._pages(lambda cursor: plans.list_plan_versions(plan_id, page_size=page_size, cursor=cursor))

    def list_plan_firings(self, plan_id: str, *, page_size: int | None = None) -> Iterator[Firing]:
        return self._pages(lambda cursor: plans.list_plan_firings(plan_id, page_size=page_size, cursor=cursor))

    def activate_plan(self, plan_id: str, version: int, revision: str) -> Plan:
        return self.call(plans.activate_plan(plan_id, version, revision))

    def pause_plan(self, plan_id: str, *, note: str | None = None) -> Plan:
        return self.call(plans.pause_plan(plan_id, note=note))

    def resume_plan(self, plan_id: str, *, note: str | None = None) -> Plan:
        return self.call(plans.resume_plan(plan_id, note=note))

    def trigger_plan(self, key: str, plan_id: str) -> Accepted:
        """One firing now, under your key."""
        return self.call(plans.trigger_plan(key, plan_id))

    # -- Operations

    def create_operation(self, gid: int, name: str, requester: str) -> Operation:
        """Register an intent and submit it upstream once.

        Look at `state`: UNKNOWN means nobody knows whether it took effect.
        """
        return self.call(operations.create_operation(gid, name, requester))

    def list_operations(
        self, *, state: OperationState | str | None = None, requester: str | None = None, page_size: int | None = None
    ) -> Iterator[Operation]:
        return self._pages(
            lambda cursor: operations.list_operations(
                state=state, requester=requester, page_size=page_size, cursor=cursor
            )
        )

    def get_operation(self, gid: int) -> Operation:
        return self.call(operations.get_operation(gid))

    def delete_operation(self, gid: int) -> Operation:
        """Ask the storage node to delete; the row goes only once the node confirmed. Repeatable."""
        return self.call(operations.delete_operation(gid))

    def add_favorite(self, gid: int, requester: str) -> None:
        self.call(operations.add_favorite(gid, requester))

    def remove_favorite(self, gid: int, requester: str) -> None:
        self.call(operations.remove_favorite(gid, requester))

    def reconcile_operation(
        self,
        gid: int,
        operation_id: str,
        state: OperationState | str,
        decision: OperationDecision | str,
        reason: str,
    ) -> Reconciliation:
        """Settle an intent as it was seen: `operation_id` and `state` must still hold."""
        return self.call(operations.reconcile_operation(gid, operation_id, state, decision, reason))
