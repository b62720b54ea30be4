"""Every answer carries its path's content policy; only the operators' site may evaluate and style inline."""

from __future__ import annotations

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


def policy_of(path: str) -> dict[str, str]:
    header = Client().get(path)["Content-Security-Policy"]
    return dict(part.strip().split(" ", 1) for part in header.split(";"))


def test_json_may_load_nothing():
    assert policy_of("/v1/anything")["default-src"] == "'none'"


def test_pages_load_only_what_this_node_serves():
    policy = policy_of("/no-such-page")

    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["object-src"] == "'none'"
    assert "unsafe" not in str(policy)


def test_the_operators_site_has_the_exceptions_that_its_theme_needs_and_no_more():
    policy = policy_of("/admin/login/")

    assert policy["script-src"] == "'self' 'unsafe-eval'"
    assert policy["style-src"] == "'self' 'unsafe-inline'"
    assert policy["default-src"] == "'self'"


@pytest.mark.parametrize("path", ["/admin/login/", "/v1/anything", "/no-such-page"])
def test_other_headers_stand_on_every_answer(path):
    answer = Client().get(path)

    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] == "same-origin"
    assert answer["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer["Permissions-Policy"].startswith("camera=()")
