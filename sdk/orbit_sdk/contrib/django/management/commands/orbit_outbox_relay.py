"""`manage.py orbit_outbox_relay`: send what the outbox holds, until SIGTERM."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from datetime import timedelta
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections
from django.utils import timezone

from orbit_sdk.client import OrbitClient
from orbit_sdk.contrib.django import outbox
from orbit_sdk.contrib.django.models import OutboxEntry, OutboxState
from orbit_sdk.contrib.django.relay import Relay, RoundResult
from orbit_sdk.errors import ConfigError, OrbitError
from orbit_sdk.limits import BATCH_ITEMS_MAX


class Command(BaseCommand):
    help = "Send committed submissions of the outbox to Orbit. Survives being killed at any point."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--database", default="default", help="where the outbox is")
        parser.add_argument("--batch", type=int, default=BATCH_ITEMS_MAX, help="entries per request, 1 to 32")
        parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between two looks")
        parser.add_argument("--once", action="store_true", help="send what is due and leave")
        parser.add_argument("--retry-refused", action="store_true", help="first send what was refused again")
        parser.add_argument("--prune-after", type=float, metavar="DAYS", help="delete entries sent so long ago")

    def handle(self, *args: Any, **options: Any) -> None:
        self._stop = threading.Event()
        previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        if threading.current_thread() is threading.main_thread():
            for number in previous:
                signal.signal(number, self._on_signal)
        try:
            with OrbitClient.from_env() as client:
                self._run(Relay(client, using=options["database"], batch=options["batch"]), options)
        except ConfigError as error:
            raise CommandError(str(error), returncode=2) from None
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in previous.items():
                    signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop.set()

    def _run(self, relay: Relay, options: dict[str, Any]) -> None:
        if options["retry_refused"]:
            refused = OutboxEntry.objects.using(options["database"]).filter(state=OutboxState.REFUSED)
            again = sum(outbox.retry(entry) for entry in refused.order_by("id").iterator())
            self.stdout.write(f"{again} refused entries will be sent again")
        while not self._stop.is_set():
            done = self._round(relay, options)
            if options["prune_after"] is not None:
                relay.prune_sent(timezone.now() - timedelta(days=options["prune_after"]))
            if done.seen == 0 or done.later == done.seen:
                if options["once"]:
                    return
                close_old_connections()
                self._stop.wait(options["interval"])

    def _round(self, relay: Relay, options: dict[str, Any]) -> RoundResult:
        try:
            done = relay.run_once()
        except OrbitError as error:
            # Credential or rights: the entries wait with their keys, and go once that is mended.
            if options["once"]:
                raise CommandError(str(error)) from None
            self.stderr.write(f"orbit refuses the relay: {error}")
            return RoundResult()
        if done.seen:
            self.stdout.write(f"sent={done.sent} refused={done.refused} later={done.later}")
        return done
