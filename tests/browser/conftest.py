"""A real browser on the operators' site. Left out, with its reason, where playwright or Chromium is not installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from pytest_django.live_server_helper import LiveServer

from tests.admin.world import World
from tests.tasks_app.conftest import database, strict_tenant, tenant
from tests.tasks_app.factories import Tenant

__all__ = ["database", "strict_tenant", "tenant"]

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
PASSWORD = "a long enough password"  # noqa: S105
WAIT_MS = 20_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    missing = "chromium is not installed" if CHROMIUM is None else None
    if importlib.util.find_spec("playwright") is None:
        missing = "playwright is not installed (pip install of the extra `browser`)"
    for item in items:
        if here in item.path.parents and missing is not None:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    # Playwright keeps a loop in this thread, and Django then takes every query here for one from a coroutine.
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
    else:
        os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before


@pytest.fixture
def site_url(database: None) -> Iterator[str]:
    server = LiveServer("127.0.0.1")
    yield server.url
    server.stop()


@pytest.fixture
def world(tenant: Tenant) -> World:
    cache.clear()
    return World(tenant)


@pytest.fixture
def log_in(browser: Any, site_url: str) -> Iterator[Callable[..., Any]]:
    """`log_in("operator")`: a page on which a member of that group has logged in by the form, as people do."""
    contexts: list[Any] = []
    users: list[int] = []

    def start(group: str, *, width: str = "desktop", language: str = "en", dark: bool = False) -> Any:
        user = User.objects.create_user(f"{group}-{len(users)}", password=PASSWORD, is_staff=True)
        user.groups.add(Group.objects.get(name=group))
        users.append(user.pk)
        across, down = WIDTHS[width]
        context = browser.new_context(
            base_url=site_url,
            viewport={"width": across, "height": down},
            locale="zh-CN" if language == "zh-hans" else "en-GB",
            color_scheme="dark" if dark else "light",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("response", lambda got: page.faults.append(f"{got.status} {got.url}") if got.status >= 400 else None)
        page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
        page.goto("/admin/")
        page.fill("input[name=username]", user.username)
        page.fill("input[name=password]", PASSWORD)
        page.click("button[type=submit]")
        page.wait_for_selector("#orbit-needs")
        return page

    yield start
    for context in contexts:
        context.close()
    User.objects.filter(pk__in=users).delete()


@pytest.fixture
def picture() -> Callable[[Any, str], None]:
    """Keeps what a page looks like in the directory that ORBIT_TEST_PICTURES names, for people; else does nothing."""
    folder = os.environ.get("ORBIT_TEST_PICTURES")

    def take(page: Any, name: str) -> None:
        if folder is not None:
            page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)

    return take
