"""Databases for processes of their own: made empty for one purpose, dropped afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbit_project.setting_values import parse_database_url
from tests.support import engine


def worker_name() -> str:
    """Which of the parallel test processes this is; part of names that they must not share."""
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


@contextlib.contextmanager
def private_database(purpose: str) -> Iterator[str]:
    """The URL of an empty database that nobody else uses, on the engine of this run. Schema not applied."""
    url = engine.database_url(f"{purpose}_{worker_name()}")
    read = parse_database_url(url)
    if read.engine == engine.SQLITE:
        _remove_files(Path(read.name))
        try:
            yield url
        finally:
            _remove_files(Path(read.name))
        return
    _on_server(f"CREATE DATABASE `{read.name}` CHARACTER SET utf8mb4")
    try:
        yield url
    finally:
        _on_server(f"DROP DATABASE IF EXISTS `{read.name}`")


def connect(url: str) -> Any:
    """A plain DB-API connection, autocommit, for looking at a database from outside Orbit."""
    read = parse_database_url(url)
    if read.engine == engine.SQLITE:
        import sqlite3

        return sqlite3.connect(read.name, timeout=20, isolation_level=None)
    return _connect_mysql(read.name)


def _connect_mysql(database: str | None) -> Any:
    import MySQLdb

    server = engine.mysql_server()
    place: dict[str, Any] = {"host": server.host, "port": server.port or 3306}
    if "unix_socket" in server.option:
        place = {"unix_socket": server.option["unix_socket"]}
    if database is not None:
        place["database"] = database
    connection = MySQLdb.connect(user=server.user, password=server.password, charset="utf8mb4", **place)
    connection.autocommit(True)
    return connection


def _on_server(statement: str) -> None:
    with contextlib.closing(_connect_mysql(None)) as connection:
        connection.cursor().execute(statement)


def _remove_files(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".migrating"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
