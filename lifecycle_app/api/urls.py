"""The addresses of the lifecycle's API."""

from __future__ import annotations

from django.urls import path

import tasks_app.api.urls  # noqa: F401 - registers the converter `segment`
from lifecycle_app.api import views

urlpatterns = [
    path("v1/operations", views.Operations.as_view()),
    path("v1/operations/<segment:gid>", views.Operation.as_view()),
    path("v1/operations/<segment:gid>:reconcile", views.OperationReconcile.as_view()),
    path("v1/operations/<segment:gid>/favorites/<path:requester>", views.OperationFavorite.as_view()),
]
