"""Fixtures of the lifecycle's tests: a tenant, a scripted upstream over real sockets, rows that add up afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from lifecycle_app.domain import invariants
from tests.lifecycle_app.processes import forget_lifecycle, upstream_process
from tests.lifecycle_app.site import Site, UpstreamPlay, make_site
from tests.lifecycle_app.world import World
from tests.support.databases import private_database
from tests.support.server import Credentials, bootstrap, manage
from tests.tasks_app.conftest import Points, points

__all__ = ["Points", "points"]


def empty_tables() -> None:
    """Deletes the rows of every Orbit table that has any; far cheaper than truncating all of them."""
    names = [
        model._meta.db_table
        for app in ("tasks_app", "lifecycle_app")
        for model in apps.get_app_config(app).get_models()
    ]
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"EXISTS(SELECT 1 FROM {name})" for name in names))
        for name, has_rows in zip(names, cursor.fetchone(), strict=True):
            if has_rows:
                cursor.execute(f"DELETE FROM {name}")


@pytest.fixture
def database(test_database: None, django_db_blocker: Any) -> Iterator[None]:
    """A database with real, committed transactions: units refuse to be nested, and threads must see each other."""
    with django_db_blocker.unblock():
        empty_tables()
        try:
            yield
        finally:
            connection.close()
            empty_tables()


@pytest.fixture(scope="session")
def upstream_play() -> Iterator[UpstreamPlay]:
    with UpstreamPlay() as play:
        yield play


@pytest.fixture(scope="session")
def world_database() -> Iterator[tuple[str, Credentials]]:
    """A migrated database with one namespace, for processes of their own."""
    with private_database("lifecycle") as url:
        manage(url, "migrate", "--verbosity", "0")
        yield url, bootstrap(url, application="tests", namespace="lifecycle")


@pytest.fixture
def world(world_database: tuple[str, Credentials], tmp_path: Path) -> Iterator[World]:
    """Processes over sockets; what an earlier test left in the database is gone."""
    url, credentials = world_database
    forget_lifecycle(url)
    with upstream_process(tmp_path.name) as upstream:
        world = World(url, credentials, upstream)
        try:
            yield world
        finally:
            world.stop()


@pytest.fixture
def site(database: None, upstream_play: UpstreamPlay) -> Iterator[Site]:
    """A namespace, an Orbit node that lives, and the upstream. Whatever a test did, the books must balance."""
    upstream_play.forget()
    yield make_site(upstream_play)
    assert invariants.broken_rules() == {}
