"""The transactional outbox: business and submission are committed together, or neither is.

    with transaction.atomic():
        order.save()
        outbox.submit(f"order-{order.id}/invoice", SubmitTask(queue="reports", handler="invoice.render", payload=…))

`manage.py orbit_outbox_relay` sends what was committed. The key makes it one task, however often the relay dies.
"""

from __future__ import annotations

import hashlib

from django.db import router, transaction
from django.utils import timezone

from orbit_sdk.contrib.django.models import OutboxEntry, OutboxState
from orbit_sdk.contrib.django.requests import encode_request
from orbit_sdk.errors import OrbitError
from orbit_sdk.models.tasks import SubmitTask
from orbit_sdk.wire import check_key


class OutboxConflict(OrbitError):
    """The key stands in the outbox with other content."""


def submit(key: str, task: SubmitTask, *, using: str | None = None) -> OutboxEntry:
    """Write a submission into the business's own transaction. The same key and content again is the same entry.

    Must be called inside `atomic()` on the database `using` (default: where the outbox is written). Relative times
    count from acceptance by Orbit, not from here. Raises TransactionManagementError outside a transaction,
    InvalidRequest for what Orbit could not take, OutboxConflict for a key with other content.
    """
    check_key(key)
    alias = using or router.db_for_write(OutboxEntry)
    if not transaction.get_connection(alias).in_atomic_block:
        raise transaction.TransactionManagementError(
            "outbox.submit() belongs into the transaction of the business that wants the task: use atomic()"
        )
    request = encode_request(task)
    digest = hashlib.sha256(key.encode()).hexdigest()
    known = OutboxEntry.objects.using(alias).filter(key_digest=digest).first()
    if known is not None:
        if known.request != request:
            raise OutboxConflict(f"the key {key!r} stands in the outbox with other content")
        return known
    now = timezone.now()
    # Two transactions with one new key at the same time: the unique digest lets one of them through.
    return OutboxEntry.objects.using(alias).create(
        key=key, key_digest=digest, request=request, next_attempt_at=now, created_at=now, updated_at=now
    )


def retry(entry: OutboxEntry) -> bool:
    """Send a REFUSED entry again, with its key and content as they are; whether it was still refused.

    For refusals whose cause was mended elsewhere (a queue made, a right given).
    """
    now = timezone.now()
    changed = OutboxEntry.objects.filter(pk=entry.pk, state=OutboxState.REFUSED).update(
        state=OutboxState.PENDING, attempts=0, next_attempt_at=now, updated_at=now
    )
    return changed == 1
