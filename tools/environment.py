"""The virtual environment `.venv`: made once, filled from the pinned requirements, left alone while they are the same.

Works with nothing but Python ≥ 3.11 and pip. Where Debian's venv module is missing, the environment is made without pip
and filled by the system's pip from outside.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.steps import LOGS, ROOT, StepFailed, relative

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "orbit-groups.json"
INSTALL_LOG = LOGS / "install.txt"
PYTHON_MIN = (3, 11)

RUN_GROUPS = ("build", "server", "sdk", "cli")
TEST_GROUPS = (*RUN_GROUPS, "mysql", "dev")
SDK = ROOT / "sdk"


@dataclass(frozen=True)
class Environment:
    """What `ensure` found or made."""

    packages: int
    changed: bool


def clean_environ(**more: str) -> dict[str, str]:
    """This process's environment without a developer's own `ORBIT_…` settings, for processes that must not see them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORBIT_")}
    return {**kept, "PYTHONUNBUFFERED": "1", **more}


def require_python() -> None:
    """Raises StepFailed if the Python that runs this is too old."""
    if sys.version_info < PYTHON_MIN:
        raise StepFailed(
            f"Python {sys.version_info[0]}.{sys.version_info[1]} is too old, Orbit needs 3.11 or newer",
            next_command="make demo PYTHON=python3.11",
        )


def ensure(groups: Iterable[str]) -> Environment:
    """Make `.venv` and install the groups of requirements that are not installed yet. Raises StepFailed."""
    require_python()
    LOGS.mkdir(parents=True, exist_ok=True)
    wanted = {group: _fingerprint(group) for group in groups}
    installed = _stamp() if _works(PYTHON) else None
    if installed is None:
        INSTALL_LOG.write_text("")
        _make()
        installed = {}
    missing = [group for group, fingerprint in wanted.items() if installed.get(group) != fingerprint]
    if missing:
        _install(missing)
        STAMP.write_text(json.dumps({**installed, **{group: wanted[group] for group in missing}}, indent=1))
    return Environment(len(list(VENV.glob("lib/python3*/site-packages/*.dist-info"))), bool(missing))


def is_installed(group: str) -> bool:
    """Whether a group stands in `.venv` as pinned."""
    return _works(PYTHON) and (_stamp() or {}).get(group) == _fingerprint(group)


def _requirements(group: str) -> Path:
    return ROOT / "requirements" / f"{group}.txt"


def _fingerprint(group: str) -> str:
    digest = hashlib.sha256(_requirements(group).read_bytes())
    digest.update(f"{ROOT} {sys.version_info[:2]}".encode())
    if group == "sdk":
        digest.update((SDK / "pyproject.toml").read_bytes())
    return digest.hexdigest()


def _stamp() -> dict[str, str] | None:
    """Which groups are installed; None where `.venv` was not made here (it is then filled anew, not removed)."""
    try:
        stamp = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {} if VENV.is_dir() else None
    return stamp if isinstance(stamp, dict) else {}


def _works(python: Path) -> bool:
    """A virtual environment breaks when its folder or its interpreter moves."""
    if not python.exists():
        return False
    probe = "import sys; raise SystemExit(sys.version_info < (3, 11) or sys.prefix != sys.argv[1])"
    return subprocess.run([python, "-c", probe, str(VENV)], capture_output=True, check=False).returncode == 0


def _make() -> None:
    if VENV.exists():
        shutil.rmtree(VENV)
    with_pip = importlib.util.find_spec("ensurepip") is not None
    if with_pip and _logged([sys.executable, "-m", "venv", str(VENV)]):
        return
    if VENV.exists():
        shutil.rmtree(VENV)
    if not _logged([sys.executable, "-m", "venv", "--without-pip", str(VENV)]):
        raise StepFailed(
            "Python could not make a virtual environment", next_command="apt-get install python3-venv", log=INSTALL_LOG
        )


def _install(groups: list[str]) -> None:
    pip = _pip()
    requirements = [argument for group in groups for argument in ("-r", str(_requirements(group)))]
    if not _logged([*pip, "install", "--no-input", "--disable-pip-version-check", *requirements]):
        raise StepFailed(
            f"pip could not install {', '.join(relative(_requirements(group)) for group in groups)}",
            next_command="the same again, once the package index can be reached; the log says what pip missed",
            log=INSTALL_LOG,
        )
    # The SDK's own folder, so that its examples and the command `orbit` run what stands in this checkout.
    editable = ["install", "--no-input", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-e"]
    if "sdk" in groups and not _logged([*pip, *editable, str(SDK)]):
        raise StepFailed("pip could not install the SDK from sdk/", next_command="make doctor", log=INSTALL_LOG)


def _pip() -> list[str]:
    if _logged([str(PYTHON), "-m", "pip", "--version"]):
        return [str(PYTHON), "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        raise StepFailed("this Python has no pip", next_command="apt-get install python3-pip python3-venv")
    return [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def _logged(command: list[str]) -> bool:
    """Run a command with its output in the install log; whether it ended with 0."""
    with INSTALL_LOG.open("ab") as log:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, cwd=ROOT)
    return done.returncode == 0
