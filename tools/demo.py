"""`make demo`: from nothing to three tasks run in the order of their priorities, and a batch cut in two by a quota."""

from __future__ import annotations

import platform
import sqlite3
import subprocess
import sys
from pathlib import Path

from tools import environment
from tools.environment import PYTHON, clean_environ
from tools.node import Node, debug_environ, manage
from tools.steps import LOGS, ROOT, StepFailed, Steps, explain, relative

DATABASE = ROOT / "var" / "orbit.sqlite3"
CREDENTIALS = ROOT / "var" / "demo.credentials.json"
SETUP_LOG = LOGS / "setup.txt"
CREDENTIAL_SECONDS = 86_400
EXAMPLE_SECONDS_MAX = 60

EXPECTED_PRIORITY = [
    "submitted_priorities=0,9,4 executed_priorities=9,4,0",
    "completed=3 attempts_per_task=1 worker_drained=true",
]


def prepare(steps: Steps, environ: dict[str, str]) -> None:
    """The first three steps, which `make run` takes too: environment, database, credential."""
    with steps.step("environment") as step:
        made = environment.ensure(environment.RUN_GROUPS)
        step.result = f"{relative(environment.VENV):<29} {made.packages} packages"
        step.note = f"log: {relative(environment.INSTALL_LOG)}" if made.changed else "nothing to install"
    SETUP_LOG.write_text("")
    orbit = clean_environ(**environ)
    with steps.step("database") as step:
        manage(
            "migrate",
            "--verbosity",
            "0",
            environ=orbit,
            log=SETUP_LOG,
            cause="the database could not be brought to the current schema",
            next_command="make doctor",
        )
        step.result = _database_result(environ)
    with steps.step("bootstrap") as step:
        # A new credential each time, good for a day: the file of an earlier run may belong to another database.
        CREDENTIALS.unlink(missing_ok=True)
        manage(
            *("orbit_bootstrap", "--application", "demo", "--namespace", "demo", "--environment", "demo"),
            *("--queue", "work", "--worker-access", "--expires-in", str(CREDENTIAL_SECONDS)),
            *("--output", str(CREDENTIALS)),
            environ=orbit,
            log=SETUP_LOG,
            cause="application, queue and credential could not be made",
            next_command=f"rm -r {relative(DATABASE.parent)} && make demo",
        )
        step.result = f"application demo, queue work, credential → {relative(CREDENTIALS)} (0600)"


def _database_result(environ: dict[str, str]) -> str:
    url = environ.get("ORBIT_DATABASE_URL", "")
    if not url.startswith("sqlite:"):
        return "migrated"
    with sqlite3.connect(DATABASE) as connection:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
    return f"{relative(DATABASE):<29} {tables} tables"


def run_example(name: str, url: str, credentials: Path = CREDENTIALS) -> list[str]:
    """Run one example against a node and give the lines that it printed. Raises StepFailed."""
    log = LOGS / f"example-{name}.txt"
    with log.open("wb") as errors:
        try:
            done = subprocess.run(
                [PYTHON, ROOT / "examples" / f"{name}.py"],
                env=clean_environ(ORBIT_URL=url, ORBIT_CREDENTIALS_FILE=str(credentials)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                timeout=EXAMPLE_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(
                f"the example did not end within {EXAMPLE_SECONDS_MAX} s", next_command="make doctor", log=log
            ) from None
        errors.write(done.stdout)
    if done.returncode != 0:
        raise StepFailed(f"the example ended with {done.returncode}", next_command="make doctor", log=log)
    return done.stdout.decode(errors="replace").splitlines()


def demo() -> None:
    """All six steps; nothing is left running. Raises StepFailed."""
    steps = Steps(f"Orbit demo · Python {platform.python_version()} · SQLite (no server needed)", 6)
    environ = debug_environ(ORBIT_DATABASE_URL=_sqlite_url(DATABASE))
    prepare(steps, environ)
    node = Node(environ)
    with steps.step("server") as step:
        try:
            node.start()
        except BaseException:
            node.stop()
            raise
        step.result = f"{node.url:<29} ready"
        step.note = f"log: {relative(node.log)}"
    try:
        with steps.step("priority") as step:
            lines = run_example("priority", node.url)
            if lines[-2:] != EXPECTED_PRIORITY:
                raise StepFailed(
                    "the example did not print what it must",
                    next_command="make doctor",
                    log=LOGS / "example-priority.txt",
                )
            step.result = "\n".join(EXPECTED_PRIORITY)
        with steps.step("batch") as step:
            step.result = "\n".join(run_example("batch", node.url))
    finally:
        status = node.stop()
    if status != 0:
        raise StepFailed(f"the server ended with {status}", next_command="make doctor", log=node.log)
    print("     what you saw: receipts survive a crash; a worker runs only what the database granted;")
    print("                   nothing was retried blindly")
    print(" Look at it:  make run   then open the admin address that it prints (one-time login, valid for 10 minutes)")
    print(" Try it:      .venv/bin/orbit --help · the API's description at /docs/ while `make run` is up")
    print(f" Done in {steps.seconds():.1f} s. Nothing is left running; var/ can be deleted.")


def _sqlite_url(path: Path) -> str:
    return f"sqlite:///{path.relative_to(ROOT)}"


def main() -> int:
    try:
        demo()
    except StepFailed as failure:
        explain(failure)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; nothing is left running", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
