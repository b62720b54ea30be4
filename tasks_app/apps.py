from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TasksAppConfig(AppConfig):
    name = "tasks_app"
    verbose_name = _("Tasks")
