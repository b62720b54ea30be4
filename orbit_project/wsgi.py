"""The API and the pages as plain WSGI, for granian or gunicorn; sockets and long polls need a node (`orbit_serve`)."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")

application = get_wsgi_application()
