"""`manage.py orbit_check [--repair]`: look at the whole database for what must hold; say what does not."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.domain import audit, invariant_rows, invariants
from tasks_app.domain.invariants import Finding
from tasks_app.management import arguments

ACTOR = audit.command("orbit_check")
SHOWN_MAX: Final = 50  # of one check; one fault of the code makes many

invariant_rows.register_checks()


class Command(BaseCommand):
    help = (
        "Check what must hold in the whole database, while it is in use: counters equal rows, one live attempt per "
        "task, every receipt has its task, revisions without gaps, … Exit status 1 if something does not hold."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--repair", action="store_true", help="set wrong counters to what the rows say; nothing else"
        )
        parser.add_argument("--only", action="append", choices=invariants.names(), help="this check; may be repeated")
        parser.add_argument("--json", action="store_true", help="for programs: one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        found: dict[str, list[Finding]] = {}
        repaired: list[Finding] = []
        with arguments.told_as_command_errors():
            for name in options["only"] or invariants.names():
                found[name] = list(invariants.look(name))
                if not options["json"]:
                    self._tell(name, found[name])
            if options["repair"]:
                repaired = [one for one in _flat(found) if one.drift and invariants.repair(one.drift, actor=ACTOR)]
            left = [one for one in _flat(found) if not one.is_note and one not in repaired]
            notes = sum(one.is_note for one in _flat(found))
            seconds = time.monotonic() - began
            if not options["only"]:
                invariants.record_run(
                    faults=len(left), notes=notes, repaired=len(repaired), seconds=seconds, actor=ACTOR
                )
        if options["json"]:
            self.stdout.write(_json(found, repaired))
        for one in repaired if not options["json"] else ():
            self.stdout.write(f"repaired: {one.object_id}")
        if left:
            raise CommandError(f"{len(left)} faults ({', '.join(sorted({one.check for one in left}))})")
        if not options["json"]:
            self.stdout.write(f"everything holds ({seconds:.1f} s)")

    def _tell(self, name: str, findings: list[Finding]) -> None:
        faults = sum(not one.is_note for one in findings)
        self.stdout.write(f"{name}: {'OK' if not faults else f'{faults} faults'}")
        for one in findings[:SHOWN_MAX]:
            self.stdout.write(f"  {'note: ' if one.is_note else ''}{one.object_id}: {one.text}")
        if len(findings) > SHOWN_MAX:
            self.stdout.write(f"  … and {len(findings) - SHOWN_MAX} more")


def _flat(found: dict[str, list[Finding]]) -> list[Finding]:
    return [one for findings in found.values() for one in findings]


def _json(found: dict[str, list[Finding]], repaired: list[Finding]) -> str:
    def shown(one: Finding) -> dict[str, Any]:
        members = dataclasses.asdict(one)
        del members["drift"]
        return {**members, "repaired": one in repaired}

    return json.dumps({name: [shown(one) for one in findings] for name, findings in found.items()}, indent=2)
