"""Each example runs against a real node, prints what it promises, and ends within 25 seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import orbit_sdk
from tests.support.fixtures import RunningOrbit

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SDK = Path(orbit_sdk.__file__).parents[1]
SCENE_SECONDS = 30.0  # 25 for the example itself, the rest for starting Python


def run_example(name: str, running: RunningOrbit, *, strict: bool = False) -> str:
    """Its standard output; AssertionError with everything it said if it fails."""
    credentials = running.strict if strict else running.aged
    path = EXAMPLES / name
    done = subprocess.run(
        [sys.executable, str(path)] if path.suffix == ".py" else [str(path)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SDK),
            "ORBIT_URL": running.url,
            "ORBIT_CREDENTIALS_FILE": str(credentials.path),
        },
        capture_output=True,
        text=True,
        timeout=SCENE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{running.server.log_tail()}"
    return done.stdout


def test_priority_prints_the_two_lines_of_the_seed(orbit_server: RunningOrbit) -> None:
    assert run_example("priority.py", orbit_server).splitlines() == [
        "submitted_priorities=0,9,4 executed_priorities=9,4,0",
        "completed=3 attempts_per_task=1 worker_drained=true",
    ]


def test_batch_is_half_refused_and_completed_with_the_same_keys(orbit_server: RunningOrbit) -> None:
    assert run_example("batch.py", orbit_server).splitlines() == [
        "8 sent: 4 ACCEPTED, 4 REJECTED QUEUE_FULL",
        "room made: 4 ACCEPTED with the same keys, 8 run, 0 doubled",
    ]


def test_curl_needs_nothing_but_a_shell(orbit_server: RunningOrbit) -> None:
    assert run_example("curl.sh", orbit_server).splitlines()[-1] == "cancelled"


def test_strict_yield_lets_the_urgent_task_cut_in_line(orbit_server: RunningOrbit) -> None:
    assert run_example("strict_yield.py", orbit_server, strict=True).splitlines() == [
        "held=4 yielded=1 interrupted=0",
        "executed_priorities=0,9,0,0,0 attempts_per_task=1",
    ]


def test_strict_yield_refuses_an_aged_namespace(orbit_server: RunningOrbit) -> None:
    with pytest.raises(AssertionError, match="STRICT namespace"):
        run_example("strict_yield.py", orbit_server)


def test_outbox_sends_what_was_committed_and_nothing_else(orbit_server: RunningOrbit) -> None:
    assert run_example("outbox.py", orbit_server).splitlines() == [
        "committed=3 rolled_back=1",
        "lost_answers=1 sent=3 tasks=3 doubled=0",
    ]


@pytest.mark.parametrize("name", ["priority.py", "batch.py", "curl.sh", "outbox.py"])
def test_an_example_without_a_server_ends_with_a_failure(name: str, tmp_path: Path) -> None:
    credentials = tmp_path / "credentials.json"
    credentials.write_text('{"token": "t", "queues": {}}')
    path = EXAMPLES / name
    done = subprocess.run(
        [sys.executable, str(path)] if path.suffix == ".py" else [str(path)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SDK),
            "ORBIT_URL": "http://127.0.0.1:1",
            "ORBIT_CREDENTIALS_FILE": str(credentials),
        },
        capture_output=True,
        timeout=SCENE_SECONDS,
        check=False,
    )

    assert done.returncode != 0
