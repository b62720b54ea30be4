"""What every command shares: the client, how to print, and what the exit codes mean.

0 ok · 1 refused, or ended otherwise than wanted · 2 wrong usage or set-up · 3 the outcome is not known (or not known
yet).
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orbit_sdk.client import OrbitClient
from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import ApiError, ConfigError, InvalidRequest, OrbitError, WaitTimeout, _Refusal
from orbit_sdk.jsoncodec import InvalidJson, Numbers, decode, encode_text
from orbit_sdk.transport import HttpTransport
from orbit_sdk.wire import Request, Response

T = TypeVar("T")


class ExitCode(enum.IntEnum):
    OK = 0
    REFUSED = 1
    USAGE = 2
    UNKNOWN = 3


def exit_code_of(error: OrbitError) -> ExitCode:
    if isinstance(error, ConfigError | InvalidRequest):
        return ExitCode.USAGE
    if error.outcome_unknown or isinstance(error, WaitTimeout):
        return ExitCode.UNKNOWN
    return ExitCode.REFUSED


class RecordingTransport(HttpTransport):
    """Keeps the last answer, so that `--json` shows it as it came."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(credentials)
        self.last: Response | None = None

    def send(self, request: Request, *, timeout: float) -> Response:
        self.last = super().send(request, timeout=timeout)
        return self.last


@dataclass
class Session:
    """One run of the command. `json` holds whether programs read what is printed."""

    json: bool = False
    timeout: float = 30.0
    _transport: RecordingTransport | None = field(default=None, repr=False)

    @cached_property
    def credentials(self) -> Credentials:
        return Credentials.from_env()

    @cached_property
    def client(self) -> OrbitClient:
        self._transport = RecordingTransport(self.credentials)
        return OrbitClient.from_credentials(self.credentials, timeout=self.timeout, transport=self._transport)

    @property
    def last_data(self) -> Any:
        """The `data` of the last answer, every number as it was sent."""
        if self._transport is None or self._transport.last is None:
            raise ConfigError("nothing was asked yet")
        return decode(self._transport.last.body, numbers=Numbers.LITERAL)["data"]

    # -- Printing

    @cached_property
    def console(self) -> Console:
        return Console(highlight=False)

    @property
    def is_terminal(self) -> bool:
        return self.console.is_terminal

    def show(self, text: Callable[[], str]) -> None:
        """The answer's data for a program, or `text` for a person."""
        if self.json:
            self.show_json(self.last_data)
        else:
            self.line(text())

    def show_json(self, value: Any) -> None:
        sys.stdout.write(encode_text(value) + "\n")
        sys.stdout.flush()

    def line(self, text: str) -> None:
        self.console.print(Text(text), soft_wrap=True)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table on a terminal; lines with tabs anywhere else."""
        shown = [[shown_cell(cell) for cell in row] for row in rows]
        if not self.is_terminal:
            for row in [list(headers), *shown]:
                sys.stdout.write("\t".join(row) + "\n")
            return
        table = Table(*headers, box=None, pad_edge=False, header_style="bold")
        for row in shown:
            table.add_row(*[Text(cell) for cell in row])
        self.console.print(table)

    def complain(self, error: OrbitError) -> None:
        """An error, on standard error: one line for a person, an object for a program."""
        if not self.json:
            print(f"orbit: {error}", file=sys.stderr)
            return
        body: dict[str, Any] = {"code": type(error).__name__, "message": str(error)}
        if isinstance(error, _Refusal):
            body = {"code": error.code, "message": error.message, "details": list(error.details)}
            if error.retry_after_ms is not None:
                body["retry_after_ms"] = error.retry_after_ms
            if isinstance(error, ApiError):
                body["status"] = error.status
        print(encode_text({"error": {**body, "outcome_unknown": error.outcome_unknown}}), file=sys.stderr)

    def name_of_queue(self, queue_id: str) -> str:
        return self.credentials.queue_name(queue_id)


def shown_cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ")
    return str(value).replace("\t", " ").replace("\n", " ")


def session_of(context: typer.Context) -> Session:
    session = context.find_root().obj
    assert isinstance(session, Session)  # noqa: S101 (the root command put it there)
    return session


def fail(reason: str) -> typer.BadParameter:
    """Wrong usage, as an exception to raise."""
    return typer.BadParameter(reason)


def json_of(text: str, what: str, *, numbers: Numbers = Numbers.LITERAL) -> Any:
    """A JSON value given on the command line or in a file. Wrong JSON is wrong usage."""
    try:
        return decode(text, numbers=numbers)
    except InvalidJson as error:
        raise fail(f"{what} {error}") from None


def text_of_file(path: Path) -> str:
    """A file's text; `-` is standard input."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise fail(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise fail(f"{path} is not UTF-8") from None
