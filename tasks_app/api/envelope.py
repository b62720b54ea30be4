"""The envelope of every answer under /v1 (design 1.1): `{"request_id", "data"}` or `{"request_id", "error"}`.

Documents of users go out exactly as they were stored: `RawJson` marks text that is JSON already.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from tasks_app.errors import OrbitError

# No text of an answer can begin with it: lone surrogates are refused at every door and by every database.
_RAW_MARK = "\udfff"
_RAW_PLACE = re.compile(f'"{_RAW_MARK}([0-9]+)"')


@dataclass(frozen=True)
class RawJson:
    """A JSON document as text, to be embedded digit for digit."""

    text: str


def success(request_id: str, data: bytes) -> bytes:
    """`data` is a document that `dump` made."""
    return b'{"request_id":"%s","data":%s}' % (request_id.encode("ascii"), data)


def failure(request_id: str, error: OrbitError) -> bytes:
    return dump({"request_id": request_id, "error": error.as_json()})


def dump(document: Any) -> bytes:
    """The document as UTF-8 JSON, members in their order, every `RawJson` in it verbatim."""
    texts: list[str] = []

    def place(value: Any) -> str:
        if not isinstance(value, RawJson):
            raise TypeError(f"{type(value).__name__} does not belong in an answer")
        texts.append(value.text)
        return f"{_RAW_MARK}{len(texts) - 1}"

    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=place)
    if texts:
        text = _RAW_PLACE.sub(lambda match: texts[int(match[1])], text)
    return text.encode("utf-8")
