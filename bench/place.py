"""Where a benchmark runs: a private, durable MariaDB, a node of its own, one tenant."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import MySQLdb

from tests.support.mariadb import PrivateMariaDB, free_port, start_private_mariadb
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[1]
BUFFER_POOL = "2G"


@dataclass
class Place:
    server: PrivateMariaDB
    directory: Path

    def environ(self, **more: str) -> dict[str, str]:
        """The environment of a process of the product. PATH and HOME are the only things it takes from ours."""
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": os.environ.get("HOME", str(self.directory)),
            "ORBIT_DATABASE_URL": self.server.url,
            "ORBIT_SECRET_KEY": "a-long-key-that-only-benchmarks-ever-use",
            "ORBIT_LOG_FORMAT": "json",
            "ORBIT_LOG_LEVEL": "WARNING",
            "PYTHONUNBUFFERED": "1",
            **more,
        }

    def manage(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environ(),
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def credentials(self, application: str, queues: list[str]) -> dict[str, Any]:
        path = self.directory / f"{application}.json"
        options = [option for queue in queues for option in ("--queue", queue)]
        self.manage(
            *("orbit_bootstrap", "--application", application, "--namespace", "bench", "--environment", "bench"),
            *(*options, "--worker-access", "--output", str(path)),
        )
        return {**json.loads(path.read_text()), "path": str(path)}

    def connect(self) -> Any:
        """A raw connection in the session state that Orbit uses."""
        url = urlsplit(self.server.url)
        connection = MySQLdb.connect(
            host=url.hostname,
            port=url.port,
            user=url.username,
            db=url.path.strip("/"),
            charset="utf8mb4",
            autocommit=True,
        )
        connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return connection

    @contextmanager
    def node(self, **settings: str) -> Iterator[tuple[str, int]]:
        """(url, pid) of a running node."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with (self.directory / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "orbit_serve", "--bind", f"127.0.0.1:{port}"],
                cwd=ROOT,
                env=self.environ(**settings),
                stdout=log,
                stderr=log,
            )
        try:
            eventually(lambda: _answers(port), timeout=60)
            yield url, process.pid
        finally:
            process.terminate()
            process.wait(60)


def _answers(port: int) -> bool:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def place() -> Iterator[Place]:
    directory = Path(tempfile.mkdtemp(prefix="orbit-bench-"))
    server = start_private_mariadb(buffer_pool=BUFFER_POOL)
    try:
        found = Place(server, directory)
        found.manage("migrate")
        yield found
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
