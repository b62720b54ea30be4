from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LifecycleAppConfig(AppConfig):
    name = "lifecycle_app"
    verbose_name = _("Lifecycle")
