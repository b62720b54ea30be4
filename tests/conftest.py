"""Which tests run on which engine, and the fixtures that every test may use."""

from __future__ import annotations

import hypothesis
import pytest

from tests.support import engine

# A machine that is busy with other tests makes no property false.
hypothesis.settings.register_profile("orbit", deadline=None)
hypothesis.settings.load_profile("orbit")

pytest_plugins = ["tests.support.fixtures"]

ONLY = {"mariadb_only": engine.MYSQL, "sqlite_only": engine.SQLITE}
# What a test stands on is marked here, so that `make test-fast` can choose by it.
STARTING_PROCESSES = frozenset({"orbit_site", "fresh_site", "world_database", "start_node"})
OPENING_DATABASES = frozenset({"db", "transactional_db", "django_db_setup", "_django_db_helper"})


def pytest_report_header() -> str:
    where = "a file of its own" if engine.chosen_engine() == engine.SQLITE else str(engine.mysql_server())
    return f"orbit: engine {engine.chosen_engine()} ({where})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if STARTING_PROCESSES & fixtures:
            item.add_marker("processes")
        if OPENING_DATABASES & fixtures or item.get_closest_marker("django_db") is not None:
            item.add_marker("database")
        for marker, wanted in ONLY.items():
            found = item.get_closest_marker(marker)
            if found is None:
                continue
            if not found.args:
                raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{marker} needs its reason")
            if engine.chosen_engine() != wanted:
                item.add_marker(pytest.mark.skip(reason=f"{marker.replace('_', ' ')}: {found.args[0]}"))
