"""One JSON and one Markdown table a run."""

from __future__ import annotations

import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from bench.workloads import Figure, cores


def as_json(figures: list[Figure], *, server: str) -> dict[str, Any]:
    return {
        "taken_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cores": cores(), "python": platform.python_version(), "database": server},
        "figures": [
            {
                "name": figure.name,
                "unit": figure.unit,
                "orbit": [round(value, 3) for value in figure.orbit],
                "raw": [round(value, 3) for value in figure.raw],
                "ratio": None if figure.ratio is None else round(figure.ratio, 3),
                "note": figure.note,
            }
            for figure in figures
        ],
    }


def as_markdown(figures: list[Figure], *, server: str) -> str:
    lines = [
        f"Measured on {cores()} cores, Python {platform.python_version()}, {server}, durable flush; client, node,"
        " worker and database share the cores. Medians of rounds; a ratio is the median of the rounds' own.",
        "",
        "| workload | unit | Orbit | raw SQL | ratio | raw is |",
        "|---|---|---:|---:|---:|---|",
    ]
    for figure in figures:
        raw = _number(statistics.median(figure.raw)) if figure.raw else ""
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        note = figure.note.removeprefix("raw: ")
        lines.append(
            f"| {figure.name} | {figure.unit} | {_number(statistics.median(figure.orbit))} | {raw} | {ratio} | {note} |"
        )
    return "\n".join(lines) + "\n"


def write(figures: list[Figure], directory: Path, *, server: str) -> tuple[Path, Path]:
    directory.mkdir(parents=True, exist_ok=True)
    data, table = directory / "results.json", directory / "results.md"
    data.write_text(json.dumps(as_json(figures, server=server), indent=1) + "\n")
    table.write_text(as_markdown(figures, server=server))
    return data, table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
