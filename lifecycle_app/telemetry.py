"""Every logged or measured event of the lifecycle. Labels come from closed sets; nothing that a node sent is logged."""

from __future__ import annotations

import logging

from prometheus_client import Counter, Gauge

from lifecycle_app.node_session import CloseReason
from lifecycle_app.states import AckResult, CommandAction, StorageProtocol

logger = logging.getLogger("orbit.lifecycle")

OPERATIONS = Counter("orbit_operations_total", "Creates that reached the upstream, by what is known", ["result"])
REPORTS = Counter("orbit_node_reports_total", "Reports of storage nodes, by what was answered", ["result"])
COMMANDS = Counter("orbit_node_commands_total", "Commands sent to storage nodes", ["action"])
NODES_CONNECTED = Gauge("orbit_storage_nodes_connected", "Storage nodes connected to this process")
NODE_CLOSES = Counter("orbit_node_closes_total", "Connections of storage nodes that ended, by reason", ["reason"])
RECOVERED = Counter("orbit_intents_recovered_total", "Intents that a gone process left behind", ["result"])
NOTIFICATIONS = Counter("orbit_notifications_total", "Notifications sent, by outcome", ["result"])


def operation_ended(result: str) -> None:
    OPERATIONS.labels(result=result).inc()


def report_applied(result: AckResult | None) -> None:
    REPORTS.labels(result="NOT_COMMITTED" if result is None else result.value).inc()


def command_sent(action: CommandAction) -> None:
    COMMANDS.labels(action=action.value).inc()


def node_identified(name: str, peer: str) -> None:
    NODES_CONNECTED.inc()
    logger.info("storage node connected", extra={"storage_node": name, "peer": peer})


def node_negotiated(name: str, protocol: StorageProtocol) -> None:
    logger.info("storage node negotiated", extra={"storage_node": name, "protocol": protocol.value})


def node_closed(name: str | None, peer: str, reason: CloseReason | None, detail: str) -> None:
    """The one line of a connection's end; None: the node itself left."""
    if name is not None:
        NODES_CONNECTED.dec()
    word = "LEFT" if reason is None else reason.name
    NODE_CLOSES.labels(reason=word).inc()
    level = logging.INFO if reason in (None, CloseReason.REPLACED, CloseReason.RESTART) else logging.WARNING
    facts = {"storage_node": name, "peer": peer, "reason": word, "detail": detail}
    logger.log(level, "storage node connection ended", extra=facts)


def legacy_message_passed_over(name: str | None, code: int) -> None:
    logger.info("reserved legacy message passed over", extra={"storage_node": name, "frame_type": code})


def intents_recovered(*, unknown: int, released: int) -> None:
    if unknown or released:
        RECOVERED.labels(result="UNKNOWN").inc(unknown)
        RECOVERED.labels(result="RELEASED").inc(released)
        logger.warning("intents recovered", extra={"unknown": unknown, "released": released})


def recovery_failed(error: str) -> None:
    logger.error("recovery failed: nothing is dispatched until it succeeds", extra={"error": error})


def loop_failed(name: str, error: Exception) -> None:
    """A background loop goes on after this; the database may be away."""
    logger.error("a lifecycle loop met an error", extra={"loop": name}, exc_info=error)


def notification_sent(*, received: bool) -> None:
    NOTIFICATIONS.labels(result="RECEIVED" if received else "FAILED").inc()


def fenced(node_id: str) -> None:
    logger.error("another process has taken this node's name", extra={"node_id": node_id})
