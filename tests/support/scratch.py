"""Where the tests' databases lie: in memory where there is room for them, else on disk. Standard library only.

Nothing that a test shows depends on the disk: servers keep their durable settings, and what a killed process has
written survives it in memory as well. What is saved is a wait for the disk at every commit, half of the suite's time.
`ORBIT_TEST_ON_DISK=1` puts them on disk all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108  (a directory of our own is made in it)
FREE_BYTES_MIN = 4 * 1024**3
PID_FILE = "pid"


def scratch_directory(purpose: str) -> Path:
    """A new directory for one purpose; the caller removes it. What killed processes left behind is removed first."""
    place = _place()
    remove_abandoned(place)
    return Path(tempfile.mkdtemp(prefix=f"orbit-{purpose}-{os.getpid()}-", dir=place))


def remove_abandoned(place: Path) -> None:
    """Remove directories of processes that are gone, unless a server that they started still runs in them."""
    for path in place.glob("orbit-*"):
        named = re.fullmatch(r"orbit-[a-z]+-([0-9]+)-\w+", path.name)
        if named is None or _is_alive(int(named[1])):
            continue
        with contextlib.suppress(OSError, ValueError):
            if _is_alive(int((path / PID_FILE).read_text())):
                continue
        shutil.rmtree(path, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _place() -> Path:
    on_disk = Path(tempfile.gettempdir())
    if os.environ.get("ORBIT_TEST_ON_DISK") == "1" or not os.access(MEMORY, os.W_OK):
        return on_disk
    return MEMORY if shutil.disk_usage(MEMORY).free >= FREE_BYTES_MIN else on_disk
