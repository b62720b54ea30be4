"""Commands of a real process: what `orbit_settings` shows, and that wrong settings stop everything with exit 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_project.configuration import VARIABLES

ROOT = Path(__file__).resolve().parents[2]
SECRET = "the-secret-that-must-not-be-shown-anywhere"


def manage(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_orbit_settings_lists_every_setting_without_secrets():
    done = manage(
        "orbit_settings",
        "--json",
        ORBIT_SECRET_KEY=SECRET,
        ORBIT_METRICS_TOKEN=SECRET,
        ORBIT_LEASE_MS="20000",
        ORBIT_DATABASE_URL="mysql://orbit:hunter2@db.example/orbit",
    )

    assert done.returncode == 0, done.stderr
    lines = {line["name"]: line for line in json.loads(done.stdout)}
    assert list(lines) == [variable.name for variable in VARIABLES]
    assert lines["ORBIT_SECRET_KEY"]["value"] == "(hidden)"
    assert lines["ORBIT_LEASE_MS"] == {
        "name": "ORBIT_LEASE_MS",
        "value": "20000",
        "source": "environment",
        "default": "30000",
        "unit": "ms",
        "range": "an integer from 300 to 86400000",
        "secret": False,
        "meaning": "how long a running attempt holds without a renewal",
    }
    assert lines["ORBIT_SCAN_CYCLE_MS"]["source"] == "default"
    assert lines["ORBIT_NODE_ADDR"]["value"] is None
    assert SECRET not in done.stdout
    assert "hunter2" not in done.stdout


def test_orbit_settings_is_a_table_for_people():
    done = manage("orbit_settings", ORBIT_DEBUG="1")

    assert done.returncode == 0, done.stderr
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["NAME", "VALUE", "SOURCE", "DEFAULT", "UNIT", "RANGE"]
    assert [row.split()[0] for row in rows] == [variable.name for variable in VARIABLES]


@pytest.mark.parametrize("command", ["orbit_settings", "migrate", "check"])
def test_wrong_settings_stop_every_command_with_exit_2(command):
    done = manage(command, ORBIT_SECRET_KEY=SECRET, ORBIT_LEASE_MS="soon", ORBIT_COLOUR="blue")

    assert done.returncode == 2
    assert "ORBIT_LEASE_MS: expected an integer from 300 to 86400000 (ms); found 'soon'" in done.stderr
    assert "ORBIT_COLOUR: expected a known name" in done.stderr
    assert "Traceback" not in done.stderr
