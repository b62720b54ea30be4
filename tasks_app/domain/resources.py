"""Resource keys: at most `resource_limit` tasks of a namespace hold one key at once (design 3.5).

READY tasks of a key stand in lane KEYED (claims see them) or HELD (claims do not). For every queue and handler at most
as many waiters of a key are KEYED as it has free permits, and they are the first in order: held work costs claims
nothing, and a freed permit goes to the task that the order puts first.

The row of the key is the lock: acceptance, claim, finish and every other giver-back of a permit changes lanes under
it, so that no waiter that commits just after a releaser looked can be forgotten. Other tasks' rows are only ever taken
with SKIP LOCKED here, which keeps the lock order free of cycles; what had to be skipped is looked at again by
maintenance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tasks_app import dialect
from tasks_app.states import Lane, TaskState
from tasks_app.transactions import Tx

Group = tuple[str, int]  # (queue_id, handler_ref)
_ORDER = "tier, dispatch_at, available_at, task_id"
_READY = TaskState.READY.value


class NoPermit(Exception):
    """The key of a task has no free permit: an answer to a claim, not an error."""

    def __init__(self, resource_ref: int) -> None:
        super().__init__(resource_ref)
        self.resource_ref = resource_ref


class Changes:
    """What a unit does to keys: permits taken and given back, groups whose waiters changed."""

    def __init__(self) -> None:
        self.held: dict[int, int] = defaultdict(int)
        self.groups: dict[int, set[Group]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self.held)

    def note(self, resource_ref: int, *, held: int, group: Group | None) -> None:
        self.held[resource_ref] += held
        if group is not None:
            self.groups[resource_ref].add(group)


def settle(tx: Tx, changes: Changes) -> None:
    """Applies the changes key by key, in the order of their ids. Raises NoPermit when one has too few permits left."""
    for resource_ref in sorted(changes.held):
        settle_one(tx, resource_ref, held=changes.held[resource_ref], groups=changes.groups[resource_ref])


def settle_one(tx: Tx, resource_ref: int, *, held: int, groups: Iterable[Group]) -> None:
    now_held, limit = _lock_key(tx, resource_ref)
    if held > 0 and now_held + held > limit:
        raise NoPermit(resource_ref)
    if held:
        tx.execute("UPDATE orbit_resource_key SET held = held + %s WHERE resource_ref = %s", [held, resource_ref])
    free = max(0, limit - now_held - held)
    if held < 0:
        # A freed permit concerns every group that waits for the key.
        complete = _open_best(tx, resource_ref, set(_waiting_groups(tx, resource_ref)) | set(groups), free)
    else:
        if held > 0:
            _close_beyond(tx, resource_ref, free)
        complete = _open_best(tx, resource_ref, groups, free)
    if not complete:
        tx.execute(
            "UPDATE orbit_resource_key SET recheck_at = %s WHERE resource_ref = %s AND recheck_at IS NULL",
            [tx.now_us, resource_ref],
        )


def recheck(tx: Tx, resource_ref: int) -> None:
    """Looks again at all waiters of a key (maintenance; also after the limit of a namespace was changed)."""
    now_held, limit = _lock_key(tx, resource_ref)
    free = max(0, limit - now_held)
    _close_beyond(tx, resource_ref, free)
    if _open_best(tx, resource_ref, set(_waiting_groups(tx, resource_ref)), free):
        tx.execute("UPDATE orbit_resource_key SET recheck_at = NULL WHERE resource_ref = %s", [resource_ref])


def free_permits(tx: Tx, resource_ref: int, *, skip_locked: bool = False) -> int | None:
    """Locks the key and tells how many permits are free: for a claim, before it takes one.

    `skip_locked` is for a key out of the documented order: None when somebody else is at it.
    """
    row = _key_row(tx, resource_ref, skip_locked=skip_locked)
    return None if row is None else max(0, row[1] - row[0])


def hold_back(tx: Tx, task_ids: Sequence[str]) -> None:
    """Puts locked KEYED tasks whose key turned out to be busy out of the claims' sight. The key must be locked."""
    _set_lane(tx, task_ids, Lane.KEYED, Lane.HELD)


def _lock_key(tx: Tx, resource_ref: int) -> tuple[int, int]:
    row = _key_row(tx, resource_ref)
    assert row is not None, "a resource key that tasks refer to is never deleted"
    return row


def _key_row(tx: Tx, resource_ref: int, *, skip_locked: bool = False) -> tuple[int, int] | None:
    """(permits held, limit), locked."""
    row = tx.row(
        "SELECT held, (SELECT resource_limit FROM orbit_namespace n WHERE n.namespace_id = k.namespace_id)"
        " FROM orbit_resource_key k WHERE resource_ref = %s"
        f"{dialect.for_update(tx.connection, skip_locked=skip_locked)}",
        [resource_ref],
    )
    return None if row is None else (int(row[0]), int(row[1]))


def _waiting_groups(tx: Tx, resource_ref: int) -> Iterable[Group]:
    """The (queue, handler) pairs with HELD waiters: one seek a group, however many tasks wait in each."""
    index = dialect.force_index(tx.connection, "task_waiting_for_resource")
    sql = (
        f"SELECT queue_id, handler_ref FROM orbit_task{index} WHERE resource_ref = %s AND state = %s AND lane = %s"
        " AND {after} ORDER BY queue_id, handler_ref LIMIT 1"
    )
    base = [resource_ref, _READY, Lane.HELD.value]
    queue_id, handler_ref = "", -1
    while True:
        # Two seeks instead of a row comparison, which not every optimizer turns into a range.
        row = tx.row(sql.format(after="queue_id = %s AND handler_ref > %s"), [*base, queue_id, handler_ref])
        row = row or tx.row(sql.format(after="queue_id > %s"), [*base, queue_id])
        if row is None:
            return
        queue_id, handler_ref = row
        yield queue_id, handler_ref


def _open_best(tx: Tx, resource_ref: int, groups: Iterable[Group], free: int) -> bool:
    """Makes the first `free` waiters of each group KEYED and the others HELD; False if a locked one was passed over."""
    complete = True
    for queue_id, handler_ref in sorted(groups):
        index = dialect.force_index(tx.connection, "task_waiting_for_resource")
        arm = (
            f"SELECT task_id, lane, tier, dispatch_at, available_at FROM orbit_task{index}"
            " WHERE resource_ref = %s AND state = %s AND lane = %s AND queue_id = %s AND handler_ref = %s"
            f" ORDER BY {_ORDER} LIMIT %s"
        )
        params: list[object] = []
        for lane, limit in ((Lane.KEYED, free + 8), (Lane.HELD, free)):
            params += [resource_ref, _READY, lane.value, queue_id, handler_ref, limit]
        rows = tx.rows(f"{dialect.union_all(tx.connection, [arm, arm])} ORDER BY {_ORDER}", params)
        first = {task_id for task_id, *_ in rows[:free]}
        close = [task_id for task_id, lane, *_ in rows if lane == Lane.KEYED and task_id not in first]
        to_open = [task_id for task_id, lane, *_ in rows if lane == Lane.HELD and task_id in first]
        if close:
            _set_lane(tx, _skip_locked(tx, close, Lane.KEYED), Lane.KEYED, Lane.HELD)
        if to_open:
            unlocked = _skip_locked(tx, to_open, Lane.HELD)
            _set_lane(tx, unlocked, Lane.HELD, Lane.KEYED)
            complete = complete and len(unlocked) == len(to_open)
    return complete


def _close_beyond(tx: Tx, resource_ref: int, free: int) -> None:
    """A permit was taken: in each group only the first `free` waiters may stay KEYED."""
    index = dialect.force_index(tx.connection, "task_waiting_for_resource")
    rows = tx.rows(
        f"SELECT task_id, queue_id, handler_ref FROM orbit_task{index}"
        f" WHERE resource_ref = %s AND state = %s AND lane = %s ORDER BY queue_id, handler_ref, {_ORDER}",
        [resource_ref, _READY, Lane.KEYED.value],
    )
    seen: dict[Group, int] = defaultdict(int)
    close: list[str] = []
    for task_id, queue_id, handler_ref in rows:
        seen[queue_id, handler_ref] += 1
        if seen[queue_id, handler_ref] > free:
            close.append(task_id)
    # Whoever holds the lock of a skipped one finds out at the key's row that there is no permit for it.
    _set_lane(tx, _skip_locked(tx, close, Lane.KEYED), Lane.KEYED, Lane.HELD)


def _skip_locked(tx: Tx, task_ids: Sequence[str], lane: Lane) -> list[str]:
    if not task_ids:
        return []
    rows = tx.rows(
        f"SELECT task_id FROM orbit_task WHERE task_id IN ({dialect.placeholders(task_ids)}) AND state = %s"
        f" AND lane = %s ORDER BY task_id{dialect.for_update(tx.connection, skip_locked=True)}",
        [*sorted(task_ids), _READY, lane.value],
    )
    return [row[0] for row in rows]


def _set_lane(tx: Tx, task_ids: Sequence[str], before: Lane, after: Lane) -> None:
    if task_ids:
        tx.execute(
            f"UPDATE orbit_task SET lane = %s WHERE task_id IN ({dialect.placeholders(task_ids)})"
            " AND state = %s AND lane = %s",
            [after.value, *task_ids, _READY, before.value],
        )
