"""A caller of the API within this process: Django's whole stack without a socket."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.test import Client

from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.tenancy import issue_credential
from tasks_app.states import Action
from tasks_app.transactions import unit
from tests.tasks_app.api.openapi_conformance import assert_documented
from tests.tasks_app.factories import Tenant

_keys = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        return self.json["data"]

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def code(self) -> str:
        return str(self.error["code"])

    @property
    def fields(self) -> list[str]:
        """Which fields the details of a refusal name."""
        return [detail["field"] for detail in self.error.get("details", [])]

    def expect(self, status: int, code: str | None = None) -> Answer:
        assert self.status == status, f"expected {status}, got {self.status}: {self.body[:2000]!r}"
        assert code is None or self.code == code, self.body[:2000]
        return self


@dataclass
class Caller:
    """`token` None sends no credential."""

    token: str | None
    tenant: Tenant | None = None
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    @classmethod
    def of(
        cls,
        tenant: Tenant,
        *,
        actions: Iterable[str] = Action.values,
        queue_ids: list[str] | None = None,
        expires_in_seconds: int | None = None,
    ) -> Caller:
        """A caller with a new credential of the tenant."""
        issued = unit(
            lambda tx: issue_credential(
                tx,
                namespace_id=tenant.namespace_id,
                actions=actions,
                queue_ids=queue_ids,
                expires_in_seconds=expires_in_seconds,
                actor=SYSTEM,
            )  # fmt: skip
        )
        return cls(issued.token, tenant)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | str | None = None,
        content_type: str | None = "application/json",
        key: str | None = None,
        **environ: Any,
    ) -> Answer:
        """One request; `body` is sent as JSON, `content` as it stands. `environ` are WSGI variables."""
        if body is not None:
            content = json.dumps(body)
        if self.token is not None:
            environ.setdefault("HTTP_AUTHORIZATION", f"Bearer {self.token}")
        if key is not None:
            environ["HTTP_IDEMPOTENCY_KEY"] = key
        sent = content.encode() if isinstance(content, str) else content
        if sent is not None and content_type is not None:
            environ["CONTENT_TYPE"] = content_type
        response = self.client.generic(method, path, sent or b"", content_type=content_type or "", **environ)
        assert_documented(method, response.request["PATH_INFO"], response.status_code, response.content)
        return Answer(response.status_code, response.headers, response.content)

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.call("POST", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.call("PATCH", path, body, **more)

    def task_body(self, **members: Any) -> dict[str, Any]:
        """A submit that is valid as it stands, for the tenant's queue and the handler that `factories` works with."""
        assert self.tenant is not None
        return {
            "queue_id": self.tenant.queue_id,
            "handler": "h",
            "handler_version": "1",
            "payload_version": "1",
            "payload": {"n": 1},
            **members,
        }

    def submit(self, *, key: str | None = None, **members: Any) -> Answer:
        return self.post("/v1/tasks", self.task_body(**members), key=key or f"k-{next(_keys)}")

    def submitted(self, **members: Any) -> dict[str, Any]:
        """The task of a submit that was accepted."""
        return dict(self.submit(**members).expect(201).data["task"])

    def task(self, task_id: str) -> dict[str, Any]:
        return dict(self.get(f"/v1/tasks/{task_id}").expect(200).data["task"])
