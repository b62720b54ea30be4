"""Plans: made, given versions, activated, paused, shown (design 1.6). `plan_firing.py` fires them.

A version never changes. The row of the plan is the lock of everything that decides whether and what it fires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import IntegrityError

from tasks_app import dialect, ids
from tasks_app.domain import audit
from tasks_app.domain.audit import Actor
from tasks_app.domain.plan_definitions import PlanDefinition, definition_fault, stored_definition
from tasks_app.domain.plan_schedule import next_fire_times
from tasks_app.domain.tenancy import Principal, current
from tasks_app.errors import AlreadyExists, InvalidArgument, NotFound, RevisionConflict
from tasks_app.limits import NAME_LENGTH_MAX, NEXT_FIRE_TIMES_SHOWN, REASON_LENGTH_MAX
from tasks_app.printable import printable_fault
from tasks_app.states import Action
from tasks_app.transactions import Tx, reading, unit


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan as it is shown. `definition` is the JSON text of the active version; instants are microseconds."""

    plan_id: str
    name: str
    active_version: int
    versions: int
    definition: str
    paused: bool
    note: str | None
    revision: int
    next_fire_times: tuple[int, ...]
    last_fired_at: int | None
    missed: int
    created_at: int


@dataclass(frozen=True, slots=True)
class VersionView:
    """`definition` is JSON text, exactly as sent."""

    version: int
    definition: str
    created_at: int


@dataclass(frozen=True, slots=True)
class FiringView:
    """`status` is a `FiringStatus`; `error` is JSON text, exactly for a refused firing."""

    fire_time: int
    version: int
    status: str
    task_id: str | None
    error: str | None


# -- making and changing


def create(principal: Principal, name: str, definition: PlanDefinition, *, actor: Actor) -> PlanView:
    """A new plan with version 1 active.

    Raises InvalidArgument, PayloadTooLarge, AlreadyExists (with the `plan_id` that has the name), NotFound or
    PermissionDenied for the queue of its task.
    """
    name_fault = printable_fault(name, length_max=NAME_LENGTH_MAX)

    def run(tx: Tx) -> PlanView:
        now = _allowed(tx, principal)
        if name_fault is not None:
            raise InvalidArgument.field("name", name_fault)
        _judge(tx, now, definition)
        taken = tx.row("SELECT plan_id FROM orbit_plan WHERE namespace_id = %s AND name = %s", [now.namespace_id, name])
        if taken is not None:
            raise AlreadyExists(
                "a plan of this name exists already",
                details=[{"field": "name", "reason": "is taken", "plan_id": taken[0]}],
            )
        plan_id = ids.new_id(tx.now_us)
        columns = {
            "plan_id": plan_id,
            "namespace_id": now.namespace_id,
            "name": name,
            "active_version": 1,
            "versions": 1,
            "paused": False,
            "revision": 1,
            "activated_at": tx.now_us,
            "next_fire_at": _next_fire_at(definition, tx.now_us),
            "missed": 0,
            "created_by": now.credential_id or None,
            "created_at": tx.now_us,
            "updated_at": tx.now_us,
        }
        tx.insert("orbit_plan", list(columns), [list(columns.values())])
        _insert_version(tx, plan_id, 1, definition)
        audit.write(
            tx, actor, "plan.create", "plan", plan_id, namespace_id=now.namespace_id, revision_after=1,
            data={"name": name},
        )  # fmt: skip
        return _shown(tx, _find(tx, now.namespace_id, plan_id))

    try:
        return unit(run)
    except IntegrityError as error:
        # Another request took the name between our look and our insert.
        if "plan_name_unique" not in str(error) and "orbit_plan.name" not in str(error):
            raise
        return unit(run)


def add_version(principal: Principal, plan_id: str, definition: PlanDefinition, *, actor: Actor) -> VersionView:
    """The next version of a plan; it fires once it is activated. Raises what `create` raises."""

    def run(tx: Tx) -> VersionView:
        now = _allowed(tx, principal)
        plan = _locked(tx, now, plan_id)
        _judge(tx, now, definition)
        version = plan.versions + 1
        _insert_version(tx, plan_id, version, definition)
        _write(tx, plan, {"versions": version}, "plan.version", now, actor=actor, data={"version": version})
        return VersionView(version, definition.raw, tx.now_us)

    return unit(run)


def activate(principal: Principal, plan_id: str, *, version: int, revision: int, actor: Actor) -> PlanView:
    """Lets a version fire from now on; its intervals count from now. The active one stays as it is.

    Raises NotFound (plan or version), PermissionDenied, RevisionConflict.
    """

    def run(tx: Tx) -> PlanView:
        now = _allowed(tx, principal)
        plan = _locked(tx, now, plan_id)
        if not 1 <= version <= plan.versions:
            raise NotFound("no such version", details=[{"field": "version", "reason": "no such version"}])
        if plan.revision != revision:
            raise RevisionConflict(
                details=[{"field": "revision", "reason": "the plan changed since then", "current": str(plan.revision)}]
            )
        if version != plan.active_version:
            definition = _definition(tx, plan_id, version)
            now.require_queue(definition.task.queue_id)
            changes = {
                "active_version": version,
                "activated_at": tx.now_us,
                "next_fire_at": None if plan.paused else _next_fire_at(definition, tx.now_us),
            }
            _write(tx, plan, changes, "plan.activate", now, actor=actor, data={"version": version})
        return _shown(tx, _find(tx, now.namespace_id, plan_id))

    return unit(run)


def pause(principal: Principal, plan_id: str, *, note: str | None, actor: Actor) -> PlanView:
    """Nothing fires until the plan is resumed; times that pass meanwhile never count. Repeatable: a new note takes the
    place of the old one.
    """
    return _pause_or_resume(principal, plan_id, paused=True, note=note, actor=actor)


def resume(principal: Principal, plan_id: str, *, note: str | None, actor: Actor) -> PlanView:
    """Fires again from the next fire time on. Repeatable."""
    return _pause_or_resume(principal, plan_id, paused=False, note=note, actor=actor)


def _pause_or_resume(principal: Principal, plan_id: str, *, paused: bool, note: str | None, actor: Actor) -> PlanView:
    if note is not None and not 1 <= len(note) <= REASON_LENGTH_MAX:
        raise InvalidArgument.field(
            "note", f"must be 1 to {REASON_LENGTH_MAX} characters", minimum=1, maximum=REASON_LENGTH_MAX
        )

    def run(tx: Tx) -> PlanView:
        now = _allowed(tx, principal)
        plan = _locked(tx, now, plan_id)
        changes: dict[str, Any] = {}
        if plan.paused != paused:
            definition = _definition(tx, plan_id, plan.active_version)
            # Intervals go on in their own even steps; what passed meanwhile is neither fired nor missed.
            following = definition.timing().schedule.next_after(tx.now_us, anchor=plan.activated_at)
            changes = {"paused": paused, "note": note, "next_fire_at": None if paused else following}
        elif note is not None and note != plan.note:
            changes = {"note": note}
        if changes:
            verb = "plan.pause" if paused else "plan.resume"
            _write(tx, plan, changes, verb, now, actor=actor, reason=note)
        return _shown(tx, _find(tx, now.namespace_id, plan_id))

    return unit(run)


def _allowed(tx: Tx, principal: Principal) -> Principal:
    now = current(tx, principal)
    now.require(Action.PLANS_MANAGE)
    return now


def _judge(tx: Tx, principal: Principal, definition: PlanDefinition) -> None:
    fault = definition_fault(definition, principal.policy)
    if fault is not None:
        raise fault
    queue_id = definition.task.queue_id
    row = tx.row(
        "SELECT 1 FROM orbit_queue WHERE queue_id = %s AND namespace_id = %s", [queue_id, principal.namespace_id]
    )
    if row is None:
        place = f"{definition.task.path}.queue_id" if definition.task.path else "queue_id"
        raise NotFound("no such queue", details=[{"field": place, "reason": "no such queue"}])
    principal.require_queue(queue_id)


def _next_fire_at(definition: PlanDefinition, now_us: int) -> int | None:
    return definition.timing().schedule.next_after(now_us, anchor=now_us)


def _insert_version(tx: Tx, plan_id: str, version: int, definition: PlanDefinition) -> None:
    tx.insert(
        "orbit_plan_version",
        ("plan_id", "version", "definition", "created_at"),
        [(plan_id, version, definition.raw, tx.now_us)],
    )


def _write(
    tx: Tx,
    plan: PlanRow,
    changes: dict[str, Any],
    action: str,
    principal: Principal,
    *,
    actor: Actor,
    reason: str | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    assignments = ", ".join(f"{name} = %s" for name in changes)
    tx.execute(
        f"UPDATE orbit_plan SET {assignments}, revision = revision + 1, updated_at = %s WHERE plan_id = %s",
        [*changes.values(), tx.now_us, plan.plan_id],
    )
    audit.write(
        tx, actor, action, "plan", plan.plan_id, namespace_id=principal.namespace_id, reason=reason,
        revision_before=plan.revision, revision_after=plan.revision + 1, data=data,
    )  # fmt: skip


# -- rows


@dataclass(frozen=True, slots=True)
class PlanRow:
    """The row of a plan."""

    plan_id: str
    namespace_id: str
    name: str
    active_version: int
    versions: int
    paused: bool
    note: str | None
    revision: int
    activated_at: int
    next_fire_at: int | None
    last_fired_at: int | None
    missed: int
    created_at: int


_COLUMNS: Final = (
    "p.plan_id, p.namespace_id, p.name, p.active_version, p.versions, p.paused, p.note, p.revision, p.activated_at,"
    " p.next_fire_at, p.last_fired_at, p.missed, p.created_at"
)


def lock_plan(tx: Tx, plan_id: str) -> PlanRow | None:
    """The row of a plan, locked."""
    row = tx.row(
        f"SELECT {_COLUMNS} FROM orbit_plan p WHERE p.plan_id = %s{dialect.for_update(tx.connection)}", [plan_id]
    )
    return None if row is None else PlanRow(*row)


def _find(tx: Tx, namespace_id: str, plan_id: str) -> PlanRow:
    row = tx.row(
        f"SELECT {_COLUMNS} FROM orbit_plan p WHERE p.plan_id = %s AND p.namespace_id = %s", [plan_id, namespace_id]
    )
    if row is None:
        raise NotFound("no such plan")
    return PlanRow(*row)


def _locked(tx: Tx, principal: Principal, plan_id: str) -> PlanRow:
    plan = lock_plan(tx, plan_id)
    if plan is None or plan.namespace_id != principal.namespace_id:
        raise NotFound("no such plan")
    principal.require_queue(_definition(tx, plan_id, plan.active_version).task.queue_id)
    return plan


def _definition(tx: Tx, plan_id: str, version: int) -> PlanDefinition:
    ((raw,),) = tx.rows(
        "SELECT definition FROM orbit_plan_version WHERE plan_id = %s AND version = %s", [plan_id, version]
    )
    return stored_definition(raw)


def _shown(tx: Tx, plan: PlanRow) -> PlanView:
    return _view(plan, _definition(tx, plan.plan_id, plan.active_version))


def _view(plan: PlanRow, definition: PlanDefinition) -> PlanView:
    times: list[int] = []
    if plan.next_fire_at is not None:
        times = next_fire_times(
            definition.timing().schedule,
            after=plan.next_fire_at,
            anchor=plan.activated_at,
            count=NEXT_FIRE_TIMES_SHOWN - 1,
        )
        times.insert(0, plan.next_fire_at)
    return PlanView(
        plan_id=plan.plan_id,
        name=plan.name,
        active_version=plan.active_version,
        versions=plan.versions,
        definition=definition.raw,
        paused=bool(plan.paused),
        note=plan.note,
        revision=plan.revision,
        next_fire_times=tuple(times),
        last_fired_at=plan.last_fired_at,
        missed=plan.missed,
        created_at=plan.created_at,
    )


# -- reading


def get(principal: Principal, plan_id: str) -> PlanView:
    """Raises NotFound; PermissionDenied for a plan whose queue is outside the credential's scope."""
    with reading() as tx:
        return _visible(tx, principal, plan_id)


def page(principal: Principal, *, limit: int, after: str | None) -> tuple[list[PlanView], str | None]:
    """Up to `limit` plans whose queue is in the credential's scope, oldest first, and the id to go on after (None at
    the end).
    """
    found: list[PlanView] = []
    last = after or ""
    with reading() as tx:
        while len(found) <= limit:
            rows = tx.rows(
                f"SELECT {_COLUMNS}, v.definition FROM orbit_plan p JOIN orbit_plan_version v"
                " ON v.plan_id = p.plan_id AND v.version = p.active_version"
                f" WHERE p.namespace_id = %s AND p.plan_id > %s ORDER BY p.plan_id LIMIT {limit + 1}",
                [principal.namespace_id, last],
            )
            for *columns, raw in rows:
                definition = stored_definition(raw)
                if principal.in_scope(definition.task.queue_id):
                    found.append(_view(PlanRow(*columns), definition))
            if len(rows) <= limit:
                break
            last = rows[-1][0]
    return found[:limit], found[limit - 1].plan_id if len(found) > limit else None


def versions(
    principal: Principal, plan_id: str, *, limit: int, after: int | None
) -> tuple[list[VersionView], int | None]:
    """Up to `limit` versions, first to last, and the version to go on after. Raises what `get` raises."""
    with reading() as tx:
        _visible(tx, principal, plan_id)
        rows = tx.rows(
            "SELECT version, definition, created_at FROM orbit_plan_version WHERE plan_id = %s AND version > %s"
            f" ORDER BY version LIMIT {limit + 1}",
            [plan_id, after or 0],
        )
    found = [VersionView(*row) for row in rows[:limit]]
    return found, found[-1].version if len(rows) > limit else None


def firings(
    principal: Principal, plan_id: str, *, limit: int, before: int | None
) -> tuple[Sequence[FiringView], int | None]:
    """Up to `limit` firings, newest first, and the fire time to go on before. Raises what `get` raises."""
    with reading() as tx:
        _visible(tx, principal, plan_id)
        where, params = "plan_id = %s", [plan_id, *([] if before is None else [before])]
        if before is not None:
            where += " AND fire_time < %s"
        rows = tx.rows(
            f"SELECT fire_time, version, status, task_id, error FROM orbit_plan_firing WHERE {where}"
            f" ORDER BY fire_time DESC LIMIT {limit + 1}",
            params,
        )
    found = [FiringView(*row) for row in rows[:limit]]
    return found, found[-1].fire_time if len(rows) > limit else None


def _visible(tx: Tx, principal: Principal, plan_id: str) -> PlanView:
    return _view(*find_active(tx, principal, plan_id))


def find_active(tx: Tx, principal: Principal, plan_id: str) -> tuple[PlanRow, PlanDefinition]:
    """A plan with its active definition. Raises NotFound, PermissionDenied."""
    plan = _find(tx, principal.namespace_id, plan_id)
    definition = _definition(tx, plan_id, plan.active_version)
    principal.require_queue(definition.task.queue_id)
    return plan, definition
