"""Every address that a node answers over HTTP, composed from the apps."""

from django.contrib import admin
from django.urls import include, path

from lifecycle_app.api import urls as lifecycle_api
from orbit_project.one_time_login import one_time_login
from orbit_project.protocol_documents import worker_asyncapi_document, worker_json_schema
from tasks_app.api import urls as tasks_api

urlpatterns = [
    path("admin/one-time-login", one_time_login, name="one-time-login"),
    path("admin/i18n/", include("django.conf.urls.i18n")),
    path("admin/", admin.site.urls),
    *tasks_api.urlpatterns,
    *lifecycle_api.urlpatterns,
    path("v1/worker-schema.json", worker_json_schema),
    path("v1/worker-asyncapi.json", worker_asyncapi_document),
    *tasks_api.unknown,  # last: every path under /v1 answers in the envelope
]

handler400 = "tasks_app.api.errors.bad_request"
handler403 = "tasks_app.api.errors.permission_denied"
handler404 = "tasks_app.api.errors.page_not_found"
handler500 = "tasks_app.api.errors.server_error"
