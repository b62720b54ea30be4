"""A scriptable upstream: `python -m lifecycle_app.fakes.upstream [--port N] [--token T] [--journal FILE]`.

It is not idempotent on purpose: each submission that takes effect is counted, also a second one of the same gid.
`POST /control` scripts what happens next, per step and gid (`"*"`: any), one word per call, then the default again:

    {"submit": {"7": ["drop_after_effect"]}, "prepare": {"*": ["slow:300"]}}

    prepare  ok · size:N · refuse · error · drop · garbage · bad_size · slow:MS
    submit   accept · accept_200 · refuse · error · error_after_effect · drop_before_effect · drop_after_effect ·
             garbage · not_http · not_json · array · accepted_202 · redirect · cut · drip · long · slow:MS (effect, then
             the wait) · slow_before_effect:MS
    lookup   truth · error · drop

`GET /control` answers {"submissions": {gid: [operation_id, …]}, "journal": [{"step", "gid", "word", …}, …]}.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
import threading
import time
from collections import defaultdict, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_DEFAULTS = {"prepare": "ok", "submit": "accept", "lookup": "truth"}


class FakeUpstream:
    """What the upstream knows, shared by its connections."""

    def __init__(self, *, token: str | None = None, journal_file: Path | None = None) -> None:
        self.token = token
        self.submissions: dict[str, list[str]] = defaultdict(list)
        self.journal: list[dict[str, Any]] = []
        self._scripts: dict[tuple[str, str], deque[str]] = defaultdict(deque)
        self._lock = threading.Lock()
        self._file = None if journal_file is None else journal_file.open("a", encoding="utf-8")

    def script(self, orders: dict[str, dict[str, list[str]]]) -> None:
        with self._lock:
            for step, by_gid in orders.items():
                for gid, words in by_gid.items():
                    self._scripts[step, gid].extend(words)

    def forget(self) -> None:
        """As if it had just been started."""
        with self._lock:
            self.submissions.clear()
            self.journal.clear()
            self._scripts.clear()

    def next_word(self, step: str, gid: str, **facts: str) -> str:
        """What to do with this call; writes it down first, as a server's access log would."""
        with self._lock:
            for key in ((step, gid), (step, "*")):
                if self._scripts[key]:
                    word = self._scripts[key].popleft()
                    break
            else:
                word = _DEFAULTS[step]
            self._write({"step": step, "gid": gid, "word": word, **facts})
            return word

    def take_effect(self, gid: str, operation_id: str) -> None:
        with self._lock:
            self.submissions[gid].append(operation_id)
            self._write({"step": "effect", "gid": gid, "operation_id": operation_id})

    def snapshot(self) -> dict[str, Any]:
        with self._lock:
            return {"submissions": dict(self.submissions), "journal": list(self.journal)}

    def _write(self, entry: dict[str, Any]) -> None:
        self.journal.append(entry)
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: FakeUpstream

    def do_GET(self) -> None:
        parts = self.path.strip("/").split("/")
        if self.path == "/control":
            self._answer(200, self.upstream.snapshot())
        elif not self._authorised():
            self._answer(401, {"error": "token"})
        elif parts[0] == "galleries" and len(parts) == 2:
            self._prepare(parts[1])
        elif parts[0] == "submissions" and len(parts) == 2:
            self._lookup(parts[1])
        else:
            self._answer(404, {"error": "path"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/control":
            self.upstream.script(body)
            self._answer(200, {})
        elif not self._authorised():
            self._answer(401, {"error": "token"})
        elif self.path == "/submissions":
            self._submit(str(body["gid"]), body["operation_id"])
        else:
            self._answer(404, {"error": "path"})

    def _authorised(self) -> bool:
        expected = self.upstream.token
        return expected is None or self.headers.get("Authorization") == f"Bearer {expected}"

    def _prepare(self, gid: str) -> None:
        word, _, argument = self.upstream.next_word("prepare", gid).partition(":")
        if word == "slow":
            time.sleep(int(argument) / 1000)
        size = {"size": 1}
        if word == "size":
            size = {"size": int(argument)}
        elif word == "bad_size":
            size = {"size": "large"}  # type: ignore[dict-item]
        if word == "refuse":
            self._answer(404, {"error": f"gallery {gid} does not exist"})
        elif word == "error":
            self._answer(500, {"error": "broken"})
        elif word == "drop":
            self._reset()
        elif word == "garbage":
            self._raw(200, b"<html>not json</html>")
        else:
            self._answer(200, {"gid": int(gid), "name": f"gallery {gid}", **size})

    def _submit(self, gid: str, operation_id: str) -> None:
        word, _, argument = self.upstream.next_word("submit", gid, operation_id=operation_id).partition(":")
        if word == "slow_before_effect":
            time.sleep(int(argument) / 1000)
        if word not in ("refuse", "error", "drop_before_effect", "redirect"):
            self.upstream.take_effect(gid, operation_id)
        if word == "slow":
            time.sleep(int(argument) / 1000)
        accepted = {"gid": int(gid), "operation_id": operation_id}
        if word in ("drop_before_effect", "drop_after_effect"):
            self._reset()
        elif word == "refuse":
            self._answer(422, {"error": "this gallery may not be submitted"})
        elif word in ("error", "error_after_effect"):
            self._answer(503, {"error": "broken"})
        elif word == "garbage":
            self._raw(200, b"\x00\xff<<garbage>>")
        elif word == "not_json":
            self._raw(201, b"accepted")
        elif word == "array":
            self._raw(200, b"[]")
        elif word == "accepted_202":
            self._answer(202, accepted)
        elif word == "accept_200":
            self._answer(200, accepted)
        elif word == "redirect":
            self._raw(307, b"", location="/submissions")
        elif word == "cut":
            self._raw(201, b'{"gid"', length=100)
            self._reset()
        elif word == "not_http":
            self.wfile.write(b"SSH-2.0-surprise\r\n\r\n")
            self.close_connection = True
        elif word == "drip":
            self._drip()
        elif word == "long":
            self._raw(201, b'{"filler": "' + b"x" * 2_000_000 + b'"}')
        else:
            self._answer(201, accepted)

    def _lookup(self, gid: str) -> None:
        word = self.upstream.next_word("lookup", gid)
        known = self.upstream.snapshot()["submissions"].get(gid)
        if word == "error":
            self._answer(500, {"error": "broken"})
        elif word == "drop":
            self._reset()
        elif known:
            self._answer(200, {"gid": int(gid), "operation_id": known[-1], "times": len(known)})
        else:
            self._answer(404, {"error": "no submission"})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._raw(status, json.dumps(body).encode())

    def _raw(self, status: int, body: bytes, *, length: int | None = None, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def _drip(self) -> None:
        """One header byte at a time, for as long as the other side listens."""
        try:
            for byte in b"HTTP/1.1 201 Created\r\nX-Drip: " + b"x" * 1000:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            self.close_connection = True

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            self.close_connection = True  # the socket was reset on purpose

    def log_message(self, format: str, *args: Any) -> None:
        """The journal is the log."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is part of the play."""


def start(upstream: FakeUpstream, *, host: str = "127.0.0.1", port: int = 0) -> tuple[_Server, str]:
    """Serves in a thread; returns the server (`shutdown()` ends it) and its URL."""
    handler = type("Handler", (_Handler,), {"upstream": upstream})
    server = _Server((host, port), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), name="fake-upstream", daemon=True).start()
    return server, f"http://{host}:{server.server_address[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="A scriptable upstream for tests and the example.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token")
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args()
    _, url = start(FakeUpstream(token=options.token, journal_file=options.journal), port=options.port)
    sys.stdout.write(json.dumps({"event": "listening", "url": url}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()  # until whoever started it lets go


if __name__ == "__main__":
    main()
