"""A private MariaDB server: its own data directory, port and socket, durable like a production one.

Standard library only, so that it also serves programs that run before any package is installed. As a program it keeps
a server up until it is told to stop: `python -m tests.support.mariadb` prints the URL and waits for its input to end.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.support.scratch import PID_FILE, scratch_directory

DATABASE = "orbit"
USER = "orbit"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05


class MariaDBUnavailable(Exception):
    """No server could be started; the message says why in one sentence, with the tail of the server's log."""


def find_program(name: str) -> str | None:
    """The path of a server program; Debian keeps some where an ordinary user's PATH does not look."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def server_version() -> str | None:
    """The version of the installed server, or None if there is none."""
    program = find_program("mariadbd")
    if program is None:
        return None
    text = subprocess.run([program, "--no-defaults", "--version"], capture_output=True, text=True, check=False).stdout
    words = text.split()
    return words[words.index("Ver") + 1].split("-")[0] if "Ver" in words else "?"


def free_port() -> int:
    """A loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class PrivateMariaDB:
    """A running server: `url` reaches it over TCP, `socket` by a Unix socket. `stop()` ends it and removes its data."""

    url: str
    socket: Path
    port: int
    datadir: Path
    version: str
    process: subprocess.Popen[bytes]
    arguments: list[str]
    log: Path
    _owned: list[Path] = field(default_factory=list)

    def stop(self) -> None:
        """End the server in order and remove what was made for it. Safe to call twice."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        for path in self._owned:
            shutil.rmtree(path, ignore_errors=True)

    def kill(self) -> None:
        """The server dies as in a power cut: no flush, no goodbye. Its data stays until `stop()`."""
        self.process.kill()
        self.process.wait(STOP_SECONDS_MAX)

    def restart(self) -> None:
        """Start again on the same data and port, after `kill()`."""
        if self.process.poll() is None:
            raise MariaDBUnavailable("the server is still running")
        self.process = _spawn(self.arguments, self.log)
        _await_answer(self.process, self.port, self.log)

    def __enter__(self) -> PrivateMariaDB:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_private_mariadb(
    datadir: str | Path | None = None, buffer_pool: str = "256M", *, scratch: bool = False
) -> PrivateMariaDB:
    """Start a server nobody else uses, with a database `orbit` and a user who may do everything on it.

    Without `datadir` the data lies in a temporary directory and is removed by `stop()`; with it the data is kept, and
    used again if it is there. `scratch` lets the temporary directory lie in memory: for tests, never for measuring.
    Raises MariaDBUnavailable.
    """
    server, installer = find_program("mariadbd"), find_program("mariadb-install-db")
    if server is None or installer is None:
        raise MariaDBUnavailable("mariadbd is not installed (Debian: apt-get install mariadb-server-core)")
    # A short path: a Unix socket's name is at most 107 bytes.
    home = scratch_directory("mariadb") if scratch else Path(tempfile.mkdtemp(prefix="orbit-mariadb-"))
    owned = [home]
    try:
        data = Path(datadir) if datadir is not None else home / "data"
        log = home / "server.log"
        if not (data / "mysql").is_dir():
            _install(installer, data, log, home)
        port, socket_path = free_port(), home / "s.sock"
        init = home / "init.sql"
        # Runs at every start and changes nothing that is there. The empty password is safe on a loopback-only server
        # that lives as long as one test run; a name that nobody else uses keeps it apart from a real one.
        init.write_text(
            f"CREATE DATABASE IF NOT EXISTS `{DATABASE}` CHARACTER SET utf8mb4;\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '';\n"
            f"CREATE USER IF NOT EXISTS '{USER}'@'localhost' IDENTIFIED BY '';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'127.0.0.1';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'localhost';\n"
        )
        arguments = [
            server,
            "--no-defaults",  # no configuration file of the machine has a say
            f"--datadir={data}",
            f"--port={port}",
            f"--socket={socket_path}",
            "--bind-address=127.0.0.1",
            f"--pid-file={home / PID_FILE}",
            f"--tmpdir={home}",
            f"--init-file={init}",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--innodb-flush-log-at-trx-commit=1",  # what production must have; the tests measure nothing else
            f"--innodb-buffer-pool-size={buffer_pool}",
            "--innodb-log-file-size=256M",
            "--max-connections=400",
            "--max-allowed-packet=16M",
            "--performance-schema=OFF",
            *_as_user(),
        ]
        process = _spawn(arguments, log)
        version = _await_answer(process, port, log)
    except BaseException:
        for path in owned:
            shutil.rmtree(path, ignore_errors=True)
        raise
    return PrivateMariaDB(
        url=f"mysql://{USER}@127.0.0.1:{port}/{DATABASE}",
        socket=socket_path,
        port=port,
        datadir=data,
        version=version,
        process=process,
        arguments=arguments,
        log=log,
        _owned=owned,
    )


def _install(installer: str, data: Path, log: Path, home: Path) -> None:
    data.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        done = subprocess.run(
            [
                installer,
                "--no-defaults",
                f"--datadir={data}",
                f"--tmpdir={home}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                *_as_user(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise MariaDBUnavailable(f"mariadb-install-db ended with {done.returncode}: {_tail(log)}")


def _as_user() -> list[str]:
    """The server refuses to run as root unless it is told to; a container has nobody else."""
    return [f"--user={getpass.getuser()}"] if os.geteuid() != 0 else ["--user=root"]


def _spawn(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        # A session of its own: Ctrl-C in the terminal goes to the tests, which then stop the server in order.
        return subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def _await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> str:
    """Wait for the greeting packet that a MySQL server sends to whoever connects; it carries the version."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise MariaDBUnavailable(f"mariadbd ended with {process.returncode} while starting: {_tail(log)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0) as peer:
            greeting = peer.recv(256)
            if len(greeting) > 6 and greeting[4] == 10:  # protocol version 10, then the version, NUL-terminated
                return greeting[5:].split(b"\0", 1)[0].decode("ascii", "replace").removeprefix("5.5.5-").split("-")[0]
        time.sleep(POLL_SECONDS)
    process.kill()
    process.wait(STOP_SECONDS_MAX)
    raise MariaDBUnavailable(f"mariadbd did not answer within {START_SECONDS_MAX:.0f} s: {_tail(log)}")


def _tail(log: Path, lines: int = 8) -> str:
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def main() -> int:
    parser = argparse.ArgumentParser(description="Keep a private MariaDB up until the standard input ends.")
    parser.add_argument("--datadir", help="where the data lies; kept afterwards (default: temporary)")
    parser.add_argument("--buffer-pool", default="256M")
    options = parser.parse_args()
    try:
        with start_private_mariadb(options.datadir, options.buffer_pool) as server:
            print(server.url, flush=True)
            print(f"MariaDB {server.version}, socket {server.socket}; ends with its input (Ctrl-D)", file=sys.stderr)
            with contextlib.suppress(KeyboardInterrupt):
                sys.stdin.read()
    except MariaDBUnavailable as reason:
        print(f"mariadb: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
