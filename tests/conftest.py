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


def pytest_report_header() -> str:
    where = "a file of its own" if engine.chosen_engine() == engine.SQLITE else str(engine.mysql_server())
    return f"orbit: engine {engine.chosen_engine()} ({where})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker, wanted in ONLY.items():
            found = item.get_closest_marker(marker)
            if found is None:
                continue
            if not found.args:
                raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{marker} needs its reason")
            if engine.chosen_engine() != wanted:
                item.add_marker(pytest.mark.skip(reason=f"{marker.replace('_', ' ')}: {found.args[0]}"))
