"""One Orbit node on a free loopback port: started, waited for, stopped in order."""

from __future__ import annotations

import http.client
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from tools.environment import PYTHON, clean_environ
from tools.steps import LOGS, ROOT, StepFailed

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 45.0
SECRET_KEY_FILE = ROOT / "var" / "secret-key"


def free_port() -> int:
    """A loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def debug_environ(**more: str) -> dict[str, str]:
    """The environment of a node for trying out: debug, a secret key of this checkout's own."""
    if not SECRET_KEY_FILE.exists():
        SECRET_KEY_FILE.parent.mkdir(parents=True, exist_ok=True)
        SECRET_KEY_FILE.touch(mode=0o600)
        SECRET_KEY_FILE.write_text(secrets.token_urlsafe(48))
    return {"ORBIT_DEBUG": "1", "ORBIT_SECRET_KEY": SECRET_KEY_FILE.read_text().strip(), **more}


def manage(*arguments: str, environ: dict[str, str], log: Path, next_command: str, cause: str) -> str:
    """Run one of Orbit's commands and give what it printed; StepFailed with `cause` if it does not end with 0."""
    with log.open("ab") as errors:
        done = subprocess.run(
            [PYTHON, ROOT / "manage.py", *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            check=False,
        )
        errors.write(done.stdout)
    if done.returncode != 0:
        raise StepFailed(cause, next_command=next_command, log=log)
    return done.stdout.decode(errors="replace")


class Node:
    """A node process; as a context manager it is stopped at the end, whatever happened."""

    def __init__(self, environ: dict[str, str], *, log_name: str = "server.txt", port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = LOGS / log_name
        self._environ = clean_environ(**environ)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until the node says that it is ready. Raises StepFailed."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [PYTHON, ROOT / "manage.py", "orbit_serve", "--bind", f"127.0.0.1:{self.port}"],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._is_ready():
            if self._process.poll() is not None:
                raise StepFailed(
                    f"the server ended with {self._process.returncode} while starting",
                    next_command="make doctor",
                    log=self.log,
                )
            if time.monotonic() > deadline:
                raise StepFailed(
                    f"the server was not ready within {READY_SECONDS_MAX:.0f} s",
                    next_command="make doctor",
                    log=self.log,
                )
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait(self) -> int:
        """Until the node ends by itself."""
        assert self._process is not None  # noqa: S101  (a caller's mistake)
        return self._process.wait()

    def stop(self) -> int:
        """Ask the node to drain and end; its exit status. A node that does not obey is killed: StepFailed."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise StepFailed("the server did not end when asked to", next_command="make doctor", log=self.log) from None

    def __enter__(self) -> Node:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            status = self.stop()
            if status != 0:
                raise StepFailed(f"the server ended with {status}", next_command="make doctor", log=self.log)
            return
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
