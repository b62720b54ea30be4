"""A scripted peer that speaks HTTP like Orbit: what to answer is decided by the test, request by request."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

QUEUE = "1" * 32
TASK = "2" * 32
REQUEST = "3" * 32
NOW = "2026-09-17T00:00:00Z"


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """An answer; `cut` closes the connection without one."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    cut: bool = False


Behaviour = Callable[[Seen], Reply]


class FakeApi:
    """`script` holds the answers in order; `seen` what arrived. An unscripted request is answered 500 and noted."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.script: queue.SimpleQueue[Behaviour] = queue.SimpleQueue()
        self.always: Behaviour | None = None
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # head and body in one segment: no delayed acknowledgement between them

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                parts = urlsplit(self.path)
                seen = Seen(
                    self.command,
                    parts.path,
                    parse_qsl(parts.query, keep_blank_values=True),
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(length),
                )
                api.seen.append(seen)
                reply = api._next(seen)
                if reply.cut:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def _next(self, seen: Seen) -> Reply:
        if self.always is not None:
            return self.always(seen)
        try:
            return self.script.get_nowait()(seen)
        except queue.Empty:
            return Reply(500, b"unscripted")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- Words for scripts

    def success(self, data: Any, status: int = 200) -> None:
        self.script.put(lambda seen: success(data, status))

    def failure(self, status: int, code: str, **more: Any) -> None:
        self.script.put(lambda seen: failure(status, code, **more))

    def raw(self, status: int, body: bytes, **headers: str) -> None:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        names.setdefault("Content-Type", "application/json")
        self.script.put(lambda seen: Reply(status, body, names))

    def cut(self) -> None:
        self.script.put(lambda seen: Reply(cut=True))


def success(data: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps({"request_id": REQUEST, "data": data}).encode())


def failure(status: int, code: str, **more: Any) -> Reply:
    error = {"code": code, "message": "because", **more}
    return Reply(status, json.dumps({"request_id": REQUEST, "error": error}).encode())


@contextmanager
def running_api() -> Iterator[FakeApi]:
    api = FakeApi()
    try:
        yield api
    finally:
        api.close()


def task_object(**changes: Any) -> dict[str, Any]:
    """A task as the API shows it, valid as it stands."""
    return {
        "task_id": TASK,
        "queue_id": QUEUE,
        "handler": "object.prepare",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": {"object_ref": "objects/example"},
        "state": "READY",
        "revision": "1",
        "attempts": 0,
        "max_attempts": 1,
        "available_at": NOW,
        "created_at": NOW,
        "updated_at": NOW,
        "retry": {"mode": "NEVER"},
        **changes,
    }


def receipt_object(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": TASK,
        "queue_id": QUEUE,
        "revision": "1",
        "created_at": NOW,
        "deduplicated": False,
        **changes,
    }


def accepted_object(**changes: Any) -> dict[str, Any]:
    return {"task": task_object(), "receipt": receipt_object(), **changes}


def queue_object(**changes: Any) -> dict[str, Any]:
    return {
        "queue_id": QUEUE,
        "name": "reports",
        "paused": False,
        "pause_reason": None,
        "max_unfinished": None,
        "max_running": None,
        "start_rate": None,
        "weight": 1,
        "default_priority": None,
        "retry_priority": "KEEP",
        "revision": "1",
        "created_at": NOW,
        "updated_at": NOW,
        **changes,
    }
