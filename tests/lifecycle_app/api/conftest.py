"""A caller of /v1/operations in this process, with the scripted upstream behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from lifecycle_app.composition import configured_upstream
from lifecycle_app.domain import ownership
from tasks_app.api.authentication import failures
from tests.lifecycle_app.site import Site
from tests.tasks_app.api.callers import Caller


@pytest.fixture(autouse=True)
def configured(site: Site, settings: Any) -> Iterator[None]:
    failures.cache_clear()
    configured_upstream.cache_clear()
    settings.ORBIT = dataclasses.replace(
        settings.ORBIT, upstream_url=site.play.adapter.url, upstream_timeout_ms=site.play.adapter.timeout_ms
    )
    ownership.register(site.owner)
    yield
    configured_upstream.cache_clear()
    failures.cache_clear()


@pytest.fixture
def caller(site: Site) -> Caller:
    return Caller(site.tenant.token, site.tenant)
