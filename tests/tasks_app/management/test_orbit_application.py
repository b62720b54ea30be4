"""orbit_application: quotas shown and set, `none` lifts one (design 5.2)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tasks_app.models import Application, AuditEntry, Namespace
from tests.tasks_app.factories import Tenant, claim_one, make_tenant, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant(application="shop")


def run(*arguments: str) -> str:
    said = io.StringIO()
    call_command("orbit_application", *arguments, stdout=said, stderr=said)
    return said.getvalue()


def shown(*arguments: str) -> dict[str, Any]:
    return dict(json.loads(run(*arguments, "--json")))


def test_shows_quotas_and_what_is_held_of_them(tenant: Tenant) -> None:
    submit(tenant)
    submit(tenant)
    claim_one(tenant)
    run("set", "shop", "--max-unfinished", "9")

    members = shown("show", "shop")

    assert members["application_id"] == tenant.application_id
    assert (members["max_unfinished"], members["max_running"], members["start_rate"]) == (9, None, None)
    assert (members["unfinished"], members["running"]) == (2, 1)
    assert members["namespaces"] == [tenant_namespace(tenant)]
    said = run("show", "shop")
    assert "9 (2 unfinished now)" in said and "none (1 reserved or running now)" in said


def tenant_namespace(tenant: Tenant) -> str:
    return Namespace.objects.get(namespace_id=tenant.namespace_id).name


def test_sets_what_is_named_and_leaves_the_rest(tenant: Tenant) -> None:
    run("set", "shop", "--max-unfinished", "9", "--max-running", "4", "--start-rate", "10/2000")
    members = shown("set", "shop", "--max-running", "5")
    assert (members["max_unfinished"], members["max_running"]) == (9, 5)
    assert members["start_rate"] == {"starts": 10, "per_ms": 2000}
    application = Application.objects.get()
    assert application.start_level == 10 * 2000 * 1000


def test_none_lifts_a_quota(tenant: Tenant) -> None:
    run("set", "shop", "--max-unfinished", "9", "--max-running", "4", "--start-rate", "10/2000")
    members = shown("set", "shop", "--max-unfinished", "none", "--max-running", "none", "--start-rate", "none")
    assert (members["max_unfinished"], members["max_running"], members["start_rate"]) == (None, None, None)


def test_zero_is_a_limit_and_not_none(tenant: Tenant) -> None:
    assert shown("set", "shop", "--max-running", "0")["max_running"] == 0


def test_a_change_is_audited(tenant: Tenant) -> None:
    run("set", "shop", "--max-running", "4")
    entry = AuditEntry.objects.get(action="application.set", actor="orbit_application")
    assert (entry.object_id, entry.actor_kind) == (tenant.application_id, "COMMAND")
    assert json.loads(entry.data) == {"max_running": 4}


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nobody"),
        ("set", "nobody", "--max-running", "1"),
        ("set", "shop"),
        ("set", "shop", "--max-running", "-1"),
        ("set", "shop", "--max-running", "some"),
        ("set", "shop", "--max-unfinished", "9007199254740992"),
        ("set", "shop", "--start-rate", "0/1000"),
        ("set", "shop", "--start-rate", "1/0"),
        ("set", "shop", "--start-rate", "1"),
        ("set", "shop", "--start-rate", "1000001/1000"),
        (),
    ],
)
def test_refuses_what_it_cannot_do_and_changes_nothing(tenant: Tenant, arguments: tuple[str, ...]) -> None:
    before = Application.objects.values().get()
    with pytest.raises(CommandError):
        run(*arguments)
    assert Application.objects.values().get() == before
