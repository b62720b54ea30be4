"""Crash points: nothing without the variable, and exactly the k-th passing with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tasks_app import faults

PROGRAM = """
import sys
from tasks_app.faults import FaultInjected, point
for number in range(4):
    try:
        point("other")
        point("here")
        print(number, flush=True)
    except FaultInjected as fault:
        print("fault", fault, flush=True)
"""


def run(order: str | None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "ORBIT_TEST_FAULT_POINT"}
    if order is not None:
        environ["ORBIT_TEST_FAULT_POINT"] = order
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=30, check=False
    )


def test_without_an_order_a_point_is_an_empty_function():
    assert run(None).stdout.split() == ["0", "1", "2", "3"]
    assert faults.point is faults._absent


@pytest.mark.parametrize("count", [1, 3])
def test_the_process_dies_at_the_ordered_passing(count: int):
    done = run(f"here:kill:{count}")
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, [str(n) for n in range(count - 1)])


def test_a_point_may_raise_once():
    assert run("here:raise:2").stdout.split() == ["0", "fault", "here", "2", "3"]


def test_a_process_may_stop_itself_and_go_on():
    environ = {**os.environ, "ORBIT_TEST_FAULT_POINT": "here:stop:1"}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=30)
        assert output.split() == ["0", "1", "2", "3"]
    finally:
        process.kill()
