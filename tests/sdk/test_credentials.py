"""Where the URL and the token come from, and that the token stays hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbit_sdk import AsyncOrbitClient, ConfigError, Credentials, InvalidRequest, OrbitClient, Policy
from tests.sdk.fake_api import QUEUE

TOKEN = "orbit_very_secret_token"


def write_file(folder: Path, **changes: Any) -> Path:
    path = folder / "orbit.credentials.json"
    document = {
        "url": "http://127.0.0.1:8080",
        "application_id": "a" * 32,
        "namespace_id": "b" * 32,
        "policy": "AGED",
        "queues": {"reports": QUEUE},
        "credential_id": "c" * 32,
        "token": TOKEN,
        "actions": ["tasks:submit"],
        **changes,
    }
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not ...}))
    return path


def test_a_credentials_file_gives_url_token_queues_and_policy(tmp_path: Path) -> None:
    credentials = Credentials.from_file(write_file(tmp_path))

    assert credentials.url == "http://127.0.0.1:8080"
    assert credentials.token == TOKEN
    assert credentials.policy is Policy.AGED
    assert credentials.queue_id("reports") == QUEUE
    assert credentials.queue_name(QUEUE) == "reports"


def test_the_environment_names_the_file_and_its_url_wins(tmp_path: Path) -> None:
    environ = {"ORBIT_URL": "http://other:1/", "ORBIT_CREDENTIALS_FILE": str(write_file(tmp_path))}

    assert Credentials.from_env(environ).url == "http://other:1"


def test_the_environment_may_give_the_token_itself() -> None:
    credentials = Credentials.from_env({"ORBIT_URL": "http://h", "ORBIT_TOKEN": TOKEN})

    assert (credentials.url, credentials.token) == ("http://h", TOKEN)


def test_a_client_reads_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBIT_URL", raising=False)
    monkeypatch.setenv("ORBIT_CREDENTIALS_FILE", str(write_file(tmp_path)))

    with OrbitClient.from_env() as client:
        assert client.credentials.queue_id("reports") == QUEUE


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({}, "ORBIT_CREDENTIALS_FILE"),
        ({"ORBIT_URL": "http://h"}, "ORBIT_TOKEN"),
        ({"ORBIT_TOKEN": TOKEN}, "ORBIT_URL"),
    ],
)
def test_what_is_missing_in_the_environment_is_named(environ: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        Credentials.from_env(environ)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"url": ...}, "names no url"),
        ({"token": ...}, "token"),
        ({"token": "with blank"}, "printable"),
        ({"queues": {"reports": "no id"}}, "queues"),
        ({"queues": ["reports"]}, "queues"),
        ({"policy": "FIFO"}, "policy"),
        ({"url": "ftp://h"}, "http"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refusal:
        Credentials.from_file(write_file(tmp_path, **changes))

    assert "with blank" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[]", '{"token": 1', '{"token":"a","token":"b"}'])
def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"broken\.json"):
        Credentials.from_file(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Credentials.from_file(tmp_path / "nowhere.json")


def test_a_name_that_the_file_lacks_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    credentials = Credentials.from_file(write_file(tmp_path))

    with pytest.raises(InvalidRequest, match="'report' is neither .*: reports"):
        credentials.queue_id("report")


def test_a_name_without_a_file_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="need a credentials file"):
        Credentials("http://h", TOKEN).queue_id("reports")


def test_an_id_needs_no_file() -> None:
    assert Credentials("http://h", TOKEN).queue_id(QUEUE) == QUEUE


async def test_no_representation_shows_the_token(tmp_path: Path) -> None:
    credentials = Credentials.from_file(write_file(tmp_path))
    blocking, coroutine = OrbitClient.from_credentials(credentials), AsyncOrbitClient.from_credentials(credentials)

    for shown in (repr(credentials), str(credentials), repr(blocking), repr(coroutine), f"{blocking}"):
        assert TOKEN not in shown
    blocking.close()
    await coroutine.close()


def test_a_rotated_token_is_read_again(tmp_path: Path) -> None:
    credentials = Credentials.from_file(write_file(tmp_path), url="http://other:1").with_queues({"more": "d" * 32})
    write_file(tmp_path, token="orbit_new")

    fresh = credentials.read_again()

    assert (fresh.token, fresh.url) == ("orbit_new", "http://other:1")
    assert fresh.queue_id("more") == "d" * 32


def test_a_file_that_went_away_leaves_the_credentials_as_they_are(tmp_path: Path) -> None:
    path = write_file(tmp_path)
    credentials = Credentials.from_file(path)
    path.unlink()

    assert credentials.read_again() is credentials
