"""A project of its own with an outbox, as a process that the tests kill: `relay_program.py K` dies at its K-th
statement.

The statements are those of one relay round against a real node; K = 0 never dies. The last line says how many there
were.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import django
from django.conf import settings


def configure(url: str) -> None:
    from orbit_project.setting_values import parse_database_url

    place = parse_database_url(url)
    database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": place.name}
    if place.engine != "sqlite":
        database = {
            "ENGINE": "django.db.backends.mysql",
            "NAME": place.name,
            "USER": place.user,
            "PASSWORD": place.password,
            "HOST": place.host,
            "PORT": place.port or "",
            "OPTIONS": dict(place.options),
        }
    settings.configure(
        INSTALLED_APPS=["orbit_sdk.contrib.django"],
        DATABASES={"default": database},
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()


class Killer:
    """Dies before or after the K-th statement: each statement is two places."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.places = 0

    def place(self) -> None:
        self.places += 1
        if self.places == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def __call__(self, execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        self.place()
        result = execute(sql, params, many, context)
        self.place()
        return result


def main() -> None:
    configure(os.environ["BUSINESS_DATABASE_URL"])
    from django.db import connection

    from orbit_sdk import OrbitClient
    from orbit_sdk.contrib.django.models import OutboxEntry
    from orbit_sdk.contrib.django.relay import Relay

    killer = Killer(int(sys.argv[1]))
    with OrbitClient.from_env() as client, connection.execute_wrapper(killer):
        # Death may also come while the answer is under way: a place around the request itself.
        submit = client.submit_tasks

        def submit_tasks(items: Any) -> Any:
            killer.place()
            result = submit(items)
            killer.place()
            return result

        client.submit_tasks = submit_tasks  # type: ignore[method-assign]
        relay = Relay(client, batch=3)
        while relay.run_once().seen:
            pass
        left = OutboxEntry.objects.filter(state="PENDING").count()
    print(f"places={killer.places} pending={left}")


if __name__ == "__main__":
    main()
