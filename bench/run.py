"""All workloads, or some of them, in one run."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import report, workloads
from bench.place import place
from bench.workloads import FULL, QUICK, Figure, Scale

WORKLOADS = ("accept", "batch", "drain", "pickup", "claim")


def run(names: list[str], *, quick: bool, directory: Path, say: Callable[[str], None]) -> list[Figure]:
    """Runs the named workloads on a private server and node; writes results.json and results.md to `directory`."""
    scale = QUICK if quick else FULL
    # What the operator's own environment says must not leak into the processes that are measured.
    for name in [name for name in os.environ if name.startswith("ORBIT_")]:
        del os.environ[name]
    figures: list[Figure] = []
    with place() as found:
        server = f"MariaDB {found.server.version}"
        say(f"MariaDB {found.server.version} on port {found.server.port}, {workloads.cores()} cores")
        if set(names) - {"claim"}:
            with found.node() as (url, pid):
                for figure in _with_node(names, scale, found, url):
                    figures.append(figure)
                    say(_line(figure))
                figures.append(workloads.memory(found, pid))
                say(_line(figures[-1]))
        if "claim" in names:
            for figure in workloads.claim(found, scale):
                figures.append(figure)
                say(_line(figure))
    data, table = report.write(figures, directory, server=server)
    say(f"written: {data} and {table}")
    return figures


def _with_node(names: list[str], scale: Scale, found: workloads.Place, url: str) -> Iterator[Figure]:
    if "accept" in names:
        yield from workloads.accept(found, url, scale, batch=1)
    if "batch" in names:
        yield from workloads.accept(found, url, scale, batch=32)
    if "drain" in names:
        for prefetch in (10, 64):
            yield workloads.drain(found, url, scale, prefetch=prefetch)
    if "pickup" in names:
        yield from workloads.pick_up(found, url, scale)


def _line(figure: Figure) -> str:

    ratio = "" if figure.ratio is None else f"  = {figure.ratio:.2f} x raw"
    return f"{figure.name}: {statistics.median(figure.orbit):,.1f} {figure.unit}{ratio}"
