"""A TCP proxy between a client and a MySQL server that can lose the answer to a COMMIT, before or after it took effect.

It understands packet headers and COM_QUERY, no more, and sees every statement that makes something durable: COMMIT
(alone or at the end of a script), autocommit switched on in a transaction, and writes outside one. For each it records
the truth, that is whether the server said OK, so that a test or an auditor can compare what a client was told with what
happened.

    with MysqlProxy(host, port) as proxy:
        proxy.lose(Loss(When.AFTER))            # the next commit takes effect, its answer is lost
        …
        assert proxy.commits[-1].committed

Standard library only. TLS and compression would hide the packets: a client that asks for either is refused.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

_COM_QUERY = 0x03
_OK, _ERR = 0x00, 0xFF
_CLIENT_COMPRESS, _CLIENT_SSL = 0x20, 0x800
_MORE_RESULTS = 0x0008
_COMMIT = re.compile(rb"(?:^|;)\s*COMMIT\s*;?\s*$", re.IGNORECASE)
_BEGIN = re.compile(rb"^\s*(?:START\s+TRANSACTION|BEGIN)\b", re.IGNORECASE)
_MANUAL = re.compile(rb"^\s*SET\s+autocommit\s*=\s*0\b", re.IGNORECASE)
_ROLLBACK = re.compile(rb"^\s*ROLLBACK\s*;?\s*$", re.IGNORECASE)
_AUTOCOMMIT = re.compile(rb"^\s*SET\s+autocommit\s*=\s*1\b", re.IGNORECASE)
_WRITE = re.compile(rb"^\s*(?:INSERT|UPDATE|DELETE|REPLACE)\b", re.IGNORECASE)


class When(Enum):
    BEFORE = "before it took effect"
    AFTER = "after it took effect"


class How(Enum):
    CLOSE = "the connection is closed"
    RESET = "the connection is reset"
    STALL = "nothing more comes; the connection stays open"


@dataclass(frozen=True, slots=True)
class Loss:
    """How an answer is lost. `then` runs once the server has the statement (kill it, kill its session, …)."""

    when: When
    how: How = How.CLOSE
    then: Callable[[], None] | None = None


@dataclass(slots=True)
class Commit:
    """A statement that makes something durable: the end of a transaction, or (`autocommit`) a write outside one.

    `committed` None: the server's answer is not known (yet).
    """

    statement: bytes
    autocommit: bool
    loss: Loss | None = None
    committed: bool | None = None


Policy = Callable[[Commit], Loss | None]


class MysqlProxy:
    """Listens on a loopback port of its own. Thread-safe; `policy` decides about every commit, `None` lets all pass."""

    def __init__(self, host: str, port: int, *, unix_socket: str | None = None) -> None:
        self._server = (host, port)
        self._unix_socket = unix_socket
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.host = "127.0.0.1"
        self.policy: Policy | None = None
        self.commits: list[Commit] = []
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._refusing = False
        self._closed = False
        threading.Thread(target=self._accept, name="mysql-proxy", daemon=True).start()

    # -- what a test says

    def lose(self, loss: Loss, *, times: int = 1, skip: int = 0, autocommit: bool = False) -> None:
        """Lose the answers of the next `times` commits, after letting `skip` pass; of autocommit writes only if asked
        for."""
        left = [skip, times]
        lock = threading.Lock()

        def policy(commit: Commit) -> Loss | None:
            with lock:
                if (commit.autocommit and not autocommit) or left[1] == 0:
                    return None
                if left[0]:
                    left[0] -= 1
                    return None
                left[1] -= 1
                return loss

        self.policy = policy

    def refuse(self, refusing: bool = True) -> None:
        """Close new connections at once: the database cannot be reached."""
        self._refusing = refusing

    def cut(self) -> None:
        """Close every connection now."""
        with self._lock:
            connections = tuple(self._connections)
        for connection in connections:
            connection.close()

    @property
    def lost(self) -> list[Commit]:
        """The commits whose answer was lost."""
        with self._lock:
            return [commit for commit in self.commits if commit.loss is not None]

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.cut()

    def __enter__(self) -> MysqlProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what the connections ask

    def _decide(self, statement: bytes, *, autocommit: bool) -> Commit:
        commit = Commit(statement, autocommit)
        policy = self.policy
        commit.loss = policy(commit) if policy is not None else None
        with self._lock:
            self.commits.append(commit)
        return commit

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            connection = _Connection(self, client, server)
            with self._lock:
                self._connections.add(connection)
            connection.start()

    def _connect(self) -> socket.socket:
        if self._unix_socket is not None:
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._unix_socket)
            return server
        server = socket.create_connection(self._server)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return server


class _Connection:
    """One client and its session at the server; a thread for each direction."""

    def __init__(self, proxy: MysqlProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_transaction = False
        self._manual = False  # autocommit is switched off
        self._expected: Commit | None = None  # the commit whose answer the server owes

    def start(self) -> None:
        for target in (self._forward_client, self._forward_server):
            threading.Thread(target=self._guarded, args=(target,), name="mysql-proxy-connection", daemon=True).start()

    def close(self, how: How = How.CLOSE) -> None:
        self._proxy._forget(self)
        ending = socket.SHUT_RDWR
        if how is How.RESET:
            # Linger 0: the kernel sends RST instead of FIN. Only reading is shut down, to wake the thread that waits
            # in it and keeps the socket alive.
            with contextlib.suppress(OSError):
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ending = socket.SHUT_RD
        with contextlib.suppress(OSError):
            self._client.shutdown(ending)
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._client.close()
        self._server.close()

    def _guarded(self, target: Callable[[], None]) -> None:
        try:
            target()
        except OSError:
            self.close()

    # -- client to server

    def _forward_client(self) -> None:
        while (packet := _read_packet(self._client)) is not None:
            sequence, payload = packet[3], packet[4:]
            if sequence == 1:
                _refuse_unreadable(payload)
            commit = self._commit_in(payload) if sequence == 0 and payload[:1] == bytes([_COM_QUERY]) else None
            if commit is not None and commit.loss is not None and commit.loss.when is When.BEFORE:
                commit.committed = False
                if commit.loss.then is not None:
                    commit.loss.then()
                self._lose(commit.loss)
                return
            self._expected = commit  # before the server can answer
            self._server.sendall(packet)
            if commit is not None and commit.loss is not None and commit.loss.then is not None:
                commit.loss.then()
        self.close()

    def _commit_in(self, payload: bytes) -> Commit | None:
        """What `payload` makes durable, if it does."""
        statement = payload[1:]
        writes = _WRITE.match(statement) is not None
        if _MANUAL.match(statement):
            self._manual = True
        if _BEGIN.match(statement) or (self._manual and writes):
            self._in_transaction = True
        # Autocommit switched on again commits what is open, as COMMIT does.
        automatic = _AUTOCOMMIT.match(statement) is not None
        self._manual = self._manual and not automatic
        if not self._in_transaction:
            return self._proxy._decide(statement, autocommit=True) if writes else None
        ends = _COMMIT.search(statement) is not None or automatic
        if ends or _ROLLBACK.match(statement):
            self._in_transaction = False
        return self._proxy._decide(statement, autocommit=False) if ends else None

    # -- server to client

    def _forward_server(self) -> None:
        while (packet := _read_packet(self._server)) is not None:
            commit = self._expected
            if commit is not None:
                verdict = _verdict(packet[4:])
                if verdict is not None:
                    commit.committed = verdict
                    self._expected = None
                if commit.loss is not None:
                    if verdict is not None:
                        self._lose(commit.loss)
                        return
                    continue  # an answer to an earlier statement of the script: lost with the rest
            self._client.sendall(packet)
        if self._expected is not None and self._expected.loss is not None:
            self._lose(self._expected.loss)
            return
        self.close()

    def _lose(self, loss: Loss) -> None:
        if loss.how is not How.STALL:
            self.close(loss.how)
            return
        # The server's side ends (it rolls back, or has committed); the client hears nothing until `cut`.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def _read_packet(source: socket.socket) -> bytes | None:
    """One packet with its header; None when the peer has closed."""
    header = _read(source, 4)
    if header is None:
        return None
    payload = _read(source, int.from_bytes(header[:3], "little"))
    return None if payload is None else header + payload


def _read(source: socket.socket, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = source.recv(min(count, 65536))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _verdict(payload: bytes) -> bool | None:
    """Whether the answer says that the statement took effect; None while more answers of the script follow."""
    if payload[:1] == bytes([_ERR]):
        return False
    if payload[:1] != bytes([_OK]):
        return None
    position = _skip_number(payload, _skip_number(payload, 1))
    (status,) = struct.unpack_from("<H", payload, position)
    return None if status & _MORE_RESULTS else True


def _skip_number(payload: bytes, position: int) -> int:
    """Behind the length-encoded number at `position`."""
    return position + {0xFC: 3, 0xFD: 4, 0xFE: 9}.get(payload[position], 1)


def _refuse_unreadable(handshake: bytes) -> None:
    (capabilities,) = struct.unpack_from("<I", handshake)
    if capabilities & (_CLIENT_SSL | _CLIENT_COMPRESS):
        raise ConnectionRefusedError("the proxy reads packets: no TLS, no compression")
