from django.apps import AppConfig


class OrbitProjectConfig(AppConfig):
    """The commands that compose a node, and the project's templates; no models."""

    name = "orbit_project"
    verbose_name = "Orbit"
