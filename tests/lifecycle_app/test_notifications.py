"""Notifications: an outbox beside the commit, one webhook behind it (design 4.4)."""

from __future__ import annotations

import dataclasses
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.db import connection

from lifecycle_app.domain import notifications
from lifecycle_app.maintenance import notify_due
from tests.lifecycle_app.site import SECOND_US, Site, rows_of


class Receiver:
    """A webhook that answers as it is told and keeps what it got."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.bodies.append(json.loads(body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *unused: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/notify"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver(settings):
    with Receiver() as one:
        settings.ORBIT = dataclasses.replace(settings.ORBIT, notify_url=one.url)
        yield one


def time_passes(seconds: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_notification SET next_attempt_at = next_attempt_at - %s", [seconds * SECOND_US])


def test_the_receiver_hears_what_happened_after_the_commit(site: Site, receiver: Receiver):
    intent = site.submitted(7)
    assert receiver.bodies == []
    notify_due()
    (body,) = receiver.bodies
    (row,) = rows_of("orbit_notification")
    assert body == {
        "id": row.notification_id, "namespace_id": site.namespace_id, "gid": 7, "operation_id": intent.operation_id,
        "status": "SUBMITTED", "created_at": body["created_at"],
    }  # fmt: skip
    assert body["created_at"].endswith("Z")
    assert row.delivered_at is not None and row.next_attempt_at is None
    notify_due()
    assert len(receiver.bodies) == 1


def test_a_receiver_that_fails_hears_it_again_under_the_same_id_later_and_later(site: Site, receiver: Receiver):
    receiver.answers = [500, 503, 302, 200]
    site.submitted(7)
    for attempt in range(1, 5):
        notify_due()
        assert len(receiver.bodies) == attempt
        notify_due()
        assert len(receiver.bodies) == attempt  # not before its time
        time_passes(2**attempt)
    assert len({body["id"] for body in receiver.bodies}) == 1
    assert rows_of("orbit_notification")[0].delivered_at is not None


def test_a_crash_between_commit_and_sending_loses_none(site: Site, receiver: Receiver):
    site.submitted(7)
    (due,) = notifications.take_due()  # taken, and then the process dies
    assert notifications.take_due() == []
    time_passes(20)
    (again,) = notifications.take_due()
    assert (again.notification_id, again.attempts) == (due.notification_id, 2)


def test_two_senders_do_not_send_one_twice_at_once(site: Site, receiver: Receiver):
    for gid in range(1, 6):
        site.submitted(gid)
    taken = [due.notification_id for _ in range(3) for due in notifications.take_due()]
    assert len(taken) == len(set(taken)) == 5


def test_without_a_receiver_nothing_piles_up_to_be_sent(site: Site):
    site.submitted(7)
    assert site.told_people(7) == ["SUBMITTED"]  # the operators' pages show it
    assert notifications.take_due() == []


@pytest.mark.parametrize(
    ("attempts", "ms"), [(1, 1_000), (2, 2_000), (5, 16_000), (9, 256_000), (10, 300_000), (99, 300_000)]
)
def test_back_off_doubles_up_to_five_minutes(attempts, ms):
    assert notifications.backoff_ms(attempts) == ms
