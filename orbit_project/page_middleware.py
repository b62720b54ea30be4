"""Sessions, languages, users and messages: for pages alone.

A call of the API carries its credential in a header and needs none of them; skipping them there saves a good part of
what Django costs per request. Django's own checks accept the subclasses.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponseBase
from django.middleware.locale import LocaleMiddleware
from django.utils.deprecation import MiddlewareMixin

API_PREFIX: Final = "/v1/"


class _PagesOnly(MiddlewareMixin):
    """What stands beside it in a class is left out for calls of the API."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if request.path_info.startswith(API_PREFIX):
            return self.get_response(request)
        return super().__call__(request)


class PageSessionMiddleware(_PagesOnly, SessionMiddleware):
    """`request.session` on pages."""


class PageLocaleMiddleware(_PagesOnly, LocaleMiddleware):
    """The reader's language on pages; the API speaks one."""


class PageAuthenticationMiddleware(_PagesOnly, AuthenticationMiddleware):
    """`request.user` on pages; the API's callers are credentials."""


class PageMessageMiddleware(_PagesOnly, MessageMiddleware):
    """One-time messages on pages."""
