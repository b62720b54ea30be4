"""Every address that a node answers over HTTP, composed from the apps."""

from django.contrib import admin
from django.urls import path

urlpatterns = [
    path("admin/", admin.site.urls),
]
