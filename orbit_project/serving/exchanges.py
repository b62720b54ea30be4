"""One HTTP request and its answer, as the node sees them: no Twisted, no Django.

`http_channel.py` makes exchanges from sockets, `http_front.py` decides about them, `pooled_wsgi.py` computes answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Protocol

from orbit_project.serving.client_addresses import Caller
from orbit_project.serving.refusals import Refusal


@dataclass(frozen=True)
class Head:
    """What a complete request says. Header names are lower-case; values keep their bytes as latin-1."""

    method: str
    path: bytes  # decoded, without the query
    query: str
    http_version: str
    headers: Sequence[tuple[str, str]]
    caller: Caller
    server: tuple[str, int]

    def header(self, name: str) -> str | None:
        """The first value of `name`, or None."""
        return next((value for known, value in self.headers if known == name), None)


@dataclass
class Answer:
    """A whole answer: its body is in memory, or spooled to a file of `size` bytes that stands at its beginning."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    file: IO[bytes] | None = None
    size: int = 0
    close: bool = False

    def header(self, name: str) -> str | None:
        """The first value of `name` (lower-case), or None."""
        return next((value for known, value in self.headers if known.lower() == name), None)

    def without_header(self, name: str) -> Answer:
        self.headers = [pair for pair in self.headers if pair[0].lower() != name]
        return self


@dataclass(frozen=True)
class Access:
    """One finished exchange for the access log: never a query string, a header or a body."""

    method: str
    path: str
    status: int
    response_bytes: int
    seconds: float
    address: str
    client_gone: bool = field(default=False)


class Exchange(Protocol):
    """A request that waits for its answer. Belongs to the event loop's thread, except for `gone`."""

    head: Head
    body: bytes

    @property
    def gone(self) -> bool:
        """The client left; whatever is answered is dropped. May be read from any thread."""

    def on_gone(self, callback: Callable[[], object]) -> None:
        """Call back once if the client leaves before the answer is complete."""

    def respond(self, answer: Answer) -> None:
        """Send the answer; dropped if the client left. Never called twice."""

    def respond_refusal(self, refusal: Refusal) -> None:
        """Send what the node itself says, in the same way."""
