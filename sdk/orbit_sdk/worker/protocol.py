"""The worker's side of `orbit.worker.v1` as a pure state machine: texts and moments in, texts and wishes out.

It reads no clock and owns no socket. The link feeds it (`connected`, `receive`, `disconnected`), the runtime tells it
what handlers do (`report`, `progress`), and after each round of inputs `frames` gives what is to be sent now. What it
wants from the runtime it says through `Host`.

Rules that shape it (design, chapter 2):

- Only STARTED is a right to run, so an offer becomes work only through `start`; a repeated `start` or `finish` is safe,
  so after a lost connection both are simply sent again.
- A running attempt belongs to its lease, not to its connection: it is renewed and finished over whatever connection
  there is.
- Whoever answers LOST is believed: the attempt is cancelled and what it returns is thrown away.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orbit_sdk.jsoncodec import InvalidJson, Numbers, decode, encode_text
from orbit_sdk.limits import FRAME_BYTES_MAX, INBOUND_FRAMES_IN_FLIGHT_MAX, MESSAGE_ITEMS_MAX
from orbit_sdk.states import Policy
from orbit_sdk.worker.attempts import Attempt, Phase
from orbit_sdk.worker.outcomes import Report

# Of the frames that a connection may have in flight, some are kept for what must never wait: renewals and heartbeats.
_IN_FLIGHT_MAX = INBOUND_FRAMES_IN_FLIGHT_MAX - 16
_ENVELOPE_BYTES = 64  # {"type":"finish","seq":…,"items":[…]} around the items
HEARTBEAT_SECONDS = 10.0
SILENCE_SECONDS_MAX = 30.0
REPEAT_SECONDS_MIN, REPEAT_SECONDS_MAX = 0.2, 5.0  # before a message that the server could not take is sent again
_CANCEL_IN_RENEWAL = "REQUESTED"


class ProtocolViolation(Exception):
    """The server sent what the protocol does not know; the connection cannot go on."""


class Host(Protocol):
    """What the protocol asks of the runtime. Called from within its methods; must not call back into them."""

    def execute(self, attempt: Attempt) -> None:
        """The attempt has STARTED: run its handler."""

    def cancel(self, attempt: Attempt, reason: str) -> None:
        """Ask the running handler to stop."""

    def note(self, event: str, **fields: Any) -> None:
        """Something that a person wants to know."""


@dataclass(frozen=True)
class Profile:
    """What a worker says of itself in `hello`."""

    worker_name: str
    concurrency: int
    capacity: int
    queue_ids: Sequence[str]
    handlers: Sequence[tuple[str, str]]
    resource_keys: bool = True
    normal_reserved_slots: int = 0
    sdk: str = ""


@dataclass(slots=True)
class _Sent:
    """A message that waits for its answer."""

    kind: str
    attempts: Sequence[Attempt]


class WorkerProtocol:
    """One worker's session, over as many connections as it takes."""

    def __init__(self, profile: Profile, host: Host, *, numbers: Numbers = Numbers.EXACT) -> None:
        self._profile = profile
        self._host = host
        self._numbers = numbers
        self.session_id: str | None = None
        self.node_id = ""
        self.lease_seconds = 30.0
        self.policy = Policy.AGED
        self.welcomed = False
        self.draining = False
        self.drain_acknowledged = False
        self.drained = False
        self.node_drains = False
        self.paused = False
        self._frame_bytes_max = FRAME_BYTES_MAX
        self._seq = 0
        self._in_flight: dict[int, _Sent] = {}
        self._heard_at = 0.0
        self._heartbeat_at = 0.0
        self._capacity_told = profile.capacity
        self._failures = 0
        self._held_back_until = 0.0
        self._attempts: dict[str, Attempt] = {}
        self._offered: list[tuple[int, int, Attempt]] = []  # a heap: most urgent first, then in the order of offers
        self._offers = 0
        self._executing = 0  # handlers that run, lost ones included: each occupies a slot
        self._starting = 0
        self._lost_executing = 0
        self._to_run_again: deque[Attempt] = deque()  # `start` was sent and not answered
        self._to_finish: deque[Attempt] = deque()
        self._to_release: deque[str] = deque()
        self._with_progress: list[Attempt] = []
        self._control: deque[str] = deque()
        self._look_at = 0.0  # when to look for leases to renew

    # -- What can be asked

    @property
    def running(self) -> int:
        """Handlers that run now."""
        return self._executing

    @property
    def held(self) -> int:
        """Attempts that started and are not committed yet."""
        return sum(attempt.phase is not Phase.OFFERED for attempt in self._attempts.values())

    @property
    def unreported(self) -> list[Attempt]:
        """Attempts whose end the server does not know yet."""
        return [attempt for attempt in self._attempts.values() if attempt.phase in (Phase.RUNNING, Phase.REPORTING)]

    @property
    def idle(self) -> bool:
        """Whether nothing is running and nothing waits to be reported."""
        return self._executing == 0 and not any(
            attempt.phase is not Phase.OFFERED for attempt in self._attempts.values()
        )

    def is_silent(self, now: float) -> bool:
        """Whether the server has been silent for so long that the connection is as good as dead."""
        return now - self._heard_at > SILENCE_SECONDS_MAX

    # -- Connections

    def connected(self, now: float) -> str:
        """A connection is open: the `hello` to send on it."""
        self._in_flight.clear()
        self._heard_at = now
        self._heartbeat_at = now + HEARTBEAT_SECONDS
        profile = self._profile
        self._capacity_told = max(1, self._capacity_wanted())
        hello: dict[str, Any] = {
            "type": "hello",
            "protocol": 1,
            "worker_name": profile.worker_name,
            "capacity": self._capacity_told,
            "queues": list(profile.queue_ids),
            "handlers": [{"handler": name, "handler_version": version} for name, version in profile.handlers],
            "resource_keys": profile.resource_keys,
            "normal_reserved_slots": min(profile.normal_reserved_slots, self._capacity_told - 1),
            "sdk": profile.sdk,
        }
        if self.session_id is not None:
            hello["session_id"] = self.session_id
        return encode_text(hello)

    def disconnected(self) -> None:
        """The connection is gone. Reservations are not trusted any more; what started goes on under its lease."""
        self.welcomed = False
        self.node_drains = False
        self._in_flight.clear()
        self._control.clear()
        self._to_release.clear()

    def forget_session(self) -> None:
        """Begin a new session at the next connection: somebody else took this one over."""
        self.session_id = None

    # -- From the server

    def receive(self, text: str, now: float) -> None:
        """One frame. Raises ProtocolViolation for what is no message of this protocol."""
        self._heard_at = now
        try:
            message = decode(text, numbers=self._numbers)
            kind = message["type"]
            if kind == "offer":
                self._on_offer(message)
            elif "re" in message:
                self._on_answer(kind, message, now)
            else:
                self._on_news(kind, message, now)
        except (InvalidJson, KeyError, TypeError, AttributeError) as error:
            raise ProtocolViolation(f"not a message of orbit.worker.v1: {error!r}") from error

    def _on_offer(self, message: Mapping[str, Any]) -> None:
        attempt = Attempt(message["attempt_id"], message["fencing_token"], message["task"])
        if self.draining or self.node_drains:
            return  # the server takes it back by itself
        self._attempts[attempt.attempt_id] = attempt
        self._offers += 1
        urgency = attempt.task.get("priority", 0) if self.policy is Policy.STRICT else 0
        heapq.heappush(self._offered, (-urgency, self._offers, attempt))

    def _on_news(self, kind: str, message: Mapping[str, Any], now: float) -> None:
        if kind == "cancel":
            attempt = self._attempts.get(message["attempt_id"])
            if attempt is not None and attempt.phase is Phase.RUNNING:
                self._host.cancel(attempt, str(message["reason"]))
            elif attempt is not None and attempt.phase is Phase.STARTING:
                attempt.stop_at_start = str(message["reason"])  # it overtook the answer to `start`
        elif kind == "revoke":
            attempt = self._attempts.get(message["attempt_id"])
            # A start that is on its way is answered by itself: it wins or loses by the row's transaction.
            if attempt is not None and attempt.phase is Phase.OFFERED:
                del self._attempts[attempt.attempt_id]
                self._host.note("revoked", attempt_id=attempt.attempt_id, reason=message["reason"])
        elif kind == "welcome":
            self._on_welcome(message, now)
        elif kind == "drain":
            self.node_drains = True
            self._let_go_of_offers(release=True)
            self._host.note("node_drains", node=self.node_id, running=self._executing)
        elif kind == "drained":
            self.drained = True
        elif kind == "error":
            self._host.note("error", code=message["code"], message=message["message"])
        else:
            self._host.note("unknown_message", kind=kind)  # of a newer server; it is told, not asked

    def _on_welcome(self, message: Mapping[str, Any], now: float) -> None:
        self.session_id = str(message["session_id"])
        self.node_id = str(message["node_id"])
        self.lease_seconds = message["lease_ms"] / 1000
        self.policy = Policy(message["namespace_policy"])
        self._frame_bytes_max = min(FRAME_BYTES_MAX, int(message["max_message_bytes"]))
        self.welcomed = True
        self._failures, self._held_back_until = 0, 0.0
        held = {item["attempt_id"]: item for item in message["held"]}
        self._host.note(
            "connected", node=self.node_id, session=self.session_id, resumed=message["resumed"], held=len(held)
        )
        self._reconcile(held, now)
        self._look_at = now
        if self.draining:
            self._control.append("drain")
        self._tell_capacity()

    def _reconcile(self, held: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """Bring what the worker knows and what the session holds together after a connection was lost."""
        self._to_run_again.clear()
        self._to_finish.clear()
        for attempt in list(self._attempts.values()):
            attempt.progress_sent = False
            if attempt.phase is Phase.OFFERED:
                if attempt.attempt_id not in held or self.draining:
                    del self._attempts[attempt.attempt_id]
            elif attempt.phase is Phase.STARTING:
                self._to_run_again.append(attempt)
            else:
                attempt.renew_at = now
                if attempt.phase is Phase.REPORTING:
                    self._to_finish.append(attempt)
        for attempt_id, item in held.items():
            if attempt_id in self._attempts:
                continue
            if item["state"] == "RESERVED":
                holding = Attempt(attempt_id, item["fencing_token"], {}).holding
                self._to_release.append(holding)
            else:
                # Started by somebody who forgot it. Only its lease can tell whether it still runs.
                self._host.note("left_to_its_lease", attempt_id=attempt_id, task_id=item["task_id"])

    # -- Answers

    def _on_answer(self, kind: str, message: Mapping[str, Any], now: float) -> None:
        sent = self._in_flight.pop(message["re"], None)
        if sent is None:
            raise ProtocolViolation(f"an answer to {message['re']!r}, which was not asked")
        if kind == "error":
            self._on_failed(sent, message, now)
        elif kind != _ANSWER_OF[sent.kind]:
            raise ProtocolViolation(f"{kind} answers a {sent.kind}")
        else:
            self._failures = 0
            if kind == "draining":
                self.drain_acknowledged = True
            if kind in _READERS:
                items = message["items"]
                if len(items) != len(sent.attempts):
                    raise ProtocolViolation(f"{len(items)} items answer {len(sent.attempts)}")
                read = _READERS[kind]
                for attempt, item in zip(sent.attempts, items, strict=True):
                    if item["attempt_id"] != attempt.attempt_id:
                        raise ProtocolViolation(f"{item['attempt_id']} is answered instead of {attempt.attempt_id}")
                    read(self, attempt, item, now)

    def _on_failed(self, sent: _Sent, message: Mapping[str, Any], now: float) -> None:
        """The server could not take the message and the connection stays: say it again, a little later."""
        self._host.note("error", code=message["code"], message=message["message"], about=sent.kind)
        self._failures += 1
        self._held_back_until = now + min(REPEAT_SECONDS_MAX, REPEAT_SECONDS_MIN * 2.0 ** (self._failures - 1))
        if sent.kind == "start":
            self._to_run_again.extend(sent.attempts)
        elif sent.kind == "finish":
            self._to_finish.extend(sent.attempts)
        elif sent.kind == "renew":
            for attempt in sent.attempts:
                attempt.renew_at = self._held_back_until
                attempt.progress_sent = False
        elif sent.kind in ("drain", "resize"):
            self._control.append(sent.kind)

    def _on_started(self, attempt: Attempt, item: Mapping[str, Any], now: float) -> None:
        self._starting -= 1
        if item["status"] == "STARTED":
            attempt.phase = Phase.RUNNING
            attempt.renew_at = now + self.lease_seconds / 3
            self._executing += 1
            self._host.execute(attempt)
            if attempt.stop_at_start is not None:
                self._host.cancel(attempt, attempt.stop_at_start)
        else:
            del self._attempts[attempt.attempt_id]
            self._host.note("not_started", attempt_id=attempt.attempt_id, code=item["code"])

    def _on_renewed(self, attempt: Attempt, item: Mapping[str, Any], now: float) -> None:
        attempt.progress_sent = False
        if attempt.progress is not None:
            self._with_progress.append(attempt)
        if item["status"] == "RENEWED":
            if item.get("message"):
                self._host.note("progress_refused", attempt_id=attempt.attempt_id, message=item["message"])
            if item["cancel_requested"] and attempt.phase is Phase.RUNNING:
                self._host.cancel(attempt, _CANCEL_IN_RENEWAL)
        elif attempt.phase is Phase.RUNNING and not attempt.lost:
            self._lose(attempt)
        # A LOST for an attempt that is being reported says nothing: the answer to its `finish` decides.

    def _lose(self, attempt: Attempt) -> None:
        attempt.lost = True
        self._lost_executing += 1
        self._attempts.pop(attempt.attempt_id, None)
        self._host.note("lease_lost", attempt_id=attempt.attempt_id, task_id=attempt.task.get("task_id"))
        self._host.cancel(attempt, "LEASE_LOST")
        self._tell_capacity()

    def _on_finished(self, attempt: Attempt, item: Mapping[str, Any], now: float) -> None:
        status = item["status"]
        if status in ("COMMITTED", "ALREADY"):
            self._attempts.pop(attempt.attempt_id, None)
        elif status == "LOST":
            self._attempts.pop(attempt.attempt_id, None)
            self._note_discarded(attempt)
        elif attempt.report_refused:
            # Twice refused: nothing that this worker can say is taken, so the lease decides.
            self._attempts.pop(attempt.attempt_id, None)
            self._host.note("left_to_its_lease", attempt_id=attempt.attempt_id, task_id=attempt.task.get("task_id"))
        else:
            self._host.note("report_refused", attempt_id=attempt.attempt_id, code=item["code"], message=item["message"])
            attempt.report_refused = True
            message = f"the report was refused: {item['code']}: {item['message']}"[:4096]
            attempt.report = Report("FAILED", code="REPORT_REFUSED", message=message, retryable=False)
            self._to_finish.append(attempt)

    def _note_discarded(self, attempt: Attempt) -> None:
        self._host.note("result_discarded", attempt_id=attempt.attempt_id, task_id=attempt.task.get("task_id"))

    # -- From the handlers

    def report(self, attempt: Attempt, report: Report) -> None:
        """The handler ended."""
        self._executing -= 1
        if attempt.lost:
            self._lost_executing -= 1
            self._note_discarded(attempt)
            self._tell_capacity()
            return
        attempt.phase = Phase.REPORTING
        attempt.report = report
        self._to_finish.append(attempt)

    def abandon(self, attempt: Attempt) -> None:
        """Nobody knows what became of the handler (its process died): no report, no renewal, the lease decides."""
        self._executing -= 1
        if attempt.lost:
            self._lost_executing -= 1
            self._tell_capacity()
        self._attempts.pop(attempt.attempt_id, None)
        self._host.note("left_to_its_lease", attempt_id=attempt.attempt_id, task_id=attempt.task.get("task_id"))

    def progress(self, attempt: Attempt, percent: int, message: str | None) -> None:
        """Only the newest progress of an attempt counts."""
        if attempt.lost:
            return
        if attempt.progress is None and not attempt.progress_sent:
            self._with_progress.append(attempt)
        attempt.progress = (percent, message)

    # -- From the owner

    def drain(self) -> None:
        """No more offers; let go of reservations; `drained` becomes true once the last attempt ended."""
        if not self.draining:
            self.draining = True
            self._let_go_of_offers(release=False)
            if self.welcomed:
                self._control.append("drain")

    def pause(self, paused: bool) -> None:
        """Take no new work (capacity 0), or take it again."""
        self.paused = paused
        if paused:
            self._let_go_of_offers(release=False)
        self._tell_capacity()

    def _let_go_of_offers(self, *, release: bool) -> None:
        for _, _, attempt in self._offered:
            if attempt.phase is Phase.OFFERED and self._attempts.pop(attempt.attempt_id, None) is not None and release:
                self._to_release.append(attempt.holding)
        self._offered.clear()

    def _capacity_wanted(self) -> int:
        """A handler that runs on without its lease occupies a slot that the server believes to be free."""
        return 0 if self.paused else max(0, self._profile.capacity - self._lost_executing)

    def _tell_capacity(self) -> None:
        if self.welcomed and "resize" not in self._control and self._capacity_wanted() != self._capacity_told:
            self._control.append("resize")

    # -- What to send now

    def frames(self, now: float) -> list[str]:
        """The messages that are due, gathered: up to 64 items in each, no more of them in flight than the server
        takes.
        """
        if not self.welcomed:
            return []
        frames: list[str] = []
        self._renewals(frames, now)
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_SECONDS
            frames.append(self._message("heartbeat", ()))
        if now < self._held_back_until:
            return frames
        while self._to_finish and len(self._in_flight) < _IN_FLIGHT_MAX:
            frames.append(self._finish_message())
        while self._to_release and len(self._in_flight) < _IN_FLIGHT_MAX:
            frames.append(self._release_message())
        self._starts(frames)
        while self._control and len(self._in_flight) < _IN_FLIGHT_MAX:
            self._control_message(self._control.popleft(), frames)
        return frames

    def next_moment(self, now: float) -> float:
        """When `frames` has something to say even if nothing happens."""
        return self._held_back_until if self._held_back_until > now else self._heartbeat_at

    def _message(self, kind: str, attempts: Sequence[Attempt], items: Iterable[str] = ()) -> str:
        self._seq += 1
        self._in_flight[self._seq] = _Sent(kind, attempts)
        if not attempts:
            return f'{{"type":"{kind}","seq":{self._seq}}}'
        return f'{{"type":"{kind}","seq":{self._seq},"items":[{",".join(items)}]}}'

    def _finish_message(self) -> str:
        """As many reports as one frame takes."""
        attempts: list[Attempt] = []
        items: list[str] = []
        left = self._frame_bytes_max - _ENVELOPE_BYTES
        while self._to_finish and len(attempts) < MESSAGE_ITEMS_MAX:
            attempt = self._to_finish[0]
            assert attempt.report is not None  # noqa: S101 (who waits here has one)
            item = attempt.report.item(attempt.attempt_id, attempt.fencing_token)
            size = (len(item) if item.isascii() else len(item.encode())) + 1
            if size > left and attempts:
                break
            left -= size
            attempts.append(self._to_finish.popleft())
            items.append(item)
        return self._message("finish", attempts, items)

    def _release_message(self) -> str:
        count = min(MESSAGE_ITEMS_MAX, len(self._to_release))
        holdings = [self._to_release.popleft() for _ in range(count)]
        self._seq += 1
        # Its answer changes nothing here, whatever it is.
        self._in_flight[self._seq] = _Sent("release", ())
        return f'{{"type":"release","seq":{self._seq},"items":[{",".join(holdings)}]}}'

    def _starts(self, frames: list[str]) -> None:
        """Start what can run at once, and nothing more: the most urgent first in a STRICT namespace, else in offered
        order.
        """
        room = self._profile.concurrency - self._executing - self._starting
        attempts: list[Attempt] = []
        while len(self._in_flight) < _IN_FLIGHT_MAX:
            while len(attempts) < MESSAGE_ITEMS_MAX and self._to_run_again:
                attempts.append(self._to_run_again.popleft())
            while len(attempts) < MESSAGE_ITEMS_MAX and room > 0 and self._offered:
                attempt = heapq.heappop(self._offered)[2]
                # Revoked ones are still in the heap; they are not in the table any more.
                if self._attempts.get(attempt.attempt_id) is attempt and attempt.phase is Phase.OFFERED:
                    attempt.phase = Phase.STARTING
                    self._starting += 1
                    room -= 1
                    attempts.append(attempt)
            if not attempts:
                return
            frames.append(self._message("start", attempts, [attempt.holding for attempt in attempts]))
            attempts = []

    def _renewals(self, frames: list[str], now: float) -> None:
        due = self._with_progress
        self._with_progress = []
        if now >= self._look_at:
            # Once in a while is enough, and a flood of short attempts does not pay for it with every message.
            self._look_at = now + self.lease_seconds / 15
            due += [
                attempt
                for attempt in self._attempts.values()
                if attempt.renew_at <= now and attempt.phase in (Phase.RUNNING, Phase.REPORTING)
            ]
        seen: set[str] = set()
        attempts: list[Attempt] = []
        items: list[str] = []
        for attempt in due:
            if attempt.attempt_id in seen or attempt.lost or attempt.attempt_id not in self._attempts:
                continue
            seen.add(attempt.attempt_id)
            attempt.renew_at = now + self.lease_seconds / 3
            attempts.append(attempt)
            items.append(self._renewal(attempt))
            if len(attempts) == MESSAGE_ITEMS_MAX:
                frames.append(self._message("renew", attempts, items))
                attempts, items = [], []
        if attempts:
            frames.append(self._message("renew", attempts, items))

    def _renewal(self, attempt: Attempt) -> str:
        if attempt.progress is None or attempt.progress_sent:
            return attempt.holding
        percent, message = attempt.progress
        attempt.progress, attempt.progress_sent = None, True
        words = "" if message is None else f',"message":{encode_text(message)}'
        return f'{attempt.holding[:-1]},"progress":{{"percent":{percent}{words}}}}}'

    def _control_message(self, kind: str, frames: list[str]) -> None:
        if kind == "drain":
            frames.append(self._message("drain", ()))
            return
        wanted = self._capacity_wanted()
        if wanted != self._capacity_told:
            self._capacity_told = wanted
            self._seq += 1
            self._in_flight[self._seq] = _Sent("resize", ())
            frames.append(f'{{"type":"resize","seq":{self._seq},"capacity":{wanted}}}')


_ANSWER_OF = {
    "start": "started",
    "renew": "renewed",
    "finish": "finished",
    "release": "released",
    "heartbeat": "heartbeat_ack",
    "resize": "resized",
    "drain": "draining",
}
_READERS = {
    "started": WorkerProtocol._on_started,
    "renewed": WorkerProtocol._on_renewed,
    "finished": WorkerProtocol._on_finished,
}
