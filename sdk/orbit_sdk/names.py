"""The "printable" rule of names (design 1.1)."""

from __future__ import annotations

from orbit_sdk.errors import ConfigError
from orbit_sdk.limits import NAME_LENGTH_MAX


def checked_name(text: object, what: str, *, length_max: int = NAME_LENGTH_MAX) -> str:
    """`text` if Orbit takes it as a name: printable, inner blanks only U+0020, none at either end.

    Raises ConfigError, which says `what` is wrong.
    """
    if (
        not isinstance(text, str)
        or not 1 <= len(text) <= length_max
        or not text.isprintable()
        or text != text.strip(" ")
    ):
        raise ConfigError(
            f"{what} must be 1 to {length_max} printable characters without a blank at either end, not {text!r}"
        )
    return text
