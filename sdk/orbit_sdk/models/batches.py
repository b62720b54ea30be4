"""Batches: up to 32 independent submissions in one request, each with an answer of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orbit_sdk.errors import BatchItemError, UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.models.tasks import Receipt, SubmitTask
from orbit_sdk.states import BatchStatus


@dataclass(frozen=True)
class BatchItem:
    """One submission. Store key and task before sending them; repeat both unchanged until the answer is known."""

    key: str
    task: SubmitTask


@dataclass(frozen=True)
class BatchItemResult:
    """The answer to one item; `index` is its place in this request. `receipt` is there exactly when it was ACCEPTED."""

    index: int
    status: BatchStatus
    receipt: Receipt | None = None
    error: BatchItemError | None = None
    source_task_id: str | None = None  # of a bulk replay: the task that was replayed

    @property
    def to_repeat(self) -> bool:
        """Whether nothing is certain yet: send the same key and content again, later."""
        return self.status in (BatchStatus.UNKNOWN, BatchStatus.NOT_ATTEMPTED)


@dataclass(frozen=True)
class BatchResult:
    """One answer per item, in the order of the request. A status of 200 alone says nothing: read the items."""

    items: tuple[BatchItemResult, ...]
    request_id: str

    def with_status(self, status: BatchStatus) -> tuple[BatchItemResult, ...]:
        return tuple(item for item in self.items if item.status is status)

    @property
    def all_accepted(self) -> bool:
        return all(item.status is BatchStatus.ACCEPTED for item in self.items)


_CODE_OF_STATUS = {BatchStatus.UNKNOWN: "UNAVAILABLE", BatchStatus.NOT_ATTEMPTED: "BATCH_STOPPED"}


def read_batch_items(
    data: Any, *, queue_ids: Sequence[str] | None, replay: bool = False
) -> tuple[BatchItemResult, ...]:
    """Verified results: count and order as requested, members that fit the status, receipts of the right queue.

    `queue_ids` are those of the request's items; None where the server chose the items itself (bulk replay).
    """
    fields = Fields(data, "data")
    items = tuple(_read_item(item, replay=replay) for item in fields.objects("items"))
    if queue_ids is not None and len(items) != len(queue_ids):
        raise UnverifiableResponse(f"{len(queue_ids)} items were sent and {len(items)} answered")
    for position, item in enumerate(items):
        if item.index != position:
            raise UnverifiableResponse(f"item {position} is answered with index {item.index}")
        if queue_ids is not None and item.receipt is not None and item.receipt.queue_id != queue_ids[position]:
            raise UnverifiableResponse(f"the receipt of item {position} names another queue than was asked for")
    _check_summary(fields, items)
    return items


def _read_item(fields: Fields, *, replay: bool) -> BatchItemResult:
    status = fields.word("status", BatchStatus)
    index = fields.integer("index")
    if fields.has("receipt") == fields.has("error") or fields.has("receipt") != (status is BatchStatus.ACCEPTED):
        raise UnverifiableResponse(f"the members of item {index} do not fit the status {status}")
    receipt = Receipt.read(fields.object("receipt")) if fields.has("receipt") else None
    error = _read_error(fields.object("error")) if fields.has("error") else None
    expected = _CODE_OF_STATUS.get(status)
    if error is not None and expected is not None and error.code != expected:
        raise UnverifiableResponse(f"item {index} is {status} with the code {error.code}")
    source = fields.id("source_task_id") if replay else None
    return BatchItemResult(index=index, status=status, receipt=receipt, error=error, source_task_id=source)


def _read_error(fields: Fields) -> BatchItemError:
    details = fields.objects("details") if fields.has("details") else []
    return BatchItemError(
        fields.text("code"),
        fields.text("message"),
        details=[detail.raw for detail in details],
        retry_after_ms=fields.optional("retry_after_ms", fields.integer),
    )


def _check_summary(fields: Fields, items: Sequence[BatchItemResult]) -> None:
    if not fields.has("summary"):
        return  # a server from before the summary
    summary = fields.object("summary")
    for status in BatchStatus:
        if summary.integer(status.lower()) != sum(item.status is status for item in items):
            raise UnverifiableResponse("the summary does not count what the items say")
