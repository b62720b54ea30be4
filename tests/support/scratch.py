"""Where the tests' databases lie: in memory where there is room for them, else on disk. Standard library only.

Nothing that a test shows depends on the disk: servers keep their durable settings, and what a killed process has
written survives it in memory as well. What is saved is a wait for the disk at every commit, half of the suite's time.
`ORBIT_TEST_ON_DISK=1` puts them on disk all the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108  (a directory of our own is made in it)
FREE_BYTES_MIN = 4 * 1024**3


def scratch_directory(prefix: str) -> Path:
    """A new directory for one purpose; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_place()))


def _place() -> Path | None:
    if os.environ.get("ORBIT_TEST_ON_DISK") == "1" or not os.access(MEMORY, os.W_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= FREE_BYTES_MIN else None
