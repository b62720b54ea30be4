"""`manage.py orbit_settings [--json]`: every setting, its value in force and where that came from."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

HEADINGS = ("NAME", "VALUE", "SOURCE", "DEFAULT", "UNIT", "RANGE")


class Command(BaseCommand):
    help = "Show every setting: name, value (secrets hidden), source, default, unit, range."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="for programs: one JSON array")

    def handle(self, *args: Any, **options: Any) -> None:
        lines = settings.ORBIT.describe()
        if options["json"]:
            self.stdout.write(json.dumps([dataclasses.asdict(line) for line in lines], indent=2, ensure_ascii=False))
            return
        rows = [
            (line.name, "-" if line.value is None else line.value, line.source, line.default, line.unit, line.range)
            for line in lines
        ]
        widths = [max(len(row[column]) for row in [HEADINGS, *rows]) for column in range(len(HEADINGS))]
        for row in [HEADINGS, *rows]:
            self.stdout.write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
