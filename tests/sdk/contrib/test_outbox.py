"""The transactional outbox: committed with the business, sent exactly once, by the batch contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import IntegrityError, transaction
from django.utils import timezone

from orbit_sdk import (
    BatchItemError,
    BatchItemResult,
    BatchStatus,
    InvalidRequest,
    OrbitClient,
    Receipt,
    RetryPolicy,
    SubmitTask,
    Unauthenticated,
)
from orbit_sdk.contrib.django import outbox
from orbit_sdk.contrib.django.models import OutboxEntry, OutboxState
from orbit_sdk.contrib.django.outbox import OutboxConflict
from orbit_sdk.contrib.django.relay import Relay, Verdict, verdict_of
from orbit_sdk.contrib.django.requests import decode_request, encode_request
from orbit_sdk.testing import InMemoryOrbit
from tests.sdk.fake_api import FakeApi

pytestmark = pytest.mark.django_db


@pytest.fixture
def orbit() -> InMemoryOrbit:
    return InMemoryOrbit(queues=["reports"])


def a_task(**changes: Any) -> SubmitTask:
    return SubmitTask(**{"queue": "reports", "handler": "h", "payload": {"n": 1}, **changes})


def write(*keys: str, **changes: Any) -> list[OutboxEntry]:
    with transaction.atomic():
        return [outbox.submit(key, a_task(**changes)) for key in keys]


def states() -> dict[str, str]:
    return dict(OutboxEntry.objects.values_list("key", "state"))


def make_due() -> None:
    OutboxEntry.objects.update(next_attempt_at=timezone.now())


# -- Writing


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_business_leaves_nothing() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        outbox.submit("k", a_task())
        raise RuntimeError

    assert states() == {}


@pytest.mark.django_db(transaction=True)
def test_it_belongs_into_a_transaction() -> None:
    with pytest.raises(transaction.TransactionManagementError, match="atomic"):
        outbox.submit("k", a_task())


def test_the_same_key_and_content_is_the_same_entry() -> None:
    assert write("k")[0].pk == write("k")[0].pk
    with pytest.raises(OutboxConflict):
        write("k", payload=2)


def test_keys_are_compared_byte_for_byte() -> None:
    write("Order", "order")

    assert len(states()) == 2


@pytest.mark.parametrize(
    "changes",
    [{"payload": float("nan")}, {"payload": "x" * (256 * 1024)}, {"available_at": datetime(2030, 1, 1)}],  # noqa: DTZ001
)
def test_what_orbit_could_never_take_is_refused_at_once(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        write("k", **changes)
    with pytest.raises(InvalidRequest):
        write("with blank")


def test_a_request_is_committed_without_losing_a_digit() -> None:
    task = a_task(
        payload={"n": 9007199254740993, "d": Decimal("1.10"), "x": Decimal("0.1000000000000000055")},
        priority=0,
        available_at=datetime(2030, 1, 1, tzinfo=UTC),
        retry=RetryPolicy.safe(4, multiplier=3),
        resource_key="disk",
        expires_in_ms=5,
    )

    again = decode_request(encode_request(task))

    assert encode_request(again) == encode_request(task)
    assert '"d":1.10' in encode_request(again)
    assert (again.available_at, again.retry, again.priority) == (task.available_at, task.retry, 0)


def test_the_database_refuses_an_end_without_its_task() -> None:
    (entry,) = write("k")
    with pytest.raises(IntegrityError), transaction.atomic():
        OutboxEntry.objects.filter(pk=entry.pk).update(state=OutboxState.SENT)


def test_the_database_refuses_a_state_that_does_not_exist() -> None:
    (entry,) = write("k")
    with pytest.raises(IntegrityError), transaction.atomic():
        OutboxEntry.objects.filter(pk=entry.pk).update(state="DONE")


# -- Sending


def test_what_is_due_is_sent_and_keeps_its_task(orbit: InMemoryOrbit) -> None:
    write("a", "b")

    done = Relay(orbit).run_once()

    assert (done.seen, done.sent) == (2, 2)
    assert set(states().values()) == {"SENT"}
    tasks = {task.task_id for task in orbit.list_tasks()}
    assert set(OutboxEntry.objects.values_list("task_id", flat=True)) == tasks


def test_32_go_in_one_request(orbit: InMemoryOrbit) -> None:
    write(*(f"k{number}" for number in range(40)))
    relay = Relay(orbit)

    assert [relay.run_once().sent, relay.run_once().sent, relay.run_once().seen] == [32, 8, 0]


def test_large_entries_share_a_request_only_as_far_as_it_goes(orbit: InMemoryOrbit) -> None:
    write("a", "b", "c", payload="x" * (200 * 1024))
    relay = Relay(orbit)

    assert [relay.run_once().sent, relay.run_once().sent] == [2, 1]


def item(status: BatchStatus, code: str = "") -> BatchItemResult:
    receipt = Receipt("2" * 32, "1" * 32, "1", datetime.now(UTC), False) if status is BatchStatus.ACCEPTED else None
    return BatchItemResult(0, status, receipt, BatchItemError(code, "m") if code else None)


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (BatchStatus.ACCEPTED, "", Verdict.SENT),
        (BatchStatus.REJECTED, "INVALID_ARGUMENT", Verdict.REFUSED),
        (BatchStatus.REJECTED, "PAYLOAD_TOO_LARGE", Verdict.REFUSED),
        (BatchStatus.REJECTED, "NOT_FOUND", Verdict.REFUSED),
        (BatchStatus.REJECTED, "PERMISSION_DENIED", Verdict.REFUSED),
        (BatchStatus.REJECTED, "IDEMPOTENCY_CONFLICT", Verdict.REFUSED),
        (BatchStatus.REJECTED, "FAILED_PRECONDITION", Verdict.REFUSED),
        (BatchStatus.REJECTED, "QUEUE_FULL", Verdict.LATER),
        (BatchStatus.REJECTED, "APPLICATION_FULL", Verdict.LATER),
        (BatchStatus.REJECTED, "UNAUTHENTICATED", Verdict.LATER),
        (BatchStatus.REJECTED, "SOMETHING_NEW", Verdict.LATER),
        (BatchStatus.UNKNOWN, "UNAVAILABLE", Verdict.LATER),
        (BatchStatus.NOT_ATTEMPTED, "BATCH_STOPPED", Verdict.LATER),
    ],
)
def test_every_answer_of_the_batch_contract(status: BatchStatus, code: str, verdict: Verdict) -> None:
    assert verdict_of(item(status, code)) is verdict


def test_a_full_queue_is_asked_again_later_with_the_same_key(orbit: InMemoryOrbit) -> None:
    orbit.create_queue("small", max_unfinished=1)
    write("a", "b", queue="small")

    Relay(orbit).run_once()

    waiting = OutboxEntry.objects.get(state=OutboxState.PENDING)
    assert (waiting.attempts, waiting.error_code) == (1, "QUEUE_FULL")
    assert waiting.next_attempt_at >= waiting.updated_at + timedelta(seconds=0.9)
    orbit.update_queue("small", "1", max_unfinished=None)
    make_due()
    assert Relay(orbit).run_once().sent == 1


@pytest.mark.parametrize("took_effect", [True, False])
def test_an_unknown_commit_leaves_the_entry_and_makes_one_task(orbit: InMemoryOrbit, took_effect: bool) -> None:
    write("a", "b", "c")
    orbit.unknown_next_commit(took_effect=took_effect)

    first = Relay(orbit).run_once()
    make_due()
    second = Relay(orbit).run_once()

    assert (first.sent, first.later, second.sent) == (0, 3, 3)
    assert len(list(orbit.list_tasks())) == 3


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_lost_answer_leaves_everything_and_makes_one_task_each(orbit: InMemoryOrbit, took_effect: bool) -> None:
    write("a", "b")
    orbit.lose_next_answer(took_effect=took_effect)

    assert Relay(orbit).run_once().later == 2
    make_due()
    assert Relay(orbit).run_once().sent == 2
    assert len(list(orbit.list_tasks())) == 2


def test_a_garbled_answer_is_an_unknown_one(orbit: InMemoryOrbit) -> None:
    write("a")
    orbit.garble_next_answer()

    assert Relay(orbit).run_once().later == 1
    make_due()
    assert Relay(orbit).run_once().sent == 1


def test_what_is_refused_for_good_stays_visible_and_stops_nobody(orbit: InMemoryOrbit) -> None:
    write("good")
    write("bad", priority=10)

    Relay(orbit).run_once()

    assert states() == {"good": "SENT", "bad": "REFUSED"}
    refused = OutboxEntry.objects.get(key="bad")
    assert refused.error_code == "INVALID_ARGUMENT"
    assert "0 to 9" in refused.error_message


def test_an_entry_that_cannot_be_sent_does_not_hold_up_the_others(orbit: InMemoryOrbit) -> None:
    write("a")
    write("nowhere", queue="nowhere")
    write("b")

    done = Relay(orbit).run_once()

    assert (done.seen, done.sent, done.refused) == (3, 2, 1)
    assert states() == {"a": "SENT", "nowhere": "REFUSED", "b": "SENT"}


def test_a_refused_entry_can_be_sent_again_once_its_cause_is_mended(orbit: InMemoryOrbit) -> None:
    (entry,) = write("k", queue="late")
    Relay(orbit).run_once()
    orbit.create_queue("late")

    assert outbox.retry(entry)
    assert not outbox.retry(entry)
    assert Relay(orbit).run_once().sent == 1


def test_two_relays_make_one_task_of_an_entry(orbit: InMemoryOrbit) -> None:
    write("k")
    first, second = Relay(orbit), Relay(orbit)
    entries = first._due()

    second.run_once()
    first._send(entries)

    assert states() == {"k": "SENT"}
    assert len(list(orbit.list_tasks())) == 1


def test_a_refused_relay_keeps_everything(api: FakeApi) -> None:
    write("k")
    api.failure(401, "UNAUTHENTICATED")

    with OrbitClient(api.url, "t", queues={"reports": "1" * 32}) as client, pytest.raises(Unauthenticated):
        Relay(client).run_once()

    assert states() == {"k": "PENDING"}


def test_sent_entries_are_pruned_after_a_while(orbit: InMemoryOrbit) -> None:
    write("old", "pending")
    OutboxEntry.objects.filter(key="pending").update(next_attempt_at=timezone.now() + timedelta(days=1))
    relay = Relay(orbit)
    relay.run_once()

    assert relay.prune_sent(timezone.now() - timedelta(hours=1)) == 0
    assert relay.prune_sent(timezone.now() + timedelta(hours=1)) == 1
    assert states() == {"pending": "PENDING"}


# -- The command


@pytest.fixture
def command_orbit(orbit: InMemoryOrbit, monkeypatch: pytest.MonkeyPatch) -> InMemoryOrbit:
    monkeypatch.setattr(OrbitClient, "from_env", classmethod(lambda cls: orbit))
    return orbit


def test_the_command_sends_what_is_due_and_leaves(
    command_orbit: InMemoryOrbit, capsys: pytest.CaptureFixture[str]
) -> None:
    write(*(f"k{number}" for number in range(33)))

    call_command("orbit_outbox_relay", "--once")

    assert set(states().values()) == {"SENT"}
    assert capsys.readouterr().out.splitlines() == ["sent=32 refused=0 later=0", "sent=1 refused=0 later=0"]


def test_the_command_can_retry_and_prune(command_orbit: InMemoryOrbit, capsys: pytest.CaptureFixture[str]) -> None:
    write("late", queue="late")
    call_command("orbit_outbox_relay", "--once")
    command_orbit.create_queue("late")

    call_command("orbit_outbox_relay", "--once", "--retry-refused", "--prune-after", "0")

    assert "1 refused entries will be sent again" in capsys.readouterr().out
    assert states() == {}


def test_the_command_needs_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORBIT_URL", "ORBIT_TOKEN", "ORBIT_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(CommandError, match="ORBIT_CREDENTIALS_FILE"):
        call_command("orbit_outbox_relay", "--once")
