"""`manage.py orbit_node_gateway --bind :9090`: storage nodes over TCP, in a process of their own (design 5.2)."""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from lifecycle_app.domain.ownership import Owner
from lifecycle_app.maintenance import NODES
from lifecycle_app.parts import LifecyclePart
from orbit_project.configuration import default_node_id
from orbit_project.setting_values import Address, parse_address
from tasks_app import ids
from tasks_app.instants import process_now_us


class Command(BaseCommand):
    help = "Serve storage nodes over TCP: reports, commands, recovery and notifications, without the HTTP API."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--bind",
            type=_address,
            default=settings.ORBIT.node_addr,
            metavar="HOST:PORT",
            help="where storage nodes connect; without it ORBIT_NODE_ADDR",
        )

    def handle(self, *args: Any, bind: Address | None, **options: Any) -> None:
        if bind is None:
            raise CommandError("nowhere to listen: give --bind HOST:PORT or set ORBIT_NODE_ADDR", returncode=2)
        try:
            asyncio.run(self._serve(bind))
        except OSError as error:
            raise CommandError(f"cannot listen on {bind}: {error.strerror or error}") from error

    async def _serve(self, bind: Address) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        owner = Owner(_node_id(bind), ids.new_id(process_now_us()))
        part = LifecyclePart(owner=owner, roles=[NODES], node_address=(bind.host, bind.port))
        await part.start()
        try:
            assert part.address is not None  # noqa: S101 - it listens
            host, port = part.address
            self.stdout.write(f"storage nodes connect to {Address(host, port)}")
            self.stdout.flush()
            await stop.wait()
        finally:
            await part.stop()


def _node_id(bind: Address) -> str:
    """Its own name where none was set: a node of the API on this machine must not be taken for an older process."""
    configuration = settings.ORBIT
    is_default = configuration.sources.get("ORBIT_NODE_ID") == "default"
    return default_node_id(bind) if is_default else configuration.node_id


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected host:port or :port; found {text!r}") from None
