"""`manage.py orbit_tasks_worker`: run the tasks of a `TASKS` backend."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orbit_sdk.contrib.django.task_worker import task_worker
from orbit_sdk.errors import ConfigError, OrbitError
from orbit_sdk.worker.worker import DEFAULT_CONCURRENCY, DEFAULT_DRAIN_SECONDS


class Command(BaseCommand):
    help = "Run the project's tasks (the `tasks` modules of its apps) until SIGTERM, then drain."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default="default", help="alias in TASKS")
        parser.add_argument("--concurrency", type=int, default=DEFAULT_CONCURRENCY, help="tasks at once")
        parser.add_argument("--prefetch", type=int, help="attempts held at once (default: concurrency)")
        parser.add_argument("--drain-timeout", type=float, default=DEFAULT_DRAIN_SECONDS, metavar="SECONDS")
        parser.add_argument("--json", action="store_true", help="print changes of state as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            worker = task_worker(
                options["backend"],
                concurrency=options["concurrency"],
                prefetch=options["prefetch"],
                drain_timeout=options["drain_timeout"],
            )
            left = worker.run(json=options["json"])
        except ConfigError as error:
            raise CommandError(str(error), returncode=2) from None
        except OrbitError as error:
            raise CommandError(str(error)) from None
        if left:
            raise CommandError(f"{left} attempts were left to their leases")
