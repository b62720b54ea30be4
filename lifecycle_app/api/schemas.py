"""The shapes of the lifecycle's API as JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lifecycle_app import limits
from lifecycle_app.evidence import Kind
from lifecycle_app.states import Decision, IntentState
from lifecycle_app.statuses import DisplayStatus
from tasks_app.api.openapi import Parameter, add_components
from tasks_app.api.schema_components import Schema, closed, integer, listed, nullable, ref, shown, text
from tasks_app.limits import REASON_LENGTH_MAX

_GID: Final[Schema] = integer(limits.GID_MIN, limits.GID_MAX, description="Positive, 63 bits; unique in the namespace.")
_STATE: Final[Schema] = {"type": "string", "enum": IntentState.values}
_REQUESTER: Final[Schema] = text(1, limits.REQUESTER_LENGTH_MAX, description="Printable; compared byte for byte.")

_EVIDENCE: Final[Schema] = shown(
    {
        "kind": {"type": "string", "enum": [kind.value for kind in Kind]},
        "at": ref("Instant"),
        "request": {"type": "string"},
        "status": {"type": "integer"},
        "answer": {"type": "string"},
        "fault": {"type": "string"},
    },
    optional=["request", "status", "answer", "fault"],
)

COMPONENTS: Final[Mapping[str, Schema]] = {
    "OperationRequest": closed(
        {"gid": _GID, "name": text(1, limits.NAME_LENGTH_MAX), "requester": _REQUESTER},
        required=["gid", "name", "requester"],
    ),
    "Operation": shown(
        {
            "gid": _GID,
            "name": {"type": "string"},
            "requester": {"type": "string"},
            "operation_id": nullable(ref("Id")),
            "delete_operation_id": ref("Id"),
            "state": nullable(_STATE),
            "status": {"type": "string", "enum": [status.value for status in DisplayStatus]},
            "status_text": shown({"zh": {"type": "string"}, "en": {"type": "string"}}),
            "progress": integer(0, 100),
            "storage_node": {"type": "string"},
            "last_revision": {"type": "integer", "minimum": 0},
            "legacy": {"type": "boolean"},
            "created_at": ref("Instant"),
            "updated_at": ref("Instant"),
            "submitted_at": ref("Instant"),
            "evidence": listed(_EVIDENCE),
        },
        optional=[
            *("name", "requester", "delete_operation_id", "status", "status_text", "progress", "storage_node"),
            *("submitted_at", "evidence"),
        ],
    ),
    "Favorite": shown({"gid": _GID, "requester": {"type": "string"}, "created_at": ref("Instant")}),
    "OperationReconcileRequest": closed(
        {
            "operation_id": ref("Id"),
            "state": _STATE,
            "decision": {"type": "string", "enum": Decision.values},
            "reason": text(1, REASON_LENGTH_MAX),
        },
        required=["operation_id", "state", "decision", "reason"],
    ),
    "Lookup": shown(
        {
            "found": {"type": "boolean"},
            "request": {"type": "string"},
            "status": {"type": "integer"},
            "answer": {"type": "string"},
        },
        optional=["request", "status", "answer"],
    ),
}
add_components(COMPONENTS)

GID_IN_PATH: Final = Parameter("gid", _GID, "Plain decimal.", required=True, place="path")
REQUESTER_IN_PATH: Final = Parameter("requester", _REQUESTER, required=True, place="path")
STATE: Final = Parameter("state", _STATE, "May repeat.", repeats=True)
REQUESTER: Final = Parameter("requester", _REQUESTER, "Whose operations.")
