"""`orbit_serve` and `orbit_maintain` as commands (design 5.2): arguments, roles, exit codes, going down."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.api import Api, task_request
from tests.support.fixtures import RunningOrbit, Site
from tests.support.server import ROOT, ServerProcess, manage, orbit_environ
from tests.support.waiting import eventually
from tests.support.worker_sockets import WorkerSocket


@pytest.fixture
def start_server(orbit_site: Site) -> Iterator[Callable[..., ServerProcess]]:
    """Nodes on the shared database; ended with the test."""
    started: list[ServerProcess] = []

    def start(*arguments: str, wait: bool = True, **settings: str) -> ServerProcess:
        server = ServerProcess(orbit_site.database_url, arguments=arguments, **settings)
        started.append(server)
        return server.start(wait=wait)

    yield start
    for server in started:
        if server.process is not None and server.process.poll() is None:
            server.stop()


def test_ready_line_names_the_node_and_its_address(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(ORBIT_NODE_ID="node-7")
    line = next(line for line in server.log.read_text().splitlines() if line.startswith("orbit node"))
    assert line == f"orbit node node-7 ready on {server.url}"


def test_port_0_takes_a_free_one_and_the_node_id_follows(orbit_site: Site) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "orbit_serve", "--bind", "127.0.0.1:0"],
        env=orbit_environ(orbit_site.database_url, ORBIT_LOG_LEVEL="ERROR"),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        found = re.fullmatch(r"orbit node (\S+) ready on http://127\.0\.0\.1:(\d+)\n", process.stdout.readline())
        assert found is not None
        assert found[1].endswith(f"/127.0.0.1:{found[2]}")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--roles", "api,nonsense"), "unknown role nonsense"),
        (("--roles", ""), "at least one role"),
        (("--bind", "nonsense"), "not an address"),
        (("--drain-timeout", "-1"), "--drain-timeout"),
    ],
)
def test_wrong_argument_is_an_error_before_anything_starts(
    orbit_site: Site, arguments: tuple[str, ...], words: str
) -> None:
    done = manage(orbit_site.database_url, "orbit_serve", *arguments, check=False)
    assert done.returncode == 1
    assert words in done.stderr


def test_address_in_use_is_exit_1_with_a_sentence(orbit_site: Site) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = manage(orbit_site.database_url, "orbit_serve", "--bind", address, check=False)
    assert done.returncode == 1
    assert f"cannot listen on {address}" in done.stderr


def test_address_that_is_not_loopback_needs_allowed_hosts(orbit_site: Site) -> None:
    done = manage(orbit_site.database_url, "orbit_serve", "--bind", "0.0.0.0:0", check=False)
    assert done.returncode == 2
    assert "ORBIT_ALLOWED_HOSTS" in done.stderr


@pytest.mark.parametrize(
    ("roles", "served", "refused"),
    [
        ("api", "/v1/queues", "/admin/"),
        ("admin", "/admin/", "/v1/queues"),
        ("workers", "/readyz", "/v1/queues"),
        ("maintenance", "/metrics", "/v1/queues"),
    ],
)
def test_any_role_can_be_split_off(
    start_server: Callable[..., ServerProcess], orbit_site: Site, roles: str, served: str, refused: str
) -> None:
    server = start_server("--roles", roles)
    with Api(server.url, orbit_site.aged.token) as api:
        assert api.get(served).status in (200, 302)
        assert api.get(refused).status == 404
        assert api.get("/healthz").status == 200


def test_workers_of_one_node_do_what_another_accepted(
    start_server: Callable[..., ServerProcess], orbit_site: Site
) -> None:
    front, back = start_server("--roles", "api"), start_server("--roles", "workers")
    with Api(front.url, orbit_site.aged.token) as api:
        queue_id = str(api.make_queue()["queue_id"])
        with WorkerSocket(back.websocket_url, orbit_site.aged.token) as worker:
            worker.hello([queue_id])
            task = api.post("/v1/tasks", task_request(queue_id), key=queue_id).expect(201).data["task"]
            offer = worker.expect("offer", timeout=5)
            worker.start(offer)
            # The long poll on the front hears of it although it happened on the other node.
            waited = api.get(f"/v1/tasks/{task['task_id']}?revision=2&wait_ms=1").expect(200)
            assert waited.data["task"]["state"] == "RUNNING"
            assert worker.finish(offer)["status"] == "COMMITTED"
            done = api.get(f"/v1/tasks/{task['task_id']}?revision=2&wait_ms=20000").expect(200)
            assert done.data["task"]["state"] == "SUCCEEDED"
        with pytest.raises(Exception, match="404"):
            WorkerSocket(front.websocket_url, orbit_site.aged.token)


def test_long_poll_ends_when_the_task_changes(orbit_server: RunningOrbit, api: Api) -> None:
    queue_id = str(api.make_queue()["queue_id"])
    task = api.submit(queue_id).expect(201).data["task"]
    answers: list[Any] = []

    def wait() -> None:
        with Api(orbit_server.url, orbit_server.aged.token) as caller:
            answers.append(caller.get(f"/v1/tasks/{task['task_id']}?wait_ms=25000&revision=1").expect(200).data["task"])

    waiter = threading.Thread(target=wait)
    waiter.start()
    api.post(f"/v1/tasks/{task['task_id']}:cancel", {"revision": "1"}).expect(200)
    waiter.join(30)
    assert [answer["state"] for answer in answers] == ["CANCELED"]


def test_a_hundred_long_polls_do_not_stop_the_api(orbit_server: RunningOrbit, api: Api) -> None:
    queue_id = str(api.make_queue()["queue_id"])
    task = api.submit(queue_id).expect(201).data["task"]
    request = (
        f"GET /v1/tasks/{task['task_id']}?wait_ms=20000&revision=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {orbit_server.aged.token}\r\n\r\n"
    ).encode()
    waiters = [socket.create_connection(("127.0.0.1", orbit_server.server.port)) for _ in range(100)]
    try:
        for waiter in waiters:
            waiter.sendall(request)
        assert api.get("/v1/queues").status == 200
        api.post(f"/v1/tasks/{task['task_id']}:cancel", {"revision": "1"}).expect(200)
        for waiter in waiters:
            waiter.settimeout(30)
            assert waiter.recv(4096).startswith(b"HTTP/1.1 200")
    finally:
        for waiter in waiters:
            waiter.close()


def test_readiness_says_why_while_the_schema_is_missing(fresh_database: str) -> None:
    server = ServerProcess(fresh_database)
    server.start(wait=False)
    try:
        eventually(lambda: server.readiness() == 503)
    finally:
        server.kill()


@pytest.fixture
def fresh_database() -> Iterator[str]:
    from tests.support.databases import private_database

    with private_database("unmigrated") as url:
        yield url


def test_maintenance_alone_runs_until_it_is_told_to_stop(orbit_site: Site) -> None:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "orbit_maintain"],
        env=orbit_environ(orbit_site.database_url, ORBIT_LOG_LEVEL="ERROR"),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "orbit maintenance runs\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
