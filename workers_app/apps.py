from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WorkersAppConfig(AppConfig):
    name = "workers_app"
    verbose_name = _("Workers")

    def ready(self) -> None:
        from tasks_app.domain.waiting import know_workers_by
        from workers_app.connected_workers import connected_workers

        know_workers_by(connected_workers)
