"""`migrate` from many nodes at once: every process ends well, and each migration is applied once."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from tests.support.databases import connect, private_database
from tests.support.server import ROOT, manage, orbit_environ

PROCESSES = 3


@pytest.mark.slow
def test_many_nodes_may_migrate_at_once():
    with private_database("migrate") as url:
        processes = [
            subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"],
                env=orbit_environ(url),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )
            for _ in range(PROCESSES)
        ]
        said = [process.communicate(timeout=100)[0].decode() for process in processes]

        assert [process.returncode for process in processes] == [0] * PROCESSES, said
        with contextlib.closing(connect(url)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT app, name, count(*) FROM django_migrations GROUP BY app, name HAVING count(*) > 1")
            assert list(cursor.fetchall()) == []
        assert manage(url, "migrate", "--check").returncode == 0
