"""The operation object as a JSON document: what is shown, under which name, and when it is left out (design 4.8)."""

from __future__ import annotations

from typing import Any

from lifecycle_app.domain.operations import Operation
from lifecycle_app.statuses import status_text
from lifecycle_app.upstream import LookedUp
from tasks_app.api.envelope import RawJson
from tasks_app.instants import format_rfc3339

Document = dict[str, Any]


def operation_document(operation: Operation, *, with_evidence: bool) -> Document:
    """A tombstone is shown without the members of its row; a row from before has neither operation id nor state."""
    row = operation.row
    document: Document = {"gid": operation.gid}
    if row is not None:
        document |= {"name": row.name, "requester": row.requester}
    document["operation_id"] = operation.operation_id
    if operation.delete_operation_id is not None:
        document["delete_operation_id"] = operation.delete_operation_id
    document["state"] = None if operation.state is None else operation.state.value
    if row is not None:
        document |= {
            "status": row.status.value,
            "status_text": status_text(row.status),
            "progress": row.progress,
        }
        if row.storage_node is not None:
            document["storage_node"] = row.storage_node
    document |= {
        "last_revision": operation.last_revision,
        "legacy": operation.legacy,
        "created_at": format_rfc3339(operation.created_at),
        "updated_at": format_rfc3339(
            operation.updated_at if row is None else max(operation.updated_at, row.updated_at)
        ),
    }
    if operation.submitted_at is not None:
        document["submitted_at"] = format_rfc3339(operation.submitted_at)
    if with_evidence and operation.evidence is not None:
        document["evidence"] = RawJson(operation.evidence)
    return document


def lookup_document(looked_up: LookedUp) -> Document:
    """What the upstream said when it was asked again."""
    return {"found": looked_up.found, **looked_up.evidence}
