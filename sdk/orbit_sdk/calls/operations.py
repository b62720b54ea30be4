"""Operation intents of the lifecycle app (design 4.8)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from orbit_sdk.calls.pages import Page, page_call, query_of
from orbit_sdk.errors import InvalidRequest, UnverifiableResponse
from orbit_sdk.fields import Fields
from orbit_sdk.models.operations import Operation, Reconciliation
from orbit_sdk.states import OperationDecision, OperationState
from orbit_sdk.wire import Answer, Call, Request, check_id, get, post

_CREATE_STATUSES = frozenset({201, 202})  # 202: the upstream's answer is not known; the state says UNKNOWN
_DELETE_STATUSES = frozenset({202})
_FAVORITE_STATUSES = frozenset({200, 201})


def create_operation(gid: int, name: str, requester: str) -> Call[Operation]:
    document = {"gid": _gid(gid), "name": name, "requester": requester}
    return Call(post("/v1/operations", document), _verifier(gid), _CREATE_STATUSES)


def list_operations(
    *,
    state: OperationState | str | None = None,
    requester: str | None = None,
    page_size: int | None = None,
    cursor: str | None = None,
) -> Call[Page[Operation]]:
    query = query_of(state=None if state is None else str(state), requester=requester)
    return page_call("/v1/operations", Operation.read, query=query, page_size=page_size, cursor=cursor)


def get_operation(gid: int) -> Call[Operation]:
    return Call(get(f"/v1/operations/{_gid(gid)}"), _verifier(gid))


def delete_operation(gid: int) -> Call[Operation]:
    return Call(Request("DELETE", f"/v1/operations/{_gid(gid)}"), _verifier(gid), _DELETE_STATUSES)


def add_favorite(gid: int, requester: str) -> Call[None]:
    return Call(post(_favorite_path(gid, requester), {}), _nothing, _FAVORITE_STATUSES)


def remove_favorite(gid: int, requester: str) -> Call[None]:
    return Call(Request("DELETE", _favorite_path(gid, requester)), _nothing, _FAVORITE_STATUSES)


def reconcile_operation(
    gid: int, operation_id: str, state: OperationState | str, decision: OperationDecision | str, reason: str
) -> Call[Reconciliation]:
    document = {
        "operation_id": check_id(operation_id, place="operation_id"),
        "state": str(state),
        "decision": str(decision),
        "reason": reason,
    }
    verify_operation = _verifier(gid)

    def verify(answer: Answer) -> Reconciliation:
        fields = Fields(answer.data, "data")
        operation = verify_operation(answer) if fields.has("operation") else None
        return Reconciliation(operation=operation, lookup=fields.raw.get("lookup"))

    return Call(post(f"/v1/operations/{_gid(gid)}:reconcile", document), verify)


def _gid(gid: int) -> int:
    if type(gid) is not int or not 0 < gid < 2**63:
        raise InvalidRequest("gid", "must be an integer from 1 to 2^63 - 1")
    return gid


def _favorite_path(gid: int, requester: str) -> str:
    return f"/v1/operations/{_gid(gid)}/favorites/{quote(requester, safe='')}"


def _nothing(answer: Answer) -> None:
    Fields(answer.data, "data")


def _verifier(gid: int) -> Callable[[Answer], Operation]:
    def verify(answer: Answer) -> Operation:
        operation = Operation.read(Fields(answer.data, "data").object("operation"))
        if operation.gid != gid:
            raise UnverifiableResponse(f"operation {operation.gid} was answered, {gid} was asked for")
        return operation

    return verify
