"""The words of the lifecycle's tests: create, report, delete, recover, look. Everything goes through the domain."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from django.db import connection

from lifecycle_app.domain import creation, deletion, delivery, ownership, recovery, reporting, storage_nodes
from lifecycle_app.domain import reconciliation as reconciliations
from lifecycle_app.domain.creation import CreateRequest
from lifecycle_app.domain.delivery import Command
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.domain.reconciliation import Verdict
from lifecycle_app.domain.storage_nodes import Connected
from lifecycle_app.fakes import upstream as fake
from lifecycle_app.messages import ReportedTask, TaskReport
from lifecycle_app.models import LifecycleTask, OperationIntent
from lifecycle_app.states import AckResult, Decision, IntentState, StorageProtocol
from lifecycle_app.statuses import NodeStatus
from lifecycle_app.upstream import HttpUpstream, Upstream
from tasks_app import ids
from tasks_app.domain import tenancy
from tasks_app.domain.audit import Actor
from tasks_app.instants import process_now_us
from tasks_app.models import ActorKind, Namespace, Node
from tasks_app.states import Action
from tests.tasks_app.factories import Tenant, make_tenant

_numbers = itertools.count(1)
ACTOR = Actor(ActorKind.CREDENTIAL, "tests")
SECOND_US = 1_000_000


class UpstreamPlay:
    """The scripted upstream of this test process, and the adapter that talks to it."""

    def __enter__(self) -> UpstreamPlay:
        self.fake = fake.FakeUpstream()
        self._server, url = fake.start(self.fake)
        self.adapter = HttpUpstream(url=url, timeout_ms=1000)
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forget(self) -> None:
        self.fake.forget()

    def script(self, step: str, gid: int, *words: str) -> None:
        self.fake.script({step: {str(gid): list(words)}})

    def submits(self, gid: int) -> int:
        """How often the upstream was asked to submit it, whatever became of that."""
        return sum(e["step"] == "submit" and e["gid"] == str(gid) for e in self.fake.journal)

    def asked(self) -> list[tuple[str, str]]:
        return [(entry["step"], entry["gid"]) for entry in self.fake.journal if entry["step"] != "effect"]


@dataclass(frozen=True)
class Site:
    """One namespace on one Orbit node."""

    tenant: Tenant
    owner: Owner
    play: UpstreamPlay

    @property
    def namespace_id(self) -> str:
        return self.tenant.namespace_id

    # -- Verbs

    def create(
        self, gid: int, *, requester: str = "ana", name: str | None = None, upstream: Upstream | None = None
    ) -> IntentState:
        request = CreateRequest(gid=gid, name=name or f"gallery {gid}", requester=requester)
        return creation.create(
            self.namespace_id, request, upstream=upstream or self.play.adapter, owner=self.owner, actor=ACTOR
        ).state

    def submitted(self, gid: int, **more: Any) -> OperationIntent:
        assert self.create(gid, **more) is IntentState.SUBMITTED
        return self.intent(gid)

    def unknown(self, gid: int, word: str = "drop_after_effect", **more: Any) -> OperationIntent:
        self.play.script("submit", gid, word)
        assert self.create(gid, **more) is IntentState.UNKNOWN
        return self.intent(gid)

    def delete(self, gid: int) -> OperationIntent:
        deletion.request_delete(self.namespace_id, gid, actor=ACTOR)
        return self.intent(gid)

    def deleted(self, gid: int) -> OperationIntent:
        """A gid that was submitted, deleted and confirmed."""
        self.submitted(gid)
        node = self.connect()
        delivery.assign_waiting([self.namespace_id])
        delete_id = self.delete(gid).delete_operation_id
        assert self.report(node, confirm(gid, delete_id)) is AckResult.APPLIED
        return self.intent(gid)

    def reconcile(self, gid: int, decision: Decision, *, reason: str = "looked at it", **seen: Any) -> Any:
        intent = self.intent(gid)
        verdict = Verdict(
            seen.get("operation_id", intent.operation_id),
            seen.get("state", IntentState(intent.state)),
            decision,
            reason,
        )
        return reconciliations.reconcile(self.namespace_id, gid, verdict, upstream=self.play.adapter, actor=ACTOR)

    def recover(self) -> recovery.Recovered:
        return recovery.recover_at_start(self.owner)

    def restarted(self) -> Site:
        """The same node name in a new process: what the old one was doing is an orphan from now on."""
        return replace(self, owner=alive(Owner(self.owner.node_id, ids.new_id(process_now_us()))))

    # -- Storage nodes

    def connect(
        self, name: str = "node-1", *, protocol: StorageProtocol = StorageProtocol.V2, owner: Owner | None = None
    ) -> Connected:
        connected = storage_nodes.connect(self.tenant.principal, name, token="", owner=owner or self.owner)
        assert storage_nodes.negotiated(connected, protocol)
        return connected

    def told(self, node: Connected, protocol: StorageProtocol = StorageProtocol.V2) -> list[Command]:
        """What the node is told now."""
        delivery.assign_waiting([self.namespace_id])
        return delivery.take_commands(node, protocol)

    def report(
        self, node: Connected, *tasks: ReportedTask, revision: int | None = 1, report_id: str | None = ""
    ) -> AckResult | None:
        identity = f"report-{next(_numbers)}" if report_id == "" else report_id
        return reporting.apply_report(node.reporter, TaskReport(identity, revision, tasks))

    # -- Looking

    def intent(self, gid: int) -> OperationIntent:
        return OperationIntent.objects.get(namespace_id=self.namespace_id, gid=gid)

    def has_intent(self, gid: int) -> bool:
        return OperationIntent.objects.filter(namespace_id=self.namespace_id, gid=gid).exists()

    def row(self, gid: int) -> LifecycleTask | None:
        return LifecycleTask.objects.filter(namespace_id=self.namespace_id, gid=gid).first()

    def shown(self, gid: int) -> str:
        row = self.row(gid)
        assert row is not None, f"gid {gid} has no row"
        return row.status

    def state(self, gid: int) -> str:
        return self.intent(gid).state

    def usage(self, gid: int) -> list[SimpleNamespace]:
        return rows_of("orbit_usage_entry", "gid = %s AND namespace_id = %s", [gid, self.namespace_id])

    def used(self, requester: str = "ana") -> int:
        rows = rows_of("orbit_weekly_usage", "requester = %s AND namespace_id = %s", [requester, self.namespace_id])
        return sum(row.quantity for row in rows)

    def told_people(self, gid: int) -> list[str]:
        """The notifications of a gid, in order."""
        where = "gid = %s AND namespace_id = %s ORDER BY notification_id"
        return [row.status for row in rows_of("orbit_notification", where, [gid, self.namespace_id])]

    def audited(self, gid: int) -> list[str]:
        where = "object_type = 'operation' AND object_id = %s AND namespace_id = %s ORDER BY audit_id"
        return [row.action for row in rows_of("orbit_audit_entry", where, [str(gid), self.namespace_id])]

    def limit(self, per_week: int | None) -> None:
        Namespace.objects.filter(namespace_id=self.namespace_id).update(weekly_limit=per_week)

    def put(self, gid: int, **columns: Any) -> None:
        """Changes an intent behind the domain's back: what a crash or an older site left."""
        OperationIntent.objects.filter(namespace_id=self.namespace_id, gid=gid).update(**columns)


def make_site(play: UpstreamPlay) -> Site:
    owner = alive(Owner(f"orbit-{next(_numbers)}", ids.new_id(process_now_us())))
    return Site(make_tenant(actions=Action.values), owner, play)


def alive(owner: Owner, *, seconds_ago: int = 0) -> Owner:
    """An Orbit node that beat then."""
    ownership.beat(owner, roles="api nodes", take_name=True)
    if seconds_ago:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE orbit_node SET heartbeat_at = heartbeat_at - %s WHERE node_id = %s",
                [seconds_ago * SECOND_US, owner.node_id],
            )
    return owner


def dead(owner: Owner) -> None:
    Node.objects.filter(node_id=owner.node_id).delete()


def new_owner() -> Owner:
    return Owner(f"orbit-{next(_numbers)}", ids.new_id(process_now_us()))


def other_namespace() -> Tenant:
    return make_tenant()


def principal_with(site: Site, actions: Iterable[str]) -> tenancy.Principal:
    from tests.tasks_app.factories import make_credential

    return make_credential(site.tenant, actions=actions)


# -- What nodes say


def progress(gid: int, operation_id: str | None, status: int = 1, percent: int | None = None) -> ReportedTask:
    return ReportedTask(gid, NodeStatus(status), percent, operation_id=operation_id)


def confirm(gid: int, delete_operation_id: str | None) -> ReportedTask:
    return ReportedTask(gid, deleted=True, operation_id=delete_operation_id)


def failure(gid: int, delete_operation_id: str | None, error: str = "the files are in use") -> ReportedTask:
    return ReportedTask(gid, error=error, operation_id=delete_operation_id)


def rows_of(table: str, where: str = "1 = 1", params: Iterable[Any] = ()) -> list[SimpleNamespace]:
    """Raw rows, instants as integers."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE {where}", list(params))
        names = [column[0] for column in cursor.description]
        return [SimpleNamespace(**dict(zip(names, values, strict=True))) for values in cursor.fetchall()]


def count(table: str) -> int:
    return len(rows_of(table))
