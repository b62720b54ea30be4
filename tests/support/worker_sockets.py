"""A worker at the level of frames: every message is written and read by the test itself."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

PATH = "/v1/workers/connect"
SUBPROTOCOL = "orbit.worker.v1"
TIMEOUT_SECONDS = 15.0


class WorkerSocket:
    """One connection. Messages that nobody asked for yet (offers, revokes) wait in `inbox`, in order."""

    def __init__(self, websocket_url: str, token: str | None, *, headers: dict[str, str] | None = None) -> None:
        sent = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._open = contextlib.ExitStack()
        opening = connect(
            websocket_url + PATH,
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
            additional_headers={**sent, **(headers or {})},
            compression=None,
            proxy=None,
            ping_interval=None,  # a test that wants to be silent is silent
            max_size=None,
            open_timeout=TIMEOUT_SECONDS,
        )
        self.connection: ClientConnection = self._open.enter_context(opening)
        self.inbox: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}
        self._seq = 0

    # -- sending
    def send(self, type: str, **fields: Any) -> None:  # noqa: A002  (the member's name)
        """Send one message as it is; no `seq` unless given."""
        self.connection.send(json.dumps({"type": type, **fields}))

    def request(self, type: str, *, timeout: float = TIMEOUT_SECONDS, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """Send one message with the next `seq` and give the answer that carries it."""
        self._seq += 1
        seq = self._seq
        self.send(type, seq=seq, **fields)
        return self._take(lambda message: message.get("re") == seq, timeout, f"the answer to {type}")

    def hello(
        self,
        queues: Sequence[str],
        *,
        handlers: Sequence[tuple[str, str]] = (("echo", "v1"),),
        capacity: int = 1,
        **fields: Any,
    ) -> dict[str, Any]:
        """Say hello and give the welcome."""
        said: dict[str, Any] = {
            "protocol": 1,
            "worker_name": f"worker-{secrets.token_hex(4)}",
            "capacity": capacity,
            "queues": list(queues),
            "handlers": [{"handler": handler, "handler_version": version} for handler, version in handlers],
            **fields,
        }
        self.send("hello", **said)
        self.welcome = self.expect("welcome")
        return self.welcome

    # -- receiving
    def expect(self, type: str, *, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:  # noqa: A002
        """The first message of that type, already here or still to come."""
        return self._take(lambda message: message.get("type") == type, timeout, type)

    def offers(self, count: int, *, timeout: float = TIMEOUT_SECONDS) -> list[dict[str, Any]]:
        """The next `count` offers."""
        deadline = time.monotonic() + timeout
        return [self.expect("offer", timeout=max(0.0, deadline - time.monotonic())) for _ in range(count)]

    def receive_for(self, seconds: float) -> list[dict[str, Any]]:
        """Everything that is here or comes within `seconds`: for showing that something does not come."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                self.inbox.append(self._receive(left))
            except TimeoutError:
                break
        taken, self.inbox = self.inbox, []
        return taken

    def closed(self, *, timeout: float = TIMEOUT_SECONDS) -> int | None:
        """Wait until the server closes; the close code. What it said before stands in `inbox`."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                self.inbox.append(self._receive(max(0.0, deadline - time.monotonic())))
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else None

    def _take(self, wanted: Any, timeout: float, described: str) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        for index, message in enumerate(self.inbox):
            if wanted(message):
                return self.inbox.pop(index)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"no {described} within {timeout} s; waiting here: {self.inbox!r}")
            try:
                message = self._receive(left)
            except TimeoutError:
                continue
            except ConnectionClosed as closed:
                raise AssertionError(f"closed ({closed}) before {described}; waiting here: {self.inbox!r}") from closed
            if wanted(message):
                return message
            self.inbox.append(message)

    def _receive(self, timeout: float) -> dict[str, Any]:
        message = json.loads(self.connection.recv(timeout=timeout))
        assert isinstance(message, dict)
        return message

    # -- words of the domain
    def start(self, *offers: dict[str, Any]) -> list[dict[str, Any]]:
        """Start what was offered; the answers, item by item."""
        return list(self.request("start", items=[held(offer) for offer in offers])["items"])

    def renew(self, *offers: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self.request("renew", items=[held(offer) for offer in offers])["items"])

    def release(self, *offers: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self.request("release", items=[held(offer) for offer in offers])["items"])

    def finish(self, offer: dict[str, Any], outcome: str = "SUCCEEDED", **fields: Any) -> dict[str, Any]:
        """Report one attempt's outcome; the answer for it."""
        items = self.request("finish", items=[{**held(offer), "outcome": outcome, **fields}])["items"]
        return dict(items[0])

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> WorkerSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def held(offer: dict[str, Any]) -> dict[str, Any]:
    """What names an attempt in a message."""
    return {"attempt_id": offer["attempt_id"], "fencing_token": offer["fencing_token"]}
