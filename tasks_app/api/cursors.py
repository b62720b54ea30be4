"""Cursors: opaque, signed, and bound to the list and the filters that they were given for (design 1.1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from django.core.signing import BadSignature, Signer

from tasks_app.errors import InvalidArgument

_LENGTH_MAX: Final = 512
_SALT: Final = "orbit.cursor"
_NOT_OURS: Final = "is not a cursor of this list with these filters"


def seal(binding: Sequence[Any], position: Any) -> str:
    """A cursor for `position` (plain JSON) of the list that `binding` describes: its name, its namespace, its
    filters."""
    return _signer().sign_object([_fingerprint(binding), position])


def unseal(cursor: str, binding: Sequence[Any], *, field: str = "cursor") -> Any:
    """The position that `seal` put into the cursor. Raises InvalidArgument naming the parameter `field`."""
    if len(cursor) > _LENGTH_MAX:
        raise InvalidArgument.field(field, _NOT_OURS)
    try:
        fingerprint, position = _signer().unsign_object(cursor)
    except (BadSignature, ValueError):
        raise InvalidArgument.field(field, _NOT_OURS) from None
    if fingerprint != _fingerprint(binding):
        raise InvalidArgument.field(field, _NOT_OURS)
    return position


def _signer() -> Signer:
    return Signer(salt=_SALT, sep=".")


def _fingerprint(binding: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(binding).encode("ascii")).hexdigest()[:16]
