"""Fixtures for the edges: callers of the API in this process, with credentials of a tenant."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks_app.api.authentication import failures
from tests.tasks_app.api.callers import Caller
from tests.tasks_app.factories import Tenant, make_tenant


@pytest.fixture(autouse=True)
def no_failures_yet() -> Iterator[None]:
    """What other tests did wrong from this address is forgotten."""
    failures.cache_clear()
    yield
    failures.cache_clear()


@pytest.fixture
def caller(tenant: Tenant) -> Caller:
    """May do everything in an AGED namespace."""
    return Caller(tenant.token, tenant)


@pytest.fixture
def strict_caller(strict_tenant: Tenant) -> Caller:
    return Caller(strict_tenant.token, strict_tenant)


@pytest.fixture
def foreign_caller(database: None) -> Caller:
    """Another application's."""
    tenant = make_tenant()
    return Caller(tenant.token, tenant)
