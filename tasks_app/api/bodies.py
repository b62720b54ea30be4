"""Bodies: media type, size and strict JSON, in the order of refusals of design 1.1."""

from __future__ import annotations

import re
from enum import Enum
from typing import IO, Any, Final

from django.http import HttpRequest
from rest_framework.parsers import BaseParser

from tasks_app.errors import InvalidArgument, PayloadTooLarge, UnsupportedMediaType
from tasks_app.limits import BODY_BYTES_MAX
from tasks_app.strict_json import Node, parse_document

_MEDIA_TYPE: Final = re.compile(
    r'[ \t]*application/json[ \t]*(;[ \t]*charset=(utf-8|"utf-8")[ \t]*)?', re.ASCII | re.IGNORECASE
)


class Body(Enum):
    """What a method does with a body."""

    NONE = "takes none"
    OPTIONAL = "an object, or nothing at all: every field is optional"
    REQUIRED = "required"


class StrictJsonParser(BaseParser):
    """The parser as Django REST framework knows one; it names the media type in the OpenAPI document."""

    media_type = "application/json"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Any = None) -> Any:
        return parse_document(stream.read())


def check_size(request: HttpRequest, *, bytes_max: int = BODY_BYTES_MAX) -> None:
    """By the length that was announced, before anything is read. A node has cut the connection at this limit
    already."""
    if int(request.META.get("CONTENT_LENGTH") or 0) > bytes_max:
        raise PayloadTooLarge(
            f"the body is larger than {bytes_max} bytes",
            details=[{"field": "", "reason": "the body is larger than the limit", "bytes_max": bytes_max}],
        )


def check_media_type(request: HttpRequest) -> None:
    """A request with a body says that it is JSON, in no other charset than UTF-8 and under no content encoding."""
    if not _has_body(request):
        return
    if "HTTP_CONTENT_ENCODING" in request.META:
        raise UnsupportedMediaType(details=[{"field": "Content-Encoding", "reason": "must not be sent"}])
    if _MEDIA_TYPE.fullmatch(request.META.get("CONTENT_TYPE") or "") is None:
        raise UnsupportedMediaType(details=[{"field": "Content-Type", "reason": "must be application/json"}])


def read_body(request: HttpRequest, rule: Body) -> Node | None:
    """The document, read to its end; None where there is none and none is needed. Raises InvalidArgument."""
    if not _has_body(request):
        if rule is Body.REQUIRED:
            raise InvalidArgument.field("", "the body is required and must not be empty")
        return None
    if rule is Body.NONE:
        raise InvalidArgument.field("", "this method takes no body")
    return parse_document(request.body)


def _has_body(request: HttpRequest) -> bool:
    return int(request.META.get("CONTENT_LENGTH") or 0) > 0
