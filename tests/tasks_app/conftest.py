"""Fixtures of the domain tests: a database with real, committed transactions that is emptied after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, transaction

from tasks_app import faults
from tasks_app.domain import submission
from tests.support.mysql_proxy import MysqlProxy
from tests.tasks_app import books
from tests.tasks_app.factories import Tenant, make_tenant


def empty_tables() -> None:
    """Deletes the rows of every table of tasks_app that has any; far cheaper than truncating all tables."""
    names = [model._meta.db_table for model in apps.get_app_config("tasks_app").get_models()]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"EXISTS(SELECT 1 FROM {name})" for name in names))
        for name, has_rows in zip(names, cursor.fetchone(), strict=True):
            if has_rows:
                cursor.execute(f"DELETE FROM {name}")
    submission.forget_references()


@pytest.fixture
def database(test_database: None, django_db_blocker: Any) -> Iterator[None]:
    """Units commit for real here: they refuse to be nested in a test's transaction, and threads must see each other.

    Whatever a test did, the books must balance afterwards: counters, permits, revisions and events are counted again.
    """
    with django_db_blocker.unblock():
        empty_tables()
        try:
            yield
            books.assert_balanced()
        finally:
            empty_tables()


@pytest.fixture
def tenant(database: None) -> Tenant:
    """An application with an AGED namespace, a queue and a credential that may do everything."""
    return make_tenant()


@pytest.fixture
def strict_tenant(database: None) -> Tenant:
    """The same in a STRICT namespace."""
    return make_tenant(policy="STRICT")


class Points:
    """What tests hang on the crash points of the domain: `points["sweep.read"] = action`, run when it is passed."""

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[], None]] = {}

    def __setitem__(self, name: str, action: Callable[[], None]) -> None:
        self._actions[name] = action

    def once(self, name: str, action: Callable[[], None]) -> None:
        """Runs `action` at the first passing only."""

        def first() -> None:
            if self._actions.pop(name, None) is not None:
                action()

        self._actions[name] = first

    def __call__(self, name: str) -> None:
        action = self._actions.get(name)
        if action is not None:
            action()


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> Points:
    """Forces an interleaving: what another actor does exactly at a commit boundary of the one under test."""
    armed = Points()
    monkeypatch.setattr(faults, "point", armed)
    return armed


@pytest.fixture
def proxy(database: None) -> Iterator[MysqlProxy]:
    """A proxy between this process and the server; the verbs of the test go through it, its looks at rows too."""
    settings = connection.settings_dict
    real = {name: settings[name] for name in ("HOST", "PORT")}
    unix_socket = real["HOST"] if real["HOST"].startswith("/") else None
    with MysqlProxy(real["HOST"], int(real["PORT"] or 3306), unix_socket=unix_socket) as between:
        connection.close()
        settings.update(HOST=between.host, PORT=str(between.port))
        try:
            yield between
        finally:
            settings.update(real)
            connection.close()
