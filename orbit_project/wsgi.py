"""The API and the pages as plain WSGI, for granian or gunicorn; sockets and long polls need a node (`orbit_serve`)."""

import os
from collections.abc import Callable, Iterable
from typing import Any

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")

_django = get_wsgi_application()

from django.conf import settings  # noqa: E402  (read only after Django is set up)

from orbit_project.serving.client_addresses import caller  # noqa: E402


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Django behind the same rule about proxies as a node: who is not trusted cannot choose the caller's address."""
    headers = {
        "x-forwarded-for": environ.get("HTTP_X_FORWARDED_FOR", ""),
        "x-forwarded-proto": environ.get("HTTP_X_FORWARDED_PROTO", ""),
    }
    found = caller(
        environ.get("REMOTE_ADDR", ""),
        headers,
        scheme=environ.get("wsgi.url_scheme", "http"),
        trusted_proxies=settings.ORBIT.trusted_proxies,
    )
    return _django({**environ, "REMOTE_ADDR": found.address, "wsgi.url_scheme": found.scheme}, start_response)
