"""The relay: sends what the outbox holds, 32 at a time, and believes nothing but a verified answer.

An entry leaves PENDING only by an answer that is certain. Whatever else happens (no answer, an unknown commit, a crash
between answer and update) it stays, and goes again with the same key and the same content: Orbit gives the original
receipt. Several relays may run; they may send the same entry, and make one task of it. No transaction is open while
the network is used.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from orbit_sdk.backoff import jittered
from orbit_sdk.client import OrbitClient
from orbit_sdk.contrib.django.models import OutboxEntry, OutboxState
from orbit_sdk.contrib.django.requests import decode_request
from orbit_sdk.errors import ApiError, BatchItemError, InvalidArgument, InvalidRequest, OrbitError, PayloadTooLarge
from orbit_sdk.limits import BATCH_BODY_BYTES_MAX, BATCH_ITEMS_MAX
from orbit_sdk.models.batches import BatchItem, BatchItemResult
from orbit_sdk.states import BatchStatus

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
_ENTRY_BYTES = 512  # around an entry's request in the batch: key, member names, the queue's id
# The outcome is known and will not change by itself: a person has to look.
_FOR_GOOD = frozenset(
    {
        "INVALID_ARGUMENT",
        "PAYLOAD_TOO_LARGE",
        "NOT_FOUND",
        "PERMISSION_DENIED",
        "IDEMPOTENCY_CONFLICT",
        "FAILED_PRECONDITION",
    }
)


class Verdict(enum.Enum):
    """What an answer means for an entry."""

    SENT = "sent"
    LATER = "later"
    REFUSED = "refused"


def verdict_of(item: BatchItemResult) -> Verdict:
    """The batch contract: ACCEPTED ends, REJECTED ends or waits by its code, UNKNOWN and NOT_ATTEMPTED stay."""
    if item.status is BatchStatus.ACCEPTED:
        return Verdict.SENT
    if item.status is BatchStatus.REJECTED and item.error is not None and item.error.code in _FOR_GOOD:
        return Verdict.REFUSED
    return Verdict.LATER


@dataclass
class RoundResult:
    """What one round achieved."""

    seen: int = 0
    sent: int = 0
    refused: int = 0
    later: int = 0

    def __add__(self, other: RoundResult) -> RoundResult:
        return RoundResult(
            self.seen + other.seen, self.sent + other.sent, self.refused + other.refused, self.later + other.later
        )


class Relay:
    """Sends the entries of one database."""

    def __init__(self, client: OrbitClient, *, using: str = "default", batch: int = BATCH_ITEMS_MAX) -> None:
        if not 1 <= batch <= BATCH_ITEMS_MAX:
            raise InvalidRequest("batch", f"must be 1 to {BATCH_ITEMS_MAX}")
        self._client = client
        self._using = using
        self._batch = batch

    def run_once(self) -> RoundResult:
        """Send one batch of what is due. Raises OrbitError only where Orbit refuses the relay itself (401, 403)."""
        entries = self._due()
        return self._send(entries) if entries else RoundResult()

    def _due(self) -> list[OutboxEntry]:
        due = OutboxEntry.objects.using(self._using).filter(
            state=OutboxState.PENDING, next_attempt_at__lte=timezone.now()
        )
        chosen: list[OutboxEntry] = []
        room = BATCH_BODY_BYTES_MAX - _ENTRY_BYTES
        for entry in due.order_by("next_attempt_at", "id")[: self._batch]:
            size = len(entry.request.encode()) + _ENTRY_BYTES
            if chosen and size > room:
                break
            room -= size
            chosen.append(entry)
        return chosen

    def _send(self, entries: Sequence[OutboxEntry]) -> RoundResult:
        try:
            items = [BatchItem(entry.key, decode_request(entry.request)) for entry in entries]
            result = self._client.submit_tasks(items)
        except (InvalidRequest, InvalidArgument, PayloadTooLarge) as error:
            return self._one_by_one(entries, error)
        except OrbitError as error:
            self._postpone(entries, error)
            if isinstance(error, ApiError) and not error.outcome_unknown and error.retry_after_ms is None:
                raise
            return RoundResult(seen=len(entries), later=len(entries))
        done = RoundResult(seen=len(entries))
        for entry, item in zip(entries, result.items, strict=True):
            self._settle(entry, item, done)
        return done

    def _one_by_one(self, entries: Sequence[OutboxEntry], error: OrbitError) -> RoundResult:
        """One entry with a fault in its form refuses the whole batch: find it, and let the others through."""
        if len(entries) == 1:
            code = error.code if isinstance(error, ApiError) else "INVALID_ARGUMENT"
            self._refuse(entries[0], code, str(error))
            return RoundResult(seen=1, refused=1)
        done = RoundResult()
        for entry in entries:
            done += self._send([entry])
        return done

    def _settle(self, entry: OutboxEntry, item: BatchItemResult, done: RoundResult) -> None:
        verdict = verdict_of(item)
        if verdict is Verdict.SENT and item.receipt is not None:
            self._update(entry, state=OutboxState.SENT, task_id=item.receipt.task_id, error_code="", error_message="")
            done.sent += 1
        elif verdict is Verdict.REFUSED and item.error is not None:
            self._refuse(entry, item.error.code, item.error.message)
            done.refused += 1
        else:
            self._postpone([entry], item.error)
            done.later += 1

    def _refuse(self, entry: OutboxEntry, code: str, message: str) -> None:
        self._update(entry, state=OutboxState.REFUSED, error_code=code[:64], error_message=message)

    def _postpone(self, entries: Sequence[OutboxEntry], error: OrbitError | None) -> None:
        for entry in entries:
            delay = jittered(entry.attempts + 1, first=FIRST_DELAY_SECONDS, longest=LONGEST_DELAY_SECONDS)
            code, message = type(error).__name__ if error is not None else "", str(error or "")
            if isinstance(error, ApiError | BatchItemError):
                code = error.code
                delay = max(delay, error.retry_after or 0.0)
            self._update(
                entry,
                attempts=entry.attempts + 1,
                next_attempt_at=timezone.now() + timedelta(seconds=delay),
                error_code=code[:64],
                error_message=message,
            )

    def _update(self, entry: OutboxEntry, **changes: object) -> None:
        """Guarded by the state: what another relay has ended meanwhile stays ended."""
        OutboxEntry.objects.using(self._using).filter(pk=entry.pk, state=OutboxState.PENDING).update(
            **changes, updated_at=timezone.now()
        )

    def prune_sent(self, before: datetime, *, limit: int = 500) -> int:
        """Delete up to `limit` entries that were sent before a moment; how many went."""
        sent = OutboxEntry.objects.using(self._using).filter(state=OutboxState.SENT, updated_at__lt=before)
        ids = list(sent.order_by("id").values_list("id", flat=True)[:limit])
        deleted, _ = OutboxEntry.objects.using(self._using).filter(id__in=ids).delete()
        return deleted
