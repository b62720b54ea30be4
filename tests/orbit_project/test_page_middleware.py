"""Sessions, languages and users are there for pages and cost the API nothing."""

from __future__ import annotations

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path


def what_stands_on_the_request(request: HttpRequest) -> HttpResponse:
    return HttpResponse(" ".join(name for name in ("session", "user", "_messages") if hasattr(request, name)))


urlpatterns = [path("v1/probe", what_stands_on_the_request), path("probe", what_stands_on_the_request)]


@pytest.mark.urls(__name__)
def test_pages_have_session_user_and_messages_and_the_api_has_none():
    assert Client().get("/probe").content == b"session user _messages"
    assert Client().get("/v1/probe").content == b""


@pytest.mark.urls(__name__)
def test_pages_speak_the_readers_language():
    assert Client().get("/probe", headers={"Accept-Language": "zh-hans"})["Content-Language"] == "zh-hans"
    assert "Content-Language" not in Client().get("/v1/probe", headers={"Accept-Language": "zh-hans"})


@pytest.mark.django_db
def test_a_session_cookie_does_not_open_the_api(django_user_model):
    browser = Client()
    browser.force_login(django_user_model.objects.create_superuser("operator", password=None))

    assert browser.get("/v1/queues").status_code == 401
