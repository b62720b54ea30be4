"""Which database engine this test run uses, and how its databases are named.

`ORBIT_TEST_ENGINE` is `sqlite` (default) or `mysql`. For mysql, `ORBIT_TEST_MYSQL_URL` names a server; without it a
private MariaDB is started for this run. Every database that the tests make carries this run's token in its name, so
that nothing which was there before is ever opened, let alone dropped. Imported by the settings, before Django is ready.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
from pathlib import Path

from orbit_project.setting_values import DatabaseUrl, parse_database_url
from tests.support.mariadb import start_private_mariadb
from tests.support.scratch import scratch_directory

SQLITE, MYSQL = "sqlite", "mysql"


def chosen_engine() -> str:
    """`sqlite` or `mysql`, from the environment."""
    engine = os.environ.get("ORBIT_TEST_ENGINE", SQLITE)
    if engine not in (SQLITE, MYSQL):
        raise SystemExit(f"ORBIT_TEST_ENGINE: expected sqlite or mysql; found {engine!r}")
    return engine


def _prepare() -> None:
    """Fix this run's token, directory and server once; parallel test processes inherit them by the environment."""
    if "ORBIT_TEST_RUN_TOKEN" not in os.environ:
        os.environ["ORBIT_TEST_RUN_TOKEN"] = secrets.token_hex(4)
        directory = scratch_directory("test")
        os.environ["ORBIT_TEST_DIRECTORY"] = str(directory)
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    if chosen_engine() == MYSQL and not os.environ.get("ORBIT_TEST_MYSQL_URL"):
        server = start_private_mariadb(scratch=True)
        atexit.register(server.stop)
        os.environ["ORBIT_TEST_MYSQL_URL"] = server.url


def directory() -> Path:
    """This test process's own directory; removed when the run ends. Parallel processes do not share it."""
    own = Path(os.environ["ORBIT_TEST_DIRECTORY"]) / os.environ.get("PYTEST_XDIST_WORKER", "main")
    own.mkdir(exist_ok=True)
    return own


def database_name(purpose: str) -> str:
    """The name of a database that only this run uses."""
    return f"orbit_test_{os.environ['ORBIT_TEST_RUN_TOKEN']}_{purpose}"


def database_url(purpose: str) -> str:
    """The URL of such a database (or file), for a process of its own. It is not created here."""
    if chosen_engine() == SQLITE:
        return f"sqlite:///{directory()}/{database_name(purpose)}.sqlite3"
    server = mysql_server()
    login = server.user + (f":{server.password}" if server.password else "")
    query = "&".join(f"{key}={value}" for key, value in server.options)
    return f"mysql://{login}@{server.host}:{server.port or 3306}/{database_name(purpose)}" + (
        f"?{query}" if query else ""
    )


def mysql_server() -> DatabaseUrl:
    """The server of `ORBIT_TEST_MYSQL_URL`; the database named in it is never touched."""
    return parse_database_url(os.environ["ORBIT_TEST_MYSQL_URL"])


_prepare()
