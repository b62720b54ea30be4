"""JSON as it was kept, laid out for people: every digit, escape and repeated blank inside a string stays as it is.

The text is cut into tokens and only white space between them is chosen anew; nothing is parsed into numbers, so that
12345678901234567890.10 is shown as 12345678901234567890.10.
"""

from __future__ import annotations

import re
from typing import Final

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

SHOWN_CHARACTERS_MAX: Final = 20_000
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT: Final = "  "


def laid_out(text: str) -> str:
    """The same tokens, one member a line."""
    lines: list[str] = []
    depth = 0
    tokens = _TOKEN.findall(text)
    for index, piece in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if piece in "{[":
            lines.append(piece)
            if following not in ("}", "]"):
                depth += 1
                lines.append("\n" + _INDENT * depth)
        elif piece in "}]":
            if index and tokens[index - 1] not in ("{", "["):
                depth -= 1
                lines.append("\n" + _INDENT * depth)
            lines.append(piece)
        elif piece == ",":
            lines.append(",\n" + _INDENT * depth)
        else:
            lines.append(": " if piece == ":" else piece)
    return "".join(lines)


def highlighted(text: str) -> SafeString:
    """The laid-out text as HTML, each piece in the colour of its kind."""
    shown = laid_out(text)
    parts: list[str] = []
    last = 0
    for match in _TOKEN.finditer(shown):
        parts.append(format_html("{}", shown[last : match.start()]))
        parts.append(_coloured(match.group(), is_key=shown[match.end() : match.end() + 2] == ": "))
        last = match.end()
    parts.append(format_html("{}", shown[last:]))
    return mark_safe("".join(parts))  # noqa: S308 - every part was escaped by format_html


def _coloured(piece: str, *, is_key: bool) -> str:
    if piece in "{}[],:":
        return format_html("{}", piece)
    kind = "key" if is_key else "string" if piece.startswith('"') else "word"
    return format_html('<span class="orbit-json-{}">{}</span>', kind, piece)
