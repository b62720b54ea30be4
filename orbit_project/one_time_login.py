"""A login link for the person at this machine: signed, good for one use and ten minutes, on loopback in debug only.

The link carries the account's last login. Using it changes that, in one guarded update, so a second use finds nothing.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.models import AbstractUser
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from orbit_project.setting_values import Address

SECONDS_MAX: Final = 600
SALT: Final = "orbit.one-time-login"
USER_NAME: Final = "operator"


class LoginLinkRefused(Exception):
    """This is not a place where a link may stand for a password."""


def is_allowed() -> bool:
    """Debug, and a node that only this machine can reach."""
    return bool(settings.DEBUG) and bool(settings.ORBIT.http_addr.is_loopback)


def make_link(base_url: str) -> str:
    """A link that logs in as the first superuser, who is made (without a password) where there is none.

    Raises LoginLinkRefused outside debug and loopback.
    """
    if not is_allowed():
        raise LoginLinkRefused("one-time logins exist on loopback and with ORBIT_DEBUG=1 only")
    users: Any = get_user_model()._default_manager
    user = users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if user is None:
        user = users.create_superuser(USER_NAME, password=None)
    token = signing.dumps({"user": user.pk, "last_login": _seen(user)}, salt=SALT)
    return f"{base_url.rstrip('/')}{reverse('one-time-login')}?{urlencode({'token': token})}"


@require_GET
@never_cache
def one_time_login(request: HttpRequest) -> HttpResponse:
    """Log in by a link of `make_link` and go on to the operators' site; 404 for everything that is not quite right."""
    if not is_allowed() or not Address(request.META.get("REMOTE_ADDR", ""), 0).is_loopback:
        raise Http404
    try:
        said = signing.loads(request.GET.get("token", ""), salt=SALT, max_age=SECONDS_MAX)
    except signing.BadSignature:
        raise Http404 from None
    users: Any = get_user_model()._default_manager
    user = users.filter(pk=said["user"], is_superuser=True, is_active=True).first()
    if user is None or _seen(user) != said["last_login"]:
        raise Http404
    # Two clicks at once: the row decides which of them found the link unused.
    if users.filter(pk=user.pk, last_login=user.last_login).update(last_login=timezone.now()) != 1:
        raise Http404
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("admin:index")


def _seen(user: AbstractUser) -> str:
    return "" if user.last_login is None else user.last_login.isoformat()
