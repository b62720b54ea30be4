"""The relay killed with −9 at every place, one after the other: each committed row is submitted exactly once."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

import orbit_sdk
from orbit_sdk import OrbitClient
from tests.support.databases import connect, private_database
from tests.support.fixtures import RunningOrbit
from tests.support.server import ROOT

SDK = Path(orbit_sdk.__file__).parents[1]
PROGRAM = Path(__file__).with_name("relay_program.py")
KILLED = -9
ENTRIES = 5

FILL = """
import sys
sys.path.insert(0, {folder!r})
import relay_program
relay_program.configure({url!r})
from django.core.management import call_command
from django.db import transaction
from orbit_sdk import SubmitTask
from orbit_sdk.contrib.django import outbox
call_command("migrate", verbosity=0)
with transaction.atomic():
    for number in range({entries}):
        outbox.submit("{prefix}-" + str(number), SubmitTask(queue="{queue}", handler="h", payload=number))
"""


@pytest.mark.slow
def test_each_committed_row_is_submitted_exactly_once_wherever_the_relay_dies(orbit_server: RunningOrbit) -> None:
    with (
        private_database("outbox") as url,
        OrbitClient.from_credentials_file(orbit_server.aged.path, url=orbit_server.url) as orbit,
    ):
        queue = orbit.create_queue(f"outbox-{secrets.token_hex(6)}")
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(SDK)]),
            "ORBIT_URL": orbit_server.url,
            "ORBIT_CREDENTIALS_FILE": str(orbit_server.aged.path),
            "BUSINESS_DATABASE_URL": url,
        }
        code = FILL.format(
            folder=str(PROGRAM.parent), url=url, entries=ENTRIES, prefix=queue.name, queue=queue.queue_id
        )
        subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=60)

        deaths, finished = 0, False
        while not finished:
            # Dying at place 1, 2, 3, …: each run goes a little further over what the ones before left behind.
            deaths += 1
            make_due(url)
            done = subprocess.run(
                [sys.executable, str(PROGRAM), str(deaths)], env=environ, capture_output=True, text=True, timeout=60
            )
            assert done.returncode in (0, KILLED), done.stderr
            finished = done.returncode == 0
            assert deaths < 200

        tasks = list(orbit.list_tasks(queue=queue.queue_id))
        entries = rows(url)

    assert deaths > 5, "it died at several places before it got through"
    assert [state for _, state in entries] == ["SENT"] * ENTRIES
    assert len(tasks) == ENTRIES
    assert sorted(task_id for task_id, _ in entries) == sorted(task.task_id for task in tasks)


def make_due(url: str) -> None:
    execute(url, "UPDATE orbit_outbox_outboxentry SET next_attempt_at = '2000-01-01 00:00:00'")


def rows(url: str) -> list[tuple[str, str]]:
    return [tuple(row) for row in execute(url, "SELECT task_id, state FROM orbit_outbox_outboxentry ORDER BY id")]


def execute(url: str, statement: str) -> list[tuple[str, str]]:
    connection = connect(url)
    try:
        cursor = connection.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall())
    finally:
        connection.close()
