"""`make demo` in this very checkout: the lines that it must print, status 0, nothing left running."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.timeout(300),
    pytest.mark.sqlite_only("the demo runs on SQLite, whatever the engine of the tests"),
]


def processes_of_this_checkout() -> set[str]:
    """Command lines of running nodes that were started from here."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            here = os.readlink(process / "cwd") == str(ROOT)
        except OSError:
            continue
        if here and "orbit_serve" in command:
            found.add(f"{process.name} {command}")
    return found


def make(target: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"]}  # no HOME, no locale, no settings
    return subprocess.run(
        ["make", target], cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_the_demo_shows_the_seeds_two_lines_and_leaves_nothing_running():
    before = processes_of_this_checkout()

    done = make("demo")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "submitted_priorities=0,9,4 executed_priorities=9,4,0" in done.stdout
    assert "completed=3 attempts_per_task=1 worker_drained=true" in done.stdout
    assert "REJECTED" in done.stdout
    assert (ROOT / "var" / "demo.credentials.json").stat().st_mode & 0o777 == 0o600
    assert processes_of_this_checkout() - before == set()


def test_the_doctor_finds_this_checkout_well_after_a_demo():
    make("demo")

    done = make("doctor")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "FIX" not in done.stdout
