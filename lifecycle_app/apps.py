from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LifecycleAppConfig(AppConfig):
    name = "lifecycle_app"
    verbose_name = _("Lifecycle")

    def ready(self) -> None:
        from lifecycle_app.domain import upkeep  # the models are there only now

        upkeep.register()
