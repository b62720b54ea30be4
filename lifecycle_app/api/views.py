"""/v1/operations (design 4.8)."""

from __future__ import annotations

import re
from typing import Final

from django.db import DatabaseError, InterfaceError
from django.http import HttpResponse
from rest_framework.request import Request

from lifecycle_app import limits
from lifecycle_app.api.documents import lookup_document, operation_document
from lifecycle_app.api.schemas import GID_IN_PATH, REQUESTER, REQUESTER_IN_PATH, STATE
from lifecycle_app.composition import configured_upstream, current_owner
from lifecycle_app.domain import creation, deletion, favorites, operations, reconciliation
from lifecycle_app.domain.creation import CreateRequest
from lifecycle_app.domain.operations import OperationFilter
from lifecycle_app.domain.reconciliation import Verdict
from lifecycle_app.states import Decision, IntentState
from tasks_app.api.bodies import Body
from tasks_app.api.cursors import seal, unseal
from tasks_app.api.endpoints import Endpoint
from tasks_app.api.openapi import CURSOR, LIMIT, Returns, operation
from tasks_app.api.schema_components import nullable, page, ref, shown
from tasks_app.errors import InvalidArgument, NotFound
from tasks_app.instants import format_rfc3339, process_now_us
from tasks_app.json_fields import Fields
from tasks_app.printable import printable_fault
from tasks_app.states import Action

TAG: Final = "operations"
_OPERATION: Final = shown({"operation": ref("Operation")})
_GID: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class Operations(Endpoint):
    @operation(
        "create_operation",
        action=Action.OPERATIONS_WRITE,
        tag=TAG,
        summary="Submit a gid to the upstream, once",
        description="201: certainly submitted. 202: the outcome is unknown and a person has to reconcile it; repeating "
        "the request asks nobody again. 409 ALREADY_EXISTS with its state while a generation is alive. 502: prepare "
        "failed or the upstream refused; nothing is left behind.",
        body=Body.REQUIRED,
        body_schema="OperationRequest",
        answers={
            201: Returns(_OPERATION, "Submitted.", {"Location": "The operation."}),
            202: Returns(_OPERATION, "Unknown.", {"Location": "The operation."}),
        },
        refusals=[409, 502],
    )
    def post(self, request: Request) -> HttpResponse:
        wanted = _create_request(self.fields(required=("gid", "name", "requester")))
        namespace_id = self.principal.namespace_id
        created = creation.create(
            namespace_id, wanted, upstream=configured_upstream(), owner=current_owner(), actor=self.actor
        )
        try:
            operation_now = operations.get(namespace_id, wanted.gid)
        except (DatabaseError, InterfaceError):
            if created.state is IntentState.SUBMITTED:
                raise
            # The database went away after the call. The caller must hear UNKNOWN, not "try again".
            operation_now = operations.unknown_now(
                wanted.gid, created.operation_id, name=wanted.name, requester=wanted.requester, at_us=process_now_us()
            )
        return self.answer(
            {"operation": operation_document(operation_now, with_evidence=True)},
            status=201 if created.state is IntentState.SUBMITTED else 202,
            headers={"Location": f"/v1/operations/{wanted.gid}"},
        )

    @operation(
        "list_operations",
        action=Action.OPERATIONS_READ,
        tag=TAG,
        summary="List operations, newest first",
        parameters=[STATE, REQUESTER, LIMIT, CURSOR],
        answers={200: Returns(page(ref("Operation")), "A page, without evidence.")},
    )
    def get(self, request: Request) -> HttpResponse:
        states = self.query.choices("state", IntentState.values)
        requester = self.query.text("requester")
        if requester is not None:
            _require_printable("requester", requester, limits.REQUESTER_LENGTH_MAX)
        limit = self.query.page_limit()
        namespace_id = self.principal.namespace_id
        binding = ["operations", namespace_id, states, requester]
        cursor = self.query.text("cursor")
        found = operations.page(
            namespace_id,
            OperationFilter(tuple(IntentState(state) for state in states), requester),
            before_operation_id=None if cursor is None else unseal(cursor, binding),
            limit=limit + 1,
        )
        items = [operation_document(one, with_evidence=False) for one in found[:limit]]
        more = len(found) > limit
        return self.answer(
            {"items": items, "next_cursor": seal(binding, found[limit - 1].operation_id) if more else None}
        )


class Operation(Endpoint):
    @operation(
        "get_operation",
        action=Action.OPERATIONS_READ,
        tag=TAG,
        summary="Look at an operation, with its evidence",
        description="A deleted one is shown with its state and without the members of its row.",
        parameters=[GID_IN_PATH],
        answers={200: Returns(_OPERATION, "The operation as it is.")},
        refusals=[404],
    )
    def get(self, request: Request, gid: str) -> HttpResponse:
        return self._shown(_gid_of(gid))

    @operation(
        "delete_operation",
        action=Action.OPERATIONS_WRITE,
        tag=TAG,
        summary="Ask the storage node to delete the files",
        description="The row stays until the node confirms. A repeat keeps the same delete id, and after a failure "
        "makes the node try again.",
        parameters=[GID_IN_PATH],
        answers={202: Returns(_OPERATION, "The delete is committed and on its way.")},
        refusals=[404, 409],
    )
    def delete(self, request: Request, gid: str) -> HttpResponse:
        number = _gid_of(gid)
        deletion.request_delete(self.principal.namespace_id, number, actor=self.actor)
        return self._shown(number, status=202)

    def _shown(self, gid: int, *, status: int = 200) -> HttpResponse:
        found = operations.get(self.principal.namespace_id, gid)
        return self.answer({"operation": operation_document(found, with_evidence=True)}, status=status)


class OperationReconcile(Endpoint):
    @operation(
        "reconcile_operation",
        action=Action.OPERATIONS_WRITE,
        tag=TAG,
        summary="Decide what a machine cannot know",
        description="UNKNOWN: SUBMITTED, NOT_SUBMITTED, or LOOKUP, which asks the upstream and changes nothing. "
        "DELETE_PENDING: DELETED. SUBMITTED: REASSIGN to another storage node. `operation_id` and `state` are what was "
        "seen; if they do not hold any more, 409 REVISION_CONFLICT. `operation` is null when nothing of it is left.",
        parameters=[GID_IN_PATH],
        body=Body.REQUIRED,
        body_schema="OperationReconcileRequest",
        answers={
            200: Returns(
                shown({"operation": nullable(ref("Operation")), "lookup": ref("Lookup")}, optional=["lookup"]),
                "Decided.",
            )
        },
        refusals=[404, 409, 502],
    )
    def post(self, request: Request, gid: str) -> HttpResponse:
        number = _gid_of(gid)
        verdict = _verdict(self.fields(required=("operation_id", "state", "decision", "reason")))
        namespace_id = self.principal.namespace_id
        looked_up = reconciliation.reconcile(
            namespace_id, number, verdict, upstream=configured_upstream(), actor=self.actor
        )
        try:
            document = operation_document(operations.get(namespace_id, number), with_evidence=True)
        except NotFound:
            document = None  # released: as if it had never been asked for
        data = {"operation": document}
        return self.answer(data if looked_up is None else {**data, "lookup": lookup_document(looked_up)})


class OperationFavorite(Endpoint):
    @operation(
        "add_favorite",
        action=Action.OPERATIONS_WRITE,
        tag=TAG,
        summary="Mark a gid as a requester's favourite",
        description="Repeatable. Favourites go with the files.",
        parameters=[GID_IN_PATH, REQUESTER_IN_PATH],
        body=Body.OPTIONAL,
        body_schema="Empty",
        answers={
            200: Returns(shown({"favorite": ref("Favorite")}), "It was one already."),
            201: Returns(shown({"favorite": ref("Favorite")}), "Marked."),
        },
        refusals=[404],
    )
    def post(self, request: Request, gid: str, requester: str) -> HttpResponse:
        self.fields()
        number = _gid_of(gid)
        _require_printable("requester", requester, limits.REQUESTER_LENGTH_MAX)
        liked = favorites.add(self.principal.namespace_id, number, requester)
        document = {"gid": number, "requester": requester, "created_at": format_rfc3339(liked.created_at)}
        return self.answer({"favorite": document}, status=201 if liked.made_now else 200)

    @operation(
        "remove_favorite",
        action=Action.OPERATIONS_WRITE,
        tag=TAG,
        summary="Take a favourite back",
        description="Repeatable.",
        parameters=[GID_IN_PATH, REQUESTER_IN_PATH],
        answers={200: Returns(shown({"favorite": {"type": "null"}}), "It is none any more.")},
    )
    def delete(self, request: Request, gid: str, requester: str) -> HttpResponse:
        number = _gid_of(gid)
        _require_printable("requester", requester, limits.REQUESTER_LENGTH_MAX)
        favorites.remove(self.principal.namespace_id, number, requester)
        return self.answer({"favorite": None})


def _create_request(fields: Fields) -> CreateRequest:
    gid = fields.required_integer("gid")
    if not limits.GID_MIN <= gid <= limits.GID_MAX:
        raise InvalidArgument.field(
            "gid", "must be a positive 63-bit integer", minimum=limits.GID_MIN, maximum=limits.GID_MAX
        )
    name, requester = fields.required_string("name"), fields.required_string("requester")
    _require_printable("name", name, limits.NAME_LENGTH_MAX)
    _require_printable("requester", requester, limits.REQUESTER_LENGTH_MAX)
    return CreateRequest(gid=gid, name=name, requester=requester)


def _verdict(fields: Fields) -> Verdict:
    return Verdict(
        seen_operation_id=fields.required_identity("operation_id"),
        seen_state=IntentState(_one_of(fields, "state", IntentState.values)),
        decision=Decision(_one_of(fields, "decision", Decision.values)),
        reason=fields.required_string("reason"),
    )


def _one_of(fields: Fields, name: str, allowed: list[str]) -> str:
    text = fields.required_string(name)
    if text not in allowed:
        raise InvalidArgument.field(name, f"must be one of {', '.join(allowed)}", allowed=allowed)
    return text


def _require_printable(field: str, text: str, length_max: int) -> None:
    fault = printable_fault(text, length_max=length_max)
    if fault is not None:
        raise InvalidArgument.field(field, fault, limit=length_max)


def _gid_of(text: str) -> int:
    if _GID.fullmatch(text) is None or int(text) > limits.GID_MAX:
        raise InvalidArgument.field("gid", "must be a positive 63-bit integer in plain decimal")
    return int(text)
