"""Every address that a node answers over HTTP, composed from the apps."""

from django.contrib import admin
from django.urls import path

from orbit_project.one_time_login import one_time_login

urlpatterns = [
    path("admin/one-time-login", one_time_login, name="one-time-login"),
    path("admin/", admin.site.urls),
]
