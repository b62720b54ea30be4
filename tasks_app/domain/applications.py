"""Applications and their credentials as an operator sees them: looked up by name, listed, changed (design 5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tasks_app.domain.audit import Actor
from tasks_app.domain.tenancy import IssuedCredential, issue_credential, set_application_quotas
from tasks_app.errors import InvalidArgument, NotFound
from tasks_app.states import Policy
from tasks_app.transactions import Tx, reading, unit

StartRate = tuple[int, int]  # (starts, per_ms)


@dataclass(frozen=True, slots=True)
class ApplicationView:
    """An application with its quotas (None: no limit), what it holds of them, and the names of its namespaces."""

    application_id: str
    name: str
    max_unfinished: int | None
    max_running: int | None
    start_rate: StartRate | None
    unfinished: int
    running: int
    created_at: int
    namespaces: tuple[str, ...]


def find(name: str) -> ApplicationView:
    """Raises NotFound."""
    with reading() as tx:
        return _find(tx, name)


def change_quotas(name: str, quotas: Mapping[str, Any], *, actor: Actor) -> ApplicationView:
    """Sets the given ones of `max_unfinished`, `max_running` and `start_rate`; None lifts one.

    A limit below what is held stops new ones and takes nothing away. Raises NotFound, InvalidArgument.
    """
    if not quotas:
        raise InvalidArgument("name at least one quota to set")

    def run(tx: Tx) -> ApplicationView:
        set_application_quotas(tx, _find(tx, name).application_id, dict(quotas), actor=actor)
        return _find(tx, name)

    return unit(run)


def _find(tx: Tx, name: str) -> ApplicationView:
    row = tx.row(
        "SELECT application_id, name, max_unfinished, max_running, start_rate_starts, start_rate_per_ms, unfinished,"
        " running, created_at FROM orbit_application WHERE name = %s",
        [name],
    )
    if row is None:
        raise NotFound(f"no such application: {name}")
    application_id, found, max_unfinished, max_running, starts, per_ms, unfinished, running, created_at = row
    namespaces = tx.rows("SELECT name FROM orbit_namespace WHERE application_id = %s ORDER BY name", [application_id])
    return ApplicationView(
        application_id=application_id,
        name=found,
        max_unfinished=max_unfinished,
        max_running=max_running,
        start_rate=None if starts is None else (starts, per_ms),
        unfinished=unfinished,
        running=running,
        created_at=created_at,
        namespaces=tuple(namespace for (namespace,) in namespaces),
    )


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """Which namespace a credential belongs to, and its queues (name -> id)."""

    application_id: str
    namespace_id: str
    policy: Policy
    queues: Mapping[str, str]

    def scoped(self, names: Sequence[str] | None) -> Mapping[str, str]:
        """Those queues of the names, every one for None. Raises NotFound."""
        if names is None:
            return self.queues
        for name in names:
            if name not in self.queues:
                raise NotFound(f"no such queue in the namespace: {name}")
        return {name: self.queues[name] for name in names}


def find_namespace(tx: Tx, application: str, namespace: str) -> NamespaceView:
    """Raises NotFound."""
    row = tx.row(
        "SELECT n.namespace_id FROM orbit_namespace n JOIN orbit_application a ON a.application_id = n.application_id"
        " WHERE a.name = %s AND n.name = %s",
        [application, namespace],
    )
    if row is None:
        raise NotFound(f"no such namespace: {application} / {namespace}")
    return namespace_of(tx, row[0])


def namespace_of(tx: Tx, namespace_id: str) -> NamespaceView:
    ((application_id, policy),) = tx.rows(
        "SELECT application_id, policy FROM orbit_namespace WHERE namespace_id = %s", [namespace_id]
    )
    queues = tx.rows("SELECT name, queue_id FROM orbit_queue WHERE namespace_id = %s ORDER BY queue_id", [namespace_id])
    return NamespaceView(application_id, namespace_id, Policy(policy), dict(queues))


def issue(
    application: str,
    namespace: str,
    *,
    actions: Sequence[str],
    queue_scope: Sequence[str] | None,
    expires_in_seconds: int | None,
    actor: Actor,
) -> tuple[NamespaceView, IssuedCredential]:
    """A credential of a namespace found by name; the view's queues are those that it may touch.

    Raises NotFound for a name that does not exist, InvalidArgument.
    """

    def run(tx: Tx) -> tuple[NamespaceView, IssuedCredential]:
        found = find_namespace(tx, application, namespace)
        scope = found.scoped(queue_scope)
        issued = issue_credential(
            tx,
            namespace_id=found.namespace_id,
            actions=actions,
            queue_ids=None if queue_scope is None else sorted(set(scope.values())),
            expires_in_seconds=expires_in_seconds,
            actor=actor,
        )
        return NamespaceView(found.application_id, found.namespace_id, found.policy, scope), issued

    return unit(run)


def namespace_of_credential(credential_id: str) -> NamespaceView:
    """The namespace of a credential, with the queues in its scope. Raises NotFound."""
    with reading() as tx:
        row = tx.row("SELECT namespace_id, all_queues FROM orbit_credential WHERE credential_id = %s", [credential_id])
        if row is None:
            raise NotFound(f"no such credential: {credential_id}")
        found = namespace_of(tx, row[0])
        if row[1]:
            return found
        rows = tx.rows("SELECT queue_id FROM orbit_credential_queue WHERE credential_id = %s", [credential_id])
        scope = {queue_id for (queue_id,) in rows}
        queues = {name: queue_id for name, queue_id in found.queues.items() if queue_id in scope}
        return NamespaceView(found.application_id, found.namespace_id, found.policy, queues)


@dataclass(frozen=True, slots=True)
class CredentialView:
    """A credential without its token. `queues` None means every queue; `status` says whether it can be used now."""

    credential_id: str
    token_prefix: str
    application: str
    namespace: str
    actions: tuple[str, ...]
    queues: tuple[str, ...] | None
    status: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    last_used_at: int | None
    rotated_to: str | None


ACTIVE: Final = "active"
EXPIRED: Final = "expired"
REVOKED: Final = "revoked"


def credentials(*, application: str | None = None, namespace: str | None = None) -> list[CredentialView]:
    """Every credential of those names (None: of any), oldest first."""
    with reading() as tx:
        wanted = [("a.name = %s", application), ("n.name = %s", namespace)]
        clauses = [clause for clause, value in wanted if value is not None]
        rows = tx.rows(
            "SELECT c.credential_id, c.token_prefix, a.name, n.name, c.actions, c.all_queues, c.created_at,"
            f" c.expires_at, c.revoked_at, c.last_used_at, c.rotated_to, {tx.now_sql} FROM orbit_credential c"
            " JOIN orbit_namespace n ON n.namespace_id = c.namespace_id"
            " JOIN orbit_application a ON a.application_id = n.application_id"
            f"{' WHERE ' if clauses else ''}{' AND '.join(clauses)} ORDER BY c.credential_id",
            [value for _, value in wanted if value is not None],
        )
        return [_credential(tx, row) for row in rows]


def _credential(tx: Tx, row: Sequence[Any]) -> CredentialView:
    credential_id, prefix, application, namespace, actions, all_queues, created_at = row[:7]
    expires_at, revoked_at, last_used_at, rotated_to, now_us = row[7:]
    queues: tuple[str, ...] | None = None
    if not all_queues:
        names = tx.rows(
            "SELECT q.name FROM orbit_credential_queue s JOIN orbit_queue q ON q.queue_id = s.queue_id"
            " WHERE s.credential_id = %s ORDER BY q.name",
            [credential_id],
        )
        queues = tuple(name for (name,) in names)
    if revoked_at is not None:
        status = REVOKED
    else:
        status = EXPIRED if expires_at is not None and expires_at <= int(now_us) else ACTIVE
    return CredentialView(
        credential_id=credential_id,
        token_prefix=prefix,
        application=application,
        namespace=namespace,
        actions=tuple(actions.split()),
        queues=queues,
        status=status,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        last_used_at=last_used_at,
        rotated_to=rotated_to,
    )
