"""Members that several bodies share, read and judged."""

from __future__ import annotations

import re
from typing import Final

from tasks_app.errors import InvalidArgument
from tasks_app.json_fields import Fields, read_integer
from tasks_app.limits import REASON_LENGTH_MAX

_REVISION: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def revision_of(fields: Fields) -> int:
    """The required `revision`: a decimal number as a string."""
    text = fields.required_string("revision")
    if _REVISION.fullmatch(text) is None:
        raise InvalidArgument.field(fields.path("revision"), 'must be a revision: a decimal number such as "7"')
    return int(text)


def reason_of(fields: Fields) -> str | None:
    """`reason`, 1 to 1000 characters, where it was given."""
    reason = fields.string("reason")
    if reason is not None and not 1 <= len(reason) <= REASON_LENGTH_MAX:
        raise InvalidArgument.field(
            fields.path("reason"), f"must be 1 to {REASON_LENGTH_MAX} characters", minimum=1, maximum=REASON_LENGTH_MAX
        )
    return reason


def integer_or_null(fields: Fields, name: str) -> int | None:
    """A member that may be `null`, which means the same as None."""
    member = fields.node_of(name)
    return None if member is None or member.kind == "null" else read_integer(member)
