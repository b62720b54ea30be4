"""Dead letters: replay one, replay a selection, dismiss (design 1.4)."""

from __future__ import annotations

import time
from typing import Final

from django.conf import settings
from django.http import HttpResponse
from rest_framework.request import Request

from tasks_app.api.bodies import Body
from tasks_app.api.context import has_left, header_values
from tasks_app.api.documents import batch_document, batch_item_document
from tasks_app.api.openapi import IDEMPOTENCY_KEY, Returns, operation
from tasks_app.api.readings import reason_of, revision_of
from tasks_app.api.schema_components import ref, shown
from tasks_app.api.task_views import ACCEPTED_ANSWERS, AcceptingEndpoint, SteeringEndpoint
from tasks_app.domain import replays, task_reads
from tasks_app.domain.replays import SelectionOrder
from tasks_app.errors import InvalidArgument
from tasks_app.json_fields import Fields, read_string
from tasks_app.states import REPLAYABLE, Action, TaskState
from tasks_app.submission_request import check_idempotency_key

TAG: Final = "dead letters"
_ID: Final = ("task_id",)
_STATES: Final = sorted(state.value for state in REPLAYABLE)


class TaskReplay(AcceptingEndpoint):
    @operation(
        "replay_task",
        action=Action.TASKS_REPLAY,
        tag=TAG,
        summary="Submit a failed, expired or canceled task again",
        description="As a new task with `replayed_from`; the old one gets `replayed_as` and leaves the dead letters. "
        "The priority is kept unless given. A task is replayed once.",
        path=_ID,
        body=Body.OPTIONAL,
        body_schema="ReplayRequest",
        parameters=[IDEMPOTENCY_KEY],
        answers=ACCEPTED_ANSWERS,
        refusals=[404, 409],
    )
    def post(self, request: Request, task_id: str) -> HttpResponse:
        key = check_idempotency_key(header_values(self._http, "idempotency-key"))
        fields = self.fields(optional=("priority", "delay_ms"))
        replayed = replays.replay(
            self.principal,
            task_id,
            key=key,
            priority=fields.integer("priority"),
            delay_ms=fields.integer("delay_ms"),
            request_id=self.context.request_id,
            traceparent=self.context.traceparent,
        )
        task = None
        if replayed.request is not None:
            task = task_reads.as_accepted(replayed.accepted, replayed.request, replayed_from=task_id)
        return self.accepted(replayed.accepted.receipt, task)


class TasksReplay(AcceptingEndpoint):
    @operation(
        "replay_tasks",
        action=Action.TASKS_REPLAY,
        tag=TAG,
        summary="Replay a selection of a queue, oldest first",
        description="Not atomic: each task is replayed or refused on its own. The selection is frozen under the key: "
        "the same key again covers the same tasks, gives the same receipts, and tries again what was refused.",
        body=Body.REQUIRED,
        body_schema="ReplaySelection",
        parameters=[IDEMPOTENCY_KEY],
        answers={200: Returns(ref("ReplayResult"), "One result per task of the selection, in order.")},
        refusals=[404, 409],
    )
    def post(self, request: Request) -> HttpResponse:
        key = check_idempotency_key(header_values(self._http, "idempotency-key"))
        order = _selection(self.fields(required=("queue_id", "limit"), optional=("states", "handler", "priority")))
        ends_at = time.monotonic() + settings.ORBIT.batch_budget_ms / 1000
        items = replays.replay_many(
            self.principal,
            order,
            key=key,
            is_over=lambda: time.monotonic() >= ends_at or has_left(self._http),
            request_id=self.context.request_id,
        )
        documents = [
            {**batch_item_document(index, item.result), "source_task_id": item.source_task_id}
            for index, item in enumerate(items)
        ]
        return self.answer(batch_document(documents, [item.result for item in items]))


class TaskDismiss(SteeringEndpoint):
    @operation(
        "dismiss_task",
        action=Action.TASKS_REPLAY,
        tag=TAG,
        summary="Take a failed task out of the dead letters",
        description="Repeatable.",
        path=_ID,
        body=Body.REQUIRED,
        body_schema="DismissRequest",
        answers={200: Returns(shown({"task": ref("Task")}), "Dismissed.")},
        refusals=[404, 409],
    )
    def post(self, request: Request, task_id: str) -> HttpResponse:
        fields = self.fields(required=("revision", "reason"))
        replays.dismiss(
            self.principal, task_id, revision=revision_of(fields), reason=reason_of(fields) or "", actor=self.actor
        )
        return self.shown(task_id)


def _selection(fields: Fields) -> SelectionOrder:
    """Structurally sound; the domain judges the values."""
    nodes = fields.elements("states", at_least=1, at_most=len(_STATES))
    states = frozenset({TaskState.FAILED})
    if nodes is not None:
        words = [read_string(node) for node in nodes]
        if not set(words) <= set(_STATES):
            raise InvalidArgument.field("states", f"must be some of {', '.join(_STATES)}", allowed=_STATES)
        states = frozenset(TaskState(word) for word in words)
    return SelectionOrder(
        queue_id=fields.required_identity("queue_id"),
        states=states,
        handler=fields.string("handler"),
        limit=fields.required_integer("limit"),
        priority=fields.integer("priority"),
    )
