"""The lifecycle of a download, told step by step: what happens, and why it is safe.

    python examples/lifecycle.py

It needs nothing: it starts an Orbit node of its own on a database of its own, a stand-in for the upstream (which is not
idempotent) and one for a storage node, plays the story, and leaves nothing behind. Anything unexpected ends with a
status that is not 0. `docs/lifecycle.md` says the rules.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the stand-ins stand in the repository, not in the SDK

from lifecycle_app.fakes.storage_node import FakeStorageNode  # noqa: E402
from orbit_sdk import OrbitClient  # noqa: E402
from orbit_sdk.errors import ApiError  # noqa: E402

SCENE_SECONDS = 25
FIRST, SECOND = 4711, 4712


def main() -> None:
    with stage() as (orbit, upstream, node):
        signal.alarm(SCENE_SECONDS)
        create_and_progress(orbit, node)
        lose_an_acknowledgement(orbit, node)
        lose_an_outcome(orbit, upstream)
        reconcile(orbit, upstream, node)
        delete_and_begin_anew(orbit, node)
    print("lifecycle: upstream_submits_per_generation=1 metered_once=true revived=0 acknowledged_before_commit=0")


def create_and_progress(orbit: OrbitClient, node: FakeStorageNode) -> None:
    say("create", f"gid {FIRST}: reserve, look, persist SUBMITTING, and only then ask the upstream, once")
    operation = orbit.create_operation(FIRST, "gallery one", "ana")
    assert (operation.state, operation.status) == ("SUBMITTED", "SUBMITTED"), operation
    told = node.wait_for(lambda event: event["event"] == "command" and event["gid"] == FIRST)
    assert told["operationId"] == operation.operation_id
    safe("the intent was committed before the upstream heard of it; the storage node was told what is certain")

    say("progress", "the storage node reports 40 %")
    report = node.report({"gid": FIRST, "status": 1, "progress": 40})
    assert acknowledged(node, report) == "APPLIED"
    shown = orbit.get_operation(FIRST)
    assert (shown.status, shown.progress) == ("DOWNLOADING", 40)
    safe(
        f"revision {shown.last_revision} of this very generation: {shown.status_text['zh']} / {shown.status_text['en']}"
    )


def lose_an_acknowledgement(orbit: OrbitClient, node: FakeStorageNode) -> None:
    say("lost ack", "the node reports, the answer is lost on the way, the node reconnects and sends it again")
    node.lose_acks(1)
    report = node.report({"gid": FIRST, "status": 4, "progress": 100})
    node.wait_for(lambda event: event["event"] == "ack_lost" and event["reportId"] == report)
    node.disconnect()
    node.connect()
    assert acknowledged(node, report) == "DUPLICATE"
    assert orbit.get_operation(FIRST).status == "COMPLETE"
    safe("answered only after the commit, answered again from its receipt, told to nobody twice")


def lose_an_outcome(orbit: OrbitClient, upstream: Upstream) -> None:
    say("time-out", f"gid {SECOND}: the upstream takes it and then does not answer in time")
    upstream.script({"submit": {str(SECOND): ["slow:3000"]}})
    operation = orbit.create_operation(SECOND, "gallery two", "ana")
    assert (operation.state, operation.status) == ("UNKNOWN", "SUBMIT_UNKNOWN"), operation
    try:
        orbit.create_operation(SECOND, "gallery two", "ana")
    except ApiError as refused:
        assert refused.code == "ALREADY_EXISTS"
    else:
        raise SystemExit("a second click was not refused")
    assert upstream.submits(SECOND) == 1
    safe("nobody guessed: not metered, not dispatched, and a second click asked the upstream nothing")


def reconcile(orbit: OrbitClient, upstream: Upstream, node: FakeStorageNode) -> None:
    seen = orbit.get_operation(SECOND)
    say("reconcile", "a person asks the upstream, read-only, and then decides")
    looked_up = orbit.reconcile_operation(SECOND, seen.operation_id, seen.state, "LOOKUP", "asked before deciding")
    assert looked_up.lookup is not None and looked_up.lookup["found"] is True
    orbit.reconcile_operation(SECOND, seen.operation_id, seen.state, "SUBMITTED", "the upstream has it")
    assert orbit.get_operation(SECOND).state == "SUBMITTED"
    told = node.wait_for(lambda event: event["event"] == "command" and event["gid"] == SECOND)
    assert told["operationId"] == seen.operation_id
    assert upstream.submits(SECOND) == 1
    safe("state, row and metering in one transaction; the same operation id; an audit entry with the reason")


def delete_and_begin_anew(orbit: OrbitClient, node: FakeStorageNode) -> None:
    old = orbit.get_operation(FIRST)
    say("delete", f"gid {FIRST}: first the wish is committed, then the node is told, then the node confirms")
    wished = orbit.delete_operation(FIRST)
    assert wished.state == "DELETE_PENDING"
    told = node.wait_for(lambda event: event["event"] == "command" and event["action"] == "DELETE")
    assert told["operationId"] == wished.delete_operation_id
    assert acknowledged(node, node.report({"gid": FIRST, "deleted": True})) == "APPLIED"
    assert orbit.get_operation(FIRST).state == "DELETED"
    safe("the row went only when the files were gone; the tombstone stays")

    say("tombstone", "a late report of the deleted generation arrives")
    late = node.report({"gid": FIRST, "status": 1}, operation_ids={str(FIRST): old.operation_id})
    assert acknowledged(node, late) == "IGNORED"
    assert orbit.get_operation(FIRST).state == "DELETED"
    safe("acknowledged, so that the node stops repeating it, and it revived nothing")

    say("new generation", "only an explicit create brings the gid back")
    again = orbit.create_operation(FIRST, "gallery one", "ana")
    assert again.state == "SUBMITTED" and again.operation_id != old.operation_id
    safe("a new operation id: nothing that belongs to the old one can touch it")


def acknowledged(node: FakeStorageNode, report_id: str) -> str:
    answer = node.wait_for(lambda event: event["event"] == "ack" and event["reportId"] == report_id)
    return str(answer["result"])


def say(step: str, what: str) -> None:
    print(f"{step:>15}  {what}")


def safe(why: str) -> None:
    print(f"{'safe because':>15}  {why}", flush=True)


# -- The stage: an Orbit node, the upstream, a storage node


class Upstream:
    """The stand-in for the upstream, in a process of its own."""

    def __init__(self, url: str) -> None:
        import httpx2

        self.url = url
        self._http = httpx2.Client(base_url=url, trust_env=False)

    def script(self, orders: dict[str, Any]) -> None:
        self._http.post("/control", json=orders).raise_for_status()

    def submits(self, gid: int) -> int:
        journal = self._http.get("/control").json()["journal"]
        return sum(entry["step"] == "submit" and entry["gid"] == str(gid) for entry in journal)


@contextlib.contextmanager
def stage() -> Iterator[tuple[OrbitClient, Upstream, FakeStorageNode]]:
    with tempfile.TemporaryDirectory(prefix="orbit-lifecycle-") as folder, contextlib.ExitStack() as running:
        say("stage", "an Orbit node, an upstream that is not idempotent, a storage node")
        player = start(running, ["-m", "lifecycle_app.fakes.upstream"], dict(os.environ))
        upstream = Upstream(json.loads(player.readline())["url"])
        node_port = free_port()
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ORBIT_")},
            "ORBIT_DEBUG": "1",
            "ORBIT_LOG_LEVEL": "ERROR",
            "ORBIT_DATABASE_URL": f"sqlite:///{folder}/orbit.sqlite3",
            "ORBIT_UPSTREAM_URL": upstream.url,
            "ORBIT_UPSTREAM_TIMEOUT_MS": "1000",
            "ORBIT_NODE_ADDR": f"127.0.0.1:{node_port}",
        }
        credentials = Path(folder) / "credentials.json"
        manage(environ, "migrate", "--verbosity", "0")
        manage(
            environ,
            *("orbit_bootstrap", "--application", "example", "--namespace", "downloads", "--environment", "example"),
            *("--node-access", "--output", str(credentials)),
        )
        ready = start(running, ["manage.py", "orbit_serve", "--bind", "127.0.0.1:0"], environ).readline()
        token = json.loads(credentials.read_text())["token"]
        node = FakeStorageNode(name="storage-1", token=token, port=node_port)
        node.connect()
        running.callback(node.disconnect)
        orbit = running.enter_context(OrbitClient(ready.split()[-1], token))
        yield orbit, upstream, node


def start(running: contextlib.ExitStack, arguments: list[str], environ: dict[str, str]) -> Any:
    """A process of the stage; its output, to be read by line. It ends with the stage."""
    process = subprocess.Popen(  # noqa: S603 - our own programs
        [sys.executable, *arguments],
        env=environ,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.terminate()
        process.communicate(timeout=10)

    running.callback(end)
    return process.stdout


def manage(environ: dict[str, str], *arguments: str) -> None:
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "manage.py", *arguments], env=environ, cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
