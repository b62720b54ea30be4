"""An Orbit in memory: the real client with its real checks, over a transport that is a dictionary.

It keeps what a client's code depends on: idempotency, conflicts, quotas, batch statuses, and answers that are lost or
unknown on demand. It has no plans and no operations, and its workers are `run_pending`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from orbit_sdk.aclient import AsyncOrbitClient
from orbit_sdk.client import OrbitClient
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import ConnectionLost, InvalidRequest
from orbit_sdk.jsoncodec import Numbers, decode, encode
from orbit_sdk.models.tasks import Accepted, SubmitTask
from orbit_sdk.states import Policy, TaskState
from orbit_sdk.testing.handlers import run_offer
from orbit_sdk.testing.store import QueueRow, Store, TaskRow, instant
from orbit_sdk.testing.submissions import Refused
from orbit_sdk.wire import Request, Response
from orbit_sdk.worker.handlers import Handlers
from orbit_sdk.worker.outcomes import Report
from orbit_sdk.worker.worker import Worker

_AGED_STEP_US = 30_000_000


class _Faults:
    """What is to go wrong next."""

    def __init__(self) -> None:
        self.lost_answers: list[bool] = []
        self.unknown_commits: list[bool] = []
        self.garbled_answers = 0


class InMemoryOrbit(OrbitClient):
    """A client of an Orbit that lives in this object.

    orbit = InMemoryOrbit(queues=["reports"])
    orbit.lose_next_answer()
    with pytest.raises(ConnectionLost):
        orbit.submit_task("k", task)
    assert orbit.submit_task("k", task).deduplicated
    """

    def __init__(
        self,
        *,
        queues: Sequence[str] = (),
        policy: Policy | str = Policy.AGED,
        default_priority: int = 0,
        decimals: bool = False,
    ) -> None:
        self.store = Store(policy=Policy(policy), default_priority=default_priority)
        self.faults = _Faults()
        known = {name: self.store.add_queue(name).queue_id for name in queues}
        credentials = Credentials("http://in-memory.invalid", "in-memory", queues=known, policy=Policy(policy))
        self._set_up(credentials, timeout=1.0, decimals=decimals, transport=_MemoryTransport(self.store, self.faults))

    def as_async(self) -> AsyncOrbitClient:
        """A coroutine client of the same Orbit."""
        transport = _AsyncMemoryTransport(_MemoryTransport(self.store, self.faults))
        return AsyncOrbitClient.from_credentials(self.credentials, transport=transport)

    # -- What goes wrong on demand

    def lose_next_answer(self, *, took_effect: bool = True) -> None:
        """The next request ends in ConnectionLost; whether it was carried out is your choice, and not the caller's
        to know.
        """
        self.faults.lost_answers.append(took_effect)

    def unknown_next_commit(self, *, took_effect: bool = True) -> None:
        """The next item that is accepted cannot learn its commit's outcome.

        A single submit answers 503; in a batch the item is UNKNOWN and the rest NOT_ATTEMPTED.
        """
        self.faults.unknown_commits.append(took_effect)

    def garble_next_answer(self) -> None:
        """The next request is carried out, and its answer is no answer (UnverifiableResponse)."""
        self.faults.garbled_answers += 1

    def become_unknown(self, task_id: str) -> None:
        """A worker was lost in the middle of a task that is not safe to repeat."""
        with self.store.lock:
            task = self.store.task(task_id)
            task.attempts = max(1, task.attempts)
            self.store.move(task, TaskState.UNKNOWN, "UNKNOWN")

    def advance(self, seconds: float) -> None:
        """Let time pass for delays, back-off and deadlines."""
        with self.store.lock:
            self.store.moved_us += round(seconds * 1_000_000)
            self.store.let_time_pass()

    # -- Running what is ready

    def run_pending(self, handlers: Worker | Handlers, *, limit: int | None = None) -> int:
        """Run what is ready and what it publishes, one after the other in the order of the policy, here and now.

        Tasks of handlers that are not there stay. Returns how many attempts ran.
        """
        known = handlers.handlers if isinstance(handlers, Worker) else handlers
        ran = 0
        while limit is None or ran < limit:
            with self.store.lock:
                self.store.let_time_pass()
                task = self._next_ready(known)
                if task is None:
                    break
                task.attempts += 1
                self.store.move(task, TaskState.RUNNING, "STARTED")
            self._run_one(task, known)
            ran += 1
        return ran

    def _next_ready(self, handlers: Handlers) -> TaskRow | None:
        ready = [
            task
            for task in self.store.tasks.values()
            if task.state is TaskState.READY
            and not self.store.queues[task.queue_id].paused
            and handlers.get(task.submission.document["handler"], task.submission.document["handler_version"])
        ]
        return min(ready, key=self._place, default=None)

    def _place(self, task: TaskRow) -> tuple[int, int, int]:
        if self.store.policy is Policy.STRICT:
            return -task.priority, task.available_at, task.number
        return task.available_at - task.priority * _AGED_STEP_US, task.available_at, task.number

    def _run_one(self, task: TaskRow, handlers: Handlers) -> None:
        document = task.submission.document
        handler = handlers.get(document["handler"], document["handler_version"])
        assert handler is not None  # noqa: S101 (`_next_ready` looked)
        offer = {
            **{
                name: document[name]
                for name in ("queue_id", "handler", "handler_version", "payload_version", "payload")
            },
            "task_id": task.task_id,
            "priority": task.priority,
            "attempt": task.attempts,
            "available_at": instant(task.available_at),
        }
        for name in ("attempt_timeout_ms", "resource_key", "parent_task_id"):
            if name in document:
                offer[name] = document[name]
        _, report = run_offer(
            handler,
            offer,
            fencing_token=str(task.attempts),
            publisher=_MemoryPublisher(self),
            decimals=self._numbers is Numbers.DECIMAL,
        )
        with self.store.lock:
            _finish(self.store, task, report)


def _finish(store: Store, task: TaskRow, report: Report) -> None:
    """The end of an attempt, by the table of the design (3.1)."""
    if report.outcome == "SUCCEEDED":
        task.result = None if report.result is None else decode(report.result, numbers=Numbers.LITERAL)
        store.move(task, TaskState.SUCCEEDED, "SUCCEEDED")
        return
    if report.outcome == "CANCELED":
        store.move(task, TaskState.CANCELED, "CANCELED")
        return
    task.error = {"code": report.code, "message": report.message}
    if report.details is not None:
        task.error["details"] = decode(report.details, numbers=Numbers.LITERAL)
    retry = task.submission.retry
    may_repeat = retry["mode"] == "SAFE" and report.retryable and task.attempts < task.max_attempts
    if not may_repeat or task.cancel_requested:
        store.move(task, TaskState.FAILED, "FAILED")
        return
    backoff = retry["initial_backoff_ms"] * retry["multiplier"] ** (task.attempts - 1)
    delay_ms = min(backoff, retry["max_backoff_ms"]) if report.retry_after_ms is None else report.retry_after_ms
    task.available_at = store.now_us() + delay_ms * 1000
    store.move(task, TaskState.SCHEDULED if delay_ms else TaskState.READY, "RETRY_SCHEDULED")


class _MemoryPublisher:
    def __init__(self, orbit: InMemoryOrbit) -> None:
        self._orbit = orbit

    def publish(self, key: str, task: SubmitTask) -> Accepted:
        return self._orbit.submit_task_until_known(key, task, deadline=5.0)

    async def apublish(self, key: str, task: SubmitTask) -> Accepted:
        return self.publish(key, task)


class _MemoryTransport:
    """Requests of the contract, answered from the store."""

    def __init__(self, store: Store, faults: _Faults) -> None:
        self._store = store
        self._faults = faults

    def send(self, request: Request, *, timeout: float) -> Response:
        with self._store.lock:
            lost = self._faults.lost_answers.pop(0) if self._faults.lost_answers else None
            if lost is False:
                raise ConnectionLost(f"no answer to {request.method} {request.path}: lost on demand")
            response = self._serve(request)
            if lost is True:
                raise ConnectionLost(f"no answer to {request.method} {request.path}: lost on demand")
            if self._faults.garbled_answers:
                self._faults.garbled_answers -= 1
                return Response(response.status, response.headers, response.body[: len(response.body) // 2])
            return response

    def close(self) -> None:
        """There is nothing to close."""

    def _serve(self, request: Request) -> Response:
        document = decode(request.body, numbers=Numbers.LITERAL) if request.body else {}
        try:
            status, data = self._route(request, document)
            return _response(status, {"data": data})
        except Refused as refusal:
            return _response(refusal.status, {"error": refusal.as_json()})

    def _route(self, request: Request, document: dict[str, Any]) -> tuple[int, Any]:
        for method, pattern, serve in _ROUTES:
            found = re.fullmatch(pattern, request.path)
            if found is not None and request.method == method:
                answer: tuple[int, Any] = serve(self, request, document, *found.groups())
                return answer
        raise InvalidRequest("", f"InMemoryOrbit does not know {request.method} {request.path}")

    def _shown(self, task: TaskRow) -> dict[str, Any]:
        return task.as_json(self._store.policy)

    def _accept(self, key: str, document: dict[str, Any]) -> tuple[bool, TaskRow, dict[str, Any]]:
        """Raises Refused with UNAVAILABLE where the commit's outcome is not to be learned."""
        known = ("task.submit", key) in self._store.records
        if not known and self._faults.unknown_commits:
            if self._faults.unknown_commits.pop(0):
                self._store.accept("task.submit", key, document)
            raise Refused("UNAVAILABLE", 503, "the outcome could not be learned")
        return self._store.accept("task.submit", key, document)

    # -- Routes

    def submit(self, request: Request, document: dict[str, Any]) -> tuple[int, Any]:
        new, task, receipt = self._accept(request.headers["Idempotency-Key"], document)
        return (201 if new else 200), {"task": self._shown(task), "receipt": receipt}

    def submit_batch(self, request: Request, document: dict[str, Any]) -> tuple[int, Any]:
        results: list[dict[str, Any]] = []
        stopped = False
        for index, item in enumerate(document["items"]):
            if stopped:
                error = {"code": "BATCH_STOPPED", "message": "not tried in this request"}
                results.append({"index": index, "status": "NOT_ATTEMPTED", "error": error})
                continue
            try:
                _, _, receipt = self._accept(item["idempotency_key"], item["task"])
                results.append({"index": index, "status": "ACCEPTED", "receipt": receipt})
            except Refused as refusal:
                stopped = refusal.code == "UNAVAILABLE"
                status = "UNKNOWN" if stopped else "REJECTED"
                results.append({"index": index, "status": status, "error": refusal.as_json()})
        return 200, {"items": results, "summary": _summary(results)}

    def read(self, request: Request, document: dict[str, Any], task_id: str) -> tuple[int, Any]:
        return 200, {"task": self._shown(self._store.task(task_id))}

    def list(self, request: Request, document: dict[str, Any]) -> tuple[int, Any]:
        wanted = dict(request.query)
        states = [value for name, value in request.query if name == "state"]
        self._store.let_time_pass()
        tasks = [
            task
            for task in sorted(self._store.tasks.values(), key=lambda task: -task.number)
            if wanted.get("queue_id") in (None, task.queue_id)
            and (not states or task.state in states)
            and wanted.get("handler") in (None, task.submission.document["handler"])
            and wanted.get("priority") in (None, str(task.priority))
            and wanted.get("resource_key") in (None, task.submission.document.get("resource_key"))
            and wanted.get("dead") in (None, "true" if self._store.is_dead(task) else "false")
            and wanted.get("created_from", "") <= instant(task.created_at)
            and instant(task.created_at) < wanted.get("created_to", "9")
        ]
        return 200, _page([self._shown(task) for task in tasks], wanted)

    def cancel(self, request: Request, document: dict[str, Any], task_id: str) -> tuple[int, Any]:
        return 200, {"task": self._shown(self._store.cancel(task_id, document["revision"]))}

    def reconcile(self, request: Request, document: dict[str, Any], task_id: str) -> tuple[int, Any]:
        return 200, {"task": self._shown(self._store.reconcile(task_id, document))}

    def dismiss(self, request: Request, document: dict[str, Any], task_id: str) -> tuple[int, Any]:
        return 200, {"task": self._shown(self._store.dismiss(task_id, document["revision"]))}

    def replay(self, request: Request, document: dict[str, Any], task_id: str) -> tuple[int, Any]:
        new, task, receipt = self._store.replay(request.headers["Idempotency-Key"], task_id, document)
        return (201 if new else 200), {"task": self._shown(task), "receipt": receipt}

    def task_events(self, request: Request, document: dict[str, Any], task_id: str) -> tuple[int, Any]:
        self._store.task(task_id)
        events = [event for event in self._store.events if event["task_id"] == task_id]
        return 200, _page(events, dict(request.query))

    def feed(self, request: Request, document: dict[str, Any]) -> tuple[int, Any]:
        wanted = dict(request.query)
        after, limit = wanted.get("after", ""), int(wanted.get("limit", 50))
        events = [event for event in self._store.events if event["cursor"] > after][:limit]
        return 200, {"items": events, "next_cursor": events[-1]["cursor"] if events else after or "0"}

    def create_queue(self, request: Request, document: dict[str, Any]) -> tuple[int, Any]:
        numbers = ("max_unfinished", "max_running", "weight", "default_priority")
        settings = {
            name: int(value) if name in numbers else value for name, value in document.items() if name != "name"
        }
        return 201, {"queue": self._store.add_queue(document["name"], **settings).as_json()}

    def list_queues(self, request: Request, document: dict[str, Any]) -> tuple[int, Any]:
        return 200, _page([queue.as_json() for queue in self._store.queues.values()], dict(request.query))

    def read_queue(self, request: Request, document: dict[str, Any], queue_id: str) -> tuple[int, Any]:
        return 200, {"queue": self._store.queue(queue_id).as_json()}

    def patch_queue(self, request: Request, document: dict[str, Any], queue_id: str) -> tuple[int, Any]:
        queue = self._store.queue(queue_id)
        if document.pop("revision") != str(queue.revision):
            raise Refused("REVISION_CONFLICT", 409, "the queue changed", field="revision", current=str(queue.revision))
        for name, value in document.items():
            number = (
                None
                if value is None
                else int(value)
                if isinstance(value, str) and value.lstrip("-").isdigit()
                else value
            )
            if name in ("max_unfinished", "default_priority"):
                setattr(queue, name, number)
            else:
                queue.settings[name] = number
        queue.revision += 1
        return 200, {"queue": queue.as_json()}

    def pause_queue(self, request: Request, document: dict[str, Any], queue_id: str) -> tuple[int, Any]:
        return self._set_paused(self._store.queue(queue_id), True, document.get("reason"))

    def resume_queue(self, request: Request, document: dict[str, Any], queue_id: str) -> tuple[int, Any]:
        return self._set_paused(self._store.queue(queue_id), False, None)

    def _set_paused(self, queue: QueueRow, paused: bool, reason: str | None) -> tuple[int, Any]:
        queue.paused, queue.pause_reason = paused, reason
        return 200, {"queue": queue.as_json()}

    def stats(self, request: Request, document: dict[str, Any], queue_id: str) -> tuple[int, Any]:
        self._store.queue(queue_id)
        self._store.let_time_pass()
        tasks = [task for task in self._store.tasks.values() if task.queue_id == queue_id]
        waiting = [task for task in tasks if task.state in (TaskState.READY, TaskState.SCHEDULED)]
        now = self._store.now_us()
        counts = {str(state): sum(task.state is state for task in tasks) for state in TaskState}
        stats = {
            "counts": counts,
            "backlog_by_priority": _by_priority(waiting, len),
            "oldest_waiting_ms_by_priority": _by_priority(
                waiting, lambda tier: max(0, (now - min(task.available_at for task in tier)) // 1000)
            ),
            "running": counts[TaskState.RUNNING],
            "reserved": 0,
            "start_budget": None,
            "head_waiting": None,
        }
        return 200, {"stats": stats}


def _by_priority(tasks: Sequence[TaskRow], measure: Any) -> dict[str, int]:
    tiers: dict[int, list[TaskRow]] = {}
    for task in tasks:
        tiers.setdefault(task.priority, []).append(task)
    return {str(priority): measure(tier) for priority, tier in tiers.items()}


def _summary(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    words = ("ACCEPTED", "REJECTED", "UNKNOWN", "NOT_ATTEMPTED")
    return {word.lower(): sum(result["status"] == word for result in results) for word in words}


def _page(items: Sequence[Any], wanted: Mapping[str, str]) -> dict[str, Any]:
    start, limit = int(wanted.get("cursor", 0)), int(wanted.get("limit", 50))
    end = start + limit
    return {"items": list(items[start:end]), "next_cursor": str(end) if end < len(items) else None}


def _response(status: int, body: Mapping[str, Any]) -> Response:
    envelope = encode({"request_id": secrets.token_hex(16), **body})
    return Response(status, {"content-type": "application/json"}, envelope)


_ID = "([0-9a-f]{32})"
_ROUTES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/tasks", _MemoryTransport.submit),
    ("POST", "/v1/tasks:batch", _MemoryTransport.submit_batch),
    ("GET", "/v1/tasks", _MemoryTransport.list),
    ("GET", f"/v1/tasks/{_ID}", _MemoryTransport.read),
    ("GET", f"/v1/tasks/{_ID}/events", _MemoryTransport.task_events),
    ("POST", f"/v1/tasks/{_ID}:cancel", _MemoryTransport.cancel),
    ("POST", f"/v1/tasks/{_ID}:reconcile", _MemoryTransport.reconcile),
    ("POST", f"/v1/tasks/{_ID}:dismiss", _MemoryTransport.dismiss),
    ("POST", f"/v1/tasks/{_ID}:replay", _MemoryTransport.replay),
    ("GET", "/v1/events", _MemoryTransport.feed),
    ("POST", "/v1/queues", _MemoryTransport.create_queue),
    ("GET", "/v1/queues", _MemoryTransport.list_queues),
    ("GET", f"/v1/queues/{_ID}", _MemoryTransport.read_queue),
    ("PATCH", f"/v1/queues/{_ID}", _MemoryTransport.patch_queue),
    ("POST", f"/v1/queues/{_ID}:pause", _MemoryTransport.pause_queue),
    ("POST", f"/v1/queues/{_ID}:resume", _MemoryTransport.resume_queue),
    ("GET", f"/v1/queues/{_ID}/stats", _MemoryTransport.stats),
]


class _AsyncMemoryTransport:
    """The same for coroutines: nothing here waits for anything."""

    def __init__(self, transport: _MemoryTransport) -> None:
        self._transport = transport

    async def send(self, request: Request, *, timeout: float) -> Response:  # noqa: ASYNC109 (the client's interface)
        return self._transport.send(request, timeout=timeout)

    async def close(self) -> None:
        """There is nothing to close."""
