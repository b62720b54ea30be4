"""`make check`: what can be said about the code without running the tests. All checks run; all failures are told."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

from tools.environment import PYTHON, VENV, clean_environ
from tools.steps import LOGS, ROOT, StepFailed, Steps, explain
from tools.suite import prepare


@dataclass(frozen=True)
class Check:
    """One program that must end with 0, and what to type when it does not."""

    name: str
    command: tuple[str, ...]
    mend: str
    environ: dict[str, str] = field(default_factory=dict)
    folder: str = "."


def _tool(name: str) -> str:
    return str(VENV / "bin" / name)


MANAGE = (str(PYTHON), "manage.py")
DEBUG = {"ORBIT_DEBUG": "1", "ORBIT_DATABASE_URL": "sqlite:///var/check.sqlite3"}
# As in production: what Django's deployment checks look at must hold where it matters.
DEPLOYED = {
    "ORBIT_SECRET_KEY": "check-only-7f3aQm2LwXy9TzB4cVn8RkPd5sGh1jUe6oIa0fEMxHq",
    "ORBIT_DATABASE_URL": "sqlite:///var/check.sqlite3",
}

CHECKS = (
    Check("lint", (_tool("ruff"), "check", "."), "make format, then mend what is left by hand"),
    Check("layout", (_tool("ruff"), "format", "--check", "."), "make format"),
    Check("layers", (_tool("lint-imports"),), "mend the import, or change the contract in pyproject.toml and say why"),
    Check("types", (_tool("mypy"),), "mend the types that the log names"),
    Check("types of sdk", (_tool("mypy"), "-p", "orbit_sdk"), "mend the types that the log names", folder="sdk"),
    Check("django", (*MANAGE, "check", "--deploy", "--fail-level", "ERROR"), "mend what Django names", DEPLOYED),
    Check(
        "migrations",
        (*MANAGE, "makemigrations", "--check", "--dry-run"),
        ".venv/bin/python manage.py makemigrations, and give the migration a name that says why",
        DEBUG,
    ),
    Check(
        "schemas",
        (str(PYTHON), "-m", "tools.schemas"),
        "make schemas, then look at the difference: it is what callers see",
        DEBUG,
    ),
)


def main() -> int:
    try:
        prepare()
        steps = Steps("Orbit checks", len(CHECKS))
    except StepFailed as failure:
        explain(failure)
        return 1
    failures = []
    for check in CHECKS:
        try:
            with steps.step(check.name) as step:
                _run(check)
                step.result = "ok"
        except StepFailed as one:
            failures.append(one)
    for found in failures:
        explain(found)
    if not failures:
        print(f" All well, in {steps.seconds():.0f} s.")
    return 1 if failures else 0


def _run(check: Check) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"check-{check.name}.txt"
    with log.open("wb") as output:
        done = subprocess.run(
            check.command,
            env=clean_environ(**check.environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT / check.folder,
            check=False,
        )
    if done.returncode != 0:
        raise StepFailed(f"{check.command[0].rsplit('/', 1)[-1]} found something", next_command=check.mend, log=log)


if __name__ == "__main__":
    sys.exit(main())
