"""The command `orbit` (design 6.4): usage, exit codes, what is printed for people and for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import orbit_sdk
from orbit_sdk.cli.commands.worker import fingerprint
from orbit_sdk.cli.root import run
from tests.sdk.fake_api import (
    QUEUE,
    TASK,
    FakeApi,
    accepted_object,
    queue_object,
    receipt_object,
    success,
    task_object,
)
from tests.sdk.fake_node import FakeNode, running_node

SDK = Path(orbit_sdk.__file__).parents[1]
SECRET = "orbit_secret_token"


@dataclass
class Done:
    code: int
    out: str
    err: str


Orbit = Callable[..., Done]


@pytest.fixture
def orbit(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Orbit:
    """Run a command line beside the scripted API."""
    credentials = tmp_path / "credentials.json"
    credentials.write_text(
        json.dumps({"token": SECRET, "queues": {"reports": QUEUE, "email": "4" * 32}, "policy": "STRICT"})
    )
    credentials.chmod(0o600)
    monkeypatch.setenv("ORBIT_URL", api.url)
    monkeypatch.setenv("ORBIT_CREDENTIALS_FILE", str(credentials))
    monkeypatch.delenv("ORBIT_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(*arguments: str) -> Done:
        code = run(list(arguments))
        captured = capsys.readouterr()
        assert SECRET not in captured.out + captured.err
        return Done(code, captured.out, captured.err)

    return call


def write(folder: Path, name: str, document: Any) -> str:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


A_TASK = {"queue": "reports", "handler": "h", "payload": {"n": 1}}


# -- submit


def test_submit_sends_the_task_of_a_file(api: FakeApi, orbit: Orbit, tmp_path: Path) -> None:
    api.success(accepted_object(), 201)
    task = '{"queue": "reports", "handler": "h", "payload": {"n": 9007199254740993, "d": 1.10}, "priority": 3}'

    done = orbit("submit", "-f", write(tmp_path, "task.json", task), "--key", "k1")

    assert (done.code, done.out) == (0, f"accepted {TASK}\n")
    assert api.seen[0].headers["idempotency-key"] == "k1"
    assert b'"payload":{"n":9007199254740993,"d":1.10}' in api.seen[0].body
    assert api.seen[0].json["queue_id"] == QUEUE


def test_a_file_may_hold_its_own_key(api: FakeApi, orbit: Orbit, tmp_path: Path) -> None:
    api.success(accepted_object(), 201)

    done = orbit("submit", "-f", write(tmp_path, "task.json", {"idempotency_key": "k2", "task": A_TASK}))

    assert done.code == 0
    assert api.seen[0].headers["idempotency-key"] == "k2"


@pytest.mark.parametrize(
    ("document", "arguments", "complaint"),
    [
        (A_TASK, (), "--key"),
        ({"idempotency_key": "a", "task": A_TASK}, ("--key", "b"), "another one"),
        ({**A_TASK, "colour": 1}, ("--key", "k"), "colour"),
        ({"queue": "reports", "handler": "h"}, ("--key", "k"), "payload is missing"),
        ({**A_TASK, "queue_id": QUEUE}, ("--key", "k"), "one of them"),
        ({**A_TASK, "retry": {"mode": "MAYBE"}}, ("--key", "k"), "NEVER or SAFE"),
        ({**A_TASK, "available_at": "soon"}, ("--key", "k"), "RFC 3339"),
        ("{", ("--key", "k"), "task.json"),
        ("[]", ("--key", "k"), "object"),
        ({**A_TASK, "queue": "nowhere"}, ("--key", "k"), "nowhere"),
        (A_TASK, ("--key", "with blank"), "key"),
    ],
)
def test_wrong_usage_is_2_and_sends_nothing(
    api: FakeApi, orbit: Orbit, tmp_path: Path, document: Any, arguments: tuple[str, ...], complaint: str
) -> None:
    done = orbit("submit", "-f", write(tmp_path, "task.json", document), *arguments)

    assert done.code == 2
    assert complaint in done.err
    assert api.seen == []


def test_a_missing_file_and_an_unknown_command_are_wrong_usage(orbit: Orbit) -> None:
    assert orbit("submit", "-f", "nowhere.json", "--key", "k").code == 2
    assert orbit("fly").code == 2
    assert orbit("task", "show").code == 2


def test_missing_settings_are_wrong_usage(orbit: Orbit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBIT_CREDENTIALS_FILE")

    done = orbit("status")

    assert done.code == 2
    assert "ORBIT_CREDENTIALS_FILE" in done.err


@pytest.mark.parametrize(("status", "code", "exit_code"), [(409, "IDEMPOTENCY_CONFLICT", 1), (503, "UNAVAILABLE", 3)])
def test_a_refusal_is_1_and_an_unknown_outcome_3(
    api: FakeApi, orbit: Orbit, tmp_path: Path, status: int, code: str, exit_code: int
) -> None:
    api.failure(status, code)

    done = orbit("submit", "-f", write(tmp_path, "task.json", A_TASK), "--key", "k")

    assert (done.code, done.out) == (exit_code, "")
    assert code in done.err


def test_a_lost_answer_is_3_and_sent_once(api: FakeApi, orbit: Orbit, tmp_path: Path) -> None:
    api.cut()

    assert orbit("submit", "-f", write(tmp_path, "task.json", A_TASK), "--key", "k").code == 3
    assert len(api.seen) == 1


@pytest.mark.parametrize("place", ["before", "between", "after"])
def test_json_prints_exactly_the_data_wherever_the_flag_stands(api: FakeApi, orbit: Orbit, place: str) -> None:
    document = json.dumps({"request_id": "3" * 32, "data": {"task": task_object(payload="PAYLOAD")}})
    api.raw(200, document.replace('"PAYLOAD"', '{"n":1.10,"e":1e400}').encode())
    arguments = {
        "before": ("--json", "task", "show", TASK),
        "between": ("task", "--json", "show", TASK),
        "after": ("task", "show", TASK, "--json"),
    }

    done = orbit(*arguments[place])

    assert done.code == 0
    assert '"payload":{"n":1.10,"e":1e400}' in done.out
    assert json.loads(done.out, parse_float=str).keys() == {"task"}


def test_an_error_is_an_object_for_programs(api: FakeApi, orbit: Orbit) -> None:
    api.failure(429, "QUEUE_FULL", retry_after_ms=1000)

    done = orbit("--json", "task", "show", TASK)

    error = json.loads(done.err)["error"]
    assert (error["code"], error["status"], error["retry_after_ms"], error["outcome_unknown"]) == (
        "QUEUE_FULL",
        429,
        1000,
        False,
    )


# -- batch


def batch_item(index: int, status: str) -> dict[str, Any]:
    if status == "ACCEPTED":
        return {"index": index, "status": status, "receipt": receipt_object()}
    code = {"UNKNOWN": "UNAVAILABLE", "NOT_ATTEMPTED": "BATCH_STOPPED"}.get(status, "QUEUE_FULL")
    return {"index": index, "status": status, "error": {"code": code, "message": "m"}}


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["ACCEPTED", "ACCEPTED", "ACCEPTED"], 0),
        (["ACCEPTED", "REJECTED", "ACCEPTED"], 1),
        (["REJECTED", "UNKNOWN", "NOT_ATTEMPTED"], 3),
    ],
)
def test_the_exit_code_of_a_batch_tells_the_worst(
    api: FakeApi, orbit: Orbit, tmp_path: Path, statuses: list[str], code: int
) -> None:
    api.success({"items": [batch_item(index, status) for index, status in enumerate(statuses)]})
    items = [{"idempotency_key": f"k{number}", "task": A_TASK} for number in range(3)]

    done = orbit("batch", "-f", write(tmp_path, "batch.json", {"items": items}))

    assert done.code == code
    assert [line.split("\t")[1] for line in done.out.splitlines()[1:]] == statuses


# -- call


TASKS_MODULE = """
from orbit_sdk import App, Config, Priority, QueueConfig

app = App(Config(queues={"email": QueueConfig(default_priority=2)}))

@app.task(queue="email", name="send")
def send(to, copies=1):
    return to

def plain():
    pass
"""


def test_call_sends_a_task_of_an_app(api: FakeApi, orbit: Orbit, tmp_path: Path) -> None:
    (tmp_path / "cli_tasks_a.py").write_text(TASKS_MODULE)
    queue = "4" * 32
    data = {"task": task_object(queue_id=queue), "receipt": receipt_object(queue_id=queue)}
    api.success(data, 201)
    api.success(data, 201)

    first = orbit("call", "cli_tasks_a.send", "--args", '["a@b.com"]', "--priority", "5", "--key", "k")
    second = orbit("call", "cli_tasks_a:send", "--kwargs", '{"to": "x"}', "--key", "k2")

    assert (first.code, second.code) == (0, 0)
    assert api.seen[0].json["payload"] == {"args": ["a@b.com"], "kwargs": {}}
    assert [seen.json["priority"] for seen in api.seen] == [5, 2]
    assert api.seen[0].json["queue_id"] == queue


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("cli_tasks_b.send", "--args", "[1]"), "--key"),
        (("cli_tasks_b.send", "--args", "{}", "--key", "k"), "array"),
        (("cli_tasks_b.send", "--args", "[", "--key", "k"), "--args"),
        (("cli_tasks_b.send", "--key", "k"), "to"),
        (("cli_tasks_b.send", "--args", "[1]", "--priority", "10", "--key", "k"), "-9 to 9"),
        (("cli_tasks_b.plain", "--key", "k"), "not a task"),
        (("no_such_module.send", "--key", "k"), "no_such_module"),
        (("send", "--key", "k"), "module.task"),
    ],
)
def test_a_wrong_call_is_wrong_usage(
    api: FakeApi, orbit: Orbit, tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    (tmp_path / "cli_tasks_b.py").write_text(TASKS_MODULE)

    done = orbit("call", *arguments)

    assert done.code == 2
    assert complaint in done.err
    assert api.seen == []


# -- task


@pytest.mark.parametrize(
    ("state", "code"),
    [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELED", 1), ("EXPIRED", 1), ("UNKNOWN", 3)],
)
def test_wait_tells_the_end_by_its_exit_code(api: FakeApi, orbit: Orbit, state: str, code: int) -> None:
    api.success({"task": task_object(state=state)})

    assert orbit("task", "wait", TASK).code == code


def test_wait_is_3_when_time_runs_out(api: FakeApi, orbit: Orbit) -> None:
    api.always = lambda seen: success({"task": task_object()})

    assert orbit("task", "wait", TASK, "--timeout", "0.1").code == 3


def test_cancel_looks_for_the_revision_unless_it_is_given(api: FakeApi, orbit: Orbit) -> None:
    api.success({"task": task_object(revision="4", state="RUNNING")})
    api.success({"task": task_object(revision="5", state="RUNNING", cancel_requested=True)})
    api.success({"task": task_object(revision="8", state="CANCELED")})

    first = orbit("task", "cancel", TASK, "--reason", "no")
    second = orbit("task", "cancel", TASK, "--revision", "7")

    assert api.seen[1].json == {"revision": "4", "reason": "no"}
    assert api.seen[2].json == {"revision": "7"}
    assert "asked to stop" in first.out
    assert "CANCELED" in second.out


# -- dlq


def replayed(number: int, status: str) -> dict[str, Any]:
    return {**batch_item(number, status), "source_task_id": f"{number:032x}"}


def test_replaying_all_goes_on_round_after_round(api: FakeApi, orbit: Orbit) -> None:
    api.success({"items": [replayed(number, "ACCEPTED") for number in range(100)]})
    api.success({"items": [{**replayed(0, "ACCEPTED"), "source_task_id": "e" * 32}]})

    done = orbit("dlq", "replay", "--all", "--queue", "reports", "--priority", "0")

    assert done.code == 0
    assert "101 of 101 replayed" in done.out
    assert [seen.json for seen in api.seen] == [{"queue_id": QUEUE, "limit": 100, "priority": 0}] * 2
    assert len({seen.headers["idempotency-key"] for seen in api.seen}) == 2


def test_replaying_all_ends_when_a_round_achieves_nothing(api: FakeApi, orbit: Orbit) -> None:
    api.always = lambda seen: success({"items": [replayed(number, "REJECTED") for number in range(100)]})

    done = orbit("dlq", "replay", "--all", "--queue", "reports", "--json")

    assert done.code == 1
    assert len(api.seen) == 1
    assert json.loads(done.out)["summary"] == {"accepted": 0, "rejected": 100, "unknown": 0, "not_attempted": 0}


@pytest.mark.parametrize(
    "arguments",
    [(), ("--all",), ("--queue", "reports"), ("--queue", "reports", "--all", "--limit", "5"),
     ("--queue", "reports", "--all", "--key", "k")],
)  # fmt: skip
def test_a_replay_says_what_it_covers(api: FakeApi, orbit: Orbit, arguments: tuple[str, ...]) -> None:
    assert orbit("dlq", "replay", *arguments).code == 2
    assert api.seen == []


# -- status


def stats(**tiers: int) -> dict[str, Any]:
    return {
        "stats": {
            "counts": {"READY": sum(tiers.values())},
            "backlog_by_priority": {name.replace("m", "-").lstrip("p"): count for name, count in tiers.items()},
            "oldest_waiting_ms_by_priority": {},
            "running": 1,
            "reserved": 0,
            "start_budget": None,
            "head_waiting": None,
        }
    }


def test_status_by_priority_is_a_line_per_queue_most_urgent_first(api: FakeApi, orbit: Orbit) -> None:
    queues = [queue_object(name="email"), queue_object(name="bulk", queue_id="4" * 32)]
    api.success({"items": queues, "next_cursor": None})
    api.success(stats(m3=1))
    api.success(stats(p0=104, p9=3, p5=12))

    done = orbit("status", "--by-priority")

    assert done.out == "bulk: P-3=1\nemail: P9=3 P5=12 P0=104\n"


def test_status_is_a_table(api: FakeApi, orbit: Orbit) -> None:
    api.success({"items": [queue_object(paused=True)], "next_cursor": None})
    api.success(stats(p0=2))

    rows = [line.split("\t") for line in orbit("status").out.splitlines()]

    assert dict(zip(rows[0], rows[1], strict=True)) == {
        "queue": "reports (paused)",
        "waiting": "2",
        "scheduled": "0",
        "reserved": "0",
        "running": "1",
        "unknown": "0",
        "failed": "0",
        "oldest wait": "-",
        "held back by": "-",
    }


def test_watching_needs_a_terminal(orbit: Orbit) -> None:
    assert orbit("status", "--watch").code == 2


# -- env, doctor, completion


def test_env_prints_exports_and_never_the_token(api: FakeApi, orbit: Orbit, tmp_path: Path) -> None:
    done = orbit("env")

    assert done.out == f"export ORBIT_URL={api.url}\nexport ORBIT_CREDENTIALS_FILE={tmp_path}/credentials.json\n"


def test_doctor_says_what_to_do(api: FakeApi, orbit: Orbit, tmp_path: Path) -> None:
    (tmp_path / "credentials.json").chmod(0o644)
    api.success({"status": "ok"})
    api.failure(401, "UNAUTHENTICATED")

    done = orbit("doctor")

    assert done.code == 1
    assert f"chmod 600 {tmp_path}/credentials.json" in done.out
    assert "issue a new one" in done.out


def test_doctor_is_content_when_all_is_well(api: FakeApi, orbit: Orbit) -> None:
    api.success({"status": "ok"})
    api.success({"items": [queue_object()], "next_cursor": None})

    done = orbit("doctor")

    assert done.code == 0
    assert "FIX" not in done.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there_for_shells(shell: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(SDK), "_ORBIT_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", "from orbit_sdk.cli import main; main()"], env=environ, capture_output=True, text=True
    )

    assert "_ORBIT_COMPLETE" in done.stdout


# -- worker


WORKER_MODULE = """
from orbit_sdk import App, Config

app = App(Config(default_queue="reports"))

@app.task(name="noop")
def noop():
    return {value!r}
"""


def start_worker(node: FakeNode, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    credentials = folder / "credentials.json"
    credentials.write_text(json.dumps({"url": node.url, "token": SECRET, "queues": {"reports": QUEUE}}))
    environ = {**os.environ, "ORBIT_CREDENTIALS_FILE": str(credentials), "PYTHONPATH": str(SDK)}
    environ.pop("ORBIT_URL", None)
    return subprocess.Popen(
        [sys.executable, "-m", "orbit_sdk.cli", "worker", "cli_worker:app", *arguments],
        env=environ,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_worker_runs_an_app_and_drains_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "cli_worker.py").write_text(WORKER_MODULE.format(value=1))
    with running_node() as node:
        attempt = node.submit("noop", {"args": [], "kwargs": {}})
        process = start_worker(node, tmp_path, "--concurrency", "3", "--json")
        try:
            assert node.report_of(attempt).result == "1"
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()

    assert process.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert (events[0]["event"], events[0]["concurrency"], events[-1]["event"]) == ("started", 3, "stopped")


def test_worker_with_reload_runs_the_code_as_it_is_written_now(tmp_path: Path) -> None:
    module = tmp_path / "cli_worker.py"
    module.write_text(WORKER_MODULE.format(value="old"))
    payload = {"args": [], "kwargs": {}}
    with running_node() as node:
        process = start_worker(node, tmp_path, "--reload")
        try:
            assert node.report_of(node.submit("noop", payload)).result == '"old"'
            before = fingerprint(tmp_path)
            while fingerprint(tmp_path) == before:  # file systems with coarse stamps see no change in the same tick
                module.write_text(WORKER_MODULE.format(value="brand new"))
                time.sleep(0.01)
            node.wait(lambda: len(node.hellos) == 2, "the worker came back")
            assert node.report_of(node.submit("noop", payload)).result == '"brand new"'
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=20)
        finally:
            process.kill()

    assert process.returncode == 0, err


def test_a_worker_that_is_not_there_is_wrong_usage(orbit: Orbit, tmp_path: Path) -> None:
    (tmp_path / "cli_nothing.py").write_text("x = 1")

    assert orbit("worker", "cli_nothing").code == 2
    assert orbit("worker", "cli_nothing:x").code == 2
    assert orbit("worker", "no_such_module_at_all:app").code == 2
