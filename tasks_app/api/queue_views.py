"""/v1/queues (design 1.5)."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpResponse
from rest_framework.request import Request

from tasks_app.api.bodies import Body
from tasks_app.api.cursors import seal, unseal
from tasks_app.api.documents import queue_document, statistics_document
from tasks_app.api.endpoints import Endpoint
from tasks_app.api.openapi import CURSOR, LIMIT, Returns, operation
from tasks_app.api.readings import integer_or_null, reason_of, revision_of
from tasks_app.api.schema_components import page, ref, shown
from tasks_app.domain import queues, statistics, waiting
from tasks_app.domain.queues import QUEUE_SETTINGS, QueueSettings, StartRate
from tasks_app.json_fields import Fields, read_integer, read_string
from tasks_app.states import Action

TAG: Final = "queues"
_ID: Final = ("queue_id",)
_QUEUE: Final = shown({"queue": ref("Queue")})


class Queues(Endpoint):
    @operation(
        "create_queue",
        action=Action.QUEUES_MANAGE,
        tag=TAG,
        summary="Make a queue",
        description="Limits are `null` for none. `weight`, `default_priority` and `retry_priority` LOWER mean "
        "something in a STRICT namespace only and are refused elsewhere.",
        body=Body.REQUIRED,
        body_schema="QueueRequest",
        answers={201: Returns(_QUEUE, "Made.", {"Location": "The queue."})},
        refusals=[409],
    )
    def post(self, request: Request) -> HttpResponse:
        fields = self.fields(required=("name",), optional=QUEUE_SETTINGS)
        settings = QueueSettings(name=fields.required_string("name"), **_settings(fields))
        queue = queues.create(self.principal, settings, actor=self.actor)
        return self.answer(
            {"queue": queue_document(queue)}, status=201, headers={"Location": f"/v1/queues/{queue.queue_id}"}
        )

    @operation(
        "list_queues",
        action=Action.QUEUES_READ,
        tag=TAG,
        summary="List queues, oldest first",
        parameters=[LIMIT, CURSOR],
        answers={200: Returns(page(ref("Queue")), "A page.")},
    )
    def get(self, request: Request) -> HttpResponse:
        limit = self.query.page_limit()
        binding = ["queues", self.principal.namespace_id]
        cursor = self.query.text("cursor")
        after = None if cursor is None else unseal(cursor, binding)
        found, last = queues.page(self.principal, limit=limit, after=after)
        items = [queue_document(queue) for queue in found]
        return self.answer({"items": items, "next_cursor": None if last is None else seal(binding, last)})


class Queue(Endpoint):
    @operation(
        "get_queue",
        action=Action.QUEUES_READ,
        tag=TAG,
        summary="Look at a queue",
        path=_ID,
        answers={200: Returns(_QUEUE, "The queue as it is.")},
        refusals=[404],
    )
    def get(self, request: Request, queue_id: str) -> HttpResponse:
        return self.answer({"queue": queue_document(queues.get(self.principal, queue_id))})

    @operation(
        "change_queue",
        action=Action.QUEUES_MANAGE,
        tag=TAG,
        summary="Change limits and settings of a queue",
        description="A member set to `null` lifts the limit. A limit below what is held stops what is new and takes "
        "nothing away.",
        path=_ID,
        body=Body.REQUIRED,
        body_schema="QueueChange",
        answers={200: Returns(_QUEUE, "Changed.")},
        refusals=[404, 409],
    )
    def patch(self, request: Request, queue_id: str) -> HttpResponse:
        fields = self.fields(required=("revision",), optional=QUEUE_SETTINGS)
        queue = queues.change(
            self.principal, queue_id, _settings(fields), revision=revision_of(fields), actor=self.actor
        )
        return self.answer({"queue": queue_document(queue)})


class QueuePause(Endpoint):
    @operation(
        "pause_queue",
        action=Action.QUEUES_MANAGE,
        tag=TAG,
        summary="Pause a queue",
        description="It goes on accepting; nothing more is started. Repeatable.",
        path=_ID,
        body=Body.OPTIONAL,
        body_schema="PauseRequest",
        answers={200: Returns(_QUEUE, "Paused.")},
        refusals=[404],
    )
    def post(self, request: Request, queue_id: str) -> HttpResponse:
        reason = reason_of(self.fields(optional=("reason",)))
        queue = queues.pause(self.principal, queue_id, reason=reason, actor=self.actor)
        return self.answer({"queue": queue_document(queue)})


class QueueResume(Endpoint):
    @operation(
        "resume_queue",
        action=Action.QUEUES_MANAGE,
        tag=TAG,
        summary="Resume a queue",
        description="Repeatable.",
        path=_ID,
        body=Body.OPTIONAL,
        body_schema="Empty",
        answers={200: Returns(_QUEUE, "Resumed.")},
        refusals=[404],
    )
    def post(self, request: Request, queue_id: str) -> HttpResponse:
        self.fields()
        return self.answer({"queue": queue_document(queues.resume(self.principal, queue_id, actor=self.actor))})


class QueueStats(Endpoint):
    @operation(
        "get_queue_stats",
        action=Action.QUEUES_READ,
        tag=TAG,
        summary="Count what stands in a queue",
        description="Counts by state, backlog by priority with the oldest wait, the start budget, why the head waits.",
        path=_ID,
        answers={200: Returns(shown({"stats": ref("QueueStatistics")}), "As of now.")},
        refusals=[404],
    )
    def get(self, request: Request, queue_id: str) -> HttpResponse:
        found = statistics.of_queue(self.principal, queue_id)
        head = None if found.head_task_id is None else waiting.why(found.head_task_id)
        return self.answer({"stats": statistics_document(found, head)})


def _settings(fields: Fields) -> dict[str, Any]:
    """The settings that were sent, structurally sound; the domain judges their values."""
    settings: dict[str, Any] = {
        name: integer_or_null(fields, name)
        for name in ("max_unfinished", "max_running", "default_priority")
        if name in fields
    }
    if "start_rate" in fields:
        settings["start_rate"] = _start_rate(fields)
    if "weight" in fields:
        settings["weight"] = read_integer(fields.required_node("weight"))
    if "retry_priority" in fields:
        settings["retry_priority"] = read_string(fields.required_node("retry_priority"))
    return settings


def _start_rate(fields: Fields) -> StartRate | None:
    if fields.is_null("start_rate"):
        return None
    rate = fields.object("start_rate", required=("starts", "per_ms"))
    return None if rate is None else (rate.required_integer("starts"), rate.required_integer("per_ms"))
