"""What happens to a complete HTTP request: the node answers itself, or Django in a thread, perhaps after a wait."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from orbit_project.serving import refusals, telemetry
from orbit_project.serving.exchanges import Answer, Exchange
from orbit_project.serving.long_polls import ENVIRON_ENABLED, ENVIRON_WAIT, WAIT_HEADER, LongPolls, Wait, parse_wait
from orbit_project.serving.pooled_wsgi import PooledWsgi
from workers_app.pools import PoolSaturated

LIVE_PATHS = (b"/healthz", b"/livez")
READY_PATH = b"/readyz"
METRICS_PATH = b"/metrics"
RERUN_AGAIN_SECONDS = 0.05
API_PREFIX, ADMIN_PREFIXES = b"/v1/", (b"/admin", b"/static/")


class HttpFront:
    """The front of one node. `roles` decides which paths it serves; `is_draining()` says whether it goes down."""

    def __init__(
        self,
        *,
        wsgi: PooledWsgi,
        long_polls: LongPolls,
        roles: Collection[str],
        is_draining: Callable[[], bool],
        reruns_max: int,
    ) -> None:
        self._wsgi = wsgi
        self._long_polls = long_polls
        self._roles = frozenset(roles)
        self._is_draining = is_draining
        self._reruns_max = reruns_max
        self._reruns_waiting: deque[Callable[[], bool]] = deque()
        self._reruns_running = 0

    def __call__(self, exchange: Exchange) -> None:
        path = exchange.head.path
        if path in LIVE_PATHS and exchange.head.method in ("GET", "HEAD"):
            # Never through the pool: a node whose database hangs is slow, not dead.
            exchange.respond(_json_answer(200, {"status": "ok"}))
        elif self._is_draining() and path != METRICS_PATH:
            if path == READY_PATH:
                exchange.respond(_json_answer(503, {"status": "unavailable", "reasons": ["draining"]}))
            else:
                exchange.respond_refusal(refusals.draining())
        elif not self._serves(path):
            exchange.respond_refusal(refusals.not_found())
        else:
            self._run(exchange, time.monotonic())

    def _serves(self, path: bytes) -> bool:
        if path.startswith(API_PREFIX):
            return "api" in self._roles
        if path.startswith(ADMIN_PREFIXES):
            return "admin" in self._roles or ("api" in self._roles and path.startswith(b"/static/"))
        return True

    def _run(self, exchange: Exchange, arrived_at: float) -> None:
        """The first run of a request."""
        try:
            self._wsgi.start(
                exchange,
                extra={ENVIRON_ENABLED: True},
                then=lambda outcome: self._answered(exchange, outcome, arrived_at, is_rerun=False),
            )
        except PoolSaturated:
            exchange.respond_refusal(refusals.saturated())

    def _answered(
        self, exchange: Exchange, outcome: Answer | BaseException, arrived_at: float, *, is_rerun: bool
    ) -> None:
        if isinstance(outcome, BaseException):
            telemetry.front_failed(outcome)
            exchange.respond_refusal(refusals.internal())
            return
        text = outcome.header(WAIT_HEADER)
        if text is None:
            exchange.respond(outcome)
            return
        try:
            wait = parse_wait(text)
        except (ValueError, KeyError, TypeError) as error:
            telemetry.front_failed(error)
            exchange.respond_refusal(refusals.internal())
            return

        def wake(final: bool) -> None:
            self._reruns_waiting.append(partial(self._rerun, exchange, arrived_at, wait, final))
            self._pump_reruns()

        take_back = self._long_polls.park(wait, arrived_at=arrived_at, is_rerun=is_rerun, wake=wake)
        if take_back is None:
            exchange.respond(outcome.without_header(WAIT_HEADER))
        else:
            exchange.on_gone(take_back)

    # A change can wake a thousand waiters at once. They take their turns here, a few at a time, so that they neither
    # fill the pool's queue nor are refused by it.

    def _pump_reruns(self) -> None:
        while self._reruns_waiting and self._reruns_running < self._reruns_max:
            if not self._reruns_waiting.popleft()():
                return

    def _rerun(self, exchange: Exchange, arrived_at: float, wait: Wait, final: bool) -> bool:
        """Run a request again; False if the pool had no room, and it waits for its turn once more."""
        if exchange.gone:
            return True
        is_over = False

        def then(outcome: Answer | BaseException) -> None:
            over()
            self._answered(exchange, outcome, arrived_at, is_rerun=True)

        def over() -> None:
            nonlocal is_over
            if not is_over:  # told twice when the client leaves after the run began
                is_over = True
                self._reruns_running -= 1
                self._pump_reruns()

        try:
            self._wsgi.start(
                exchange, extra={ENVIRON_ENABLED: True, ENVIRON_WAIT: {**wait.document, "final": final}}, then=then
            )
        except PoolSaturated:
            self._reruns_waiting.append(partial(self._rerun, exchange, arrived_at, wait, final))
            asyncio.get_running_loop().call_later(RERUN_AGAIN_SECONDS, self._pump_reruns)
            return False
        self._reruns_running += 1
        exchange.on_gone(over)
        return True


def _json_answer(status: int, document: Mapping[str, Any]) -> Answer:
    reason = refusals.HTTPStatus(status).phrase
    headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
    return Answer(status, reason, headers, json.dumps(document).encode())
