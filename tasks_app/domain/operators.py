"""Operators: people who act on every tenant's tasks through the operators' site (design 5.4).

An operator has no credential. What they may do are rights, given by groups; every verb here checks its own right, so
that a page which forgot to cannot do harm. Each verb runs the same domain function as the API and leaves the same audit
entry, with the user's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tasks_app import dialect
from tasks_app.domain import plan_firing, plans, queues, replays
from tasks_app.domain.audit import Actor
from tasks_app.domain.cancellation import cancel
from tasks_app.domain.plans import PlanView
from tasks_app.domain.queues import Queue
from tasks_app.domain.reconciliation import Verdict, reconcile
from tasks_app.domain.replays import ReplayedItem, SelectionOrder
from tasks_app.domain.submission import Accepted
from tasks_app.domain.task_rows import TaskRow
from tasks_app.domain.tenancy import (
    IssuedCredential,
    Principal,
    issue_credential,
    operator_of,
    revoke_credential,
    rotate_credential,
    set_application_quotas,
)
from tasks_app.errors import InvalidArgument, NotFound, PermissionDenied, RevisionConflict
from tasks_app.limits import QUOTA_MAX, REASON_LENGTH_MAX
from tasks_app.models import ActorKind
from tasks_app.transactions import Tx, reading, unit


class Right(Enum):
    """What an operator may be allowed; the values are Django permissions, declared by the models they are about."""

    READ_PAYLOAD = "tasks_app.read_payload"
    CANCEL = "tasks_app.cancel_task"
    RECONCILE = "tasks_app.reconcile_task"
    REPLAY = "tasks_app.replay_task"
    REPLAY_MANY = "tasks_app.replay_tasks"
    DISMISS = "tasks_app.dismiss_task"
    PAUSE_QUEUE = "tasks_app.pause_queue"
    SET_QUEUE_LIMITS = "tasks_app.set_queue_limits"
    SET_APPLICATION_QUOTAS = "tasks_app.set_application_quotas"
    OPERATE_PLAN = "tasks_app.operate_plan"
    MANAGE_CREDENTIALS = "tasks_app.manage_credentials"
    EXPORT_AUDIT = "tasks_app.export_audit"


@dataclass(frozen=True, slots=True)
class Operator:
    """A user of the operators' site at one moment. `rights` holds Django permissions, `app.codename`."""

    name: str
    rights: frozenset[str]
    request_id: str | None = None

    @property
    def actor(self) -> Actor:
        return Actor(ActorKind.USER, self.name, self.request_id)

    def may(self, right: Right) -> bool:
        return right.value in self.rights

    def require(self, right: Right) -> None:
        """Raises PermissionDenied."""
        if not self.may(right):
            raise PermissionDenied(
                "your groups do not allow this",
                details=[{"field": "", "reason": "missing right", "right": right.value}],
            )


# -- tasks


def cancel_task(operator: Operator, task_id: str, *, revision: int, reason: str) -> TaskRow:
    """Raises PermissionDenied and what `cancellation.cancel` raises."""
    operator.require(Right.CANCEL)
    reason = _reason(reason)
    return cancel(_principal_of_task(task_id), task_id, revision=revision, reason=reason, actor=operator.actor)


def reconcile_task(operator: Operator, task_id: str, verdict: Verdict, *, revision: int) -> TaskRow:
    """Raises PermissionDenied and what `reconciliation.reconcile` raises."""
    operator.require(Right.RECONCILE)
    _reason(verdict.reason)
    return reconcile(_principal_of_task(task_id), task_id, verdict, revision=revision, actor=operator.actor)


def replay_task(operator: Operator, task_id: str, *, key: str, priority: int | None = None) -> Accepted:
    """One effect however often it is called with the key. Raises PermissionDenied and what `replays.replay` raises."""
    operator.require(Right.REPLAY)
    principal = _principal_of_task(task_id)
    return replays.replay(principal, task_id, key=key, priority=priority, actor=operator.actor).accepted


def dismiss_task(operator: Operator, task_id: str, *, revision: int, reason: str) -> TaskRow:
    """Raises PermissionDenied and what `replays.dismiss` raises."""
    operator.require(Right.DISMISS)
    reason = _reason(reason)
    return replays.dismiss(_principal_of_task(task_id), task_id, revision=revision, reason=reason, actor=operator.actor)


def freeze_selection(
    operator: Operator, namespace_id: str, order: SelectionOrder, *, key: str, reason: str
) -> list[str]:
    """The tasks that the key stands for from now on, oldest first; one audit entry, when it is frozen.

    Raises what `replays.frozen_selection` raises.
    """
    operator.require(Right.REPLAY_MANY)
    principal = operator_of(namespace_id)
    return replays.frozen_selection(principal, order, key=key, actor=operator.actor, reason=_reason(reason))


def replay_selection(
    operator: Operator, namespace_id: str, order: SelectionOrder, *, key: str, is_over: Callable[[], bool]
) -> list[ReplayedItem]:
    """Goes on with a selection until it is through or `is_over`; raises what `replays.replay_many` raises."""
    operator.require(Right.REPLAY_MANY)
    principal = operator_of(namespace_id)
    return replays.replay_many(principal, order, key=key, is_over=is_over, actor=operator.actor)


# -- queues and applications


def pause_queue(operator: Operator, queue_id: str, *, reason: str) -> Queue:
    operator.require(Right.PAUSE_QUEUE)
    reason = _reason(reason)
    return queues.pause(_principal_of_queue(queue_id), queue_id, reason=reason, actor=operator.actor)


def resume_queue(operator: Operator, queue_id: str) -> Queue:
    operator.require(Right.PAUSE_QUEUE)
    return queues.resume(_principal_of_queue(queue_id), queue_id, actor=operator.actor)


def change_queue(operator: Operator, queue_id: str, changes: Mapping[str, Any], *, revision: int) -> Queue:
    """Raises PermissionDenied and what `queues.change` raises."""
    operator.require(Right.SET_QUEUE_LIMITS)
    return queues.change(_principal_of_queue(queue_id), queue_id, changes, revision=revision, actor=operator.actor)


def change_application(
    operator: Operator, application_id: str, changes: Mapping[str, Any], *, seen: Mapping[str, Any]
) -> None:
    """Sets quotas; `seen` are the quotas that the operator saw (an application has no revision).

    Raises PermissionDenied, NotFound, InvalidArgument, and RevisionConflict by `_require_seen`.
    """
    operator.require(Right.SET_APPLICATION_QUOTAS)
    for name, value in changes.items():
        if value is not None and not 0 <= value <= QUOTA_MAX:
            raise InvalidArgument.field(name, f"must be 0 to {QUOTA_MAX}", minimum=0, maximum=QUOTA_MAX)

    def run(tx: Tx) -> None:
        _require_seen(tx, application_id, seen)
        set_application_quotas(tx, application_id, dict(changes), actor=operator.actor)

    unit(run)


def _require_seen(tx: Tx, application_id: str, seen: Mapping[str, Any]) -> None:
    row = tx.row(
        "SELECT max_unfinished, max_running FROM orbit_application WHERE application_id = %s"
        f"{dialect.for_update(tx.connection)}",
        [application_id],
    )
    if row is None:
        raise NotFound("no such application")
    if row != (seen["max_unfinished"], seen["max_running"]):
        raise RevisionConflict(details=[{"field": "max_running", "reason": "the quotas changed since they were seen"}])


# -- plans


def pause_plan(operator: Operator, namespace_id: str, plan_id: str, *, reason: str) -> PlanView:
    operator.require(Right.OPERATE_PLAN)
    return plans.pause(operator_of(namespace_id), plan_id, note=_reason(reason), actor=operator.actor)


def resume_plan(operator: Operator, namespace_id: str, plan_id: str, *, reason: str) -> PlanView:
    operator.require(Right.OPERATE_PLAN)
    return plans.resume(operator_of(namespace_id), plan_id, note=_reason(reason), actor=operator.actor)


def trigger_plan(operator: Operator, namespace_id: str, plan_id: str, *, key: str) -> Accepted:
    """Fires a plan now, once however often it is called with the key."""
    operator.require(Right.OPERATE_PLAN)
    accepted, _ = plan_firing.trigger(operator_of(namespace_id), plan_id, key=key, actor=operator.actor)
    return accepted


# -- credentials


def issue(
    operator: Operator, namespace_id: str, *, actions: list[str], queue_ids: list[str] | None, expires_in: int | None
) -> IssuedCredential:
    """The only moment at which the token exists in clear. `expires_in` is in seconds."""
    operator.require(Right.MANAGE_CREDENTIALS)
    operator_of(namespace_id)
    return unit(
        lambda tx: issue_credential(
            tx,
            namespace_id=namespace_id,
            actions=actions,
            queue_ids=queue_ids,
            expires_in_seconds=expires_in,
            actor=operator.actor,
        )
    )


def rotate(operator: Operator, credential_id: str, *, overlap_seconds: int) -> IssuedCredential:
    operator.require(Right.MANAGE_CREDENTIALS)
    if overlap_seconds < 0:
        raise InvalidArgument.field("overlap_seconds", "must be at least 0", minimum=0)
    return unit(lambda tx: rotate_credential(tx, credential_id, overlap_seconds=overlap_seconds, actor=operator.actor))


def revoke(operator: Operator, credential_id: str, *, reason: str) -> bool:
    """False if it had been revoked before."""
    operator.require(Right.MANAGE_CREDENTIALS)
    reason = _reason(reason)
    return unit(lambda tx: revoke_credential(tx, credential_id, actor=operator.actor, reason=reason))


# -- what the verbs share


def _reason(reason: str) -> str:
    reason = reason.strip()
    if not 1 <= len(reason) <= REASON_LENGTH_MAX:
        raise InvalidArgument.field(
            "reason", f"must be 1 to {REASON_LENGTH_MAX} characters", minimum=1, maximum=REASON_LENGTH_MAX
        )
    return reason


def _principal_of_task(task_id: str) -> Principal:
    return operator_of(_namespace_of("orbit_task", "task_id", task_id, "no such task"))


def _principal_of_queue(queue_id: str) -> Principal:
    return operator_of(_namespace_of("orbit_queue", "queue_id", queue_id, "no such queue"))


def _namespace_of(table: str, column: str, value: str, absent: str) -> str:
    with reading() as tx:
        row = tx.row(f"SELECT namespace_id FROM {table} WHERE {column} = %s", [value])
    if row is None:
        raise NotFound(absent)
    return str(row[0])
