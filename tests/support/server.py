"""A real Orbit node in a process of its own, and Orbit's commands run as a person runs them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import engine
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 60.0
COMMAND_SECONDS_MAX = 120.0


def free_port() -> int:
    """A loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def orbit_environ(database_url: str, **settings: str) -> dict[str, str]:
    """The environment of a process of the product: nothing of this test run's but the database."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return {
        **kept,
        "PYTHONUNBUFFERED": "1",
        "ORBIT_SECRET_KEY": "a-key-that-only-servers-under-test-use",
        "ORBIT_DATABASE_URL": database_url,
        "ORBIT_LOG_FORMAT": "json",
        **settings,
    }


def manage(database_url: str, *arguments: str, check: bool = True, **settings: str) -> subprocess.CompletedProcess[str]:
    """`manage.py …` on a database; AssertionError with its output if it fails and `check` is on."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env=orbit_environ(database_url, **settings),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    if check:
        assert done.returncode == 0, f"manage.py {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True)
class Credentials:
    """What `orbit_bootstrap` wrote: the file and its members."""

    path: Path
    members: dict[str, Any]

    @property
    def token(self) -> str:
        return str(self.members["token"])

    @property
    def namespace_id(self) -> str:
        return str(self.members["namespace_id"])

    @property
    def application_id(self) -> str:
        return str(self.members["application_id"])

    @property
    def queues(self) -> dict[str, str]:
        """Queue name -> queue id."""
        return dict(self.members["queues"])


def bootstrap(
    database_url: str, *, application: str, namespace: str, policy: str = "AGED", more: tuple[str, ...] = ()
) -> Credentials:
    """Make what is missing and issue a credential that may do everything in the namespace."""
    number = len(list(engine.directory().glob("credentials-*.json")))
    path = engine.directory() / f"credentials-{number}-{os.getpid()}.json"
    manage(
        database_url,
        *("orbit_bootstrap", "--application", application, "--namespace", namespace, "--environment", "test"),
        *("--policy", policy, "--worker-access", "--node-access", *more, "--output", str(path)),
    )
    return Credentials(path, json.loads(path.read_text()))


class ServerProcess:
    """A node: `manage.py orbit_serve` on a port of its own. `environ` are further `ORBIT_…` settings."""

    def __init__(
        self, database_url: str, *, port: int | None = None, arguments: tuple[str, ...] = (), **settings: str
    ) -> None:
        self.database_url = database_url
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.websocket_url = f"ws://127.0.0.1:{self.port}"
        self.log = engine.directory() / f"server-{os.getpid()}-{self.port}.log"
        self._arguments = arguments
        self._settings = settings
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> ServerProcess:
        """Start; with `wait`, return when `/readyz` answers 200."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(ROOT / "manage.py"),
                    "orbit_serve",
                    "--bind",
                    f"127.0.0.1:{self.port}",
                    *self._arguments,
                ],
                env=orbit_environ(self.database_url, **self._settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        if wait:
            eventually(self._ready_or_dead, READY_SECONDS_MAX, describe=self.log_tail)
            assert self.process.poll() is None, f"orbit_serve ended with {self.process.returncode}:\n{self.log_tail()}"
        return self

    def _ready_or_dead(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None or self.readiness() == 200

    def readiness(self) -> int | None:
        """The status of `/readyz`; None where nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, *, timeout: float = STOP_SECONDS_MAX) -> int:
        """SIGTERM, and the exit status; killed (and a failure) if it does not end in time."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # a stopped process would never hear the next one
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"orbit_serve did not end within {timeout} s:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
