"""Fixtures of the SDK's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbit_sdk import OrbitClient
from tests.sdk.fake_api import QUEUE, FakeApi, running_api


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with running_api() as peer:
        yield peer


@pytest.fixture
def client(api: FakeApi) -> Iterator[OrbitClient]:
    with OrbitClient(api.url, "orbit_test_token", timeout=10, queues={"reports": QUEUE}) as orbit:
        yield orbit
