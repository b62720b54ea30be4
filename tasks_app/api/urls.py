"""The addresses of this app's API. `unknown` stands last in the project's addresses, behind those of every other
app."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path, re_path, register_converter
from django.views.decorators.csrf import csrf_exempt

from tasks_app.api import docs_views, event_views, queue_views, replay_views, service_views, task_views
from tasks_app.api.errors import refusal_response
from tasks_app.errors import NotFound


class SegmentConverter:
    """An id in a path, well formed or not: a malformed one is 400 after the credential was looked at, not 404. The
    colon ends it, so that an unknown verb is an unknown path."""

    regex = "[^/:]+"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(SegmentConverter, "segment")


@csrf_exempt
def unknown_path(request: HttpRequest) -> HttpResponse:
    return refusal_response(request, NotFound("no such path"))


urlpatterns = [
    path("healthz", service_views.live),
    path("livez", service_views.live),
    path("readyz", service_views.ready),
    path("metrics", service_views.metrics),
    path("docs/", docs_views.SwaggerPage.as_view()),
    path("docs/errors/", docs_views.errors_page),
    path("v1/openapi.json", docs_views.openapi),
    path("v1/tasks", task_views.Tasks.as_view()),
    path("v1/tasks:batch", task_views.TaskBatch.as_view()),
    path("v1/tasks:replay", replay_views.TasksReplay.as_view()),
    path("v1/tasks/<segment:task_id>", task_views.Task.as_view()),
    path("v1/tasks/<segment:task_id>:cancel", task_views.TaskCancel.as_view()),
    path("v1/tasks/<segment:task_id>:reconcile", task_views.TaskReconcile.as_view()),
    path("v1/tasks/<segment:task_id>:replay", replay_views.TaskReplay.as_view()),
    path("v1/tasks/<segment:task_id>:dismiss", replay_views.TaskDismiss.as_view()),
    path("v1/tasks/<segment:task_id>/events", event_views.TaskEvents.as_view()),
    path("v1/events", event_views.Feed.as_view()),
    path("v1/queues", queue_views.Queues.as_view()),
    path("v1/queues/<segment:queue_id>", queue_views.Queue.as_view()),
    path("v1/queues/<segment:queue_id>:pause", queue_views.QueuePause.as_view()),
    path("v1/queues/<segment:queue_id>:resume", queue_views.QueueResume.as_view()),
    path("v1/queues/<segment:queue_id>/stats", queue_views.QueueStats.as_view()),
]

unknown = [re_path(r"^v1(?:/.*)?$", unknown_path)]
