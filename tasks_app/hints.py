"""Hints: what just changed on this node, told after commit. A hint speeds things up; it never authorises anything.

The claim dispatcher clears empty answers by them, long polls look again. A lost hint costs at most a scan cycle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

logger = logging.getLogger(__name__)


class HintKind(Enum):
    WORK_ADDED = "work_added"  # a task became claimable in the queue
    PERMIT_FREED = "permit_freed"  # something of the queue or its application ended or was given back
    TASK_CHANGED = "task_changed"  # the revision of a task grew
    CANCEL_REQUESTED = "cancel_requested"  # a running attempt should stop
    RESERVATION_REVOKED = "reservation_revoked"  # an unstarted reservation is gone; detail: the reason
    CREDENTIAL_CHANGED = "credential_changed"  # revoked, expired or narrowed


@dataclass(frozen=True, slots=True)
class Hint:
    kind: HintKind
    namespace_id: str = ""
    queue_id: str = ""
    task_id: str = ""
    session_id: str = ""
    attempt_id: str = ""
    handler_ref: int = 0
    priority: int | None = None  # WORK_ADDED: of the task, where it is known
    detail: str = ""


Listener = Callable[[Hint], None]
_listeners: list[Listener] = []


def subscribe(listener: Listener) -> Callable[[], None]:
    """Calls `listener` with every later hint, in the publishing thread: it must only pass it on. Returns the undo."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def publish(*hints: Hint) -> None:
    for listener in tuple(_listeners):
        for hint in hints:
            try:
                listener(hint)
            except Exception:
                # The commit has happened: a listener's fault must not look like the verb's.
                logger.exception("a listener failed on %s", hint)
