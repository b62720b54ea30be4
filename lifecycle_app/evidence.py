"""The evidence of an intent: what an operator needs to decide, as a JSON array in the order it was learned.

SUBMIT       the one call: request, time, answer as far as read, fault
RECOVERED    the owner was gone before it wrote the outcome down
LOOKUP       what the upstream said when it was asked again, read-only
REPORT       a storage node reported about it while it was not certain
NODE_ERROR   a storage node could not do what it was told
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from lifecycle_app.limits import EVIDENCE_LOOKUPS_MAX, EVIDENCE_REPORTS_MAX
from tasks_app.instants import format_rfc3339

Facts = Mapping[str, Any]


class Kind(StrEnum):
    SUBMIT = "SUBMIT"
    RECOVERED = "RECOVERED"
    LOOKUP = "LOOKUP"
    REPORT = "REPORT"
    NODE_ERROR = "NODE_ERROR"


# Of what can come again and again, only the latest are kept; the call itself is never pushed out.
_KEPT: Mapping[str, int] = {
    Kind.LOOKUP.value: EVIDENCE_LOOKUPS_MAX,
    Kind.REPORT.value: EVIDENCE_REPORTS_MAX,
    Kind.NODE_ERROR.value: EVIDENCE_REPORTS_MAX,
}


def with_entry(evidence: str | None, kind: Kind, at_us: int, facts: Facts) -> str:
    """The evidence with one more entry, as JSON text."""
    entries = entries_of(evidence)
    entries.append({"kind": kind.value, "at": format_rfc3339(at_us), **facts})
    limit = _KEPT.get(kind.value)
    if limit is not None:
        same = [index for index, entry in enumerate(entries) if entry["kind"] == kind.value]
        for index in reversed(same[:-limit]):
            del entries[index]
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"))


def entries_of(evidence: str | None) -> list[dict[str, Any]]:
    return [] if evidence is None else json.loads(evidence)
