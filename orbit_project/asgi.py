"""The ASGI application, for tools that ask for one. `manage.py orbit_serve` is how a node is run: it serves HTTP from
a bounded pool of threads, which plain ASGI under Django does not do (one database connection per request)."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")

application = get_asgi_application()
