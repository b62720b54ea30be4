"""Rows that are valid as they stand, and the verbs of a task's life in words of the domain.

Everything here goes through the domain's own functions, but for what the API refuses to do: moving instants back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from django.db import connection

from tasks_app import ids
from tasks_app.domain import attempts, cancellation, claims, queues, reconciliation, submission, sweeps, tenancy
from tasks_app.domain.attempts import FinishItem, Held, RenewItem, Result, Starter, StartItem
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.claims import ClaimOrder, ClaimOutcome, Offer
from tasks_app.domain.reconciliation import Decision, Verdict
from tasks_app.domain.submission import Accepted, Submission
from tasks_app.domain.task_rows import TaskRow
from tasks_app.domain.tenancy import NamespaceSettings, Principal
from tasks_app.endings import Report
from tasks_app.retries import NEVER, RetryPolicy
from tasks_app.states import Action, Policy, TaskState
from tasks_app.submission_request import SubmitRequest, digest
from tasks_app.transactions import Tx, reading, unit

_numbers = itertools.count(1)

SAFE = RetryPolicy.safe(max_attempts=3)
SAFE_AT_ONCE = RetryPolicy.safe(max_attempts=5, initial_backoff_ms=0, max_backoff_ms=0)
SECOND = 1_000_000


# -- who owns what


@dataclass(frozen=True)
class Tenant:
    """An application with one namespace, its first queue, and a credential for all of it."""

    application_id: str
    namespace_id: str
    policy: Policy
    queue_id: str
    credential_id: str
    token: str
    principal: Principal
    session_id: str

    def queue(self, name: str | None = None, **settings: Any) -> str:
        """Another queue; its id."""
        return make_queue(self, name, **settings)


def make_tenant(
    *, policy: str = "AGED", application: str | None = None, resource_limit: int = 1, default_priority: int = 0,
    queue: dict[str, Any] | None = None, actions: Iterable[str] = Action.values,
) -> Tenant:  # fmt: skip
    number = next(_numbers)

    def make(tx: Tx) -> tuple[str, str, str, tenancy.IssuedCredential]:
        application_id, _ = tenancy.ensure_application(tx, application or f"application {number}", actor=SYSTEM)
        settings = NamespaceSettings(
            "test", Policy(policy), default_priority=default_priority, resource_limit=resource_limit
        )
        namespace_id, _ = tenancy.ensure_namespace(tx, application_id, f"namespace {number}", settings, actor=SYSTEM)
        first = queues.create_in(
            tx,
            namespace_id,
            application_id,
            Policy(policy),
            queues.QueueSettings("main", **(queue or {})),
            actor=SYSTEM,
        )
        issued = tenancy.issue_credential(
            tx, namespace_id=namespace_id, actions=actions, queue_ids=None, expires_in_seconds=None, actor=SYSTEM
        )
        return application_id, namespace_id, first.queue_id, issued

    application_id, namespace_id, queue_id, issued = unit(make)
    return Tenant(
        application_id, namespace_id, Policy(policy), queue_id, issued.credential_id, issued.token,
        tenancy.authenticate(issued.token), ids.new_id(now()),
    )  # fmt: skip


def make_queue(tenant: Tenant, name: str | None = None, **settings: Any) -> str:
    wanted = queues.QueueSettings(name or f"queue {next(_numbers)}", **settings)
    return unit(
        lambda tx: (
            queues.create_in(
                tx, tenant.namespace_id, tenant.application_id, tenant.policy, wanted, actor=SYSTEM
            ).queue_id
        )
    )


def make_credential(
    tenant: Tenant, *, actions: Iterable[str] = Action.values, queue_ids: Sequence[str] | None = None
) -> Principal:
    issued = unit(
        lambda tx: tenancy.issue_credential(
            tx,
            namespace_id=tenant.namespace_id,
            actions=actions,
            queue_ids=queue_ids,
            expires_in_seconds=None,
            actor=SYSTEM,
        )  # fmt: skip
    )
    return tenancy.authenticate(issued.token)


def revoke(tenant: Tenant) -> None:
    unit(lambda tx: tenancy.revoke_credential(tx, tenant.credential_id, actor=SYSTEM))


def set_quotas(tenant: Tenant, **quotas: Any) -> None:
    unit(lambda tx: tenancy.set_application_quotas(tx, tenant.application_id, quotas, actor=SYSTEM))


def change_queue(tenant: Tenant, queue_id: str | None = None, **changes: Any) -> None:
    queue = queues.get(tenant.principal, queue_id or tenant.queue_id)
    queues.change(tenant.principal, queue.queue_id, changes, revision=queue.revision, actor=SYSTEM)


def pause(tenant: Tenant, queue_id: str | None = None) -> None:
    queues.pause(tenant.principal, queue_id or tenant.queue_id, reason=None, actor=SYSTEM)


# -- accept


def request(tenant: Tenant, **fields: Any) -> SubmitRequest:
    """A task object with every required member; `fields` are those of `SubmitRequest`."""
    wanted = SubmitRequest(
        queue_id=tenant.queue_id, handler="h", handler_version="1", payload_version="1", payload='{"n": 1}', retry=NEVER
    )
    return replace(wanted, **fields)


def accept(tenant: Tenant, *, key: str | None = None, principal: Principal | None = None, **fields: Any) -> Accepted:
    """What the caller of one submit gets."""
    wanted = request(tenant, **fields)
    submitted = Submission(key or f"key-{next(_numbers)}", wanted, digest(wanted, tenant.policy))
    return submission.accept(principal or tenant.principal, submitted)


def submit(tenant: Tenant, **fields: Any) -> str:
    """A committed task; its id."""
    return accept(tenant, **fields).receipt.task_id


# -- claim, start, finish


def order(
    tenant: Tenant,
    *,
    limit: int = 1,
    queue_ids: Sequence[str] | None = None,
    handlers: Sequence[str] = ("h",),
    resource_keys: bool = True,
    session_id: str | None = None,
    **more: Any,
) -> ClaimOrder:
    refs = [submission.handler_ref(tenant.namespace_id, name, "1") for name in handlers]
    return ClaimOrder(
        application_id=tenant.application_id,
        namespace_id=tenant.namespace_id,
        queue_ids=tuple(queue_ids or (tenant.queue_id,)),
        handler_refs=tuple(ref for ref in refs if ref is not None),
        resource_keys=resource_keys,
        limit=limit,
        session_id=session_id or tenant.session_id,
        **more,
    )


def claim(tenant: Tenant, **more: Any) -> ClaimOutcome:
    return claims.claim(order(tenant, **more))


def claim_ids(tenant: Tenant, **more: Any) -> list[str]:
    """The tasks of one claim, in the order in which they are offered."""
    return [offer.task.task_id for offer in claim(tenant, **more).offers]


def claim_one(tenant: Tenant, **more: Any) -> Offer:
    outcome = claim(tenant, limit=1, **more)
    assert len(outcome.offers) == 1, f"nothing was claimed: {outcome.reason}"
    return outcome.offers[0]


def held(offer: Offer, **changes: Any) -> Held:
    """The attempt as its holder names it."""
    assert offer.task.attempt_id is not None
    named = Held(offer.task.task_id, offer.task.attempt_id, offer.task.fencing_token, offer.task.namespace_id)
    return replace(named, **changes)


def starter(tenant: Tenant, **changes: Any) -> Starter:
    return replace(Starter(tenant.credential_id, tenant.session_id, "worker"), **changes)


def start(tenant: Tenant, offer: Offer, **changes: Any) -> Result:
    return start_all(tenant, [offer], **changes)[0]


def start_all(tenant: Tenant, offers: Sequence[Offer], **changes: Any) -> list[Result]:
    return attempts.start([StartItem(held(offer, **changes), starter(tenant)) for offer in offers])


def run_one(tenant: Tenant, **more: Any) -> Offer:
    """A task that runs now."""
    offer = claim_one(tenant, **more)
    assert start(tenant, offer).answer is attempts.Answer.STARTED
    return offer


def finish(offer: Offer, report: Report = Report.SUCCEEDED, **more: Any) -> Result:
    return attempts.finish([report_of(offer, report, **more)])[0]


def report_of(offer: Offer, report: Report = Report.SUCCEEDED, **more: Any) -> FinishItem:
    if report is Report.FAILED:
        more = {"error_code": "BROKEN", "error_message": "it broke", **more}
    return FinishItem(held(offer), report, **more)


def renew(offer: Offer, **more: Any) -> Result:
    return attempts.renew([RenewItem(held(offer), **more)])[0]


def release(*offers: Offer) -> list[Result]:
    return attempts.release([held(offer) for offer in offers])


def lose(offer: Offer) -> None:
    """The lease of a running attempt ends and a sweep notices."""
    expire_lease(offer.task.task_id)
    sweep()


def sweep() -> int:
    """Sweeps until nothing is due; how many tasks changed."""
    changed = 0
    while True:
        swept = sweeps.sweep_due()
        changed += swept.changed
        if not swept.changed:
            return changed


def cancel(tenant: Tenant, task_id: str, *, revision: int | None = None, reason: str | None = None) -> TaskRow:
    seen = row(task_id).revision if revision is None else revision
    return cancellation.cancel(tenant.principal, task_id, revision=seen, reason=reason, actor=SYSTEM)


def reconcile(tenant: Tenant, task_id: str, decision: Decision, *, revision: int | None = None, **more: Any) -> TaskRow:
    seen = row(task_id).revision if revision is None else revision
    verdict = Verdict(decision, more.pop("reason", "looked at it"), **more)
    return reconciliation.reconcile(tenant.principal, task_id, verdict, revision=seen, actor=SYSTEM)


# -- looking at rows


def rows_of(table: str, where: str = "1 = 1", params: Sequence[Any] = ()) -> list[SimpleNamespace]:
    """Raw rows: instants are integers, states are words."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE {where}", list(params))
        names = [column[0] for column in cursor.description]
        return [SimpleNamespace(**dict(zip(names, values, strict=True))) for values in cursor.fetchall()]


def row(task_id: str) -> SimpleNamespace:
    (found,) = rows_of("orbit_task", "task_id = %s", [task_id])
    found.state = TaskState(found.state)
    return found


def state(task_id: str) -> TaskState:
    return row(task_id).state


def attempts_of(task_id: str) -> list[SimpleNamespace]:
    return rows_of("orbit_attempt", "task_id = %s ORDER BY number", [task_id])


def events_of(task_id: str) -> list[str]:
    """The types of its events, oldest first."""
    return [event.type for event in rows_of("orbit_event", "task_id = %s ORDER BY event_id", [task_id])]


def queue_row(queue_id: str) -> SimpleNamespace:
    return rows_of("orbit_queue", "queue_id = %s", [queue_id])[0]


def application_row(tenant: Tenant) -> SimpleNamespace:
    return rows_of("orbit_application", "application_id = %s", [tenant.application_id])[0]


def key_row(tenant: Tenant, resource_key: str = "k") -> SimpleNamespace:
    where = "namespace_id = %s AND resource_key = %s"
    return rows_of("orbit_resource_key", where, [tenant.namespace_id, resource_key])[0]


def snapshot() -> dict[str, list[Any]]:
    """Everything in the tables that verbs write, to say that nothing changed."""
    tables = (
        "orbit_task", "orbit_attempt", "orbit_event", "orbit_audit_entry", "orbit_idempotency_record", "orbit_queue",
        "orbit_application", "orbit_resource_key",
    )  # fmt: skip
    return {table: sorted(map(repr, rows_of(table))) for table in tables}


# -- time


def now() -> int:
    """The database's clock, as the verbs read it."""
    with reading() as tx:
        return tx.now_us


def set_columns(task_id: str, **columns: Any) -> None:
    with connection.cursor() as cursor:
        assignments = ", ".join(f"{name} = %s" for name in columns)
        cursor.execute(f"UPDATE orbit_task SET {assignments} WHERE task_id = %s", [*columns.values(), task_id])


def due(task_id: str, *, seconds_ago: float, at: int | None = None) -> None:
    """Sets `available_at` back, which the API refuses to do: the table of the AGED order is about such rows."""
    set_columns(task_id, available_at=(now() if at is None else at) - round(seconds_ago * SECOND))


def expire_lease(task_id: str) -> None:
    """The lease (reservation or running) ended just now."""
    set_columns(task_id, lease_until=now())


def pass_deadline(task_id: str) -> None:
    set_columns(task_id, deadline_at=now())


def pass_attempt_timeout(task_id: str) -> None:
    """The running attempt began so long ago that its time-out has just passed."""
    started_at = now() - row(task_id).attempt_timeout_ms * 1000
    set_columns(task_id, started_at=started_at)


# -- long lines

_GENERATED = {"dispatch_at", "wake_at", "attention"}
_DIGITS = "(" + " UNION ALL ".join(f"SELECT {digit} AS n" for digit in range(10)) + ")"


def backlog(task_id: str, count: int) -> None:
    """Copies of a waiting task, `count` of them (a power of ten), each a microsecond ahead of the next and all ahead of
    it in line. Written straight into the tables: accepting them would take minutes.
    """
    places = len(str(count)) - 1
    assert count == 10**places
    number = " + ".join(f"d{place}.n * {10**place}" for place in range(places))
    numbers = ", ".join(f"{_DIGITS} d{place}" for place in range(places))
    copy_id = f"LPAD(HEX({number}), 32, '0')" if connection.vendor == "mysql" else f"printf('%%032x', {number})"
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM orbit_task WHERE task_id = %s", [task_id])
        columns = [column[0] for column in cursor.description if column[0] not in _GENERATED]
        values = {
            **{name: f"t.{name}" for name in columns},
            # A prefix of its own for each template, so that several backlogs stand beside each other.
            "task_id": f"REPLACE({copy_id}, '00000000000000000000', '{_numbers_prefix()}')",
            "available_at": f"t.available_at - {count} + ({number})",
        }
        cursor.execute(
            f"INSERT INTO orbit_task ({', '.join(columns)}) SELECT {', '.join(values[name] for name in columns)}"
            f" FROM orbit_task t, {numbers} WHERE t.task_id = %s",
            [task_id],
        )
        for table, key in (("orbit_queue", "queue_id"), ("orbit_application", "application_id")):
            cursor.execute(
                f"UPDATE {table} SET unfinished = unfinished + %s"
                f" WHERE {key} = (SELECT {key} FROM orbit_task WHERE task_id = %s)",
                [count, task_id],
            )


def _numbers_prefix() -> str:
    return f"{next(_numbers):020x}"
