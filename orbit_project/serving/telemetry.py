"""Every logged or measured event of the serving layer. Other modules emit them and never compose log prose.

No query strings, headers, tokens or bodies: an address, a path and numbers.
"""

from __future__ import annotations

import structlog
from prometheus_client import Counter, Histogram

from orbit_project.serving.exchanges import Access
from orbit_project.serving.refusals import Refusal

_log = structlog.get_logger("orbit.serving")
_access = structlog.get_logger("orbit.access")

HTTP_SECONDS = Histogram(
    "orbit_http_request_seconds",
    "From the first byte of a request to the last byte of its answer handed to the system",
    ["method", "status_class"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
REFUSED = Counter("orbit_http_refused_total", "Requests and handshakes answered by the node itself", ["code"])
WEBSOCKETS_CUT = Counter("orbit_websockets_cut_total", "WebSocket connections cut for not reading")

KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


def access(entry: Access) -> None:
    """One finished exchange."""
    method = entry.method if entry.method in KNOWN_METHODS else "other"
    HTTP_SECONDS.labels(method=method, status_class=f"{entry.status // 100}xx").observe(entry.seconds)
    _access.info(
        "request",
        method=entry.method,
        path=entry.path,
        status=entry.status,
        bytes=entry.response_bytes,
        ms=round(entry.seconds * 1000, 1),
        address=entry.address,
        **({"client_gone": True} if entry.client_gone else {}),
    )


def refused(refusal: Refusal) -> None:
    """A request or a handshake was answered before it was complete."""
    REFUSED.labels(code=refusal.error.code).inc()
    _log.info("refused at the door", status=refusal.status, code=refusal.error.code, request_id=refusal.request_id)


def front_failed(error: BaseException) -> None:
    _log.error("a request could not be answered", exc_info=error)


def websocket_cut(address: str, reason: str) -> None:
    WEBSOCKETS_CUT.inc()
    _log.warning("websocket cut", address=address, reason=reason)


def websocket_failed(error: BaseException) -> None:
    _log.error("a websocket application failed", exc_info=error)


def twisted_failed(traceback: str) -> None:
    _log.error("a failure inside the server", traceback=traceback)


def node_ready(*, node_id: str, address: str, roles: str) -> None:
    _log.info("node ready", node_id=node_id, address=address, roles=roles)


def drain_begins(*, seconds: float) -> None:
    _log.info("drain begins", timeout_seconds=seconds)


def drain_ended(*, attempts_running: int, requests_open: int) -> None:
    """`attempts_running` go on under their leases; `requests_open` were cut."""
    _log.info("drain ended", attempts_running=attempts_running, requests_open=requests_open)


def role_failed(role: str, error: BaseException) -> None:
    _log.error("a part of the node failed", role=role, exc_info=error)
