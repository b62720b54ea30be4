"""The worker's protocol core: texts and moments in, texts out, no socket and no clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbit_sdk.worker.attempts import Attempt
from orbit_sdk.worker.outcomes import Report
from orbit_sdk.worker.protocol import HEARTBEAT_SECONDS, SILENCE_SECONDS_MAX, Profile, ProtocolViolation, WorkerProtocol
from tasks_app.states import Policy, TaskState
from workers_app.protocol import messages as wire

QUEUE = "1" * 32
NOW_US = 1_789_000_000_000_000
DONE = Report("SUCCEEDED")


class Recorder:
    """A host that remembers what it was asked."""

    def __init__(self) -> None:
        self.executed: list[Attempt] = []
        self.cancelled: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def execute(self, attempt: Attempt) -> None:
        self.executed.append(attempt)

    def cancel(self, attempt: Attempt, reason: str) -> None:
        self.cancelled.append((attempt.attempt_id, reason))

    def note(self, event: str, **fields: Any) -> None:
        self.notes.append(event)


class Talk:
    """A protocol core that was made welcome, with the server's side written by hand."""

    def __init__(self, *, concurrency: int = 4, capacity: int | None = None, policy: Policy = Policy.AGED) -> None:
        self.host = Recorder()
        self.policy = policy
        self.profile = Profile("w", concurrency, capacity or concurrency, [QUEUE], [("h", "v1")], sdk="test")
        self.core = WorkerProtocol(self.profile, self.host)
        self.now = 1000.0
        self.welcome()

    def welcome(self, *held: wire.HeldAttempt, resumed: bool = False) -> wire.Hello:
        hello = wire.parse_client_message(self.core.connected(self.now))
        assert isinstance(hello, wire.Hello)
        self.hear(
            wire.welcome(
                session_id="5" * 32,
                node_id="n",
                server_time=NOW_US,
                scan_cycle_ms=1000,
                reservation_ms=10_000,
                lease_ms=30_000,
                max_message_bytes=1024 * 1024,
                namespace_policy=self.policy,
                resumed=resumed,
                held=held,
            )
        )
        return hello

    def hear(self, text: str) -> None:
        self.core.receive(text, self.now)

    def say(self) -> list[Any]:
        """What is sent now, read by the server's own reader."""
        return [wire.parse_client_message(text) for text in self.core.frames(self.now)]

    def offer(self, number: int, *, priority: int = 0) -> str:
        attempt_id = f"{number:032x}"
        task = wire.OfferedTask("2" * 32, QUEUE, "h", "v1", "v1", "null", priority, self.policy, 1, NOW_US)
        self.hear(wire.offer(attempt_id=attempt_id, fencing_token=1, reserved_until=NOW_US, task=task))
        return attempt_id

    def start_all(self) -> list[Attempt]:
        """Answer every start that is due with STARTED."""
        before = len(self.host.executed)
        for message in self.say():
            assert isinstance(message, wire.Start)
            self.hear(
                wire.started(re=message.seq, items=[wire.Started(item.attempt_id, NOW_US) for item in message.items])
            )
        return self.host.executed[before:]


def test_nothing_runs_before_started() -> None:
    talk = Talk()
    talk.offer(1)
    (start,) = talk.say()

    assert talk.host.executed == []
    talk.hear(wire.started(re=start.seq, items=[wire.Started(start.items[0].attempt_id, NOW_US)]))
    assert [attempt.attempt_id for attempt in talk.host.executed] == [f"{1:032x}"]


def test_a_hundred_offers_are_started_in_two_messages() -> None:
    talk = Talk(concurrency=100)
    for number in range(100):
        talk.offer(number)

    assert [len(message.items) for message in talk.say()] == [64, 36]


def test_only_what_can_run_at_once_is_started() -> None:
    talk = Talk(concurrency=2, capacity=5)
    for number in range(5):
        talk.offer(number)

    running = talk.start_all()
    assert len(running) == 2
    assert talk.say() == []
    talk.core.report(running[0], DONE)
    finish, start = talk.say()
    assert (len(finish.items), len(start.items)) == (1, 1)


def test_a_start_that_waits_for_its_answer_occupies_a_slot() -> None:
    talk = Talk(concurrency=1, capacity=2)
    talk.offer(1)
    talk.offer(2)

    assert len(talk.say()) == 1
    assert talk.say() == []


def test_reports_that_are_ready_together_leave_together() -> None:
    talk = Talk(concurrency=70)
    for number in range(70):
        talk.offer(number)
    for attempt in talk.start_all():
        talk.core.report(attempt, DONE)

    assert [len(message.items) for message in talk.say()] == [64, 6]


def test_messages_in_flight_stay_below_what_a_connection_may_have() -> None:
    talk = Talk(concurrency=1000)
    sent = 0
    for number in range(200):
        talk.offer(number)
        sent += len(talk.say())

    assert 16 <= sent <= 64


def test_a_renewal_is_due_every_third_of_the_lease() -> None:
    talk = Talk()
    talk.offer(1)
    talk.start_all()
    moments = []
    for _ in range(60):
        talk.now += 0.5
        for message in talk.say():
            if isinstance(message, wire.Renew):
                moments.append(talk.now)
                item = wire.Renewed(message.items[0].attempt_id, NOW_US, False)
                talk.hear(wire.renewed(re=message.seq, items=[item]))

    assert len(moments) == 3
    assert all(9.5 <= later - earlier <= 12.5 for earlier, later in zip([1000.0, *moments], moments, strict=False))


def test_a_thousand_leases_are_renewed_64_at_a_time() -> None:
    talk = Talk(concurrency=130)
    for number in range(130):
        talk.offer(number)
    talk.start_all()
    talk.now += 11

    assert [len(message.items) for message in talk.say() if isinstance(message, wire.Renew)] == [64, 64, 2]


def test_a_report_that_waits_for_the_database_keeps_its_lease() -> None:
    talk = Talk()
    talk.offer(1)
    talk.core.report(talk.start_all()[0], DONE)
    (finish,) = talk.say()
    talk.hear(wire.error(code="UNAVAILABLE", message="m", re=finish.seq))
    talk.now += 11

    assert {type(message) for message in talk.say()} == {wire.Renew, wire.Finish, wire.Heartbeat}


def test_a_lost_renewal_of_a_reported_attempt_decides_nothing() -> None:
    talk = Talk()
    talk.offer(1)
    (attempt,) = talk.start_all()
    talk.now += 11
    renew = next(message for message in talk.say() if isinstance(message, wire.Renew))
    talk.core.report(attempt, DONE)
    (finish,) = talk.say()
    talk.hear(wire.renewed(re=renew.seq, items=[wire.Lost(attempt.attempt_id)]))
    talk.hear(wire.finished(re=finish.seq, items=[wire.Finished(attempt.attempt_id, TaskState.SUCCEEDED, 3)]))

    assert talk.host.cancelled == []
    assert "lease_lost" not in talk.host.notes
    assert talk.core.idle


@pytest.mark.parametrize(
    "answer", [wire.Finished("", TaskState.SUCCEEDED, 3), wire.Finished("", TaskState.FAILED, 3, True)]
)
def test_committed_and_already_are_the_same(answer: wire.Finished) -> None:
    talk = Talk()
    talk.offer(1)
    (attempt,) = talk.start_all()
    talk.core.report(attempt, DONE)
    (finish,) = talk.say()
    talk.hear(
        wire.finished(
            re=finish.seq, items=[wire.Finished(attempt.attempt_id, answer.state, answer.revision, answer.repeated)]
        )
    )

    assert talk.core.idle


def test_a_lost_finish_is_told() -> None:
    talk = Talk()
    talk.offer(1)
    (attempt,) = talk.start_all()
    talk.core.report(attempt, DONE)
    (finish,) = talk.say()
    talk.hear(wire.finished(re=finish.seq, items=[wire.Lost(attempt.attempt_id)]))

    assert "result_discarded" in talk.host.notes
    assert talk.core.idle


def test_a_cancel_that_overtakes_the_answer_to_start_is_not_lost() -> None:
    talk = Talk()
    attempt_id = talk.offer(1)
    (start,) = talk.say()
    talk.hear(wire.cancel(attempt_id=attempt_id, reason=wire.CancelReason.REQUESTED))
    talk.hear(wire.started(re=start.seq, items=[wire.Started(attempt_id, NOW_US)]))

    assert talk.host.cancelled == [(attempt_id, "REQUESTED")]


def test_a_revoke_of_a_start_under_way_is_left_to_the_answer() -> None:
    talk = Talk()
    attempt_id = talk.offer(1)
    (start,) = talk.say()
    talk.hear(wire.revoke(attempt_id=attempt_id, reason=wire.RevokeReason.YIELDED))
    talk.hear(wire.started(re=start.seq, items=[wire.Started(attempt_id, NOW_US)]))

    assert [attempt.attempt_id for attempt in talk.host.executed] == [attempt_id]


def test_equal_priorities_start_in_the_order_of_their_offers() -> None:
    talk = Talk(concurrency=3, capacity=9, policy=Policy.STRICT)
    for number, priority in enumerate([0, 5, 0, 5, 9, 5]):
        talk.offer(number, priority=priority)

    (start,) = talk.say()
    assert [int(item.attempt_id, 16) for item in start.items] == [4, 1, 3]


def test_aged_offers_start_in_the_order_of_the_server() -> None:
    talk = Talk(concurrency=2, capacity=4)
    for number, priority in enumerate([0, 9, 3, 9]):
        talk.offer(number, priority=priority)

    (start,) = talk.say()
    assert [int(item.attempt_id, 16) for item in start.items] == [0, 1]


def test_a_heartbeat_is_due_every_ten_seconds() -> None:
    talk = Talk()
    assert talk.say() == []
    talk.now += HEARTBEAT_SECONDS
    assert [type(message) for message in talk.say()] == [wire.Heartbeat]
    assert talk.say() == []


def test_a_silent_server_is_noticed() -> None:
    talk = Talk()
    assert not talk.core.is_silent(talk.now + SILENCE_SECONDS_MAX)
    assert talk.core.is_silent(talk.now + SILENCE_SECONDS_MAX + 1)


def test_a_refused_message_is_repeated_later_and_later() -> None:
    talk = Talk()
    talk.offer(1)
    waits = []
    for _ in range(4):
        (start,) = talk.say()
        talk.hear(wire.error(code="UNAVAILABLE", message="m", re=start.seq))
        began = talk.now
        while not talk.core.frames(talk.now):
            talk.now += 0.01
            assert talk.now - began < 60
        waits.append(round(talk.now - began, 1))
        seq = talk.core._seq
        talk.hear(wire.error(code="UNAVAILABLE", message="m", re=seq))
        talk.now += 60
        talk.core._heartbeat_at = talk.now + 1000

    assert waits == sorted(waits)
    assert waits[0] == 0.2


def test_progress_is_coalesced_and_waits_for_the_answer() -> None:
    talk = Talk()
    talk.offer(1)
    (attempt,) = talk.start_all()
    for percent in (1, 2, 3):
        talk.core.progress(attempt, percent, None)
    (renew,) = talk.say()
    talk.core.progress(attempt, 4, "now")
    talk.core.progress(attempt, 5, None)

    assert renew.items[0].progress == wire.Progress(3, None)
    assert talk.say() == []
    talk.hear(wire.renewed(re=renew.seq, items=[wire.Renewed(attempt.attempt_id, NOW_US, False)]))
    (renew,) = talk.say()
    assert renew.items[0].progress == wire.Progress(5, None)


def test_a_progress_that_was_not_taken_does_not_lose_the_lease() -> None:
    talk = Talk()
    talk.offer(1)
    (attempt,) = talk.start_all()
    talk.core.progress(attempt, 1, None)
    (renew,) = talk.say()
    talk.hear(wire.renewed(re=renew.seq, items=[wire.Renewed(attempt.attempt_id, NOW_US, False, "too long")]))

    assert "progress_refused" in talk.host.notes
    assert talk.host.cancelled == []


def test_an_unknown_message_of_a_newer_server_is_ignored() -> None:
    talk = Talk()
    talk.hear('{"type":"weather","sunny":true}')

    assert talk.host.notes[-1] == "unknown_message"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"type":"offer"}',
        '{"type":"started","re":1,"items":[]}',
        '{"type":"cancel"}',
        '{"type":"offer","type":"offer"}',
        '{"type":"welcome"}',
        "null",
    ],
)
def test_what_is_no_message_ends_the_connection(text: str) -> None:
    with pytest.raises(ProtocolViolation):
        Talk().hear(text)


@pytest.mark.parametrize("items", [[], [wire.Started("f" * 32, NOW_US)], [wire.Started(f"{1:032x}", NOW_US)] * 2])
def test_an_answer_that_does_not_fit_its_question_ends_the_connection(items: list[wire.Started]) -> None:
    talk = Talk()
    talk.offer(1)
    (start,) = talk.say()

    with pytest.raises(ProtocolViolation):
        talk.hear(wire.started(re=start.seq, items=items))


def test_a_report_is_written_as_the_server_reads_it() -> None:
    report = Report("FAILED", code='say "no"', message="ü\n", details='{"n":1.10}', retryable=False, retry_after_ms=250)
    text = f'{{"type":"finish","seq":1,"items":[{report.item("a" * 32, "7")}]}}'

    message = wire.parse_client_message(text)

    assert isinstance(message, wire.Finish)
    (item,) = message.items
    assert item.fault is None
    assert (item.attempt_id, item.fencing_token, item.retryable, item.retry_after_ms) == ("a" * 32, 7, False, 250)
    assert item.error == wire.ErrorReport('say "no"', "ü\n", '{"n":1.10}')
    assert json.loads(text)
