"""Orbit in Django projects: a `TASKS` backend and a transactional outbox.

INSTALLED_APPS = [..., "orbit_sdk.contrib.django"]       # the outbox's table and the commands
TASKS = {"default": {"BACKEND": "orbit_sdk.contrib.django.backend.OrbitBackend", "QUEUES": ["default"]}}
"""
