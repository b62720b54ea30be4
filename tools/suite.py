"""`make test`: the whole suite on SQLite and on a real MariaDB, which is installed and started here if need be.

It says first which engines will run, and never leaves one out without failing. The server that it starts lives in a
temporary directory; on a server that is given by ORBIT_TEST_MYSQL_URL it only touches databases that it makes itself.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass

from orbit_project.setting_values import without_password
from tests.support.mariadb import MariaDBUnavailable, PrivateMariaDB, server_version, start_private_mariadb
from tools import environment, system_packages
from tools.environment import PYTHON
from tools.steps import ROOT, StepFailed, Steps, explain, relative

ENGINES = ("sqlite", "mysql")
PARALLEL = "2"
NOTHING_COLLECTED = 5  # pytest's word for a selection without a test


@dataclass(frozen=True)
class Part:
    """One run of pytest: which tests of the suite, with how many processes, on which engines."""

    name: str
    selection: str
    processes: str
    paths: tuple[str, ...] = ()
    engines: tuple[str, ...] = ENGINES


WHOLE = (Part("one by one", "serial", "0"), Part("parallel", "not serial", PARALLEL))
# The decisions, which need no database, once; accepting, claiming and running, which do, on both engines.
FAST = (
    Part(
        "decisions",
        "not serial and not slow and not processes and not database",
        PARALLEL,
        (
            *("tests/tasks_app", "tests/workers_app", "tests/lifecycle_app"),
            *("--ignore=tests/tasks_app/api", "--ignore=tests/tasks_app/management"),
        ),
        ("sqlite",),
    ),
    Part(
        "the main job",
        "not serial and not slow and not processes",
        PARALLEL,
        (
            "tests/orbit_project/test_engines.py",
            *(f"tests/tasks_app/test_{name}.py" for name in ("submission", "claims", "attempts")),
        ),
    ),
)


def prepare() -> None:
    """Everything that the tests need on this machine. Raises StepFailed."""
    steps = Steps("Orbit · getting ready", 2)
    with steps.step("packages") as step:
        environment.require_python()
        installed = system_packages.ensure()
        step.result = f"installed {' '.join(installed)}" if installed else "nothing to install"
    with steps.step("environment") as step:
        made = environment.ensure(environment.TEST_GROUPS)
        step.result = f"{relative(environment.VENV):<29} {made.packages} packages"
        step.note = f"log: {relative(environment.INSTALL_LOG)}" if made.changed else "nothing to install"


def run(parts: tuple[Part, ...], engines: list[str], arguments: list[str]) -> int:
    """Run the parts on each engine; the exit status of `make test`."""
    given = os.environ.get("ORBIT_TEST_MYSQL_URL")
    server: PrivateMariaDB | None = None
    try:
        if "mysql" in engines and not given:
            server = start_private_mariadb(scratch=True)
        print(f"engines: {'  '.join(_described(engine, server, given) for engine in engines)}", flush=True)
        results: list[tuple[str, int, float]] = []
        for engine in engines:
            url = given or (server.url if server is not None else "")
            for part in parts:
                if engine not in part.engines:
                    continue
                began = time.monotonic()
                status = _pytest(engine, url, part, arguments)
                if status != NOTHING_COLLECTED:
                    results.append((f"{engine}, {part.name}", status, time.monotonic() - began))
                if status == 2:  # stopped by the person at the keyboard
                    return status
    except MariaDBUnavailable as reason:
        raise StepFailed(
            f"the private MariaDB did not start: {reason}", next_command="make doctor   (or set ORBIT_TEST_MYSQL_URL)"
        ) from reason
    finally:
        if server is not None:
            server.stop()
    if not results:
        raise StepFailed("no test was selected", next_command="make test")
    for name, status, seconds in results:
        print(f"{name + ':':<24}{'passed' if status == 0 else f'FAILED ({status})'} in {seconds:.0f} s")
    return 0 if all(status == 0 for _, status, _ in results) else 1


def _described(engine: str, server: PrivateMariaDB | None, given: str | None) -> str:
    if engine == "sqlite":
        return f"sqlite ✓ {sqlite3.sqlite_version}"
    if server is not None:
        return f"mariadb ✓ {server.version} (private, port {server.port})"
    return f"mysql ✓ {without_password(given or '')} (given)"


def _pytest(engine: str, url: str, part: Part, arguments: list[str]) -> int:
    print(f"\n== {engine}, {part.name}: pytest -m '{part.selection}'", flush=True)
    environ = environment.clean_environ(**{k: v for k, v in os.environ.items() if k.startswith("ORBIT_TEST_")})
    environ["ORBIT_TEST_ENGINE"] = engine
    if engine == "mysql":
        environ["ORBIT_TEST_MYSQL_URL"] = url
    command = [str(PYTHON), "-m", "pytest", "-q", "-m", part.selection, "-n", part.processes, *part.paths, *arguments]
    return subprocess.run(command, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests on both engines; other arguments go to pytest.")
    parser.add_argument("--fast", action="store_true", help="leave out what is slow")
    parser.add_argument("--prepare", action="store_true", help="install what the tests need, run nothing")
    parser.add_argument("--engine", choices=ENGINES, help="one engine alone (said so, not silently)")
    options, arguments = parser.parse_known_args()
    try:
        prepare()
        if options.prepare:
            return 0
        if options.engine:
            print(f"only {options.engine}, as asked for")
        engines = [options.engine] if options.engine else list(ENGINES)
        if server_version() is None and "mysql" in engines and not os.environ.get("ORBIT_TEST_MYSQL_URL"):
            raise StepFailed("mariadbd is not there although it was installed", next_command="make doctor")
        return run(FAST if options.fast else WHOLE, engines, arguments)
    except StepFailed as failure:
        explain(failure)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
