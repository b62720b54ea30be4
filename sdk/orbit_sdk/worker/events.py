"""Everything that a worker tells: the events, how loud each is, and which are printed as state changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("orbit_sdk.worker")
Print = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Event:
    level: int
    words: str
    printed: bool = False


EVENTS = {
    "started": _Event(
        logging.INFO,
        "worker {name}: queues {queues}; handlers {handlers}; {concurrency} at once, {prefetch} held; node {node}",
        printed=True,
    ),
    "connected": _Event(logging.INFO, "connected to node {node}, session {session}, {held} attempts held"),
    "reconnected": _Event(logging.INFO, "connected again to node {node}, {running} running", printed=True),
    "unreachable": _Event(logging.WARNING, "cannot connect to {url}: {reason}; trying again", printed=True),
    "disconnected": _Event(logging.WARNING, "connection lost: {reason}; {running} running", printed=True),
    "draining": _Event(logging.INFO, "draining: {running} running, at most {drain_timeout} s", printed=True),
    "node_drains": _Event(logging.INFO, "node {node} goes down: {running} running", printed=True),
    "paused": _Event(logging.INFO, "paused: {running} running", printed=True),
    "resumed": _Event(logging.INFO, "resumed", printed=True),
    "refused": _Event(logging.ERROR, "refused: {reason}", printed=True),
    "stopped": _Event(logging.INFO, "stopped: {left} attempts left to their leases", printed=True),
    "credential_renewed": _Event(logging.INFO, "the token was rotated: reading {path} again"),
    "lease_lost": _Event(logging.WARNING, "attempt {attempt_id} of task {task_id} lost its lease: asked to stop"),
    "result_discarded": _Event(
        logging.WARNING, "the result of attempt {attempt_id} of task {task_id} is thrown away: its lease is lost"
    ),
    "left_to_its_lease": _Event(logging.WARNING, "attempt {attempt_id} of task {task_id} is left to its lease"),
    "report_refused": _Event(logging.ERROR, "the report of attempt {attempt_id} was refused: {code}: {message}"),
    "progress_refused": _Event(logging.WARNING, "a progress of attempt {attempt_id} was not taken: {message}"),
    "not_started": _Event(logging.DEBUG, "attempt {attempt_id} was not started: {code}"),
    "revoked": _Event(logging.DEBUG, "reservation {attempt_id} was taken back: {reason}"),
    "error": _Event(logging.WARNING, "the node says {code}: {message}"),
    "unknown_message": _Event(logging.DEBUG, "a message of an unknown kind: {kind}"),
}


class Announcer:
    """Logs every event; prints state changes, one line each, as text or as JSON."""

    def __init__(self, *, print_line: Print | None = None, as_json: bool = False) -> None:
        self._print = print_line
        self._as_json = as_json

    def tell(self, event: str, **fields: Any) -> None:
        known = EVENTS[event]
        printed = known.printed and self._print is not None
        if not printed and not logger.isEnabledFor(known.level):
            return
        words = known.words.format(**{name: _shown(value) for name, value in fields.items()})
        if printed and self._print is not None:
            self._print(json.dumps({"event": event, **fields}, default=str) if self._as_json else f"orbit: {words}")
        else:
            logger.log(known.level, words, extra={"orbit_event": event, "orbit_fields": fields})


def _shown(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
