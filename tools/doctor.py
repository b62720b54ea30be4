"""`make doctor`: what this machine has and lacks, line by line, each OK or FIX with the fix.

It looks at the database that the environment's own ORBIT_… settings name, and changes nothing in it; the round trip at
the end runs on a database of its own, which is removed again.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.mariadb import server_version
from tools import demo, environment, system_packages
from tools.environment import PYTHON, PYTHON_MIN, VENV, clean_environ
from tools.node import Node, debug_environ, manage
from tools.steps import LOGS, ROOT, StepFailed, relative

SQLITE_MIN = (3, 37)


class Findings:
    """The lines so far, and how many of them want mending."""

    def __init__(self) -> None:
        self.to_fix = 0

    def line(self, name: str, ok: bool, seen: str, mend: str = "") -> bool:
        """Print one finding; whether it is well."""
        print(f" {'OK ' if ok else 'FIX'}  {name:<14} {seen}", flush=True)
        if not ok:
            self.to_fix += 1
            print(f"{'':<21}→ {mend}")
        return ok


def main() -> int:
    sys.stdout.reconfigure(errors="replace", line_buffering=True)  # type: ignore[union-attr]
    print("Orbit doctor")
    findings = Findings()
    _look_at_the_machine(findings)
    if _look_at_the_environment(findings) and _look_at_the_settings(findings):
        _look_at_the_database(findings)
        _round_trip(findings)
    _look_at_the_tests(findings)
    print(f" {findings.to_fix} to mend" if findings.to_fix else " All well.")
    return 1 if findings.to_fix else 0


def _look_at_the_machine(findings: Findings) -> None:
    version = ".".join(str(part) for part in sys.version_info[:3])
    findings.line("Python", sys.version_info >= PYTHON_MIN, version, "make doctor PYTHON=python3.11")
    embedded = sqlite3.sqlite_version_info
    findings.line("SQLite", embedded >= SQLITE_MIN, sqlite3.sqlite_version, "a Python with SQLite 3.37 or newer")
    try:
        LOGS.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=LOGS):
            findings.line("write access", True, relative(LOGS.parent) + "/")
    except OSError as error:
        findings.line(
            "write access", False, f"{relative(LOGS.parent)}/: {error}", f"chown -R $USER {relative(LOGS.parent)}"
        )
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            findings.line("free port", True, f"127.0.0.1:{probe.getsockname()[1]}")
    except OSError as error:
        findings.line("free port", False, str(error), "allow programs to listen on the loopback interface")


def _look_at_the_environment(findings: Findings) -> bool:
    missing = [group for group in environment.RUN_GROUPS if not environment.is_installed(group)]
    seen = relative(VENV) if not missing else f"{relative(VENV)} lacks {', '.join(missing)}"
    return findings.line("environment", not missing, seen, "make demo   (installs it)")


def _look_at_the_settings(findings: Findings) -> bool:
    """The settings as a command would find them; debug is assumed only where there is no secret key."""
    done = subprocess.run(
        [PYTHON, ROOT / "manage.py", "orbit_settings", "--json"],
        env=_own_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode != 0:
        wrong = [line for line in done.stderr.splitlines() if line.startswith("ORBIT_")] or done.stderr.splitlines()[
            -1:
        ]
        return findings.line("settings", False, "; ".join(wrong), "correct or unset these variables")
    known = {line["name"] for line in json.loads(done.stdout)}
    given = sorted(known & set(os.environ))
    seen = ", ".join(given) if given else "all as by default"
    if "ORBIT_SECRET_KEY" not in given:
        seen += " (looked at in debug, since there is no ORBIT_SECRET_KEY)"
    return findings.line("settings", True, seen)


def _own_environ() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name.startswith("ORBIT_")}
    if "ORBIT_SECRET_KEY" not in own:
        own = debug_environ() | own
    return clean_environ(**own)


def _look_at_the_database(findings: Findings) -> None:
    done = subprocess.run(
        [PYTHON, "-m", "tools.doctor_database"],
        env=_own_environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        finding = json.loads(line)
        findings.line(finding["name"], finding["ok"], finding["seen"], finding["mend"])
    if not lines:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        findings.line("database", False, last, "mend ORBIT_DATABASE_URL")


def _round_trip(findings: Findings) -> None:
    """Submit, claim and finish through a node, on a database that exists for this alone."""
    began = time.monotonic()
    home = Path(tempfile.mkdtemp(prefix="orbit-doctor-"))
    log = LOGS / "doctor.txt"
    log.write_text("")
    environ = debug_environ(ORBIT_DATABASE_URL=f"sqlite:///{home}/orbit.sqlite3")
    orbit = clean_environ(**environ)
    credentials = home / "credentials.json"
    try:
        manage("migrate", "--verbosity", "0", environ=orbit, log=log, cause="migrate failed", next_command="make demo")
        manage(
            *("orbit_bootstrap", "--application", "doctor", "--namespace", "doctor", "--environment", "doctor"),
            *("--worker-access", "--output", str(credentials)),
            environ=orbit,
            log=log,
            cause="orbit_bootstrap failed",
            next_command="make demo",
        )
        with Node(environ, log_name="doctor-server.txt") as node:
            demo.run_example("priority", node.url, credentials)
        findings.line(
            "round trip", True, f"3 tasks submitted, claimed and finished in {time.monotonic() - began:.1f} s"
        )
    except StepFailed as failure:
        where = relative(failure.log) if failure.log is not None else relative(log)
        findings.line("round trip", False, failure.cause, f"read {where}")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _look_at_the_tests(findings: Findings) -> None:
    """Not needed to run Orbit, so these lines never count as something to mend."""
    version = server_version()
    missing = system_packages.missing()
    print(f" {'OK ' if not missing else '-  '}  for make test  ", end="")
    if missing:
        print(f"it will install {', '.join(missing)} with apt")
    else:
        print(f"MariaDB {version}" if version else "the server of ORBIT_TEST_MYSQL_URL")


if __name__ == "__main__":
    sys.exit(main())
