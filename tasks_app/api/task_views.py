"""/v1/tasks: submit, look, steer (design 1.2 to 1.4)."""

from __future__ import annotations

import time
from typing import Any, Final

from django.conf import settings
from django.http import HttpResponse
from rest_framework.request import Request

from tasks_app.api import waits
from tasks_app.api.bodies import Body
from tasks_app.api.context import has_left, header_values
from tasks_app.api.cursors import seal, unseal
from tasks_app.api.documents import (
    batch_document,
    batch_item_document,
    receipt_document,
    task_document,
    task_summary,
)
from tasks_app.api.endpoints import Endpoint
from tasks_app.api.openapi import CURSOR, IDEMPOTENCY_KEY, LIMIT, WAIT_MS, Parameter, Returns, operation
from tasks_app.api.query import Query
from tasks_app.api.readings import reason_of, revision_of
from tasks_app.api.schema_components import integer, page, ref, shown
from tasks_app.domain import batches, cancellation, reconciliation, task_reads, waiting
from tasks_app.domain.reconciliation import Decision
from tasks_app.domain.submission import Receipt, Submission, accept
from tasks_app.domain.task_reads import TaskFilter, TaskView
from tasks_app.errors import InvalidArgument, NotFound, PayloadTooLarge
from tasks_app.json_fields import Fields, read_string
from tasks_app.limits import (
    BATCH_BODY_BYTES_MAX,
    ERROR_CODE_LENGTH_MAX,
    ERROR_DETAILS_BYTES_MAX,
    ERROR_MESSAGE_LENGTH_MAX,
    RESULT_BYTES_MAX,
    STRICT_PRIORITY_MAX,
    STRICT_PRIORITY_MIN,
    WAIT_MS_MAX,
)
from tasks_app.states import Action, TaskState
from tasks_app.strict_json import Node
from tasks_app.submission_request import SubmitRequest, check_idempotency_key, digest, read_batch, read_task

TAG: Final = "tasks"
_REVISION_MAX: Final = 2**63 - 1
_ID: Final = ("task_id",)
_TASK: Final = shown({"task": ref("Task")})
_INSTANT: Final = {"type": "string", "format": "date-time"}


ACCEPTED_ANSWERS: Final = {
    201: Returns(ref("Accepted"), "Accepted now.", {"Location": "The task."}),
    200: Returns(ref("Accepted"), "Accepted before under this key. `task` is null once it was pruned."),
}


class AcceptingEndpoint(Endpoint):
    """Answers with a receipt."""

    def accepted(self, receipt: Receipt, task: TaskView | None) -> HttpResponse:
        """`task` None is looked for: a repeat shows the task as it is now, if it is still kept."""
        task = task or task_reads.find(self.principal, receipt.task_id)
        data = {
            "task": None if task is None else task_document(task, self.principal.policy),
            "receipt": receipt_document(receipt),
        }
        if receipt.deduplicated:
            return self.answer(data)
        return self.answer(data, status=201, headers={"Location": f"/v1/tasks/{receipt.task_id}"})

    def submission(self, key: str, submit: SubmitRequest) -> Submission:
        content = digest(submit, self.principal.policy)
        return Submission(key=key, request=submit, digest=content, traceparent=self.context.traceparent)


class SteeringEndpoint(Endpoint):
    """POST …:verb on one task; answers with the task as it is afterwards."""

    def shown(self, task_id: str) -> HttpResponse:
        task = task_reads.find(self.principal, task_id)
        if task is None:
            raise NotFound("the task was changed, and pruned before it could be shown")
        return self.answer({"task": task_document(task, self.principal.policy)})


class Tasks(AcceptingEndpoint):
    @operation(
        "submit_task",
        action=Action.TASKS_SUBMIT,
        tag=TAG,
        summary="Submit a task",
        description="A receipt means that the task is committed. The same key with the same content gives the original "
        "receipt again, for 90 days; with other content it is a conflict.",
        body=Body.REQUIRED,
        body_schema="TaskRequest",
        parameters=[IDEMPOTENCY_KEY],
        answers=ACCEPTED_ANSWERS,
        refusals=[404, 409],
    )
    def post(self, request: Request) -> HttpResponse:
        key = check_idempotency_key(header_values(self._http, "idempotency-key"))
        submit = read_task(self.sent_document)
        accepted = accept(self.principal, self.submission(key, submit), request_id=self.context.request_id)
        return self.accepted(accepted.receipt, task_reads.as_accepted(accepted, submit))

    @operation(
        "list_tasks",
        action=Action.TASKS_READ,
        tag=TAG,
        summary="List tasks, newest first",
        description="Summaries: without `payload`, `result` and `error.details`.",
        parameters=[
            Parameter("queue_id", ref("Id")),
            Parameter("state", {"type": "string", "enum": TaskState.values}, repeats=True),
            Parameter("handler", {"type": "string"}),
            Parameter("priority", integer(STRICT_PRIORITY_MIN, STRICT_PRIORITY_MAX)),
            Parameter("resource_key", {"type": "string"}),
            Parameter("created_from", _INSTANT, "Accepted at this moment or later."),
            Parameter("created_to", _INSTANT, "Accepted before this moment."),
            Parameter("dead", {"type": "boolean"}, "Dead letters: FAILED, neither replayed nor dismissed."),
            LIMIT,
            CURSOR,
        ],
        answers={200: Returns(page(ref("TaskSummary")), "A page.")},
        refusals=[404],
    )
    def get(self, request: Request) -> HttpResponse:
        narrowed = _filter(self.query)
        limit = self.query.page_limit()
        binding = [
            "tasks", self.principal.namespace_id, narrowed.queue_id, [state.value for state in narrowed.states],
            narrowed.handler, narrowed.priority, narrowed.resource_key, narrowed.created_from, narrowed.created_to,
            narrowed.dead,
        ]  # fmt: skip
        cursor = self.query.text("cursor")
        before = None if cursor is None else unseal(cursor, binding)
        tasks, last = task_reads.page(self.principal, narrowed, limit=limit, before=before)
        items = [task_summary(task, self.principal.policy) for task in tasks]
        return self.answer({"items": items, "next_cursor": None if last is None else seal(binding, last)})


class TaskBatch(AcceptingEndpoint):
    @operation(
        "submit_task_batch",
        action=Action.TASKS_SUBMIT,
        tag=TAG,
        summary="Submit a batch of independent tasks (not atomic)",
        description="Not atomic, unlike the usual batch create: each item is accepted or refused on its own, in order. "
        "200 says only that there is one result per item; `summary` counts them. Keys are those of single submits.",
        body=Body.REQUIRED,
        body_schema="BatchRequest",
        body_bytes_max=BATCH_BODY_BYTES_MAX,
        answers={200: Returns(ref("BatchResult"), "One result per item, in order.")},
    )
    def post(self, request: Request) -> HttpResponse:
        if header_values(self._http, "idempotency-key"):
            raise InvalidArgument.field("Idempotency-Key", "must not be sent with a batch: each item has its own key")
        items = read_batch(self.sent_document)
        ends_at = time.monotonic() + settings.ORBIT.batch_budget_ms / 1000
        results = batches.accept_all(
            self.principal,
            [self.submission(key, submit) for key, submit in items],
            is_over=lambda: time.monotonic() >= ends_at or has_left(self._http),
            request_id=self.context.request_id,
        )
        documents = [batch_item_document(index, result) for index, result in enumerate(results)]
        return self.answer(batch_document(documents, results))


class Task(Endpoint):
    @operation(
        "get_task",
        action=Action.TASKS_READ,
        tag=TAG,
        summary="Look at a task, or wait for it to change",
        description="With `wait_ms` the answer is kept back until the revision is newer than `revision` (missing: than "
        "the one at arrival) or time is up.",
        path=_ID,
        parameters=[
            WAIT_MS,
            Parameter("revision", ref("Revision"), "The revision that the caller has seen."),
            Parameter("If-None-Match", {"type": "string"}, "`ETag`s that the caller has.", place="header"),
        ],
        answers={
            200: Returns(_TASK, "The task as it is.", {"ETag": "Weak, over everything shown."}),
            304: Returns(None, "The caller has it already."),
        },
        refusals=[404],
    )
    def get(self, request: Request, task_id: str) -> HttpResponse:
        wait_ms = self.query.integer("wait_ms", minimum=0, maximum=WAIT_MS_MAX)
        seen = self.query.integer("revision", minimum=0, maximum=_REVISION_MAX)
        task = task_reads.get(self.principal, task_id)
        reason = waiting.why(task_id) if task.waits else None
        response = self.answer_unless_known({"task": task_document(task, self.principal.policy, waiting=reason)})
        if seen is None:
            seen = waits.at_arrival(self._http, "baseline")
        if seen is None:
            seen = task.revision
        if task.revision > seen:
            return response
        about = {"kind": "task", "task_id": task_id, "revision": task.revision, "baseline": seen}
        return waits.hold(self._http, response, wait_ms=wait_ms, about=about)


class TaskCancel(SteeringEndpoint):
    @operation(
        "cancel_task",
        action=Action.TASKS_CANCEL,
        tag=TAG,
        summary="Cancel a task",
        description="A task that has not started is CANCELED at once; a running one is asked to stop. Repeatable.",
        path=_ID,
        body=Body.REQUIRED,
        body_schema="CancelRequest",
        answers={200: Returns(_TASK, "Canceled, or the cancel is requested.")},
        refusals=[404, 409],
    )
    def post(self, request: Request, task_id: str) -> HttpResponse:
        fields = self.fields(required=("revision",), optional=("reason",))
        cancellation.cancel(
            self.principal, task_id, revision=revision_of(fields), reason=reason_of(fields), actor=self.actor
        )
        return self.shown(task_id)


class TaskReconcile(SteeringEndpoint):
    @operation(
        "reconcile_task",
        action=Action.TASKS_RECONCILE,
        tag=TAG,
        summary="Settle a task whose outcome is UNKNOWN",
        description="SUCCEEDED may carry `result`, FAILED may carry `error`; RETRY makes the task READY, whatever its "
        "retry mode.",
        path=_ID,
        body=Body.REQUIRED,
        body_schema="ReconcileRequest",
        answers={200: Returns(_TASK, "Settled.")},
        refusals=[404, 409],
    )
    def post(self, request: Request, task_id: str) -> HttpResponse:
        fields = self.fields(required=("revision", "decision", "reason"), optional=("result", "error"))
        verdict = _verdict(fields)
        reconciliation.reconcile(self.principal, task_id, verdict, revision=revision_of(fields), actor=self.actor)
        return self.shown(task_id)


def _filter(query: Query) -> TaskFilter:
    return TaskFilter(
        queue_id=query.identity("queue_id"),
        states=[TaskState(text) for text in query.choices("state", TaskState.values)],
        handler=query.text("handler"),
        priority=query.integer("priority", minimum=STRICT_PRIORITY_MIN, maximum=STRICT_PRIORITY_MAX),
        resource_key=query.text("resource_key"),
        created_from=query.instant("created_from"),
        created_to=query.instant("created_to"),
        dead=query.flag("dead"),
    )


def _verdict(fields: Fields) -> reconciliation.Verdict:
    """The decision with what belongs to it, and nothing else."""
    word = fields.required_string("decision")
    if word not in {decision.value for decision in Decision}:
        allowed = [decision.value for decision in Decision]
        raise InvalidArgument.field("decision", f"must be one of {', '.join(allowed)}", allowed=allowed)
    decision = Decision(word)
    for name, owner in (("result", Decision.SUCCEEDED), ("error", Decision.FAILED)):
        if name in fields and decision is not owner:
            raise InvalidArgument.field(name, f"belongs to the decision {owner.value}")
    reason = reason_of(fields) or ""
    result = fields.node_of("result")
    return reconciliation.Verdict(
        decision=decision,
        reason=reason,
        result=None if result is None else _bounded(result, RESULT_BYTES_MAX),
        error=_error(fields.object("error", required=("code", "message"), optional=("details",))),
    )


def _error(fields: Fields | None) -> tuple[str, str, str | None] | None:
    if fields is None:
        return None
    code, message = fields.required_string("code"), read_string(fields.required_node("message"))
    for name, value, lowest, highest in (
        ("code", code, 1, ERROR_CODE_LENGTH_MAX),
        ("message", message, 0, ERROR_MESSAGE_LENGTH_MAX),
    ):
        if not lowest <= len(value) <= highest:
            raise InvalidArgument.field(
                fields.path(name), f"must be {lowest} to {highest} characters", minimum=lowest, maximum=highest
            )
    details = fields.node_of("details")
    return code, message, None if details is None else _bounded(details, ERROR_DETAILS_BYTES_MAX)


def _bounded(node: Node, bytes_max: int) -> str:
    text: Any = node.raw
    if len(text.encode("utf-8")) > bytes_max:
        reason = f"must be at most {bytes_max} bytes as sent"
        raise PayloadTooLarge(
            f"{node.path}: {reason}", details=[{"field": node.path, "reason": reason, "limit": bytes_max}]
        )
    return str(text)
