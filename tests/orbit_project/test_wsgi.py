"""Plain WSGI: the caller's address and scheme come from a trusted proxy or from the connection itself."""

from __future__ import annotations

import dataclasses
import ipaddress

import pytest
from django.test import RequestFactory

from orbit_project import wsgi


@pytest.fixture
def seen(monkeypatch, settings):
    """What Django sees of a request that arrives from 10.0.0.9, where 10.0.0.0/8 is trusted."""
    settings.ORBIT = dataclasses.replace(settings.ORBIT, trusted_proxies=(ipaddress.ip_network("10.0.0.0/8"),))
    environs: list[dict] = []
    monkeypatch.setattr(wsgi, "_django", lambda environ, start_response: environs.append(environ) or [])

    def send(peer: str) -> tuple[str, str]:
        request = RequestFactory().get(
            "/", REMOTE_ADDR=peer, HTTP_X_FORWARDED_FOR="203.0.113.7", HTTP_X_FORWARDED_PROTO="https"
        )
        wsgi.application(request.environ, lambda *answer: None)
        return environs[-1]["REMOTE_ADDR"], environs[-1]["wsgi.url_scheme"]

    return send


def test_a_trusted_proxy_tells_who_calls(seen):
    assert seen("10.0.0.9") == ("203.0.113.7", "https")


def test_nobody_else_can_choose_the_address_he_is_limited_by(seen):
    assert seen("192.0.2.1") == ("192.0.2.1", "http")
