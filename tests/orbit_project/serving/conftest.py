"""A tiny node as a real process, and raw HTTP over real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 30


@dataclass
class Reply:
    """One HTTP answer as it came over the socket."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RawConnection:
    """A socket to the node that sends exactly what a test says."""

    def __init__(self, host: str, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(20)
        self.socket.connect((host, port))
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_reply(self, *, head_only: bool = False) -> Reply:
        while b"\r\n\r\n" not in self._buffer:
            self._fill()
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        self._buffer = bytearray(rest)
        lines = head.decode("latin-1").split("\r\n")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        reply = Reply(int(lines[0].split()[1]), headers, b"")
        length = int(reply.header("Content-Length") or 0)
        if not head_only and reply.status not in (204, 304):
            while len(self._buffer) < length:
                self._fill()
            reply.body, self._buffer = bytes(self._buffer[:length]), self._buffer[length:]
        return reply

    def read_until_closed(self) -> bytes:
        """Everything up to the end of the connection; a reset counts as one."""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(65536):
                self._buffer += data
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest

    def close(self) -> None:
        self.socket.close()

    def _fill(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError(f"closed after {bytes(self._buffer)!r}")
        self._buffer += data


@dataclass
class TinyNode:
    process: subprocess.Popen[str]
    host: str
    port: int
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://{self.host}:{self.port}"

    def connect(self, **options: Any) -> RawConnection:
        return RawConnection(self.host, self.port, **options)

    def request(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
        connection = self.connect()
        try:
            lines = [f"{method} {target} HTTP/1.1", "Host: tiny"]
            lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
            if body:
                lines.append(f"Content-Length: {len(body)}")
            connection.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
            return connection.read_reply(head_only=method == "HEAD")
        finally:
            connection.close()

    def get(self, target: str, **headers: str) -> Reply:
        return self.request("GET", target, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def state(self) -> dict[str, Any]:
        return self.get("/state").json

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


def _start(nodes: list[TinyNode], *, env: dict[str, str] | None = None, **limits: float) -> TinyNode:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.orbit_project.serving.tiny_node"]
        + [f"{name}={value}" for name, value in limits.items()],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    node = TinyNode(process, "127.0.0.1", 0)
    nodes.append(node)
    ready = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            node.lines.append(line.rstrip("\n"))
            if found := re.match(r"ready http://127\.0\.0\.1:(\d+)", line):
                node.port = int(found[1])
                ready.set()
        ready.set()

    threading.Thread(target=read, daemon=True).start()
    assert ready.wait(START_SECONDS) and node.port, "\n".join(node.lines)
    return node


def _end(nodes: list[TinyNode]) -> None:
    for node in nodes:
        if node.process.poll() is None:
            node.process.kill()
        node.process.wait(10)


@pytest.fixture
def start_node() -> Iterator[Callable[..., TinyNode]]:
    """Starts tiny nodes; `HEAD_SECONDS=1` and the like replace limits, `env` adds to the environment."""
    nodes: list[TinyNode] = []
    yield partial(_start, nodes)
    _end(nodes)


@pytest.fixture(scope="module")
def node() -> Iterator[TinyNode]:
    """A tiny node with the real limits, shared by the tests of a module: what it counted before stays counted."""
    nodes: list[TinyNode] = []
    yield _start(nodes)
    _end(nodes)


def seconds_of(action: Callable[[], Any]) -> float:
    """How long `action` took."""
    begin = time.monotonic()
    action()
    return time.monotonic() - begin
