"""The documents for strangers, held to what the code does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from orbit_project.configuration import BY_NAME, load
from tasks_app.api.errors import STATUS
from tests.support.fixtures import RunningOrbit
from tests.support.server import ROOT, bootstrap
from workers_app.protocol.messages import CloseCode

DOCS = ROOT / "docs"
DEPLOY = DOCS / "deploy"
HTTP_API = (DOCS / "http-api.md").read_text()
WORKER_PROTOCOL = (DOCS / "worker-protocol.md").read_text()
WAIT_SECONDS = 60


def _rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_link_between_the_documents_leads_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in DOCS.rglob("*.md")
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in link and not (page.parent / link).exists()
    ]

    assert broken == []


def test_the_guide_to_the_api_lists_every_path_and_method_that_there_is():
    described = {
        (path, method.upper())
        for path, methods in json.loads((DOCS / "api/openapi.json").read_text())["paths"].items()
        for method in methods
    }
    listed = {
        (path.strip("`"), method) for path, methods, _ in _rows(HTTP_API, "Every path") for method in methods.split()
    }

    assert listed == described


def test_the_guide_to_the_api_explains_every_error_code_with_its_status():
    assert {code.strip("`"): int(status) for code, status, *_ in _rows(HTTP_API, "Errors")} == STATUS


def test_the_commands_of_the_guide_to_the_api_work(orbit_server: RunningOrbit, tmp_path: Path):
    credentials = bootstrap(
        orbit_server.site.database_url, application="guide", namespace="n", more=("--queue", "work")
    )
    script = "set -eu\n" + "\n".join(re.findall(r"```sh\n(.*?)```", HTTP_API, re.DOTALL))
    environ = {
        "PATH": os.environ["PATH"],
        "ORBIT_URL": orbit_server.url,
        "ORBIT_CREDENTIALS_FILE": str(credentials.path),
    }

    run = subprocess.run(
        ["bash", "-c", script],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    answers = [json.loads(line) for line in run.stdout.splitlines() if line]
    assert run.returncode == 0, run.stdout + run.stderr
    assert [answer for answer in answers if "error" in answer] == []
    statuses = [
        [item["status"] for item in answer["data"]["items"]] for answer in answers if "summary" in answer["data"]
    ]
    assert statuses[0] == ["ACCEPTED", "REJECTED"]


def test_every_frame_of_the_protocols_conversation_is_a_valid_message():
    schema = json.loads((DOCS / "api/worker-schema.json").read_text())
    side = {"→": "worker_message", "←": "server_message"}
    frames = re.findall(r"^([→←]) (\{.*\})$", WORKER_PROTOCOL, re.MULTILINE)

    faults = [
        f"{frame[:60]}: {fault.message}"
        for arrow, frame in frames
        for fault in Draft202012Validator({**schema, "oneOf": [{"$ref": f"#/$defs/{side[arrow]}"}]}).iter_errors(
            json.loads(frame)
        )
    ]

    assert len(frames) > 10
    assert faults == []


def test_the_protocols_page_explains_every_close_code():
    assert [int(code) for code, *_ in _rows(WORKER_PROTOCOL, "Close codes")] == sorted(CloseCode)


def test_the_protocols_page_explains_every_message():
    schema = json.loads((DOCS / "api/worker-schema.json").read_text())["$defs"]
    types = {
        definition["properties"]["type"]["const"]
        for definition in schema.values()
        if "const" in definition.get("properties", {}).get("type", {})
    }

    assert [kind for kind in sorted(types) if f"`{kind}`" not in WORKER_PROTOCOL] == []


# -- docs/deploy


def test_the_example_of_an_environment_file_is_a_valid_configuration():
    lines = (DEPLOY / "orbit.env.example").read_text().splitlines()
    environ = dict(line.removeprefix("#").split("=", 1) for line in lines if re.match(r"#?ORBIT_[A-Z_]+=", line))

    assert load(environ).allowed_hosts == ("orbit.example.com", "127.0.0.1")


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes.yaml", "orbit.service", "Dockerfile", "README.md"])
def test_the_files_for_deployment_name_only_settings_that_there_are(name: str):
    text = (DEPLOY / name).read_text()

    assert set(re.findall(r"\bORBIT_[A-Z_]+\b", text)) - {"ORBIT_PORT"} <= set(BY_NAME)
    if name.endswith(".yaml"):
        assert list(yaml.safe_load_all(text))


def test_every_supervisor_waits_longer_than_the_drain_takes():
    service, compose, kubernetes = (
        (DEPLOY / name).read_text() for name in ("orbit.service", "compose.yaml", "kubernetes.yaml")
    )
    drain = int(re.findall(r"--drain-timeout (\d+)", service)[0])

    waits = [
        re.findall(r"TimeoutStopSec=(\d+)", service),
        re.findall(r"stop_grace_period: (\d+)s", compose),
        re.findall(r"terminationGracePeriodSeconds: (\d+)", kubernetes),
    ]
    assert all(int(seconds) > drain + 5 for (seconds,) in waits)
