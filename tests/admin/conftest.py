"""Fixtures of the operators' site: users of each group, and a tenant with everything that an operator meets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.core.cache import cache
from django.test import Client

from tests.admin.world import World
from tests.tasks_app.conftest import database, strict_tenant, tenant
from tests.tasks_app.factories import Tenant

__all__ = ["database", "strict_tenant", "tenant"]
_numbers = itertools.count(1)


@pytest.fixture
def world(tenant: Tenant) -> World:
    cache.clear()
    return World(tenant)


@pytest.fixture
def groups(database: None) -> None:
    """The groups that the migration makes: a test that truncates all tables takes them along."""
    import_module("orbit_project.migrations.0001_operator_groups").make_groups(apps, None)


@pytest.fixture
def client_of(groups: None) -> Iterator[Callable[..., Client]]:
    """`client_of("operator")`: a logged-in member of that group; `rights` gives single permissions instead."""
    made: list[int] = []

    def make(group: str | None = None, *, rights: tuple[str, ...] = (), language: str = "en", **more: Any) -> Client:
        user = User.objects.create_user(f"{group or 'user'}-{next(_numbers)}", is_staff=True)
        made.append(user.pk)
        if group is not None:
            user.groups.add(Group.objects.get(name=group))
        user.user_permissions.set(Permission.objects.filter(codename__in=rights))
        client = Client(headers={"accept-language": language}, **more)
        client.force_login(user)
        client.user = user  # type: ignore[attr-defined]
        return client

    yield make
    User.objects.filter(pk__in=made).delete()
