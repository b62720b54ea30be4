"""The handshake of `/v1/workers/connect`: HTTP statuses before any upgrade (design, chapter 2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.fixtures import RunningOrbit
from tests.support.server import Credentials
from tests.support.worker_sockets import PATH, SUBPROTOCOL
from tests.workers_app.conftest import Node


def refusal(running: RunningOrbit, *, path: str = PATH, protocol: str | None = SUBPROTOCOL, **headers: str) -> Any:
    """The response to a handshake that is refused."""
    with pytest.raises(InvalidStatus) as refused:
        connect(
            running.websocket_url + path,
            subprotocols=None if protocol is None else [protocol],  # type: ignore[list-item]
            additional_headers=headers,
            proxy=None,
        )
    return refused.value.response


def assert_refused(response: Any, status: int, code: str) -> None:
    assert response.status_code == status
    body = json.loads(response.body)
    assert body["error"]["code"] == code
    assert len(body["request_id"]) == 32


def bearer(credentials: Credentials) -> str:
    return f"Bearer {credentials.token}"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic abc"}])
def test_no_or_bad_credential_is_401(orbit_server: RunningOrbit, headers: dict[str, str]) -> None:
    response = refusal(orbit_server, **headers)
    assert_refused(response, 401, "UNAUTHENTICATED")
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


def test_token_in_the_address_is_not_looked_at(orbit_server: RunningOrbit) -> None:
    assert_refused(refusal(orbit_server, path=f"{PATH}?token={orbit_server.aged.token}"), 401, "UNAUTHENTICATED")


def test_revoked_credential_is_401(orbit_server: RunningOrbit, issue_credential: Callable[..., Credentials]) -> None:
    credentials = issue_credential(orbit_server, actions="workers:connect")
    orbit_server.manage("orbit_credential", "revoke", credentials.members["credential_id"])
    assert_refused(refusal(orbit_server, Authorization=bearer(credentials)), 401, "UNAUTHENTICATED")


def test_credential_without_workers_connect_is_403(
    orbit_server: RunningOrbit, issue_credential: Callable[..., Credentials]
) -> None:
    credentials = issue_credential(orbit_server, actions="tasks:submit,workers:consume")
    assert_refused(refusal(orbit_server, Authorization=bearer(credentials)), 403, "PERMISSION_DENIED")


@pytest.mark.parametrize("protocol", [None, "orbit.worker.v2"])
def test_missing_or_other_subprotocol_is_400(orbit_server: RunningOrbit, protocol: str | None) -> None:
    response = refusal(orbit_server, protocol=protocol, Authorization=bearer(orbit_server.aged))
    assert_refused(response, 400, "INVALID_ARGUMENT")


def test_subprotocol_may_stand_among_others(orbit_server: RunningOrbit) -> None:
    with connect(
        orbit_server.websocket_url + PATH,
        subprotocols=["other", SUBPROTOCOL],  # type: ignore[list-item]
        additional_headers={"Authorization": bearer(orbit_server.aged)},
        proxy=None,
    ) as socket:
        assert socket.subprotocol == SUBPROTOCOL


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1"])
def test_browser_origin_is_refused(orbit_server: RunningOrbit, origin: str) -> None:
    response = refusal(orbit_server, Authorization=bearer(orbit_server.aged), Origin=origin)
    assert_refused(response, 403, "PERMISSION_DENIED")


def test_origin_of_the_settings_is_let_in(start_node: Callable[..., Node]) -> None:
    running = start_node(ORBIT_WS_ORIGINS="https://desk.example").running
    with connect(
        running.websocket_url + PATH,
        subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
        additional_headers={"Authorization": bearer(running.aged), "Origin": "https://desk.example"},
        proxy=None,
    ) as socket:
        assert socket.subprotocol == SUBPROTOCOL


def test_unknown_socket_path_is_404(orbit_server: RunningOrbit) -> None:
    response = refusal(orbit_server, path="/v1/workers/other", Authorization=bearer(orbit_server.aged))
    assert_refused(response, 404, "NOT_FOUND")


def test_plain_request_to_the_socket_path_is_in_the_envelope(api: Any) -> None:
    answer = api.get(PATH)
    assert answer.status == 404
    assert answer.code == "NOT_FOUND"
