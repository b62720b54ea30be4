"""Rules that the contracts in pyproject.toml cannot say: parts of packages, and what pure modules may need."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
APPS = ("orbit_project", "tasks_app", "workers_app", "lifecycle_app")

# Decide on values that they are given: no rows, requests, sockets, clocks or threads.
PURE = (
    "tasks_app/states.py",
    "tasks_app/errors.py",
    "tasks_app/limits.py",
    "tasks_app/printable.py",
    "tasks_app/strict_json.py",
    "tasks_app/submission_request.py",
    "tasks_app/retries.py",
    "tasks_app/endings.py",
    "workers_app/scheduler.py",
    "workers_app/tiers.py",
    "workers_app/yielding.py",
    "workers_app/protocol",
    "lifecycle_app/frames.py",
    "lifecycle_app/messages.py",
    "lifecycle_app/node_session.py",
    "lifecycle_app/reports.py",
)
IMPURE = (
    "django.db.transaction",
    "django.db.connection",
    "django.http",
    "django.conf",
    "rest_framework",
    "channels",
    "daphne",
    "twisted",
    "asyncio",
    "threading",
    "socket",
    "time",
    "random",
    "secrets",
    "os",
)
# `TextChoices` of the one enum of states; nothing of the ORM behind it.
ALLOWED = {("tasks_app/states.py", "django.db.models")}


def python_files(*places: str) -> Iterator[Path]:
    for place in places:
        path = ROOT / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def imported(path: Path) -> Iterator[str]:
    """Every name that a module imports, whole: `from a import b` is `a.b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def is_part_of(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


@pytest.mark.parametrize("path", [str(path.relative_to(ROOT)) for path in python_files(*PURE)])
def test_pure_modules_import_nothing_that_reads_or_writes_the_world(path):
    found = [
        name
        for name in imported(ROOT / path)
        if any(is_part_of(name, module) for module in (*IMPURE, "django.db")) and (path, name) not in ALLOWED
    ]

    assert found == []


def test_no_code_uses_the_one_thread_that_asgiref_shares_among_all_connections():
    adapters = {"sync_to_async", "database_sync_to_async", "SyncToAsync", "async_to_sync"}

    found = {
        str(path.relative_to(ROOT)): name
        for path in python_files(*APPS)
        for name in imported(path)
        if name.rsplit(".", 1)[-1] in adapters
    }

    assert found == {}, "database work of sockets runs in workers_app.pools"


def test_settings_are_read_from_the_environment_in_one_place():
    readers = {
        str(path.relative_to(ROOT))
        for path in python_files(*APPS)
        if any(
            isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv") and ast.unparse(node.value) == "os"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }

    # The settings hand the environment to the configuration; the entry points name the settings; crash points are armed
    # before anything is imported.
    assert readers <= {
        "orbit_project/settings.py",
        "orbit_project/asgi.py",
        "orbit_project/wsgi.py",
        "tasks_app/faults.py",
    }


def test_no_file_is_a_place_to_search_in():
    vague = {"utils.py", "helpers.py", "common.py", "services.py", "misc.py"}

    assert [path for path in python_files(*APPS, "sdk/orbit_sdk") if path.name in vague] == []


def test_a_file_is_one_idea_of_less_than_600_lines():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in python_files(*APPS, "sdk/orbit_sdk", "tools")
        if path.parent.name != "migrations"
    }

    assert {path: length for path, length in lengths.items() if length >= 600} == {}
