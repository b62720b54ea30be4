"""The start page: what needs a person now. Apps above this one register what they know of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.core.cache import cache
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from tasks_app.admin.verbs import Words
from tasks_app.domain import attention
from tasks_app.domain.attention import Need
from tasks_app.instants import to_datetime

CACHE_SECONDS: Final = 2
_BACKLOG: Final = "admin:tasks_app_queue_backlog"


@dataclass(frozen=True)
class Tile:
    """One kind of thing that may need a person; `right` is the permission to see its list."""

    name: str
    title: Words
    look: Callable[[], Need]
    url_name: str
    right: str
    query: str = ""


_tiles: list[Tile] = [
    Tile(
        "unknown",
        _("Tasks with an unknown outcome"),
        lambda: attention.tasks_needing("UNKNOWN"),
        "admin:tasks_app_task_changelist",
        "tasks_app.view_task",
        "?attention=UNKNOWN&o=1",
    ),
    Tile(
        "dead",
        _("Dead letters"),
        lambda: attention.tasks_needing("DEAD"),
        "admin:tasks_app_dead_letters",
        "tasks_app.view_task",
    ),
    Tile(
        "starving",
        _("Starving priorities"),
        lambda: attention.starving(attention.backlog()),
        _BACKLOG,
        "tasks_app.view_queue",
    ),
    Tile(
        "full",
        _("Queues at their limit"),
        attention.full_queues,
        "admin:tasks_app_queue_changelist",
        "tasks_app.view_queue",
    ),
    Tile(
        "paused",
        _("Paused queues"),
        attention.paused_queues,
        "admin:tasks_app_queue_changelist",
        "tasks_app.view_queue",
        "?paused__exact=1",
    ),
    Tile(
        "nodes",
        _("Silent nodes"),
        attention.silent_nodes,
        "admin:tasks_app_node_changelist",
        "tasks_app.view_node",
    ),
]


def register(tile: Tile) -> None:
    """Adds a tile of an app above this one. Repeatable."""
    if all(one.name != tile.name for one in _tiles):
        _tiles.append(tile)


def needs(request: HttpRequest) -> list[dict[str, Any]]:
    """The tiles that the user may see, with counts that are at most two seconds old."""
    user: Any = request.user
    found = []
    for tile in _tiles:
        if not user.has_perm(tile.right):
            continue
        need = _looked(tile)
        found.append(
            {
                "name": tile.name,
                "title": tile.title,
                "count": f"{attention.COUNTED_MAX}+" if need.has_more else str(need.count),
                "is_calm": need.count == 0,
                "oldest_at": None if need.oldest_at is None or not need.count else to_datetime(need.oldest_at),
                "address": reverse(tile.url_name) + tile.query,
            }
        )
    return found


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Named by UNFOLD["DASHBOARD_CALLBACK"]."""
    tiles = needs(request)
    context["needs"] = tiles
    context["is_calm"] = all(tile["is_calm"] for tile in tiles)
    return context


def _badge(name: str) -> Callable[[HttpRequest], str | None]:
    def count(request: HttpRequest) -> str | None:
        tile = next(one for one in _tiles if one.name == name)
        need = _looked(tile)
        if need.count == 0:
            return None
        return f"{attention.COUNTED_MAX}+" if need.has_more else str(need.count)

    return count


unknown_badge = _badge("unknown")
dead_badge = _badge("dead")


def _looked(tile: Tile) -> Need:
    need = cache.get(f"orbit.needs.{tile.name}")
    if need is None:
        need = tile.look()
        cache.set(f"orbit.needs.{tile.name}", need, CACHE_SECONDS)
    return need
