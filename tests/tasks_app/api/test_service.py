"""Probes, metrics and documents (design 1.8): open, offline, and silent about the inside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.db import OperationalError
from django.test import Client

from tasks_app import readiness
from tasks_app.api.docs_views import _GUIDE
from tasks_app.api.errors import STATUS
from tests.tasks_app.api.callers import Caller

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False)


# -- probes


@pytest.mark.parametrize("path", ["/healthz", "/livez"])
def test_a_live_process_says_so_without_asking_the_database(path: str, client: Client, monkeypatch):
    def fail(*_: Any) -> None:
        raise OperationalError("down")

    monkeypatch.setattr(readiness, "reading", fail)
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_ready_node_says_so_and_lists_its_checks_when_asked(client: Client):
    assert client.get("/readyz").json() == {"status": "ok"}
    assert client.get("/readyz?verbose").json()["checks"] == {"database": "ok", "migrations": "ok"} | {
        finding.name: "ok" for finding in readiness.findings()
    }


def test_a_database_that_does_not_answer_makes_a_node_unready_and_the_reason_holds_no_address(
    client: Client, monkeypatch
):
    def fail() -> None:
        raise OperationalError(2003, "Can't connect to server on 'db.internal' as 'orbit'")

    monkeypatch.setitem(readiness._checks, "database", fail)
    answer = client.get("/readyz?verbose")
    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert answer.json()["reasons"] == ["database: the database does not answer (OperationalError)"]
    assert answer.headers["Cache-Control"] == "no-store"


def test_migrations_that_are_missing_make_a_node_unready_until_they_are_applied(client: Client, monkeypatch):
    class Executor:
        missing = 2

        def __init__(self, connection: Any) -> None:
            self.loader = self
            self.graph = self

        def leaf_nodes(self) -> list[Any]:
            return []

        def migration_plan(self, targets: Any) -> list[Any]:
            return [None] * self.missing

    readiness._migrated.clear()
    monkeypatch.setattr(readiness, "MigrationExecutor", Executor)
    assert client.get("/readyz").json()["reasons"] == ["migrations: 2 migrations are not applied"]
    Executor.missing = 0
    assert client.get("/readyz").status_code == 200
    Executor.missing = 1  # looked at no more
    assert client.get("/readyz").status_code == 200


def test_what_another_app_needs_is_a_check_too(client: Client, monkeypatch):
    monkeypatch.setattr(readiness, "_checks", dict(readiness._checks))
    readiness.register("recovery", lambda: "still running")
    assert client.get("/readyz").json()["reasons"] == ["recovery: still running"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/openapi.json", "/docs/errors/"])
def test_these_pages_are_only_ever_read(path: str, client: Client):
    assert client.post(path).status_code in (403, 405)
    assert client.head(path).status_code == 200


# -- metrics


def test_metrics_are_open_on_loopback(client: Client):
    for address in ("127.0.0.1", "::1", "127.8.8.8"):
        answer = client.get("/metrics", REMOTE_ADDR=address)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert b"orbit_tasks_accepted_total" in answer.content


def test_metrics_do_not_exist_elsewhere_without_the_token(client: Client, settings):
    settings.ORBIT = settings_with(settings.ORBIT, None)
    for header in ("", "Bearer ", "Bearer None"):
        assert client.get("/metrics", REMOTE_ADDR="192.0.2.1", HTTP_AUTHORIZATION=header).status_code == 404
    settings.ORBIT = settings_with(settings.ORBIT, "a-token-of-metrics")
    for header in ("", "Bearer x", "a-token-of-metrics", "Bearer a-token-of-metric"):
        assert client.get("/metrics", REMOTE_ADDR="192.0.2.1", HTTP_AUTHORIZATION=header).status_code == 404
    answer = client.get("/metrics", REMOTE_ADDR="192.0.2.1", HTTP_AUTHORIZATION="Bearer a-token-of-metrics")
    assert answer.status_code == 200


def settings_with(configuration: Any, token: str | None) -> Any:
    from dataclasses import replace

    return replace(configuration, metrics_token=token)


def test_refusals_are_counted_by_code(caller: Caller, client: Client):
    def counted() -> float:
        found = re.search(rb'orbit_api_refusals_total\{code="NOT_FOUND"\} ([0-9.]+)', client.get("/metrics").content)
        return float(found[1]) if found else 0.0

    before = counted()
    caller.get(f"/v1/tasks/{'0' * 32}").expect(404)
    assert counted() == before + 1


# -- documents


def test_the_page_of_the_api_loads_only_what_this_server_serves(client: Client):
    page = client.get("/docs/").content.decode()
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert loaded
    assert all(address.startswith("/") and not address.startswith("//") for address in loaded)
    assert not re.search(r"<script>|<style|style=|\son[a-z]+=", page)
    for address in loaded:
        if address.startswith("/static/"):
            assert finders.find(address.removeprefix("/static/")), address
    script = client.get("/docs/?script=")
    assert script.headers["Content-Type"].startswith("application/javascript")
    assert "/v1/openapi.json" in script.content.decode()
    assert not re.search(r"https?://", script.content.decode())


def test_the_page_of_errors_explains_every_code(client: Client):
    assert set(_GUIDE) == set(STATUS)
    page = client.get("/docs/errors/").content.decode()
    for code, status in STATUS.items():
        assert re.search(rf'<tr id="{code}">.*<td>{status}</td>', page)
    assert not re.search(r"<script|<style|style=", page)


def test_the_documents_are_open_and_cached_by_their_etag(client: Client):
    answer = client.get("/v1/openapi.json")
    assert answer.status_code == 200
    assert client.get("/v1/openapi.json", HTTP_IF_NONE_MATCH=answer.headers["ETag"]).status_code == 304


def test_no_template_of_the_pages_names_an_address_outside():
    root = Path(__file__).resolve().parents[3] / "tasks_app"
    for path in [*root.glob("templates/tasks_app/docs/*"), *root.glob("static/tasks_app/*.css")]:
        assert "://" not in path.read_text(), path
