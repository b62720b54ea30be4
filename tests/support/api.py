"""A caller of the HTTP API who sees what was really sent back."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx2

TIMEOUT_SECONDS = 40.0  # longer than the longest `wait_ms`


@dataclass(frozen=True)
class Answer:
    """One answer: status, headers (any case), the bytes, and shortcuts into the envelope."""

    status: int
    headers: httpx2.Headers
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

    def expect(self, status: int) -> Answer:
        """This answer, if it has that status; else an AssertionError that shows it."""
        assert self.status == status, f"expected {status}, got {self.status}: {self.body[:2000]!r}"
        return self


class Api:
    """The API of one server with one credential (None: none is sent)."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        self.token = token
        # No proxies of this machine, no retries: one call is one request.
        self._client = httpx2.Client(base_url=url, timeout=TIMEOUT_SECONDS, trust_env=False)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        key: str | None = None,
    ) -> Answer:
        """One request; `body` is sent as JSON, `content` as it stands, `key` as Idempotency-Key."""
        sent = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            content = json.dumps(body, ensure_ascii=False).encode()
        if content is not None:
            sent["Content-Type"] = "application/json"
        if key is not None:
            sent["Idempotency-Key"] = key
        answer = self._client.request(method, path, content=content, headers={**sent, **(headers or {})})
        return Answer(answer.status_code, answer.headers, answer.content)

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.call("POST", path, body, **more)

    def patch(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.call("PATCH", path, body, **more)

    # -- words of the domain
    def make_queue(self, **fields: Any) -> dict[str, Any]:
        """A new queue, with a name of its own unless one is given."""
        answer = self.post("/v1/queues", {"name": f"queue-{secrets.token_hex(6)}", **fields}).expect(201)
        return dict(answer.data["queue"])

    def submit(self, queue_id: str, *, key: str | None = None, **fields: Any) -> Answer:
        """Submit one task; its handler is `echo` v1 and its payload `{}` unless others are given."""
        return self.post("/v1/tasks", task_request(queue_id, **fields), key=key or secrets.token_hex(8))

    def task(self, task_id: str) -> dict[str, Any]:
        return dict(self.get(f"/v1/tasks/{task_id}").expect(200).data["task"])

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def task_request(queue_id: str, **fields: Any) -> dict[str, Any]:
    """The body of a submit that is valid as it stands."""
    return {
        "queue_id": queue_id,
        "handler": "echo",
        "handler_version": "v1",
        "payload_version": "v1",
        "payload": {},
        **fields,
    }
