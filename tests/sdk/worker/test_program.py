"""`worker.run()` in a real process: what it prints, and how it leaves on signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import orbit_sdk
from tests.sdk.fake_node import QUEUE, FakeNode
from workers_app.protocol import messages as wire

PROGRAM = Path(__file__).with_name("program.py")
SDK = Path(orbit_sdk.__file__).parent.parent


@contextmanager
def program(node: FakeNode, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    credentials = folder / "credentials.json"
    credentials.write_text(json.dumps({"url": node.url, "token": "orbit_secret", "queues": {"reports": QUEUE}}))
    environ = {**os.environ, "ORBIT_CREDENTIALS_FILE": str(credentials), "PYTHONPATH": str(SDK)}
    environ.pop("ORBIT_URL", None)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_program_leaves_with_0(node: FakeNode, tmp_path: Path, number: signal.Signals) -> None:
    attempt = node.submit("hold")
    with program(node, tmp_path, "20") as process:
        node.wait(lambda: node.of_kind(wire.Renew))
        process.send_signal(number)
        node.wait(lambda: node.of_kind(wire.Drain))
        node.push(wire.cancel(attempt_id=attempt, reason=wire.CancelReason.REQUESTED))
        report = node.report_of(attempt)
        output, errors = process.communicate(timeout=20)

    assert report.result == '"stopped when asked"'
    assert process.returncode == 0, errors
    lines = output.splitlines()
    assert lines[0].startswith(
        "orbit: worker program: queues reports; handlers hold@v1; 2 at once, 2 held; node node-a"
    )
    assert lines[1].startswith("orbit: draining: 1 running")
    assert lines[2].startswith("orbit: stopped: 0 attempts left")
    assert len(lines) == 3
    assert "orbit_secret" not in output + errors


def test_state_changes_are_json_for_programs(node: FakeNode, tmp_path: Path) -> None:
    with program(node, tmp_path, "20", "--json") as process:
        node.wait(lambda: node.connections == 1)
        node.cut()
        # The node counts a connection before the worker has heard its welcome: what the worker says is what counts.
        assert process.stdout is not None
        said: list[str] = []
        while not any('"reconnected"' in line for line in said):
            said.append(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)

    events = [json.loads(line) for line in [*said, *output.splitlines()]]
    assert [event["event"] for event in events] == ["started", "disconnected", "reconnected", "draining", "stopped"]
    assert events[0]["queues"] == ["reports"]
    assert events[0]["node"] == "node-a"


def test_the_drain_time_out_ends_the_program_with_what_was_left(node: FakeNode, tmp_path: Path) -> None:
    node.submit("hold")
    with program(node, tmp_path, "0.3") as process:
        node.wait(lambda: node.of_kind(wire.Renew))
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)

    assert process.returncode == 1
    assert "1 attempts left to their leases" in output


def test_a_second_signal_leaves_at_once(node: FakeNode, tmp_path: Path) -> None:
    node.submit("hold")
    with program(node, tmp_path, "600") as process:
        node.wait(lambda: node.of_kind(wire.Renew))
        process.send_signal(signal.SIGTERM)
        node.wait(lambda: node.of_kind(wire.Drain))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)

    assert process.returncode == 1
