"""A batch of submits: each item its own transaction, in order, with one verdict each (design 1.3).

ACCEPTED       committed now, or the receipt that the key had
REJECTED       refused, nothing was added; the items after it go on
UNKNOWN        the outcome could not be learned; ends the batch
NOT_ATTEMPTED  the batch had ended: an unknown outcome, a credential that is no longer valid, or time up
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tasks_app import telemetry
from tasks_app.domain.submission import Receipt, Submission, accept
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import OrbitError, Unauthenticated, Unavailable

STOPPED_CODE: Final = "BATCH_STOPPED"
STOPPED_MESSAGE: Final = "not tried in this request; send the item again with the same key and content"


class Verdict(Enum):
    ACCEPTED = "ACCEPTED"
    REJECTED = "REJECTED"
    UNKNOWN = "UNKNOWN"
    NOT_ATTEMPTED = "NOT_ATTEMPTED"


@dataclass(frozen=True, slots=True)
class ItemResult:
    """`receipt` exactly for ACCEPTED; `error` for REJECTED and UNKNOWN."""

    verdict: Verdict
    receipt: Receipt | None = None
    error: OrbitError | None = None


NOT_ATTEMPTED: Final = ItemResult(Verdict.NOT_ATTEMPTED)


def accept_all(
    principal: Principal,
    submissions: Sequence[Submission],
    *,
    is_over: Callable[[], bool],
    request_id: str | None = None,
) -> list[ItemResult]:
    """One result per submission, in order. `is_over` says between two items that time is up or nobody waits any more.

    Raises nothing that would hide what was committed before it: a fault of ours ends the batch as an unknown outcome
    does.
    """
    results: list[ItemResult] = []
    for submission in submissions:
        if is_over():
            break
        result = _accept_one(principal, submission, request_id)
        results.append(result)
        if result.verdict is Verdict.UNKNOWN or isinstance(result.error, Unauthenticated):
            break
    return results + [NOT_ATTEMPTED] * (len(submissions) - len(results))


def _accept_one(principal: Principal, submission: Submission, request_id: str | None) -> ItemResult:
    try:
        accepted = accept(principal, submission, request_id=request_id)
    except Unavailable as error:
        return ItemResult(Verdict.UNKNOWN, error=error)
    except OrbitError as error:
        return ItemResult(Verdict.REJECTED, error=error)
    except Exception as error:
        # The database failed, or we did: what was committed before this item must be told all the same.
        telemetry.batch_item_failed(error)
        return ItemResult(Verdict.UNKNOWN, error=Unavailable())
    return ItemResult(Verdict.ACCEPTED, receipt=accepted.receipt)
