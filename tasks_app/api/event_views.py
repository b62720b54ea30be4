"""Events of one task, and the feed of a namespace (design 1.4)."""

from __future__ import annotations

from typing import Final

from django.http import HttpResponse
from rest_framework.request import Request

from tasks_app.api import waits
from tasks_app.api.cursors import seal, unseal
from tasks_app.api.documents import Document, event_document
from tasks_app.api.endpoints import Endpoint
from tasks_app.api.openapi import CURSOR, LIMIT, WAIT_MS, Parameter, Returns, operation
from tasks_app.api.schema_components import page, ref
from tasks_app.domain import event_feed, event_reads
from tasks_app.domain.event_reads import EventView
from tasks_app.limits import WAIT_MS_MAX
from tasks_app.states import Action

TAG: Final = "events"


class _Events(Endpoint):
    def shown(self, event: EventView) -> Document:
        """With the cursor that `GET /v1/events?after=` goes on from: the place in the feed, or, for the moment in which
        an event has none yet, the event itself."""
        return event_document(event, self.feed_cursor(event.event_id if event.position is None else event.position))

    def feed_cursor(self, place: int | str) -> str:
        return seal(self._feed, place)

    @property
    def _feed(self) -> list[str]:
        return ["events", self.principal.namespace_id]


class TaskEvents(_Events):
    @operation(
        "list_task_events",
        action=Action.TASKS_READ,
        tag=TAG,
        summary="List the events of a task, oldest first",
        path=("task_id",),
        parameters=[LIMIT, CURSOR],
        answers={200: Returns(page(ref("Event")), "A page.")},
        refusals=[404],
    )
    def get(self, request: Request, task_id: str) -> HttpResponse:
        limit = self.query.page_limit()
        binding = ["task events", self.principal.namespace_id, task_id]
        cursor = self.query.text("cursor")
        after = None if cursor is None else unseal(cursor, binding)
        events, last = event_reads.of_task(self.principal, task_id, limit=limit, after=after)
        next_cursor = None if last is None else seal(binding, last)
        return self.answer({"items": [self.shown(event) for event in events], "next_cursor": next_cursor})


class Feed(_Events):
    @operation(
        "read_events",
        action=Action.TASKS_READ,
        tag=TAG,
        summary="Read the feed of the namespace",
        description="At least once, in one order, and never past an event that commits late. `next_cursor` is never "
        "null: at the end of the feed it is where to go on.",
        parameters=[
            Parameter("after", {"type": "string"}, "A cursor of an event or a page; missing: from the oldest kept."),
            LIMIT,
            WAIT_MS,
        ],
        answers={200: Returns(ref("Feed"), "What is there, perhaps nothing.")},
    )
    def get(self, request: Request) -> HttpResponse:
        limit = self.query.page_limit()
        wait_ms = self.query.integer("wait_ms", minimum=0, maximum=WAIT_MS_MAX)
        found = event_feed.read_feed(self.principal, limit=limit, after=self._start())
        response = self.answer(
            {
                "items": [self.shown(event) for event in found.events],
                "next_cursor": self.feed_cursor(found.next_position),
            }
        )
        if found.events:
            return response
        about = {
            "kind": "events",
            "namespace_id": self.principal.namespace_id,
            "position": found.next_position,
        }
        return waits.hold(self._http, response, wait_ms=wait_ms, about=about)

    def _start(self) -> int:
        cursor = self.query.text("after")
        if cursor is None:
            return 0
        place: int | str = unseal(cursor, self._feed, field="after")
        return place if isinstance(place, int) else event_reads.start_after(self.principal, place)
