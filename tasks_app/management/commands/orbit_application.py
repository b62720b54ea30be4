"""`manage.py orbit_application show|set A`: the quotas of an application and what it holds of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.domain import applications, audit
from tasks_app.domain.applications import ApplicationView
from tasks_app.instants import format_rfc3339
from tasks_app.management import arguments, tables

ACTOR = audit.command("orbit_application")
QUOTAS = ("max_unfinished", "max_running", "start_rate")


class Command(BaseCommand):
    help = "Show or set the quotas of an application."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        show = verbs.add_parser("show", help="quotas, and what is held of them")
        change = verbs.add_parser("set", help="set quotas; `none` lifts one, what is not named stays as it is")
        for verb in (show, change):
            verb.add_argument("application", metavar="A", help="name of the application")
            verb.add_argument("--json", action="store_true", help="for programs: one JSON object")
        change.add_argument("--max-unfinished", type=arguments.limit_or_none, metavar="N|none")
        change.add_argument("--max-running", type=arguments.limit_or_none, metavar="N|none")
        change.add_argument("--start-rate", type=arguments.start_rate_or_none, metavar="STARTS/PER_MS|none")

    def handle(self, *args: Any, **options: Any) -> None:
        with arguments.told_as_command_errors():
            if options["verb"] == "show":
                found = applications.find(options["application"])
            else:
                found = applications.change_quotas(options["application"], _quotas(options), actor=ACTOR)
        self.stdout.write(_json(found) if options["json"] else _text(found))


def _quotas(options: dict[str, Any]) -> dict[str, Any]:
    said = {name: options[name] for name in QUOTAS if options[name] is not None}
    if not said:
        raise CommandError("name at least one of --max-unfinished, --max-running, --start-rate")
    return {name: None if value == arguments.NONE else value for name, value in said.items()}


def _text(found: ApplicationView) -> str:
    return tables.table(
        (f"application {found.name}", ""),
        [
            ("application_id", found.application_id),
            ("created_at", tables.moment(found.created_at)),
            ("namespaces", ", ".join(found.namespaces) or tables.ABSENT),
            ("max_unfinished", f"{tables.quota(found.max_unfinished)} ({found.unfinished} unfinished now)"),
            ("max_running", f"{tables.quota(found.max_running)} ({found.running} reserved or running now)"),
            ("start_rate", tables.quota(found.start_rate)),
        ],
    )


def _json(found: ApplicationView) -> str:
    members = dataclasses.asdict(found)
    if found.start_rate is not None:
        members["start_rate"] = {"starts": found.start_rate[0], "per_ms": found.start_rate[1]}
    members["created_at"] = format_rfc3339(found.created_at)
    return json.dumps(members, ensure_ascii=False, indent=2)
