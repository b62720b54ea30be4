"""A database that goes away under connected workers (design, chapter 2, Rules): UNAVAILABLE, the worker repeats.

The node reaches MariaDB through a proxy that can refuse, cut, and lose the answer of a COMMIT.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orbit_project.setting_values import parse_database_url
from tests.support import engine
from tests.support.fixtures import RunningOrbit, Site
from tests.support.mysql_proxy import Loss, MysqlProxy, When
from tests.support.server import ServerProcess
from tests.support.waiting import eventually
from tests.support.worker_sockets import WorkerSocket, held
from tests.workers_app.conftest import Node

pytestmark = pytest.mark.mariadb_only("an embedded database has no connection that could be lost")


@pytest.fixture(scope="module")
def proxy() -> Iterator[MysqlProxy]:
    if engine.chosen_engine() != engine.MYSQL:
        pytest.skip("only asked for by tests that are left out on SQLite")
    server = engine.mysql_server()
    with MysqlProxy(server.host, server.port or 3306) as made:
        yield made


@pytest.fixture(scope="module")
def server(orbit_site: Site, proxy: MysqlProxy) -> Iterator[ServerProcess]:
    database = parse_database_url(orbit_site.database_url)
    login = database.user + (f":{database.password}" if database.password else "")
    url = f"mysql://{login}@{proxy.host}:{proxy.port}/{database.name}"
    # No maintenance here: every commit that is lost is one of a worker's.
    with ServerProcess(url, arguments=("--roles", "api,workers")) as running:
        yield running


@pytest.fixture
def node(orbit_site: Site, server: ServerProcess, proxy: MysqlProxy) -> Iterator[Node]:
    made = Node(RunningOrbit(orbit_site, server))
    yield made
    proxy.policy = None
    proxy.refuse(False)
    eventually(lambda: server.readiness() == 200)
    made.close()


@pytest.fixture
def running(node: Node) -> tuple[WorkerSocket, dict[str, Any]]:
    """A worker with one attempt that runs."""
    worker = node.worker()
    node.submit()
    offer = worker.expect("offer")
    assert worker.start(offer)[0]["status"] == "STARTED"
    return worker, offer


def go_away(proxy: MysqlProxy) -> None:
    proxy.refuse()
    proxy.cut()


@pytest.mark.parametrize("verb", ["start", "renew", "finish", "release"])
def test_message_during_an_outage_is_answered_unavailable_and_the_repeat_works(
    node: Node, proxy: MysqlProxy, running: tuple[WorkerSocket, dict[str, Any]], verb: str
) -> None:
    worker, offer = running
    item = held(offer) | ({"outcome": "SUCCEEDED"} if verb == "finish" else {})
    go_away(proxy)
    worker.send(verb, seq=50, items=[item])
    error = worker.expect("error", timeout=30)
    assert (error["code"], error["re"]) == ("UNAVAILABLE", 50)
    proxy.refuse(False)
    done = {"start": "STARTED", "renew": "RENEWED", "finish": "COMMITTED", "release": "LOST"}[verb]

    def repeat() -> str | None:
        answer = worker.request(verb, items=[item], timeout=30)
        return None if answer["type"] == "error" else str(answer["items"][0]["status"])

    assert eventually(repeat) == done


def test_heartbeats_need_no_database(proxy: MysqlProxy, running: tuple[WorkerSocket, dict[str, Any]]) -> None:
    worker, _ = running
    go_away(proxy)
    assert worker.request("heartbeat")["type"] == "heartbeat_ack"


def test_offers_go_on_after_an_outage(
    node: Node, proxy: MysqlProxy, running: tuple[WorkerSocket, dict[str, Any]]
) -> None:
    worker, _ = running
    go_away(proxy)
    worker.send("renew", seq=60, items=[{"attempt_id": "0" * 32, "fencing_token": "1"}])
    worker.expect("error", timeout=30)
    proxy.refuse(False)
    eventually(lambda: node.running.server.readiness() == 200)
    task = node.submit()
    assert worker.expect("offer", timeout=30)["task"]["task_id"] == task["task_id"]


def test_handshake_during_an_outage_is_503(node: Node, proxy: MysqlProxy) -> None:
    go_away(proxy)
    with pytest.raises(Exception, match="503"):
        node.socket()


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_lost_answer_to_the_commit_of_a_finish_is_resolved_to_the_truth(
    node: Node, proxy: MysqlProxy, running: tuple[WorkerSocket, dict[str, Any]], when: When
) -> None:
    """Whether it took effect or not, the task ends once and the worker is told so, at the latest on its repeat."""
    worker, offer = running
    before = len(proxy.lost)
    proxy.lose(Loss(when))

    def finish() -> str | None:
        answer = worker.request("finish", items=[held(offer) | {"outcome": "SUCCEEDED", "result": 1}], timeout=30)
        return None if answer["type"] == "error" else str(answer["items"][0]["status"])

    assert eventually(finish) in ("COMMITTED", "ALREADY")
    assert len(proxy.lost) == before + 1
    assert node.state(offer["task"]["task_id"]) == "SUCCEEDED"


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_lost_answer_to_the_commit_of_a_start_makes_no_second_attempt(
    node: Node, proxy: MysqlProxy, when: When
) -> None:
    worker = node.worker()
    task = node.submit()
    offer = worker.expect("offer")
    proxy.lose(Loss(when))

    def start() -> str | None:
        answer = worker.request("start", items=[held(offer)], timeout=30)
        return None if answer["type"] == "error" else str(answer["items"][0]["status"])

    assert eventually(start) == "STARTED"
    assert node.api.task(task["task_id"])["attempts"] == 1


def test_first_handshake_after_every_idle_connection_was_lost_succeeds(node: Node, proxy: MysqlProxy) -> None:
    """Trap C4: the first query after idle must not fail although the database is there."""
    node.worker()
    for _ in range(3):
        proxy.cut()
        assert node.worker().welcome["type"] == "welcome"
