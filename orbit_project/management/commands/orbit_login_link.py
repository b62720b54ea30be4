"""`manage.py orbit_login_link --url URL`: one line with a one-time login to the operators' site of a node in debug."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orbit_project.one_time_login import LoginLinkRefused, make_link


class Command(BaseCommand):
    help = "Print a link that logs in once, within ten minutes; on loopback and in debug only."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", required=True, help="where the node is, such as http://127.0.0.1:8080")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(make_link(options["url"]))
        except LoginLinkRefused as refused:
            raise CommandError(str(refused)) from None
