"""A scriptable storage node: `python -m lifecycle_app.fakes.storage_node --port N --name NAME --token T [--legacy]`.

As a process it takes one JSON order a line on its input and tells what happens as one JSON event a line:

    {"do": "report", "tasks": [{"gid": 5, "status": 1, "progress": 10}]}   with report id, revision and operation ids;
        optional: "report_id", "revision", "operation_ids" (what to say instead), "hold": true (keep it back)
    {"do": "send_held", "reversed": true}      {"do": "repeat", "report_id": "…"}      {"do": "resend_unacknowledged"}
    {"do": "status", "gid": 5, "status": 1}    the old type 3                          {"do": "lose_acks", "count": 1}
    {"do": "disconnect"} {"do": "connect"}     {"do": "fail_deletes", "count": 1}      {"do": "raw", "hex": "0e00"}

    events: connected · hello · command · ack · ack_lost · sent · closed

With `auto` it downloads (1, 2, 3, 4) and deletes by itself. What it reported and was not acknowledged it keeps, and
sends again when it connects: that is the snapshot of the protocol.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

IDENTITY, DOWNLOAD_POST, DELETE_GALLERY, GALLERY_STATUS = 0, 1, 2, 3
HELLO, COMMAND, REPORT, ACK = 10, 11, 12, 13

Event = dict[str, Any]


class _Transport(Protocol):
    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """Some bytes; none at the end."""
        ...

    def close(self) -> None: ...


class _Tcp:
    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=10)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        return self._socket.recv(65536)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _WebSocket:
    """One message per `send`: whole frames, as the protocol wants them."""

    def __init__(self, url: str, token: str) -> None:
        from websockets.sync.client import connect

        self._socket = connect(url, additional_headers={"Authorization": f"Bearer {token}"}, compression=None)
        self.close_code: int | None = None

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def receive(self) -> bytes:
        from websockets.exceptions import ConnectionClosed

        try:
            message = self._socket.recv()
        except ConnectionClosed as closed:
            self.close_code = closed.rcvd.code if closed.rcvd else None
            return b""
        return message if isinstance(message, bytes) else message.encode()

    def close(self) -> None:
        self._socket.close()


def frame(code: int, body: dict[str, Any]) -> bytes:
    data = json.dumps(body, ensure_ascii=False).encode()
    return struct.pack(">BI", code, len(data)) + data


class FakeStorageNode:
    """One node, its holdings and its unacknowledged reports; they outlive its connections."""

    def __init__(
        self,
        *,
        name: str,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        url: str | None = None,
        speaks_v2: bool = True,
        auto: bool = False,
        journal_file: Path | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.name, self.token, self.host, self.port, self.url = name, token, host, port, url
        self.speaks_v2, self.auto = speaks_v2, auto
        self.holdings: dict[int, str | None] = {}  # gid -> operation id of the DOWNLOAD that brought it
        self.deleting: dict[int, str] = {}
        self.unacknowledged: dict[str, bytes] = {}
        self.events: list[Event] = []
        self._held: list[tuple[str, bytes]] = []
        self._acks_to_lose = self._deletes_to_fail = 0
        self._revision = 0
        self._transport: _Transport | None = None
        self._sending = threading.Lock()
        self._changed = threading.Condition()
        self._file = None if journal_file is None else journal_file.open("a", encoding="utf-8")
        self._on_event = on_event

    # -- Connection

    def connect(self) -> None:
        """Connects, says who it is, and reads in a thread until the connection ends."""
        transport: _Transport = _Tcp(self.host, self.port) if self.url is None else _WebSocket(self.url, self.token)
        self._transport = transport
        transport.send(frame(IDENTITY, {"name": self.name, "token": "" if self.url else self.token}))
        self._tell({"event": "connected"})
        threading.Thread(target=self._read, args=(transport,), name=f"fake-node-{self.name}", daemon=True).start()

    def disconnect(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def send_raw(self, data: bytes) -> None:
        with self._sending:  # frames of two threads must not mix
            if self._transport is not None:
                self._transport.send(data)

    def wait_for(self, test: Callable[[Event], bool], *, seconds: float = 10, after: int = 0) -> Event:
        """The first event from position `after` on that passes; raises TimeoutError with what happened instead."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                for event in self.events[after:]:
                    if test(event):
                        return event
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"node {self.name}: no such event within {seconds} s; saw {self.events[after:]}")
                self._changed.wait(left)

    # -- What a node says

    def report(
        self,
        *tasks: dict[str, Any],
        report_id: str | None = None,
        revision: int | None = None,
        operation_ids: dict[str, str] | None = None,
        hold: bool = False,
    ) -> str:
        """Sends a type 12 report of `tasks`; keeps it until it is acknowledged. Returns its id."""
        with self._changed:
            self._revision = self._revision + 1 if revision is None else max(self._revision, revision)
            number = self._revision if revision is None else revision
        report_id = report_id or f"{self.name}-{number}-{os.urandom(4).hex()}"
        if operation_ids is None:
            operation_ids = {str(task["gid"]): known for task in tasks if (known := self._operation_id_of(task))}
        body = {"reportId": report_id, "revision": number, "galleryTasks": list(tasks), "operationIds": operation_ids}
        data = frame(REPORT, body)
        self.unacknowledged[report_id] = data
        if hold:
            self._held.append((report_id, data))
        else:
            self._send(data, {"event": "sent", **body})
        return report_id

    def send_held(self, *, backwards: bool = False) -> None:
        held, self._held = self._held, []
        for report_id, data in reversed(held) if backwards else held:
            self._send(data, {"event": "sent", "reportId": report_id})

    def repeat(self, report_id: str) -> None:
        self._send(self.unacknowledged[report_id], {"event": "sent", "reportId": report_id, "again": True})

    def resend_unacknowledged(self) -> None:
        for report_id in list(self.unacknowledged):
            self.repeat(report_id)

    def legacy_status(self, gid: int, status: int) -> None:
        body = {"galleryTasks": [{"gid": gid, "status": status}]}
        self._send(frame(GALLERY_STATUS, body), {"event": "sent", **body})

    def lose_acks(self, count: int) -> None:
        """The next acknowledgements never arrive, as if the connection had cut them off."""
        self._acks_to_lose = count

    def fail_deletes(self, count: int) -> None:
        self._deletes_to_fail = count

    def _operation_id_of(self, task: dict[str, Any]) -> str | None:
        gid = task["gid"]
        deletes = task.get("deleted") or task.get("error") is not None
        return self.deleting.get(gid) if deletes else self.holdings.get(gid)

    # -- What a node hears

    def _read(self, transport: _Transport) -> None:
        buffer = b""
        try:
            while data := transport.receive():
                buffer += data
                while len(buffer) >= 5 and len(buffer) >= 5 + (length := int.from_bytes(buffer[1:5], "big")):
                    self._heard(buffer[0], json.loads(buffer[5 : 5 + length]))
                    buffer = buffer[5 + length :]
        except OSError as error:
            self._tell({"event": "closed", "error": type(error).__name__})
        else:
            self._tell({"event": "closed", "code": getattr(transport, "close_code", None)})

    def _heard(self, code: int, body: dict[str, Any]) -> None:
        if code == HELLO:
            if self.speaks_v2:
                self.send_raw(frame(HELLO, {"protocolVersion": 2, "features": ["reliable-task-v2"]}))
            self._tell({"event": "hello", **body})  # from here on a report may leave
            if self.speaks_v2:
                self.resend_unacknowledged()
        elif code == COMMAND:
            self._commanded(
                body["action"], body["gid"], body["operationId"], {"event": "command", "type": code, **body}
            )
        elif code == DOWNLOAD_POST:
            self._commanded("DOWNLOAD", body["gid"], None, {"event": "command", "type": code, **body})
        elif code == DELETE_GALLERY:
            self._commanded("DELETE", body["gid"], None, {"event": "command", "type": code, **body})
        elif code == ACK and self._acks_to_lose > 0:
            self._acks_to_lose -= 1
            self._tell({"event": "ack_lost", **body})
        elif code == ACK:
            self.unacknowledged.pop(body["reportId"], None)
            self._tell({"event": "ack", **body})

    def _commanded(self, action: str, gid: int, operation_id: str | None, event: Event) -> None:
        if action == "DOWNLOAD":
            self.holdings[gid] = operation_id
        elif operation_id is not None:
            self.deleting[gid] = operation_id
        self._tell(event)
        if self.auto and self.speaks_v2:
            threading.Thread(target=self._work, args=(action, gid), daemon=True).start()

    def _work(self, action: str, gid: int) -> None:
        if action == "DOWNLOAD":
            for status, progress in ((1, 50), (2, 100), (3, 100), (4, 100)):
                self.report({"gid": gid, "status": status, "progress": progress})
        elif self._deletes_to_fail > 0:
            self._deletes_to_fail -= 1
            self.report({"gid": gid, "error": "the files are in use"})
        else:
            self.report({"gid": gid, "deleted": True})
            self.holdings.pop(gid, None)

    # -- Telling

    def _send(self, data: bytes, event: Event) -> None:
        self._tell(event)
        with contextlib.suppress(OSError):  # a report that cannot leave is sent again at the next connection
            self.send_raw(data)

    def _tell(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            if self._file is not None:
                self._file.write(json.dumps(event) + "\n")
                self._file.flush()
                os.fsync(self._file.fileno())
            if self._on_event is not None:
                self._on_event(event)
            self._changed.notify_all()


def obey(node: FakeStorageNode, order: dict[str, Any]) -> None:
    """One order of the process's input."""
    word = order.pop("do")
    if word == "report":
        tasks = order.pop("tasks")
        node.report(*tasks, **order)
    elif word == "send_held":
        node.send_held(backwards=bool(order.get("reversed")))
    elif word == "repeat":
        node.repeat(order["report_id"])
    elif word == "resend_unacknowledged":
        node.resend_unacknowledged()
    elif word == "status":
        node.legacy_status(order["gid"], order["status"])
    elif word == "lose_acks":
        node.lose_acks(order["count"])
    elif word == "fail_deletes":
        node.fail_deletes(order["count"])
    elif word == "connect":
        node.connect()
    elif word == "disconnect":
        node.disconnect()
    elif word == "raw":
        node.send_raw(bytes.fromhex(order["hex"]))
    else:
        raise SystemExit(f"unknown order {word!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A scriptable storage node for tests and the example.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--url", help="connect over WebSocket instead")
    parser.add_argument("--name", required=True)
    parser.add_argument("--token", required=True)
    parser.add_argument("--legacy", action="store_true", help="never answer the hello")
    parser.add_argument("--auto", action="store_true", help="download and delete without being told how")
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args()

    def told(event: Event) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    node = FakeStorageNode(
        name=options.name,
        token=options.token,
        host=options.host,
        port=options.port,
        url=options.url,
        speaks_v2=not options.legacy,
        auto=options.auto,
        journal_file=options.journal,
        on_event=told,
    )
    for line in sys.stdin:
        obey(node, json.loads(line))
    node.disconnect()


if __name__ == "__main__":
    main()
