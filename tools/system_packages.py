"""Debian packages that the tests need: a MariaDB server (without a service) and what mysqlclient is built with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from tests.support.mariadb import find_program
from tools import environment
from tools.steps import LOGS, StepFailed

LOG = LOGS / "apt.txt"
SERVER = ("mariadb-server-core", "mariadb-client-core")
BUILD = ("libmariadb-dev", "pkg-config", "gcc", "python3-dev")


def missing() -> list[str]:
    """The packages that are needed and not there; none where a MySQL server is given and its driver is installed."""
    names: list[str] = []
    if not os.environ.get("ORBIT_TEST_MYSQL_URL") and not (
        find_program("mariadbd") and find_program("mariadb-install-db")
    ):
        names += SERVER
    if not environment.is_installed("mysql"):
        names += _missing_for_the_driver()
    return names


def _missing_for_the_driver() -> list[str]:
    """mysqlclient comes as source only: it wants a compiler, Python's headers and MariaDB's client library."""
    names = []
    if shutil.which("pkg-config") is None:
        names += ["pkg-config", "libmariadb-dev"]
    elif not any(_pkg_config(name) for name in ("libmariadb", "mysqlclient", "mariadb")):
        names.append("libmariadb-dev")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        names.append("gcc")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        names.append("python3-dev")
    return names


def _pkg_config(name: str) -> bool:
    return subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0


def ensure() -> list[str]:
    """Install what is missing with apt, as root or by sudo without a password; what was installed.

    Raises StepFailed with one sentence that says what to install where that is not possible.
    """
    names = missing()
    if not names:
        return []
    command = f"apt-get install -y --no-install-recommends {' '.join(names)}"
    prefix = _as_root()
    if prefix is None or shutil.which("apt-get") is None:
        raise StepFailed(
            f"the tests on MariaDB need {', '.join(names)}, and only root can install them",
            next_command=f"sudo {command}",
        )
    LOGS.mkdir(parents=True, exist_ok=True)
    with LOG.open("wb") as log:
        for line in ("apt-get update", command):
            done = subprocess.run(
                [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", *line.split()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
            # Stale lists of other sources do not matter; whether the install works is what counts.
            if done.returncode != 0 and line == command:
                raise StepFailed(f"apt could not install {', '.join(names)}", next_command=f"sudo {command}", log=LOG)
    return names


def _as_root() -> list[str] | None:
    """How to run a program as root without being asked for anything; None if that is not possible."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is not None:
        asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if asked.returncode == 0:
            return ["sudo", "-n"]
    return None
