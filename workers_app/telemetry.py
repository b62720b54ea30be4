"""Every logged or measured event of workers_app. Other modules emit them and compose no prose or metric names."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog
from prometheus_client import Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from workers_app.pools import PoolFigures

_log = structlog.get_logger("orbit.workers")

CONNECTIONS = Gauge("orbit_worker_connections", "Open worker connections of this node")
CONNECTIONS_CLOSED = Counter("orbit_worker_connections_closed_total", "Closed by this node, by close code", ["code"])
MESSAGES = Counter("orbit_worker_messages_total", "Messages from workers, by type", ["type"])
OFFERS = Counter("orbit_offers_total", "Offers sent")
OFFERS_UNDELIVERED = Counter("orbit_offers_undelivered_total", "Reservations whose connection was gone or full by then")
REVOKES = Counter("orbit_revokes_total", "Reservations revoked, by reason", ["reason"])
CANCEL_NOTICES = Counter("orbit_cancel_notices_total", "Running attempts asked to stop, by reason", ["reason"])
RUNNING = Gauge("orbit_node_attempts", "Attempts held by connections of this node, by state", ["state"])
CLAIM_REQUESTS = Gauge("orbit_claim_requests", "Claim requests of this node, by standing", ["standing"])
EMPTY_ANSWERS = Gauge("orbit_claim_empty_answers", "Remembered empty answers")
SWEEP_ERRORS = Counter("orbit_maintenance_errors_total", "Maintenance loops that failed, by loop", ["loop"])


def session_opened(*, session_id: str, worker_name: str, resumed: bool, held: int, address: str) -> None:
    _log.info(
        "session opened", session_id=session_id, worker_name=worker_name, resumed=resumed, held=held, address=address
    )


def connection_closed(*, session_id: str | None, code: int, reason: str) -> None:
    """By this node's decision."""
    CONNECTIONS_CLOSED.labels(code=str(code)).inc()
    _log.info("connection closed", session_id=session_id, code=code, reason=reason)


def connection_lost(*, session_id: str | None, reserved: int, running: int) -> None:
    """`reserved` went back at once; `running` go on under their leases."""
    _log.info("connection lost", session_id=session_id, reserved=reserved, running=running)


def message_failed(kind: str, error: BaseException) -> None:
    _log.error("a worker's message could not be answered", message=kind, exc_info=error)


def database_unavailable(what: str, error: BaseException) -> None:
    """Only the class of the error: the driver's words may hold hosts and users."""
    _log.warning("the database did not answer", what=what, error=type(error).__name__)


def claim_failed(error: BaseException) -> None:
    _log.error("a claim failed", exc_info=error)


def background_failed(what: str, error: BaseException) -> None:
    _log.error("work in the background failed", what=what, exc_info=error)


def loop_failing(loop: str, error: BaseException) -> None:
    """Once per outage, not once per try."""
    _log.warning("maintenance fails and is tried again", loop=loop, error=type(error).__name__, detail=str(error))


def loop_recovered(loop: str) -> None:
    _log.info("a maintenance loop works again", loop=loop)


class PoolCollector(Collector):
    """The pools of this process, read at scrape."""

    def __init__(self) -> None:
        self._sources: list[Callable[[], PoolFigures]] = []

    def add(self, source: Callable[[], PoolFigures]) -> None:
        self._sources.append(source)

    def collect(self) -> Iterable[Metric]:
        threads = GaugeMetricFamily("orbit_pool_threads", "Threads of a pool", labels=["pool"])
        running = GaugeMetricFamily("orbit_pool_running", "Units in the database now", labels=["pool"])
        waiting = GaugeMetricFamily("orbit_pool_waiting", "Units that wait for a thread", labels=["pool"])
        saturation = GaugeMetricFamily(
            "orbit_pool_saturation", "0 idle, 1 every thread busy, 2 the queue full too", labels=["pool"]
        )
        for source in self._sources:
            figures = source()
            threads.add_metric([figures.name], figures.threads)
            running.add_metric([figures.name], figures.running)
            waiting.add_metric([figures.name], figures.waiting)
            saturation.add_metric([figures.name], figures.saturation)
        return [threads, running, waiting, saturation]


POOLS = PoolCollector()
REGISTRY.register(POOLS)
