"""`examples/lifecycle.py`, run as a newcomer runs it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.server import ROOT

STEPS = ["create", "progress", "lost ack", "time-out", "reconcile", "delete", "tombstone", "new generation"]


@pytest.mark.slow
def test_the_story_is_played_to_its_end_with_each_step_explained():
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ORBIT_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, "examples/lifecycle.py"], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    told = [line[:15].strip() for line in lines if line[:15].strip() in STEPS]
    assert told == STEPS
    assert sum(line.strip().startswith("safe because") for line in lines) == len(STEPS)
    assert lines[-1] == (
        "lifecycle: upstream_submits_per_generation=1 metered_once=true revived=0 acknowledged_before_commit=0"
    )
