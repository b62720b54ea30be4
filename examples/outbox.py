"""An order and the task that it wants are committed together, or neither is; a relay sends what was committed.

    ORBIT_URL=http://127.0.0.1:8080 ORBIT_CREDENTIALS_FILE=var/demo.credentials.json python examples/outbox.py

The business has an SQLite file of its own. One order is rolled back, one answer of Orbit is lost: each committed order
is one task, the other is none.
"""

from __future__ import annotations

import secrets
import signal
import tempfile
from pathlib import Path
from typing import Any

SCENE_SECONDS = 25
ORDERS = 3


def set_up_django(folder: str) -> None:
    """What stands in the settings of a real project."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    settings.configure(
        INSTALLED_APPS=["orbit_sdk.contrib.django"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(folder) / "business.sqlite3")}},
        USE_TZ=True,
    )
    django.setup()
    call_command("migrate", verbosity=0)


def main() -> None:
    signal.alarm(SCENE_SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        set_up_django(folder)
        play()


def play() -> None:
    from django.db import transaction
    from django.utils import timezone

    from orbit_sdk import OrbitClient, SubmitTask
    from orbit_sdk.contrib.django import outbox
    from orbit_sdk.contrib.django.models import OutboxEntry
    from orbit_sdk.contrib.django.relay import Relay

    run = secrets.token_hex(4)
    with OrbitClient.from_env() as orbit:
        queue = orbit.create_queue(f"outbox-{run}").queue_id

        def place_order(number: int) -> None:
            """The business's own writes would stand beside the submission, in the same transaction."""
            with transaction.atomic():
                task = SubmitTask(queue=queue, handler="invoice.render", payload={"order": number})
                outbox.submit(f"order-{run}-{number}/invoice", task)
                if number == ORDERS:
                    raise PaymentRefused

        for number in range(ORDERS):
            place_order(number)
        try:
            place_order(ORDERS)
        except PaymentRefused:
            print(f"committed={ORDERS} rolled_back=1")

        # The first request is carried out, and its answer lost: nothing is certain, so everything stays as it is.
        first = Relay(LosesOneAnswer(orbit)).run_once()
        assert (first.sent, first.later) == (0, ORDERS)
        OutboxEntry.objects.update(next_attempt_at=timezone.now())
        second = Relay(orbit).run_once()
        tasks = list(orbit.list_tasks(queue=queue))
        entries = set(OutboxEntry.objects.values_list("task_id", flat=True))

    assert second.sent == ORDERS
    assert len(tasks) == ORDERS
    assert entries == {task.task_id for task in tasks}
    print(f"lost_answers=1 sent={second.sent} tasks={len(tasks)} doubled=0")


class PaymentRefused(Exception):
    """Why the last order is rolled back."""


class LosesOneAnswer:
    """A client between which and Orbit the line breaks after the request."""

    def __init__(self, orbit: Any) -> None:
        self._orbit = orbit

    def submit_tasks(self, items: Any) -> Any:
        from orbit_sdk import ConnectionLost

        self._orbit.submit_tasks(items)
        raise ConnectionLost("the answer was lost")


if __name__ == "__main__":
    main()
