"""A client and a worker that survive the death of their node, and write down what they were told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx2
from websockets.exceptions import InvalidHandshake, WebSocketException

from tests.faults.auditor import History
from tests.support.api import Api
from tests.support.worker_sockets import WorkerSocket

HANDLER = {"handler": "echo", "handler_version": "v1", "payload_version": "v1"}
PATIENCE_SECONDS = 60.0
Revive = Callable[[], None]  # brings the node back if it is dead


def task(queue_id: str, number: int, **more: Any) -> dict[str, Any]:
    return {"queue_id": queue_id, **HANDLER, "payload": {"number": number}, **more}


def submit_until_known(api: Api, key: str, body: dict[str, Any], history: History, revive: Revive) -> str | None:
    """Repeats the very same request until its answer is definite; the task's id, None if it was refused."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            answer = api.post("/v1/tasks", body, key=key)
        except httpx2.HTTPError:
            revive()
            continue
        if answer.status in (200, 201):
            task_id = str(answer.data["receipt"]["task_id"])
            history.write("accepted", key=key, task_id=task_id)
            return task_id
        if answer.status == 503:
            continue
        history.write("rejected", key=key, code=answer.code)
        return None
    raise AssertionError(f"no definite answer to {key} within {PATIENCE_SECONDS} s")


def submit_batch_until_known(
    api: Api, items: list[tuple[str, dict[str, Any]]], history: History, revive: Revive
) -> None:
    """Sends the batch; what is UNKNOWN or NOT_ATTEMPTED is sent again, with the same keys, until all is definite."""
    left = list(items)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left and time.monotonic() < deadline:
        body = {"items": [{"idempotency_key": key, "task": content} for key, content in left]}
        try:
            answer = api.post("/v1/tasks:batch", body)
        except httpx2.HTTPError:
            revive()
            continue
        if answer.status == 503:
            continue
        results = answer.expect(200).data["items"]
        again: list[tuple[str, dict[str, Any]]] = []
        for item, result in zip(left, results, strict=True):
            if result["status"] == "ACCEPTED":
                history.write("accepted", key=item[0], task_id=result["receipt"]["task_id"])
            elif result["status"] == "REJECTED":
                history.write("rejected", key=item[0], code=result["error"]["code"])
            else:
                again.append(item)
        left = again
    assert not left, f"no definite answer to {[key for key, _ in left]} within {PATIENCE_SECONDS} s"


class StubbornWorker:
    """Takes offers, starts, writes down, finishes; comes back with its session after every loss of connection."""

    def __init__(self, websocket_url: str, token: str, queue_id: str, history: History, revive: Revive) -> None:
        self._url, self._token, self._queue_id = websocket_url, token, queue_id
        self._history, self._revive = history, revive
        self._session_id: str | None = None
        self._unreported: dict[str, dict[str, Any]] = {}  # started, not yet told COMMITTED, ALREADY or LOST

    def work_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert time.monotonic() < deadline, f"work is left after {PATIENCE_SECONDS} s"
            try:
                with WorkerSocket(self._url, self._token) as socket:
                    self._serve(socket, done, deadline)
            except (OSError, WebSocketException, InvalidHandshake, AssertionError, TimeoutError, json.JSONDecodeError):
                if time.monotonic() > deadline:
                    raise
                self._revive()

    def _serve(self, socket: WorkerSocket, done: Callable[[], bool], deadline: float) -> None:
        resumed = {} if self._session_id is None else {"session_id": self._session_id}
        welcome = socket.hello([self._queue_id], capacity=4, worker_name="stubborn", **resumed)
        self._session_id = welcome["session_id"]
        for held in welcome["held"]:
            # A reservation whose offer was lost with the connection: hand it back, it will be offered again.
            if held["state"] == "RESERVED" and held["attempt_id"] not in self._unreported:
                socket.release(held)
        for offer in list(self._unreported.values()):
            self._report(socket, offer)
        while not done() and time.monotonic() < deadline:
            for message in socket.receive_for(0.1):
                if message["type"] == "offer":
                    self._run(socket, message)

    def _run(self, socket: WorkerSocket, offer: dict[str, Any]) -> None:
        (started,) = socket.start(offer)
        if started["status"] != "STARTED":
            return
        self._history.write("started", attempt_id=offer["attempt_id"], task_id=offer["task"]["task_id"])
        self._unreported[offer["attempt_id"]] = offer
        self._report(socket, offer)

    def _report(self, socket: WorkerSocket, offer: dict[str, Any]) -> None:
        answer = socket.finish(offer, result=offer["task"]["payload"])
        if answer["status"] in ("COMMITTED", "ALREADY"):
            self._history.write("committed", attempt_id=offer["attempt_id"])
        self._unreported.pop(offer["attempt_id"], None)
