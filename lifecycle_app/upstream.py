"""The upstream: what Orbit asks of it, and what its answers mean (design 4.2).

An adapter has three calls. `prepare` and `lookup` only read. `submit` has the side effect that must never be asked for
twice: it makes one request and says what is known afterwards, and what is not known is UNKNOWN.

    answer to submit                                         outcome
    200 or 201 with a JSON object                            ACCEPTED
    4xx                                                      REFUSED
    anything else: 5xx, a redirect, another 2xx, a body      UNKNOWN
    that is no JSON object, time-out, cut or no connection
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from lifecycle_app.http_call import Answer, call_once
from lifecycle_app.limits import (
    QUANTITY_MAX,
    UPSTREAM_ANSWER_BYTES_MAX,
    UPSTREAM_EXCERPT_LENGTH_MAX,
)
from tasks_app.errors import InvalidArgument, UpstreamFailed
from tasks_app.strict_json import Node, parse_document

Evidence = dict[str, Any]
QUANTITY_DEFAULT = 1


@dataclass(frozen=True)
class Prepared:
    """What `prepare` answered: the JSON object exactly as it was sent, and the quantity that is metered."""

    text: str
    quantity: int


class SubmitResult(StrEnum):
    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class SubmitOutcome:
    result: SubmitResult
    evidence: Evidence  # request, time, answer as far as read; no secrets


@dataclass(frozen=True)
class LookedUp:
    found: bool
    evidence: Evidence


class Upstream(Protocol):
    """Where operations are submitted to."""

    def prepare(self, gid: int) -> Prepared:
        """Read-only. Raises UpstreamFailed with the upstream's word in `details`."""

    def submit(self, prepared: Prepared, *, gid: int, operation_id: str) -> SubmitOutcome:
        """One request with a side effect; called once in the life of an intent."""

    def lookup(self, gid: int) -> LookedUp:
        """Read-only: does the upstream know a submission of this gid? Raises UpstreamFailed when it cannot say."""


@dataclass(frozen=True)
class HttpUpstream:
    """The shipped adapter: one host, from the settings."""

    url: str
    timeout_ms: int
    token: str | None = None

    def __repr__(self) -> str:
        return f"HttpUpstream({self.url!r})"

    def prepare(self, gid: int) -> Prepared:
        request = f"GET /galleries/{gid}"
        answer = self._call(request)
        document = _object_of(answer) if answer.status == 200 else None
        if document is None:
            raise _failed("prepare", request, answer)
        quantity = _quantity(document)
        if quantity is None:
            raise _failed("prepare", request, answer, reason="size is not an integer that can be metered")
        return Prepared(text=document.raw, quantity=quantity)

    def submit(self, prepared: Prepared, *, gid: int, operation_id: str) -> SubmitOutcome:
        request = "POST /submissions"
        # The prepared object goes back digit for digit, so it is never parsed into numbers and written again.
        content = f'{{"gid":{gid},"operation_id":"{operation_id}","prepared":{prepared.text}}}'.encode()
        answer = self._call(request, content)
        return SubmitOutcome(judge_submit(answer), evidence_of(request, answer))

    def lookup(self, gid: int) -> LookedUp:
        request = f"GET /submissions/{gid}"
        answer = self._call(request)
        found = answer.status == 200 and _object_of(answer) is not None
        if not found and not (answer.status == 404 and answer.fault is None):
            raise _failed("lookup", request, answer)
        return LookedUp(found, evidence_of(request, answer))

    def _call(self, request: str, content: bytes | None = None) -> Answer:
        method, path = request.split(" ")
        return call_once(
            method,
            self.url.rstrip("/") + path,
            timeout_ms=self.timeout_ms,
            body_bytes_max=UPSTREAM_ANSWER_BYTES_MAX,
            token=self.token,
            content=content,
        )


def judge_submit(answer: Answer) -> SubmitResult:
    """The table above."""
    if answer.status is None:
        return SubmitResult.UNKNOWN
    if 400 <= answer.status <= 499:
        return SubmitResult.REFUSED  # the status line is the refusal, whatever happened to the body behind it
    if answer.status in (200, 201) and _object_of(answer) is not None:
        return SubmitResult.ACCEPTED
    return SubmitResult.UNKNOWN


def evidence_of(request: str, answer: Answer) -> Evidence:
    """What a person needs to see of one call: method and path, not the host, which the settings name."""
    evidence: Evidence = {"request": request, "elapsed_ms": answer.elapsed_ms}
    if answer.status is not None:
        evidence["status"] = answer.status
    if answer.body:
        evidence["answer"] = excerpt(answer.body)
    if answer.fault is not None:
        evidence["fault"] = answer.fault.value
    return evidence


def excerpt(body: bytes) -> str:
    """The beginning of an answer, safe to show: no control characters, whatever the bytes were."""
    text = body[: 4 * UPSTREAM_EXCERPT_LENGTH_MAX].decode("utf-8", errors="replace")
    return "".join(c if c.isprintable() else " " for c in text)[:UPSTREAM_EXCERPT_LENGTH_MAX]


def _object_of(answer: Answer) -> Node | None:
    """The JSON object that the whole body is; None when it is not one or was not read to its end."""
    if answer.fault is not None:
        return None
    try:
        document = parse_document(answer.body)
    except InvalidArgument:
        return None
    return document if document.kind == "object" else None


def _quantity(document: Node) -> int | None:
    size = document.members().get("size")
    if size is None or size.kind == "null":
        return QUANTITY_DEFAULT
    if size.kind != "number" or not size.raw.isdigit() or len(size.raw) > len(str(QUANTITY_MAX)):
        return None
    quantity = int(size.raw)
    return quantity if quantity <= QUANTITY_MAX else None


def refusal(outcome: SubmitOutcome) -> UpstreamFailed:
    """What the caller hears when the upstream refused explicitly; its word stands in `details`."""
    reason = "the upstream refused the submission"
    return UpstreamFailed(
        f"submit: {reason}", details=[{"field": "", "reason": reason, "step": "submit", **outcome.evidence}]
    )


def _failed(step: str, request: str, answer: Answer, *, reason: str | None = None) -> UpstreamFailed:
    if reason is None:
        reason = (
            "the upstream did not answer as agreed" if answer.fault is None else "the upstream gave no whole answer"
        )
    detail = {"field": "", "reason": reason, "step": step, **evidence_of(request, answer)}
    return UpstreamFailed(f"{step}: {reason}", details=[detail])
