"""Bootstrap: an application, a namespace, queues and one credential, whatever of it is missing (design 5.2).

Idempotent: what exists is left as it is. What exists with other values than those asked for refuses the whole call, so
that nobody believes in a limit or a policy that is not in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError

from tasks_app.domain import applications, audit, queues
from tasks_app.domain.audit import Actor
from tasks_app.domain.queues import QueueSettings, StartRate
from tasks_app.domain.tenancy import (
    IssuedCredential,
    NamespaceSettings,
    ensure_application,
    ensure_namespace,
    issue_credential,
    set_application_quotas,
)
from tasks_app.errors import FailedPrecondition, InvalidArgument, NotFound
from tasks_app.limits import QUOTA_MAX, RESOURCE_LIMIT_MAX
from tasks_app.states import Policy
from tasks_app.submission_request import priority_range
from tasks_app.transactions import Tx, unit

_TRIES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Superuser:
    """A user of the admin site who may do everything there."""

    name: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BootstrapOrder:
    """What is wanted. None means "not said": the default when it is made now, anything when it exists.

    `queue_scope` None is a credential for every queue; `expires_in_seconds` None is one that does not expire.
    """

    application: str
    namespace: str
    environment: str
    actions: tuple[str, ...]
    policy: Policy | None = None
    default_priority: int | None = None
    resource_limit: int | None = None
    weekly_limit: int | None = None
    application_max_unfinished: int | None = None
    application_max_running: int | None = None
    application_start_rate: StartRate | None = None
    queues: tuple[str, ...] = ()
    queue_scope: tuple[str, ...] | None = None
    expires_in_seconds: int | None = None
    superuser: Superuser | None = None

    def application_quotas(self) -> dict[str, Any]:
        """Those that were said."""
        quotas = {
            "max_unfinished": self.application_max_unfinished,
            "max_running": self.application_max_running,
            "start_rate": self.application_start_rate,
        }
        return {name: value for name, value in quotas.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """What there is now. `queues` (name -> id) are those that the credential may touch."""

    application_id: str
    namespace_id: str
    policy: Policy
    queues: Mapping[str, str]
    credential: IssuedCredential


class ValuesDiffer(FailedPrecondition):
    """Something exists with other values than those asked for; `details` has one entry for each."""


def bootstrap(order: BootstrapOrder, *, actor: Actor) -> Bootstrapped:
    """Makes what is missing and issues one credential, in one transaction.

    Raises ValuesDiffer, InvalidArgument, or NotFound for a queue of the scope that does not exist; then nothing was
    written.
    """
    for _ in range(_TRIES_MAX - 1):
        try:
            return unit(lambda tx: _bootstrap_in(tx, order, actor))
        except IntegrityError as error:
            # Another process made the same name between our look and our insert: what it made is what there is.
            if not _is_duplicate_name(error):
                raise
    return unit(lambda tx: _bootstrap_in(tx, order, actor))


def _bootstrap_in(tx: Tx, order: BootstrapOrder, actor: Actor) -> Bootstrapped:
    differing: list[dict[str, Any]] = []
    application_id = _application(tx, order, differing, actor)
    namespace_id, policy = _namespace(tx, order, application_id, differing, actor)
    if order.superuser is not None:
        _superuser(tx, order.superuser, differing, actor)
    if differing:
        listed = "; ".join(f"{d['field']} is {d['found']}, not {d['wanted']}" for d in differing)
        raise ValuesDiffer(f"exists with other values: {listed}", details=differing)
    for name in order.queues:
        if _queue_id(tx, namespace_id, name) is None:
            queues.create_in(tx, namespace_id, application_id, policy, QueueSettings(name), actor=actor)
    scope = None if order.queue_scope is None else {name: _scoped(tx, namespace_id, name) for name in order.queue_scope}
    credential = issue_credential(
        tx,
        namespace_id=namespace_id,
        actions=order.actions,
        queue_ids=None if scope is None else sorted(set(scope.values())),
        expires_in_seconds=order.expires_in_seconds,
        actor=actor,
    )
    everything = applications.namespace_of(tx, namespace_id).queues
    return Bootstrapped(application_id, namespace_id, policy, everything if scope is None else scope, credential)


def _application(tx: Tx, order: BootstrapOrder, differing: list[dict[str, Any]], actor: Actor) -> str:
    quotas = order.application_quotas()
    for name in ("max_unfinished", "max_running"):
        _require_range(f"application {name}", quotas.get(name), 0, QUOTA_MAX)
    application_id, made = ensure_application(tx, order.application, actor=actor)
    if made:
        set_application_quotas(tx, application_id, quotas, actor=actor)
        return application_id
    ((max_unfinished, max_running, starts, per_ms),) = tx.rows(
        "SELECT max_unfinished, max_running, start_rate_starts, start_rate_per_ms FROM orbit_application"
        " WHERE application_id = %s",
        [application_id],
    )
    found = {
        "max_unfinished": max_unfinished,
        "max_running": max_running,
        "start_rate": None if starts is None else (int(starts), int(per_ms)),
    }
    _compare("application", quotas, found, differing)
    return application_id


def _namespace(
    tx: Tx, order: BootstrapOrder, application_id: str, differing: list[dict[str, Any]], actor: Actor
) -> tuple[str, Policy]:
    _require_range("resource_limit", order.resource_limit, 1, RESOURCE_LIMIT_MAX)
    _require_range("weekly_limit", order.weekly_limit, 0, QUOTA_MAX)
    policy = order.policy or _policy_of(tx, application_id, order.namespace) or Policy.AGED
    # A default is for submits that say no priority; in an AGED namespace those have 0, always.
    lowest, highest = (0, 0) if policy is Policy.AGED else priority_range(policy)
    _require_range("default_priority", order.default_priority, lowest, highest)
    settings = NamespaceSettings(
        environment=order.environment,
        policy=policy,
        default_priority=order.default_priority or 0,
        resource_limit=1 if order.resource_limit is None else order.resource_limit,
        weekly_limit=order.weekly_limit,
    )
    namespace_id, made = ensure_namespace(tx, application_id, order.namespace, settings, actor=actor)
    if made:
        return namespace_id, policy
    names = ("environment", "policy", "default_priority", "resource_limit", "weekly_limit")
    (values,) = tx.rows(
        f"SELECT {', '.join(names)} FROM orbit_namespace WHERE namespace_id = %s",
        [namespace_id],
    )
    found = dict(zip(names, values, strict=True))
    said = {
        "environment": order.environment,
        "policy": None if order.policy is None else order.policy.value,
        "default_priority": order.default_priority,
        "resource_limit": order.resource_limit,
        "weekly_limit": order.weekly_limit,
    }
    _compare("namespace", {name: value for name, value in said.items() if value is not None}, found, differing)
    return namespace_id, Policy(found["policy"])


def _policy_of(tx: Tx, application_id: str, name: str) -> Policy | None:
    row = tx.row("SELECT policy FROM orbit_namespace WHERE application_id = %s AND name = %s", [application_id, name])
    return None if row is None else Policy(row[0])


def _superuser(tx: Tx, wanted: Superuser, differing: list[dict[str, Any]], actor: Actor) -> None:
    users = get_user_model()._default_manager
    user = users.filter(username=wanted.name).first()
    if user is None:
        user = users.model(username=wanted.name, is_staff=True, is_superuser=True)
        try:
            validate_password(wanted.password, user)
        except ValidationError as error:
            raise InvalidArgument.field("superuser password", " ".join(error.messages)) from None
        user.set_password(wanted.password)
        user.save()
        audit.write(tx, actor, "user.create", "user", wanted.name, data={"superuser": True})
        return
    if not (user.is_superuser and user.is_staff and user.is_active):
        found, asked = "a user without a superuser's rights", "a superuser"
    elif not user.check_password(wanted.password):
        found, asked = "a user with another password", "one with this password"
    else:
        return
    differing.append(_difference("superuser", wanted.name, found, asked))


def _queue_id(tx: Tx, namespace_id: str, name: str) -> str | None:
    row = tx.row("SELECT queue_id FROM orbit_queue WHERE namespace_id = %s AND name = %s", [namespace_id, name])
    return None if row is None else str(row[0])


def _scoped(tx: Tx, namespace_id: str, name: str) -> str:
    queue_id = _queue_id(tx, namespace_id, name)
    if queue_id is None:
        raise NotFound(
            f"no such queue in the namespace: {name}",
            details=[{"field": "queue_scope", "reason": "no such queue", "name": name}],
        )
    return queue_id


def _compare(thing: str, wanted: Mapping[str, Any], found: Mapping[str, Any], differing: list[dict[str, Any]]) -> None:
    for name, value in wanted.items():
        if found[name] != value:
            differing.append(_difference(thing, name, found[name], value))


def _difference(thing: str, name: str, found: Any, wanted: Any) -> dict[str, Any]:
    return {
        "field": f"{thing} {name}",
        "reason": "exists with another value",
        "found": _shown(found),
        "wanted": _shown(wanted),
    }


def _shown(value: Any) -> Any:
    if value is None:
        return "none"
    return f"{value[0]}/{value[1]}" if isinstance(value, tuple) else value


def _require_range(name: str, value: int | None, lowest: int, highest: int) -> None:
    if value is not None and not lowest <= value <= highest:
        raise InvalidArgument.field(name, f"must be {lowest} to {highest}", minimum=lowest, maximum=highest)


def _is_duplicate_name(error: IntegrityError) -> bool:
    text = str(error)
    names = ("application_name_unique", "namespace_name_unique", "queue_name_unique", "auth_user")  # MySQL, MariaDB
    columns = ("orbit_application.name", "orbit_namespace.name", "orbit_queue.name", "auth_user.username")  # SQLite
    return any(name in text for name in names + columns)
