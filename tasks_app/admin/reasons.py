"""Why a task waits, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from tasks_app.domain.waiting import Reason, Waiting
from tasks_app.instants import to_datetime


def sentence(waiting: Waiting) -> str:
    """For people: the gate that holds and when or how it opens."""
    detail = {name: _shown(name, value) for name, value in waiting.detail.items()}
    return _texts(waiting.detail)[waiting.reason] % detail


def _texts(detail: Mapping[str, Any]) -> dict[Reason, str]:
    behind = _("%(ahead)s tasks of this queue are ahead of it.")
    if detail.get("more"):
        behind = _("More than %(ahead)s tasks of this queue are ahead of it.")
    paused = _("Its queue is paused: %(pause_reason)s") if detail.get("pause_reason") else _("Its queue is paused.")
    return {
        Reason.NOT_DUE: _("It is not due before %(available_at)s."),
        Reason.YIELD_DELAY: _("It gave way to a more urgent task and is seen again at %(visible_at)s."),
        Reason.QUEUE_PAUSED: paused,
        Reason.NO_COMPATIBLE_WORKER: _("No connected worker of this queue knows the handler %(handler)s."),
        Reason.APPLICATION_LIMIT: _("Its application runs %(running)s tasks of %(max_running)s allowed."),
        Reason.QUEUE_LIMIT: _("Its queue runs %(running)s tasks of %(max_running)s allowed."),
        Reason.RESOURCE_KEY: _("The resource key %(resource_key)s is held by other tasks."),
        Reason.START_RATE: _("The start rate is used up; the next start is possible at %(next_at)s."),
        Reason.NO_FREE_WORKER: _("All %(capacity)s slots of its %(workers)s workers are taken."),
        Reason.BEHIND_OTHERS: behind,
    }


def _shown(name: str, value: Any) -> Any:
    if name.endswith("_at") and isinstance(value, int):
        return f"{to_datetime(value):%Y-%m-%d %H:%M:%S} UTC"
    return value
