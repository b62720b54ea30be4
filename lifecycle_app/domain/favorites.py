"""Favourites: a requester likes a gid, as long as it is there."""

from __future__ import annotations

from dataclasses import dataclass

from lifecycle_app.domain import transitions
from lifecycle_app.models import Favorite, LifecycleTask
from tasks_app import instants
from tasks_app.errors import NotFound
from tasks_app.instants import to_datetime
from tasks_app.transactions import Tx, unit


@dataclass(frozen=True)
class Liked:
    created_at: int  # microseconds since the epoch
    made_now: bool


def add(namespace_id: str, gid: int, requester: str) -> Liked:
    """Repeatable. Raises NotFound for a gid that is not there, or not any more."""

    def run(tx: Tx) -> Liked:
        # Under the intent's lock, so that none comes in behind the delete that clears them.
        transitions.lock_intent(namespace_id, gid)
        if not LifecycleTask.objects.filter(namespace_id=namespace_id, gid=gid).exists():
            raise NotFound("no such operation")
        known = Favorite.objects.filter(namespace_id=namespace_id, gid=gid, requester=requester).first()
        if known is not None:
            return Liked(instants.from_datetime(known.created_at), made_now=False)
        Favorite.objects.create(
            namespace_id=namespace_id, gid=gid, requester=requester, created_at=to_datetime(tx.now_us)
        )
        return Liked(tx.now_us, made_now=True)

    return unit(run)


def remove(namespace_id: str, gid: int, requester: str) -> bool:
    """Repeatable; False if there was none."""

    def run(tx: Tx) -> bool:
        transitions.lock_intent(namespace_id, gid)
        removed, _ = Favorite.objects.filter(namespace_id=namespace_id, gid=gid, requester=requester).delete()
        return removed > 0

    return unit(run)
