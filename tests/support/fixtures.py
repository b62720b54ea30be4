"""The fixtures of the suite: a real server, callers of its API, worker sockets.

`orbit_server` lives as long as the test process and is shared: a test makes its own queue in it. A test that needs
other settings, stops the server or kills it takes `start_orbit_server`, which gives a node that is the test's alone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import DEFAULT_DB_ALIAS
from django.test.utils import setup_databases, teardown_databases

from tests.support.api import Api
from tests.support.databases import private_database
from tests.support.server import Credentials, ServerProcess, bootstrap, manage
from tests.support.worker_sockets import WorkerSocket

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Site:
    """A migrated database with two namespaces of one application and one of another, each with a credential."""

    database_url: str
    aged: Credentials
    strict: Credentials
    foreign: Credentials


@dataclass(frozen=True)
class RunningOrbit:
    """A node on a site."""

    site: Site
    server: ServerProcess

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def websocket_url(self) -> str:
        return self.server.websocket_url

    @property
    def aged(self) -> Credentials:
        return self.site.aged

    @property
    def strict(self) -> Credentials:
        return self.site.strict

    @property
    def foreign(self) -> Credentials:
        return self.site.foreign

    def manage(self, *arguments: str, check: bool = True) -> Any:
        """`manage.py …` on this site's database."""
        return manage(self.site.database_url, *arguments, check=check)


@contextlib.contextmanager
def make_site() -> Iterator[Site]:
    """A migrated database with its credentials, for fixtures of other scopes than those below."""
    with private_database(f"site{next(_numbers)}") as url:
        manage(url, "migrate", "--verbosity", "0")
        yield Site(
            database_url=url,
            aged=bootstrap(url, application="tests", namespace="aged"),
            strict=bootstrap(url, application="tests", namespace="strict", policy="STRICT"),
            foreign=bootstrap(url, application="others", namespace="foreign"),
        )


@pytest.fixture(scope="session")
def test_database(
    request: pytest.FixtureRequest,
    django_db_setup: None,
    django_db_blocker: Any,
    django_db_keepdb: bool,
    django_db_createdb: bool,
) -> Iterator[None]:
    """pytest-django makes the database for tests that carry its mark; where none does, it is made here."""
    if any(item.get_closest_marker("django_db") for item in request.session.items):
        yield
        return
    with django_db_blocker.unblock():
        made = setup_databases(
            0,
            False,
            aliases={DEFAULT_DB_ALIAS},
            serialized_aliases=set(),
            keepdb=django_db_keepdb and not django_db_createdb,
        )
    yield
    if not django_db_keepdb:
        with django_db_blocker.unblock():
            teardown_databases(made, 0)


@pytest.fixture(scope="session")
def orbit_site() -> Iterator[Site]:
    """The shared server's database and credentials."""
    with make_site() as site:
        yield site


@pytest.fixture(scope="session")
def orbit_server(orbit_site: Site) -> Iterator[RunningOrbit]:
    """The shared node, with the settings as they are by default."""
    with ServerProcess(orbit_site.database_url) as server:
        yield RunningOrbit(orbit_site, server)


@pytest.fixture
def fresh_site() -> Iterator[Site]:
    """A database and credentials of the test's own."""
    with make_site() as site:
        yield site


@pytest.fixture
def start_orbit_server(fresh_site: Site) -> Iterator[Callable[..., RunningOrbit]]:
    """Start nodes on the test's own site: `start_orbit_server(ORBIT_LEASE_MS="2000")`; all are stopped afterwards."""
    started: list[ServerProcess] = []

    def start(*, arguments: tuple[str, ...] = (), wait: bool = True, **settings: str) -> RunningOrbit:
        server = ServerProcess(fresh_site.database_url, arguments=arguments, **settings)
        started.append(server)
        server.start(wait=wait)
        return RunningOrbit(fresh_site, server)

    yield start
    for server in started:
        if server.process is not None and server.process.poll() is None:
            server.stop()


@pytest.fixture
def api(orbit_server: RunningOrbit) -> Iterator[Api]:
    """The shared server's API, in the AGED namespace."""
    with Api(orbit_server.url, orbit_server.aged.token) as caller:
        yield caller


@pytest.fixture
def strict_api(orbit_server: RunningOrbit) -> Iterator[Api]:
    """The shared server's API, in the STRICT namespace."""
    with Api(orbit_server.url, orbit_server.strict.token) as caller:
        yield caller


@pytest.fixture
def foreign_api(orbit_server: RunningOrbit) -> Iterator[Api]:
    """The shared server's API, as another application sees it."""
    with Api(orbit_server.url, orbit_server.foreign.token) as caller:
        yield caller


@pytest.fixture
def connect_worker(orbit_server: RunningOrbit) -> Iterator[Callable[..., WorkerSocket]]:
    """Connect a worker without a hello: `connect_worker()`, `connect_worker(token=…, running=…)`. Closed afterwards."""
    opened: list[WorkerSocket] = []

    def connect(
        *, token: str | None = "", running: RunningOrbit | None = None, headers: dict[str, str] | None = None
    ) -> WorkerSocket:
        node = running or orbit_server
        socket = WorkerSocket(node.websocket_url, node.aged.token if token == "" else token, headers=headers)
        opened.append(socket)
        return socket

    yield connect
    for socket in opened:
        socket.close()
