"""`Endpoint`: the base of every view under /v1, which refuses in the one order of design 1.1.

    route and method → 401 → missing action 403 → 415 → 400 → (in the view) object 404/403 → 409/429

What a method needs is declared by `@operation`, once, for the run and for the OpenAPI document. A method without a
declaration cannot be called: there is no default that lets anything through.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.views import APIView

from tasks_app.api import envelope
from tasks_app.api.authentication import authenticate
from tasks_app.api.bodies import Body, StrictJsonParser, check_media_type, check_size, read_body
from tasks_app.api.context import RequestContext, context_of
from tasks_app.api.errors import JSON, method_not_allowed, refuse
from tasks_app.api.query import Query, parse_query
from tasks_app.domain.audit import Actor
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import InvalidArgument
from tasks_app.ids import is_id
from tasks_app.json_fields import Fields, read_object
from tasks_app.limits import BODY_BYTES_MAX
from tasks_app.models import ActorKind
from tasks_app.states import Action
from tasks_app.strict_json import Node, parse_document

Handler = TypeVar("Handler", bound=Callable[..., HttpResponse])
_CONTRACT: Final = "orbit_contract"
_METHODS: Final = ("get", "post", "patch", "delete", "put")


@dataclass(frozen=True)
class Contract:
    """What one method of one path needs before its view runs."""

    operation_id: str
    action: Action
    body: Body = Body.NONE
    body_bytes_max: int = BODY_BYTES_MAX
    query: Collection[str] = field(default_factory=frozenset)
    repeatable: Collection[str] = field(default_factory=frozenset)


def declare(handler: Handler, contract: Contract) -> Handler:
    setattr(handler, _CONTRACT, contract)
    return handler


def contract_of(view: type[Endpoint] | Endpoint, method: str) -> Contract | None:
    """The declaration of a method (lower-case; `head` is `get`), None if the path does not know it."""
    name = "get" if method == "head" else method
    return getattr(getattr(view, name, None), _CONTRACT, None)


class Endpoint(APIView):
    """One path. A view reads `self.principal`, `self.query` and `self.document`, calls one domain function, and
    answers."""

    parser_classes = [StrictJsonParser]
    principal: Principal
    query: Query
    document: Node | None

    @property
    def allowed_methods(self) -> list[str]:
        known = [name.upper() for name in _METHODS if contract_of(self, name) is not None]
        return [*known[:1], "HEAD", *known[1:]] if "GET" in known else known

    @property
    def context(self) -> RequestContext:
        return context_of(self._http)

    @property
    def actor(self) -> Actor:
        return Actor(ActorKind.CREDENTIAL, self.principal.credential_id, self.context.request_id)

    @property
    def _http(self) -> HttpRequest:
        return self.request._request if isinstance(self.request, Request) else self.request

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Everything that is refused before the view runs. Replaces REST framework's own order."""
        http = self._http
        contract = contract_of(self, str(http.method).lower())
        if contract is None:
            raise method_not_allowed(", ".join(self.allowed_methods))
        check_size(http, bytes_max=contract.body_bytes_max)
        self.principal = authenticate(http)
        self.principal.require(contract.action)
        check_media_type(http)
        _check_path(kwargs)
        self.query = parse_query(
            http.META.get("QUERY_STRING", ""), known=contract.query, repeatable=contract.repeatable
        )
        self.document = read_body(http, contract.body)

    @property
    def sent_document(self) -> Node:
        """The body of a method that requires one: it was refused before the view ran where there was none."""
        if self.document is None:
            raise TypeError("only a method whose body is REQUIRED may ask for it")
        return self.document

    def fields(self, *, required: Collection[str] = (), optional: Collection[str] = ()) -> Fields:
        """The members of the body; an absent optional body is an empty object."""
        return read_object(self.document or parse_document("{}"), required=required, optional=optional)

    def answer(
        self, data: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        return self._respond(envelope.dump(data), status, {"Cache-Control": "no-store", **(headers or {})})

    def answer_unless_known(self, data: Mapping[str, Any]) -> HttpResponse:
        """With a weak `ETag` over everything shown; 304 without a body where the caller has it already."""
        shown = envelope.dump(data)
        etag = f'W/"{hashlib.sha256(shown).hexdigest()[:32]}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        known = parse_etags(self._http.headers.get("If-None-Match", ""))
        if "*" in known or etag in known or etag.removeprefix("W/") in known:
            response = HttpResponse(status=304, headers=headers)
            del response["Content-Type"]
            return response
        return self._respond(shown, 200, headers)

    def _respond(self, shown: bytes, status: int, headers: Mapping[str, str]) -> HttpResponse:
        body = envelope.success(self.context.request_id, shown)
        return HttpResponse(body, status=status, content_type=JSON, headers=dict(headers))

    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]
        return refuse(self._http, exc)

    def finalize_response(  # type: ignore[override]
        self, request: Request, response: HttpResponse, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Nothing is negotiated: every answer is JSON. HEAD is GET; servers leave its body away."""
        return response


def _check_path(parameters: Mapping[str, str]) -> None:
    for name, value in parameters.items():
        if name.endswith("_id") and not is_id(value):
            raise InvalidArgument.field(name, "must be an id: 32 lower-case hex digits")
