"""`manage.py orbit_prune [--dry-run]`: delete what is older than its retention, in small batches; stop at any time."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tasks_app.domain import retention
from tasks_app.management import arguments


class Command(BaseCommand):
    help = (
        "Delete finished tasks, events, receipts, firings and audit entries that are older than their retention "
        "(ORBIT_RETAIN_…), in small batches with rests, while everything runs. May be stopped and started again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only count what would be deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        dry_run = options["dry_run"]
        with arguments.told_as_command_errors():
            for kind in retention.kinds():
                rows = 0
                for batch in retention.run(kind, dry_run=dry_run):
                    rows += batch.rows
                    if not batch.is_last:
                        time.sleep(retention.rest_seconds(batch.seconds))
                verb = "would be deleted" if dry_run else "deleted"
                self.stdout.write(f"{kind.name}: {rows} {verb} (kept for {kind.days()} days)")
