"""Storage nodes and their connections: who is connected where, and which connection of a node counts (design 4.7)."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_app.domain.ownership import Owner
from lifecycle_app.domain.reporting import Reporter
from lifecycle_app.limits import OWNER_SILENCE_SECONDS_MAX
from lifecycle_app.models import StorageNode
from lifecycle_app.states import StorageProtocol
from tasks_app import ids
from tasks_app.domain.tenancy import Principal, authenticate
from tasks_app.errors import PermissionDenied, Unauthenticated
from tasks_app.instants import US_PER_SECOND, to_datetime
from tasks_app.models import Credential, Node
from tasks_app.states import Action
from tasks_app.transactions import Tx, unit


@dataclass(frozen=True)
class Connected:
    """An authenticated connection of a storage node. A newer one of the same name takes its place."""

    reporter: Reporter
    connection_id: str
    credential_id: str


def authenticate_node(token: str) -> Principal:
    """Raises Unauthenticated or PermissionDenied (no `nodes:connect`)."""
    principal = authenticate(token)
    principal.require(Action.NODES_CONNECT)
    return principal


def connect(principal: Principal, name: str, *, token: str, owner: Owner) -> Connected:
    """The node `name` is on a new connection of this process; one that it had before is replaced.

    `principal` is what the transport was authenticated with; a token inside the identity must be of the same namespace.
    Raises Unauthenticated, PermissionDenied.
    """
    if token:
        inside = authenticate_node(token)
        if inside.namespace_id != principal.namespace_id:
            raise PermissionDenied("the identity's token belongs to another namespace than the connection's")
        principal = inside
    return unit(lambda tx: _connect_in(tx, principal, name, owner))


def connect_by_token(name: str, *, token: str, owner: Owner) -> Connected:
    """The same over a transport that carries no credential: the identity alone says who it is."""
    if not token:
        raise Unauthenticated()
    return connect(authenticate_node(token), name, token="", owner=owner)


def _connect_in(tx: Tx, principal: Principal, name: str, owner: Owner) -> Connected:
    now = to_datetime(tx.now_us)
    connection_id = ids.new_id(tx.now_us)
    columns = {
        "credential_id": principal.credential_id,
        "protocol": StorageProtocol.NEGOTIATING.value,
        "connection_id": connection_id,
        "orbit_node_id": owner.node_id,
        "orbit_incarnation": owner.incarnation,
        "connected_at": now,
        "last_seen_at": now,
        "disconnected_at": None,
    }
    node = StorageNode.objects.select_for_update().filter(namespace_id=principal.namespace_id, name=name).first()
    if node is None:
        node = StorageNode.objects.create(
            storage_node_id=ids.new_id(tx.now_us),
            namespace_id=principal.namespace_id,
            name=name,
            created_at=now,
            **columns,
        )
    else:
        StorageNode.objects.filter(storage_node_id=node.storage_node_id).update(**columns)
    reporter = Reporter(node.storage_node_id, principal.namespace_id, name)
    return Connected(reporter, connection_id, principal.credential_id)


def negotiated(connected: Connected, protocol: StorageProtocol) -> bool:
    """What the connection speaks. False when it has been replaced meanwhile."""

    def run(tx: Tx) -> bool:
        columns = {"protocol": protocol.value, "last_seen_at": tx.now_us}
        return _of(connected).update(**columns) == 1

    return unit(run)


def is_current(connected: Connected) -> bool:
    """No newer connection has taken its place."""
    return bool(_of(connected).exists())


def disconnected(connected: Connected) -> None:
    """The connection ended. Nothing happens when a newer one has taken its place."""
    unit(lambda tx: _of(connected).update(connection_id=None, disconnected_at=tx.now_us, last_seen_at=tx.now_us))


def _of(connected: Connected):  # type: ignore[no-untyped-def]  # a queryset
    return StorageNode.objects.filter(
        storage_node_id=connected.reporter.storage_node_id, connection_id=connected.connection_id
    )


@dataclass(frozen=True)
class Standing:
    """Which of this process's connections may go on."""

    replaced: frozenset[str]  # connection ids
    credential_ended: frozenset[str]  # connection ids


def standing_of(connections: list[Connected]) -> Standing:
    """Looks at the connections of this process: replaced by a newer one elsewhere, or without a valid credential."""

    def run(tx: Tx) -> Standing:
        by_node = dict(
            StorageNode.objects.filter(
                storage_node_id__in=[connected.reporter.storage_node_id for connected in connections]
            ).values_list("storage_node_id", "connection_id")
        )
        valid = {
            credential.credential_id
            for credential in Credential.objects.filter(
                credential_id__in={connected.credential_id for connected in connections}, revoked_at__isnull=True
            )
            if (credential.expires_at is None or credential.expires_at > to_datetime(tx.now_us))
            and Action.NODES_CONNECT.value in credential.actions.split()
        }
        return Standing(
            replaced=frozenset(
                c.connection_id for c in connections if by_node.get(c.reporter.storage_node_id) != c.connection_id
            ),
            credential_ended=frozenset(c.connection_id for c in connections if c.credential_id not in valid),
        )

    return unit(run)


def connected_node_ids(tx: Tx, namespace_id: str, *, but: str | None = None) -> list[str]:
    """The storage nodes of a namespace that are connected to a living Orbit node, negotiated or about to be."""
    alive_since = to_datetime(tx.now_us - OWNER_SILENCE_SECONDS_MAX * US_PER_SECOND)
    alive = set(Node.objects.filter(heartbeat_at__gt=alive_since).values_list("node_id", "incarnation"))
    rows = StorageNode.objects.filter(namespace_id=namespace_id, connection_id__isnull=False).order_by(
        "storage_node_id"
    )
    return [
        row.storage_node_id
        for row in rows
        if row.storage_node_id != but and (row.orbit_node_id, row.orbit_incarnation) in alive
    ]
