from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WorkersAppConfig(AppConfig):
    name = "workers_app"
    verbose_name = _("Workers")
