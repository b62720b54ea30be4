"""`manage.py orbit_serve`: one node (design 5.2)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection

from orbit_project.configuration import ConfigurationError
from orbit_project.serving.node import ROLES, parse_roles
from orbit_project.serving.parts import bind, compose
from orbit_project.setting_values import Address, parse_address

DRAIN_TIMEOUT_SECONDS = 30.0


class Command(BaseCommand):
    help = "Runs one node: API, worker and node sockets, maintenance and the operators' site in one process."
    requires_system_checks: list[str] = []  # a node must start in a second; `make check` runs them

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bind", metavar="HOST:PORT", help="where to listen; beats ORBIT_HTTP_ADDR; port 0: any")
        parser.add_argument("--roles", default=",".join(ROLES), help=f"default: {','.join(ROLES)}")
        parser.add_argument(
            "--drain-timeout", type=float, default=DRAIN_TIMEOUT_SECONDS, metavar="SECONDS", help="default: 30"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if not 0 <= options["drain_timeout"] <= 3600:
            raise CommandError("--drain-timeout: expected 0 to 3600 seconds")
        try:
            roles = parse_roles(options["roles"])
            wanted = settings.ORBIT.http_addr if options["bind"] is None else parse_address(options["bind"])
        except ValueError as error:
            raise CommandError(str(error)) from None
        try:
            listener = bind(wanted.host, wanted.port)
        except OSError as error:
            raise CommandError(f"cannot listen on {wanted}: {error.strerror or error}") from None
        host, port = listener.getsockname()[:2]
        self._move_to(Address(host, port))
        self._look_at_the_database()
        node = compose(
            listener=listener, roles=roles, drain_timeout_seconds=options["drain_timeout"], on_ready=self._say_ready
        )
        node.run()

    def _move_to(self, address: Address) -> None:
        """What the settings derive from the address follows the one that is really bound."""
        if address == settings.ORBIT.http_addr:
            return
        try:
            settings.ORBIT = settings.ORBIT.bound_to(address)
        except ConfigurationError as error:
            raise CommandError(f"the settings do not fit {address}:\n{error}", returncode=2) from None
        settings.ALLOWED_HOSTS = list(settings.ORBIT.allowed_hosts)

    def _look_at_the_database(self) -> None:
        """A server that breaks a promise is refused. One that does not answer yet may come: `/readyz` says so."""
        try:
            connection.ensure_connection()
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        except OperationalError as error:
            self.stderr.write(f"the database does not answer yet: {error}")
        finally:
            connection.close()

    def _say_ready(self, url: str) -> None:
        self.stdout.write(f"orbit node {settings.ORBIT.node_id} ready on {url}")
        self.stdout.flush()
