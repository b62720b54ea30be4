"""Turn-taking of the claim scheduler (design 3.4): applications in rounds, queues in turn, requests in order.

    application   one claim per round, and one at a time
      queue       in turn inside its application; in a STRICT namespace the queue set of its sessions
        line      connections that any claim would answer alike, in the order of their requests

Inside a round the application with fewer running attempts goes first, then the one served longest ago. An application
that could not be served for a while joins the round that is going on, a new one the next: no turns are saved up, and
none are won by leaving and coming back. So while two applications both wait, neither gets more than two turns between
two turns of the other, however many queues and connections they have.

`scheduler.py` decides what stands in which line and when a line rests; this module only what is next among those open.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from enum import Enum, StrEnum
from itertools import count

QueueKey = tuple[str, tuple[str, ...]]  # (namespace, queue ids)
LineKey = tuple[str, tuple[str, ...], frozenset[Hashable], bool, bool]  # … capabilities, resource keys, takes urgent


class Pacing(StrEnum):
    """What the pace of a connection counts (`ORBIT_CLAIM_PACING`)."""

    WORK = "work"  # speculative claims
    LITERAL = "literal"  # every claim


class Standing(Enum):
    """Where a connection is with its request."""

    IDLE = "wants nothing"
    WAITING = "in its lines, with claims left in this cycle"
    PACED = "in its lines, without: only a promising line serves it"
    UNQUEUED = "without a place"
    RUNNING = "its claim is being run"


class Connection:
    """A registered connection and its request."""

    __slots__ = (
        "application",
        "capacity",
        "claims",
        "claims_cycle",
        "freed",
        "gone",
        "id",
        "last_full",
        "line_sets",
        "lines",
        "standing",
        "urgent_capacity",
    )

    def __init__(self, connection_id: Hashable, application: Application) -> None:
        self.id = connection_id
        self.application = application
        self.standing = Standing.IDLE
        self.capacity = 0
        self.urgent_capacity: int | None = None
        self.line_sets: tuple[tuple[Line, ...], ...] = ((),)  # if it could take an urgent task; if it could not
        self.lines: tuple[Line, ...] = ()  # where it stands now
        self.claims = 0  # counted ones, in the cycle `claims_cycle`
        self.claims_cycle = -1
        self.last_full = False
        self.freed = False  # capacity, since its last claim began
        self.gone = False

    @property
    def lines_to_stand_in(self) -> tuple[Line, ...]:
        return self.line_sets[-1 if self.urgent_capacity == 0 else 0]

    @property
    def has_work(self) -> bool:
        """There was more than it could take, and now it can take more."""
        return self.last_full and self.freed


class Line:
    """Connections that any claim would answer alike. It rests while it is `empty`, and is `promising` while a hint of
    work stands that no claim has used up."""

    __slots__ = (
        "alive",
        "empty",
        "hinted",
        "key",
        "members",
        "paced",
        "pacing",
        "promised",
        "promising",
        "queue",
        "waiting",
    )

    def __init__(self, key: LineKey, queue: Queue, pacing: Pacing) -> None:
        self.key = key
        self.queue = queue
        self.pacing = pacing
        self.members = 0  # registered connections, waiting or not
        self.alive = True
        self.waiting: dict[Connection, int] = {}  # -> ticket; tickets rise, so the first is the oldest
        self.paced: dict[Connection, int] = {}
        self.empty = False
        self.promising = False
        self.hinted = False  # since the last claim here began: what it saw may be out of date
        self.promised = False  # since then, a hint of known work

    @property
    def queue_ids(self) -> tuple[str, ...]:
        return self.key[1]

    @property
    def capabilities(self) -> frozenset[Hashable]:
        return self.key[2]

    @property
    def resource_keys(self) -> bool:
        return self.key[3]

    def serves(self, *, paced: bool) -> bool:
        """True if a claim may be made here for a connection that has, or has not, spent its claims of this cycle."""
        return not self.empty and (not paced or (self.promising and self.pacing is Pacing.WORK))

    def first(self) -> tuple[int, Connection] | None:
        """The oldest request that a claim in this line may serve now, behind its ticket."""
        if self.empty or not (self.waiting or self.paced):
            return None
        oldest = next(iter(self.waiting.items()), None)
        paced = next(iter(self.paced.items()), None) if self.serves(paced=True) else None
        if oldest is None or (paced is not None and paced[1] < oldest[1]):
            oldest = paced
        return None if oldest is None else (oldest[1], oldest[0])


class Queue:
    """What takes turns inside an application."""

    __slots__ = ("application", "key", "last_turn", "lines", "listed", "number", "open_lines")

    def __init__(self, key: QueueKey, application: Application, number: int) -> None:
        self.key = key
        self.application = application
        self.number = number
        self.lines = 0
        self.open_lines: dict[Line, None] = {}
        self.last_turn = application.turns  # a new queue starts at the end of the row
        self.listed = False  # in its application's heap


class Application:
    """Who is served in rounds."""

    __slots__ = ("connections", "due", "last_served", "name", "open_queues", "queues", "round", "running", "turns")

    def __init__(self, name: str, *, joins_round: int, number: int) -> None:
        self.name = name
        self.round = joins_round
        self.last_served = number
        self.connections = 0
        self.running = False  # one of its claims is being run
        self.queues: dict[QueueKey, Queue] = {}
        self.open_queues = 0
        self.turns = 0
        self.due: list[tuple[int, int, Queue]] = []  # heap of (last turn, number, queue); closed ones are skipped

    def list_queue(self, queue: Queue) -> None:
        if not queue.listed:
            heapq.heappush(self.due, (queue.last_turn, queue.number, queue))
            queue.listed = True

    def take_turn(self) -> Queue:
        """The open queue whose turn was longest ago; its next one is behind all others."""
        while True:
            queue = heapq.heappop(self.due)[2]
            queue.listed = False
            if queue.open_lines:
                self.turns += 1
                queue.last_turn = self.turns
                return queue


class Turns:
    """The open applications, and whose turn is next among them."""

    def __init__(self) -> None:
        self.applications: dict[str, Application] = {}
        self._open: dict[Application, None] = {}  # could be served now
        self._round = 0
        self._numbers = count(1)

    @property
    def any_open(self) -> bool:
        return bool(self._open)

    def application(self, name: str) -> Application:
        found = self.applications.get(name)
        if found is None:
            found = Application(name, joins_round=self._round + 1, number=next(self._numbers))
            self.applications[name] = found
        return found

    def queue(self, application: Application, key: QueueKey) -> Queue:
        found = application.queues.get(key)
        if found is None:
            found = application.queues[key] = Queue(key, application, next(self._numbers))
        return found

    def take(self, running_attempts: Mapping[str, int]) -> tuple[Line, Connection]:
        """Whose turn it is; the caller takes the connection out of its lines. There must be somebody (`any_open`)."""
        application = min(
            self._open, key=lambda each: (each.round, running_attempts.get(each.name, 0), each.last_served)
        )
        queue = application.take_turn()
        line = min(queue.open_lines, key=_oldest_ticket)
        first = line.first()
        assert first is not None  # noqa: S101  (it is open)
        self._round = application.round
        application.round += 1
        application.last_served = next(self._numbers)
        application.running = True
        application.list_queue(queue)
        self.refresh_application(application)
        return line, first[1]

    def ended(self, application: Application) -> None:
        """Its claim has ended."""
        application.running = False
        self.refresh_application(application)
        self.drop_if_unused(application)

    def refresh(self, lines: Iterable[Line]) -> None:
        """Bring turns up to date with what these lines can serve now."""
        for line in lines:
            queue, application = line.queue, line.queue.application
            opens = line.first() is not None
            if opens == (line in queue.open_lines):
                continue
            was_open = bool(queue.open_lines)
            if opens:
                queue.open_lines[line] = None
                application.list_queue(queue)
            else:
                del queue.open_lines[line]
            if was_open != bool(queue.open_lines):
                application.open_queues += 1 if opens else -1
                self.refresh_application(application)

    def refresh_application(self, application: Application) -> None:
        if application.open_queues == 0 or application.running:
            self._open.pop(application, None)
        elif application not in self._open:
            application.round = max(application.round, self._round)
            self._open[application] = None

    def drop_if_unused(self, application: Application) -> None:
        # A claim that is being run keeps it, so that "one at a time" holds for connections that come before it ends.
        if application.connections == 0 and not application.running:
            del self.applications[application.name]


def _oldest_ticket(line: Line) -> int:
    first = line.first()
    assert first is not None  # noqa: S101  (only open lines are compared)
    return first[0]
