"""The tests clean up after tests that were killed, and after nobody else."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.scratch import PID_FILE, remove_abandoned


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_removed(tmp_path):
    left = tmp_path / f"orbit-test-{dead_pid()}-ab12"
    left.mkdir()

    remove_abandoned(tmp_path)

    assert not left.exists()


def test_what_is_in_use_or_somebody_elses_stays(tmp_path):
    server_still_runs = tmp_path / f"orbit-mariadb-{dead_pid()}-ab12"
    kept = [tmp_path / f"orbit-test-{os.getpid()}-ab12", tmp_path / "orbit-anything", server_still_runs]
    for path in kept:
        path.mkdir()
    (server_still_runs / PID_FILE).write_text(f"{os.getpid()}\n")

    remove_abandoned(tmp_path)

    assert all(path.exists() for path in kept)
