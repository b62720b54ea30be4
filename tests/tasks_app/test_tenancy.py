"""Who is asking (design 1.1, faults D): tokens, scopes, revocation, rotation, quotas of applications."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from tasks_app import hints
from tasks_app.domain import tenancy
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.quotas import StartBudget
from tasks_app.domain.tenancy import NamespaceSettings
from tasks_app.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from tasks_app.hints import Hint, HintKind
from tasks_app.limits import QUOTA_MAX, START_RATE_PER_MS_MAX, START_RATE_STARTS_MAX
from tasks_app.states import Action, Policy
from tasks_app.transactions import unit
from tests.tasks_app import factories as f
from tests.tasks_app.concurrency import together
from tests.tasks_app.factories import SECOND, Tenant, make_tenant


def credential(credential_id: str) -> Any:
    return f.rows_of("orbit_credential", "credential_id = %s", [credential_id])[0]


def set_credential(tenant: Tenant, **columns: Any) -> None:
    with connection.cursor() as cursor:
        assignments = ", ".join(f"{name} = %s" for name in columns)
        cursor.execute(
            f"UPDATE orbit_credential SET {assignments} WHERE credential_id = %s",
            [*columns.values(), tenant.credential_id],
        )


# -- tokens


def test_a_token_is_256_random_bits_and_only_its_digest_and_prefix_are_stored(tenant: Tenant):
    token = tenant.token
    assert token.startswith("orbit_")
    assert len(token.removeprefix("orbit_")) >= 43  # 32 bytes in base64url
    row = credential(tenant.credential_id)
    assert bytes(row.token_digest) == tenancy.token_digest(token)
    assert (row.token_prefix, len(row.token_prefix)) == (token[:12], 12)
    for table in ("orbit_credential", "orbit_audit_entry"):
        assert token[12:] not in repr(f.rows_of(table)), "nothing in the database can be used"


def test_a_token_names_its_principal(tenant: Tenant):
    principal = tenancy.authenticate(tenant.token)
    assert (principal.credential_id, principal.namespace_id, principal.application_id, principal.policy) == (
        tenant.credential_id, tenant.namespace_id, tenant.application_id, Policy.AGED
    )  # fmt: skip
    assert principal.queue_scope is None
    assert all(principal.may(action) for action in Action)


@pytest.mark.parametrize("change", ["case", "end", "prefix only", "empty", "unknown", "surrogate"])
def test_any_other_token_is_nobody(tenant: Tenant, change: str):
    token = {
        "case": tenant.token.swapcase(),
        "end": tenant.token + " ",
        "prefix only": tenant.token[:12],
        "empty": "",
        "unknown": "orbit_" + "x" * 43,
        "surrogate": "orbit_\ud800",
    }[change]
    with pytest.raises(Unauthenticated):
        tenancy.authenticate(token)


def test_a_credential_ends_at_its_very_instant(tenant: Tenant):
    set_credential(tenant, expires_at=f.now() + 60 * SECOND)
    tenancy.authenticate(tenant.token)
    set_credential(tenant, expires_at=f.now())
    with pytest.raises(Unauthenticated):
        tenancy.authenticate(tenant.token)


def test_a_revoked_credential_is_nobody_and_who_listens_is_told(tenant: Tenant):
    heard: list[Hint] = []
    undo = hints.subscribe(heard.append)
    try:
        f.revoke(tenant)
    finally:
        undo()
    with pytest.raises(Unauthenticated):
        tenancy.authenticate(tenant.token)
    assert [(hint.kind, hint.detail) for hint in heard] == [(HintKind.CREDENTIAL_CHANGED, tenant.credential_id)]


def test_revoking_twice_is_done_once(tenant: Tenant):
    assert unit(lambda tx: tenancy.revoke_credential(tx, tenant.credential_id, actor=SYSTEM)) is True
    revoked_at = credential(tenant.credential_id).revoked_at
    assert unit(lambda tx: tenancy.revoke_credential(tx, tenant.credential_id, actor=SYSTEM)) is False
    assert credential(tenant.credential_id).revoked_at == revoked_at
    assert len(f.rows_of("orbit_audit_entry", "action = 'credential.revoke'")) == 1


def test_a_credential_that_never_was_cannot_be_revoked_or_rotated(database: None):
    with pytest.raises(NotFound):
        unit(lambda tx: tenancy.revoke_credential(tx, "f" * 32, actor=SYSTEM))
    with pytest.raises(NotFound):
        unit(lambda tx: tenancy.rotate_credential(tx, "f" * 32, overlap_seconds=1, actor=SYSTEM))


def test_the_use_of_a_credential_is_noted_once_a_minute(tenant: Tenant):
    used_at = credential(tenant.credential_id).last_used_at
    assert abs(used_at - f.now()) < 60 * SECOND
    tenancy.authenticate(tenant.token)
    assert credential(tenant.credential_id).last_used_at == used_at
    set_credential(tenant, last_used_at=used_at - 61 * SECOND)
    tenancy.authenticate(tenant.token)
    assert credential(tenant.credential_id).last_used_at >= used_at


# -- what it may


def test_what_was_not_given_is_refused_by_name(tenant: Tenant):
    reader = f.make_credential(tenant, actions=[Action.TASKS_READ])
    reader.require(Action.TASKS_READ)
    with pytest.raises(PermissionDenied) as refused:
        reader.require(Action.TASKS_SUBMIT)
    assert refused.value.details[0]["action"] == "tasks:submit"


def test_a_scope_is_the_listed_queues(tenant: Tenant):
    other = tenant.queue()
    confined = f.make_credential(tenant, queue_ids=[other])
    confined.require_queue(other)
    with pytest.raises(PermissionDenied):
        confined.require_queue(tenant.queue_id)
    assert f.make_credential(tenant, queue_ids=[]).queue_scope == frozenset()


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"actions": ["tasks:steal"]}, InvalidArgument),
        ({"actions": []}, InvalidArgument),
        ({"expires_in_seconds": 0}, InvalidArgument),
        ({"queue_ids": ["f" * 32]}, NotFound),
    ],
)
def test_a_credential_that_makes_no_sense_is_not_issued(tenant: Tenant, wanted: dict[str, Any], error: type[Exception]):
    before = f.rows_of("orbit_credential")
    given: dict[str, Any] = {"actions": ["tasks:read"], "queue_ids": None, "expires_in_seconds": None, **wanted}
    with pytest.raises(error):
        unit(lambda tx: tenancy.issue_credential(tx, namespace_id=tenant.namespace_id, actor=SYSTEM, **given))
    assert f.rows_of("orbit_credential") == before


def test_a_queue_of_another_namespace_is_no_scope(tenant: Tenant):
    with pytest.raises(NotFound):
        f.make_credential(tenant, queue_ids=[make_tenant().queue_id])


# -- rotation


def test_rotation_gives_the_same_rights_and_lets_both_be_valid_for_the_overlap(tenant: Tenant):
    other = tenant.queue()
    old = unit(
        lambda tx: tenancy.issue_credential(
            tx,
            namespace_id=tenant.namespace_id,
            actions=["tasks:read"],
            queue_ids=[other],
            expires_in_seconds=None,
            actor=SYSTEM,
        )  # fmt: skip
    )
    new = unit(lambda tx: tenancy.rotate_credential(tx, old.credential_id, overlap_seconds=60, actor=SYSTEM))
    principal = tenancy.authenticate(new.token)
    assert (principal.actions, principal.queue_scope) == (frozenset({"tasks:read"}), frozenset({other}))
    tenancy.authenticate(old.token)
    row = credential(old.credential_id)
    assert row.rotated_to == new.credential_id
    assert 59 * SECOND < row.expires_at - f.now() <= 60 * SECOND


def test_rotation_without_an_overlap_ends_the_old_one_at_once(tenant: Tenant):
    unit(lambda tx: tenancy.rotate_credential(tx, tenant.credential_id, overlap_seconds=0, actor=SYSTEM))
    with pytest.raises(Unauthenticated):
        tenancy.authenticate(tenant.token)


def test_rotation_never_prolongs_a_credential(tenant: Tenant):
    ends_at = f.now() + 5 * SECOND
    set_credential(tenant, expires_at=ends_at)
    unit(lambda tx: tenancy.rotate_credential(tx, tenant.credential_id, overlap_seconds=3600, actor=SYSTEM))
    assert credential(tenant.credential_id).expires_at == ends_at


def test_a_revoked_credential_is_not_rotated(tenant: Tenant):
    f.revoke(tenant)
    with pytest.raises(NotFound):
        unit(lambda tx: tenancy.rotate_credential(tx, tenant.credential_id, overlap_seconds=60, actor=SYSTEM))


# -- applications and namespaces


def test_what_exists_is_found_and_left_as_it_is(tenant: Tenant):
    (application,) = f.rows_of("orbit_application", "application_id = %s", [tenant.application_id])
    (namespace,) = f.rows_of("orbit_namespace", "namespace_id = %s", [tenant.namespace_id])
    again = unit(lambda tx: tenancy.ensure_application(tx, application.name, actor=SYSTEM))
    assert again == (tenant.application_id, False)
    other_settings = NamespaceSettings("production", Policy.STRICT, resource_limit=9)
    again = unit(
        lambda tx: tenancy.ensure_namespace(tx, tenant.application_id, namespace.name, other_settings, actor=SYSTEM)
    )
    assert again == (tenant.namespace_id, False)
    assert f.rows_of("orbit_namespace", "namespace_id = %s", [tenant.namespace_id]) == [namespace]


@pytest.mark.parametrize("name", ["", " a", "a ", "a\u200bb", "a\nb", "x" * 129])
def test_names_are_printable(database: None, name: str):
    with pytest.raises(InvalidArgument):
        unit(lambda tx: tenancy.ensure_application(tx, name, actor=SYSTEM))


def test_names_that_differ_by_case_are_two_applications(database: None):
    made = {
        unit(lambda tx, name=name: tenancy.ensure_application(tx, name, actor=SYSTEM))[0] for name in ("App", "app")
    }
    assert len(made) == 2


# -- quotas of an application


@pytest.mark.parametrize(
    "quotas",
    [
        {"max_unfinished": -1},
        {"max_running": -1},
        {"max_running": QUOTA_MAX + 1},
        {"start_rate": (0, 1)},
        {"start_rate": (1, 0)},
        {"start_rate": (START_RATE_STARTS_MAX + 1, 1)},
        {"start_rate": (1, START_RATE_PER_MS_MAX + 1)},
    ],
    ids=str,
)
def test_a_quota_out_of_range_is_refused_with_its_name(tenant: Tenant, quotas: dict[str, Any]):
    before = f.application_row(tenant)
    with pytest.raises(InvalidArgument) as refused:
        f.set_quotas(tenant, **quotas)
    assert refused.value.details[0]["field"].startswith(next(iter(quotas)))
    assert f.application_row(tenant) == before


def test_only_the_given_quotas_change_and_none_lifts_one(tenant: Tenant):
    f.set_quotas(tenant, max_unfinished=5, max_running=3)
    f.set_quotas(tenant, max_running=None)
    row = f.application_row(tenant)
    assert (row.max_unfinished, row.max_running) == (5, None)


def budget_left(tenant: Tenant) -> int:
    row = f.application_row(tenant)
    budget = StartBudget.of(row.start_rate_starts, row.start_rate_per_ms, row.start_level, row.start_level_at)
    assert budget is not None
    return budget.left(f.now())


def test_another_start_rate_keeps_the_starts_that_were_left(tenant: Tenant):
    """Changing a rate back and forth refills nothing."""
    f.set_quotas(tenant, start_rate=(4, 3_600_000))
    for _ in range(3):
        f.submit(tenant)
        f.run_one(tenant)
    assert budget_left(tenant) == 1
    f.set_quotas(tenant, start_rate=(10, 3_600_000))
    f.set_quotas(tenant, start_rate=(4, 3_600_000))
    assert budget_left(tenant) == 1
    f.set_quotas(tenant, start_rate=None)
    assert f.application_row(tenant).start_rate_starts is None


def test_a_rate_may_change_while_starts_spend_it(tenant: Tenant):
    f.set_quotas(tenant, start_rate=(100, 3_600_000))
    for _ in range(8):
        f.submit(tenant)
    offers = f.claim(tenant, limit=8).offers
    together(
        [
            *(lambda offer=offer: f.start(tenant, offer) for offer in offers),
            lambda: f.set_quotas(tenant, start_rate=(50, 3_600_000)),
        ]
    )
    # Nothing is spent twice or given back: 50 at most, and each start after the change took one.
    assert 42 <= budget_left(tenant) <= 50
