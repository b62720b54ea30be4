"""The Django app: the outbox's table and the management commands."""

from django.apps import AppConfig


class OrbitConfig(AppConfig):
    name = "orbit_sdk.contrib.django"
    label = "orbit_outbox"
    verbose_name = "Orbit outbox"
    default_auto_field = "django.db.models.BigAutoField"
