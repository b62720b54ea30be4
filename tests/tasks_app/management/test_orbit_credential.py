"""orbit_credential: issue, list, revoke, rotate; a token is written once and never said (design 5.2)."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tasks_app.domain.tenancy import authenticate
from tasks_app.errors import Unauthenticated
from tasks_app.models import AuditEntry, Credential, Namespace
from tests.tasks_app.factories import Tenant, make_tenant

pytestmark = pytest.mark.django_db

DEFAULT_ACTIONS = {
    "tasks:submit", "tasks:read", "tasks:cancel", "tasks:reconcile", "tasks:replay", "queues:read", "queues:manage",
    "plans:read", "plans:manage", "operations:read", "operations:write",
}  # fmt: skip


@pytest.fixture
def tenant() -> Tenant:
    return make_tenant(application="shop")


def run(*arguments: str) -> str:
    said = io.StringIO()
    call_command("orbit_credential", *arguments, stdout=said, stderr=said)
    return said.getvalue()


def where(tenant: Tenant) -> tuple[str, ...]:
    name = Namespace.objects.get(namespace_id=tenant.namespace_id).name
    return ("--application", "shop", "--namespace", name)


def issued(tenant: Tenant, path: Path, *arguments: str) -> dict[str, Any]:
    said = run("issue", *where(tenant), *arguments, "--output", str(path))
    members = dict(json.loads(path.read_text()))
    assert members["token"] not in said and "orbit_" not in said
    return members


def listed() -> dict[str, dict[str, Any]]:
    return {one["credential_id"]: one for one in json.loads(run("list", "--json"))}


def test_issues_into_a_file_for_its_owner_alone(tenant: Tenant, tmp_path: Path) -> None:
    members = issued(tenant, tmp_path / "c")
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o600
    assert set(members["actions"]) == DEFAULT_ACTIONS
    principal = authenticate(members["token"])
    assert (principal.credential_id, principal.namespace_id) == (members["credential_id"], tenant.namespace_id)
    assert principal.actions == DEFAULT_ACTIONS
    assert principal.queue_scope is None and principal.expires_at is None
    assert members["queues"] == {"main": tenant.queue_id}
    assert members["policy"] == "AGED"


def test_issues_what_was_asked_for(tenant: Tenant, tmp_path: Path) -> None:
    tenant.queue("other")
    members = issued(
        tenant, tmp_path / "c", "--queue-scope", "main", "--actions", "tasks:read,tasks:submit", "--expires-in", "90"
    )
    principal = authenticate(members["token"])
    assert principal.actions == {"tasks:read", "tasks:submit"}
    assert principal.queue_scope == {tenant.queue_id}
    credential = Credential.objects.get(credential_id=members["credential_id"])
    assert credential.expires_at is not None
    assert (credential.expires_at - credential.created_at).total_seconds() == 90
    assert members["queues"] == {"main": tenant.queue_id}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--queue-scope", "no such queue"),
        ("--queue-scope", "Main"),  # names compare byte for byte
        ("--actions", "tasks:eat"),
        ("--actions", ""),
        ("--expires-in", "0"),
        ("--expires-in", "-5"),
    ],
)
def test_refuses_what_cannot_be_and_leaves_no_file(tenant: Tenant, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    before = Credential.objects.count()
    with pytest.raises(CommandError):
        issued(tenant, tmp_path / "c", *arguments)
    assert not (tmp_path / "c").exists()
    assert Credential.objects.count() == before


def test_refuses_names_that_do_not_exist(tenant: Tenant, tmp_path: Path) -> None:
    for names in (("shop", "nowhere"), ("nobody", "namespace")):
        with pytest.raises(CommandError, match="no such namespace"):
            run("issue", "--application", names[0], "--namespace", names[1], "--output", str(tmp_path / "c"))


@pytest.mark.parametrize("verb", ["issue", "rotate"])
def test_refuses_to_overwrite_a_file(tenant: Tenant, tmp_path: Path, verb: str) -> None:
    (tmp_path / "c").write_text("mine")
    arguments = where(tenant) if verb == "issue" else (tenant.credential_id, "--overlap", "5")
    with pytest.raises(CommandError, match="not overwritten"):
        run(verb, *arguments, "--output", str(tmp_path / "c"))
    assert (tmp_path / "c").read_text() == "mine"
    assert authenticate(tenant.token).expires_at is None


def test_lists_without_tokens(tenant: Tenant, tmp_path: Path) -> None:
    members = issued(tenant, tmp_path / "c", "--queue-scope", "main", "--actions", "tasks:read", "--expires-in", "60")
    make_tenant(application="another")

    mine = listed()[members["credential_id"]]

    assert mine["token_prefix"] == members["token"][:12]
    assert (mine["application"], mine["status"], mine["queues"]) == ("shop", "active", ["main"])
    assert mine["actions"] == ["tasks:read"] and mine["last_used_at"] is None
    assert members["token"] not in run("list") + run("list", "--json")
    assert members["credential_id"] in run("list", "--application", "shop")
    assert members["credential_id"] not in run("list", "--application", "another")
    assert members["credential_id"] not in run("list", *where(tenant)[:2], "--namespace", "elsewhere")


def test_revoke_ends_a_credential_and_can_be_repeated(tenant: Tenant) -> None:
    assert "is revoked" in run("revoke", tenant.credential_id, "--reason", "it was in a log")
    with pytest.raises(Unauthenticated):
        authenticate(tenant.token)
    assert listed()[tenant.credential_id]["status"] == "revoked"
    assert "before" in run("revoke", tenant.credential_id)
    entry = AuditEntry.objects.get(action="credential.revoke")
    assert (entry.object_id, entry.reason, entry.actor) == (tenant.credential_id, "it was in a log", "orbit_credential")


def test_revoke_of_an_unknown_one_is_an_error() -> None:
    with pytest.raises(CommandError, match="no such credential"):
        run("revoke", "0" * 32)


def test_rotate_gives_the_same_rights_and_ends_the_old_one_after_the_overlap(tenant: Tenant, tmp_path: Path) -> None:
    old = issued(tenant, tmp_path / "old", "--queue-scope", "main", "--actions", "tasks:read")

    said = run("rotate", old["credential_id"], "--overlap", "3600", "--output", str(tmp_path / "new"))

    new = json.loads((tmp_path / "new").read_text())
    assert new["token"] not in said and new["token"] != old["token"]
    first, second = authenticate(old["token"]), authenticate(new["token"])
    assert (second.actions, second.queue_scope) == (first.actions, first.queue_scope)
    assert {name: new[name] for name in ("queues", "policy", "namespace_id", "actions")} == {
        name: old[name] for name in ("queues", "policy", "namespace_id", "actions")
    }
    assert listed()[old["credential_id"]]["rotated_to"] == new["credential_id"]
    Credential.objects.filter(credential_id=old["credential_id"]).update(created_at=0, expires_at=1)
    with pytest.raises(Unauthenticated):
        authenticate(old["token"])
    assert listed()[old["credential_id"]]["status"] == "expired"


def test_rotate_without_overlap_ends_the_old_one_at_once(tenant: Tenant, tmp_path: Path) -> None:
    run("rotate", tenant.credential_id, "--overlap", "0", "--output", str(tmp_path / "new"))
    with pytest.raises(Unauthenticated):
        authenticate(tenant.token)


@pytest.mark.parametrize("revoked", [True, False])
def test_rotate_of_what_is_gone_is_an_error_and_leaves_no_file(tenant: Tenant, tmp_path: Path, revoked: bool) -> None:
    identity = "0" * 32
    if revoked:
        identity = tenant.credential_id
        run("revoke", identity)
    with pytest.raises(CommandError, match="no such credential"):
        run("rotate", identity, "--overlap", "5", "--output", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
