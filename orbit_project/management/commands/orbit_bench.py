"""`manage.py orbit_bench`: Orbit beside the raw SQL of the same rows (design 7.2). Never touches the configured
database.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

WORKLOADS = ("accept", "batch", "drain", "pickup", "claim")


class Command(BaseCommand):
    help = "Measures accept, drain, pick-up and claims on a private MariaDB, beside raw SQL in the same run."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="default: all")
        parser.add_argument("--quick", action="store_true", help="a minute's look instead of the published run")
        parser.add_argument("--output", default="var/bench", help="directory of results.json and results.md")

    def handle(self, *args: Any, **options: Any) -> None:
        # The bench needs the test support and the SDK, which an installed server does without.
        from bench.run import run

        names = list(options["workloads"]) or list(WORKLOADS)
        run(names, quick=options["quick"], directory=Path(options["output"]), say=self._say)

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
