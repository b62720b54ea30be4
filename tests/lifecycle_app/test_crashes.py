"""kill −9 at every commit boundary of create, submit, report, delete, reconcile, delivery and recovery (F24, F25).

One run walks through all crash points: a node is started with one point armed, does what leads there, dies, and is
looked at from outside while it is dead; the next start recovers and has the next point armed. In the end everything is
brought to rest and must add up: at most one submit per generation, metering exactly once, nothing revived, nothing
acknowledged before its commit.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from tests.lifecycle_app.processes import NodeProcess
from tests.lifecycle_app.running import is_ack, is_command
from tests.lifecycle_app.world import World, create, operation, reconcile
from tests.support.api import Api
from tests.support.server import ServerProcess
from tests.support.waiting import eventually

STEP_SECONDS = 15.0


class Webhook:
    """Keeps the ids and statuses that it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, str]] = []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                webhook.told.append((body["id"], body["gid"], body["status"]))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *unused: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass
class Play:
    """One run: the world, its storage node, and the next gid."""

    world: World
    webhook: Webhook
    numbers: Iterator[int]
    storage: NodeProcess | None = None
    gid: int = 0

    def start(self, fault: str | None, *, wait: bool = True) -> ServerProcess:
        name, _, passing = (fault or "").partition(":")
        settings = {"ORBIT_TEST_FAULT_POINT": f"{name}:kill:{passing or 1}"} if fault else {}
        return self.world.start(ORBIT_NODE_ID="the-node", ORBIT_NOTIFY_URL=self.webhook.url, wait=wait, **settings)

    def node(self) -> NodeProcess:
        """The storage node, connected to the node that runs now."""
        if self.storage is None:
            self.storage = NodeProcess("node-1", self.world.token, "--port", str(self.world.node_port))
            self.world.nodes.append(self.storage)
        self.storage.connect()
        return self.storage

    # -- What leads to a crash point

    def create(self, word: str | None = None, step: str = "submit", status: int = 201) -> None:
        self.gid = next(self.numbers)
        if word is not None:
            self.world.upstream.script(step, self.gid, word)
        with self.world.api() as api:
            create(api, self.gid, status)

    def deliver(self) -> None:
        node = self.node()
        self.create()
        node.wait_for(is_command(self.gid), seconds=STEP_SECONDS)

    def report(self) -> None:
        self.deliver()
        assert self.storage is not None
        name = f"report-{self.gid}"
        self.storage.tell(do="report", tasks=[{"gid": self.gid, "status": 1, "progress": 10}], report_id=name)
        self.storage.wait_for(is_ack(name), seconds=STEP_SECONDS)

    def delete(self) -> None:
        self.report()
        with self.world.api() as api:
            api.call("DELETE", f"/v1/operations/{self.gid}").expect(202)

    def confirm(self) -> None:
        self.delete()
        assert self.storage is not None
        self.storage.wait_for(is_command(self.gid, "DELETE"), seconds=STEP_SECONDS)
        name = f"gone-{self.gid}"
        self.storage.tell(do="report", tasks=[{"gid": self.gid, "deleted": True}], report_id=name)
        self.storage.wait_for(is_ack(name), seconds=STEP_SECONDS)

    def reconcile(self, decision: str) -> None:
        self.create("drop_after_effect", status=202)
        with self.world.api() as api:
            reconcile(api, self.gid, decision)


Lead = Callable[[Play], Any]
# The point, and what leads to it; `:2` means at its second passing.
POINTS: list[tuple[str, Lead]] = [
    ("lifecycle.create.before_reserved", Play.create),
    ("lifecycle.create.reserved", Play.create),
    ("lifecycle.create.prepared", Play.create),
    ("lifecycle.create.before_submitting", Play.create),
    ("lifecycle.create.submitting", Play.create),
    ("lifecycle.create.answered", Play.create),
    ("lifecycle.metered", Play.create),
    ("lifecycle.create.before_submitted", Play.create),
    ("lifecycle.create.submitted", Play.create),
    ("lifecycle.create.before_unknown", lambda play: play.create("drop_after_effect", status=202)),
    ("lifecycle.create.unknown", lambda play: play.create("drop_before_effect", status=202)),
    ("lifecycle.create.refused", lambda play: play.create("refuse", status=502)),
    ("lifecycle.create.released", lambda play: play.create("refuse", step="prepare", status=502)),
    ("lifecycle.notify.sent", Play.create),
    ("lifecycle.deliver.assigned", Play.deliver),
    ("lifecycle.deliver.marked", Play.deliver),
    ("lifecycle.report.before_commit", Play.report),
    ("lifecycle.report.committed", Play.report),
    ("lifecycle.report.before_commit:2", Play.confirm),
    ("lifecycle.report.committed:2", Play.confirm),
    ("lifecycle.delete.before_requested", Play.delete),
    ("lifecycle.delete.requested", Play.delete),
    ("lifecycle.reconcile.before_commit", lambda play: play.reconcile("SUBMITTED")),
    ("lifecycle.reconcile.committed", lambda play: play.reconcile("SUBMITTED")),
    ("lifecycle.reconcile.committed", lambda play: play.reconcile("NOT_SUBMITTED")),
    # What this one leaves behind is what the next three recover, and die of it.
    ("lifecycle.create.submitting", Play.create),
]
AT_START = ["lifecycle.recovery.before_commit", "lifecycle.recovery.committed", "lifecycle.recovery.done"]


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    one = Webhook()
    yield one
    one.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_every_commit_boundary_nothing_is_doubled_revived_or_acknowledged_early(
    world: World, webhook: Webhook
):
    play = Play(world, webhook, itertools.count(1))
    for fault, lead in POINTS:
        server = play.start(fault)
        with contextlib.suppress(httpx2.HTTPError, AssertionError):
            lead(play)
        assert_killed(server, fault)
        world.assert_sound()
    for fault in AT_START:
        server = play.start(fault, wait=False)
        assert_killed(server, fault)
        world.assert_sound()
    play.start(None)
    bring_to_rest(play)
    world.assert_sound()
    assert_told_after_all(world, webhook)


def assert_killed(server: ServerProcess, fault: str) -> None:
    """The armed point was passed: the process killed itself."""
    assert server.process is not None
    process = server.process
    eventually(lambda: process.poll() is not None, 30, describe=lambda: (fault, server.log_tail(5)))
    assert process.returncode == -signal.SIGKILL, f"{fault}: {process.returncode}\n{server.log_tail()}"


def bring_to_rest(play: Play) -> None:
    """Nothing stays under way: what is UNKNOWN is reconciled to the truth, rows reach their node, deletes end."""
    world = play.world
    assert set(world.outside.states().values()) <= {"SUBMITTED", "UNKNOWN", "DELETE_PENDING", "DELETED"}
    node = play.node()
    with world.api() as api:
        for gid, state in world.outside.states().items():
            if state == "UNKNOWN":
                found = reconcile(api, gid, "LOOKUP")["lookup"]["found"]
                assert found is bool(world.upstream.effects(gid))
                reconcile(api, gid, "SUBMITTED" if found else "NOT_SUBMITTED")
        assert "UNKNOWN" not in world.outside.states().values()
        for gid, state in world.outside.states().items():
            finish(api, node, gid, state)
    assert set(world.outside.states().values()) == {"DELETED"}


def finish(api: Api, node: NodeProcess, gid: int, state: str) -> None:
    """A row that is alive is downloaded and deleted; each command reaches the node, under the id that is known."""
    if state == "SUBMITTED":
        operation_id = operation(api, gid)["operation_id"]
        node.wait_for(lambda event: is_command(gid)(event) and event["operationId"] == operation_id)
        api.call("DELETE", f"/v1/operations/{gid}").expect(202)
    if state != "DELETED":
        delete_id = operation(api, gid)["delete_operation_id"]
        node.wait_for(lambda event: is_command(gid, "DELETE")(event) and event["operationId"] == delete_id)
        node.tell(do="report", tasks=[{"gid": gid, "deleted": True}], report_id=f"rest-{gid}")
        node.wait_for(is_ack(f"rest-{gid}"))


def assert_told_after_all(world: World, webhook: Webhook) -> None:
    """Every notification reaches the receiver, under one id, however often it was sent."""
    expected = {
        (row[0], row[1], row[2])
        for row in world.outside.rows("SELECT notification_id, gid, status FROM orbit_notification")
    }
    eventually(lambda: set(webhook.told) == expected, 60, describe=lambda: expected ^ set(webhook.told))
    by_meaning = [(gid, status) for _, gid, status in set(webhook.told)]
    assert len(by_meaning) == len(set(by_meaning)), "one generation told one status under two ids"


@pytest.mark.slow
def test_a_delete_whose_confirmation_dies_with_the_node_is_confirmed_again(world: World, webhook: Webhook):
    play = Play(world, webhook, itertools.count(1))
    server = play.start(None)
    play.delete()
    storage = play.storage
    assert storage is not None
    storage.wait_for(is_command(play.gid, "DELETE"))
    server.kill()
    server = play.start("lifecycle.report.before_commit")
    play.node()
    storage.tell(do="report", tasks=[{"gid": play.gid, "deleted": True}], report_id="gone")
    assert_killed(server, "lifecycle.report.before_commit")
    assert world.outside.states()[play.gid] == "DELETE_PENDING"
    assert "gone" not in storage.acknowledged()
    play.start(None)
    play.node()  # keeps what was not acknowledged, and sends it again
    storage.wait_for(is_ack("gone"))
    assert world.outside.states()[play.gid] == "DELETED"
    world.assert_sound()
