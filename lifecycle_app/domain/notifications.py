"""Notifications: written in the transaction that they tell of, sent after it by a worker of their own (design 4.4).

A crash between commit and sending loses none; a slow receiver delays nobody; the receiver sees one id however often it
is sent. Told once per generation and status, so that a repeated report never tells anything twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.conf import settings
from django.db.models import F

from lifecycle_app import wakeups
from lifecycle_app.http_call import Answer, call_once
from lifecycle_app.limits import NOTIFY_BACKOFF_MS_MAX, NOTIFY_BACKOFF_MS_MIN, NOTIFY_BATCH, NOTIFY_TIMEOUT_MS
from lifecycle_app.models import Notification, NotificationStatus, OperationIntent
from tasks_app import faults, ids, instants
from tasks_app.instants import US_PER_MS, to_datetime
from tasks_app.transactions import Tx, unit

# While one process sends a notification, the others leave it alone for at least this long.
_SENDING_MS = 4 * NOTIFY_TIMEOUT_MS
_ANSWER_BYTES_MAX = 4096


def tell(tx: Tx, intent: OperationIntent, status: NotificationStatus) -> None:
    """Puts a notification into the outbox, unless this generation has told it already."""
    if Notification.objects.filter(operation_id=intent.operation_id, status=status.value).exists():
        return  # the intent is locked, so nobody else tells it meanwhile
    now = to_datetime(tx.now_us)
    Notification.objects.create(
        notification_id=ids.new_id(tx.now_us),
        namespace_id=intent.namespace_id,
        gid=intent.gid,
        operation_id=intent.operation_id,
        status=status.value,
        next_attempt_at=now if settings.ORBIT.notify_url is not None else None,
        created_at=now,
    )
    tx.after_commit(wakeups.NOTIFY.set)


@dataclass(frozen=True)
class Due:
    notification_id: str
    body: bytes
    attempts: int  # this one included


def take_due() -> list[Due]:
    """Notifications whose time has come; taken means that nobody else sends them for a while."""

    def run(tx: Tx) -> list[Due]:
        rows = Notification.objects.filter(next_attempt_at__lte=tx.now_us).order_by("next_attempt_at")
        taken = list(rows.select_for_update(skip_locked=True)[:NOTIFY_BATCH])
        Notification.objects.filter(notification_id__in=[row.notification_id for row in taken]).update(
            attempts=F("attempts") + 1, next_attempt_at=tx.now_us + _SENDING_MS * US_PER_MS
        )
        return [Due(row.notification_id, _body(row), row.attempts + 1) for row in taken]

    return unit(run)


def send(due: Due, url: str) -> bool:
    """Sends one, and writes down how it went. True if the receiver has it."""
    answer = call_once("POST", url, timeout_ms=NOTIFY_TIMEOUT_MS, body_bytes_max=_ANSWER_BYTES_MAX, content=due.body)
    faults.point("lifecycle.notify.sent")
    received = _is_received(answer)

    def run(tx: Tx) -> None:
        row = Notification.objects.filter(notification_id=due.notification_id, delivered_at__isnull=True)
        if received:
            row.update(delivered_at=tx.now_us, next_attempt_at=None)
        else:
            row.update(next_attempt_at=tx.now_us + backoff_ms(due.attempts) * US_PER_MS)

    unit(run)
    return received


def backoff_ms(attempts: int) -> int:
    """How long to wait after the `attempts`-th failure: doubling, up to five minutes."""
    return min(NOTIFY_BACKOFF_MS_MAX, NOTIFY_BACKOFF_MS_MIN * 2 ** min(attempts - 1, 20))


def _is_received(answer: Answer) -> bool:
    """2xx; a body that was cut or is too long to care about does not matter."""
    return answer.status is not None and 200 <= answer.status <= 299


def _body(row: Notification) -> bytes:
    return json.dumps(
        {
            "id": row.notification_id,
            "namespace_id": row.namespace_id,
            "gid": row.gid,
            "operation_id": row.operation_id,
            "status": row.status,
            "created_at": instants.format_rfc3339(instants.from_datetime(row.created_at)),
        }
    ).encode()
