"""Plain text tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tasks_app.instants import US_PER_SECOND, format_rfc3339

ABSENT = "-"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, two blanks between them."""
    cells = [[str(cell) for cell in row] for row in [headings, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def moment(at_us: int | None) -> str:
    """To the second, in UTC."""
    return ABSENT if at_us is None else format_rfc3339(at_us // US_PER_SECOND * US_PER_SECOND)


def quota(value: int | tuple[int, int] | None) -> str:
    """As it is given on the command line."""
    if value is None:
        return "none"
    return f"{value[0]}/{value[1]}" if isinstance(value, tuple) else str(value)
