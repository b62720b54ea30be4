"""Values on the command line, with a sentence for what is wrong, and errors of the domain as a command tells them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Final

from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError

from tasks_app.errors import OrbitError
from tasks_app.limits import QUOTA_MAX, START_RATE_PER_MS_MAX, START_RATE_STARTS_MAX
from tasks_app.states import Action
from tasks_app.transactions import CommitOutcomeUnknown

NONE: Final = "none"
DEFAULT_FAMILIES: Final = ("tasks:", "queues:", "plans:", "operations:")
_NO_SUCH_TABLE: Final = ("no such table", "1146", "doesn't exist")


def limit(text: str) -> int:
    """A quota: 0 or more."""
    return _whole(text, 0, QUOTA_MAX)


def limit_or_none(text: str) -> int | str:
    """A quota, or the word `none`, which lifts it."""
    return NONE if text == NONE else limit(text)


def start_rate(text: str) -> tuple[int, int]:
    """`STARTS/PER_MS`."""
    starts, slash, per_ms = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError("must be STARTS/PER_MS, such as 10/1000")
    return _whole(starts, 1, START_RATE_STARTS_MAX), _whole(per_ms, 1, START_RATE_PER_MS_MAX)


def start_rate_or_none(text: str) -> tuple[int, int] | str:
    return NONE if text == NONE else start_rate(text)


def seconds(text: str) -> int:
    return _whole(text, 1, QUOTA_MAX // 1_000_000)


def overlap_seconds(text: str) -> int:
    """0 ends the old credential at once."""
    return _whole(text, 0, QUOTA_MAX // 1_000_000)


def actions(text: str) -> tuple[str, ...]:
    """`a,b`: known actions."""
    names = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in Action.values]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such action: {', '.join(unknown)}; known are {', '.join(Action.values)}")
    return names


def default_actions(*, workers: bool = False, nodes: bool = False) -> tuple[str, ...]:
    """All of `tasks:* queues:* plans:* operations:*`, and what the two flags add."""
    families = DEFAULT_FAMILIES + (("workers:",) if workers else ()) + (("nodes:",) if nodes else ())
    return tuple(action for action in Action.values if action.startswith(families))


def _whole(text: str, lowest: int, highest: int) -> int:
    if not (text.isascii() and text.isdigit()) or not lowest <= int(text) <= highest:
        raise argparse.ArgumentTypeError(f"must be a whole number from {lowest} to {highest}, not {text!r}")
    return int(text)


@contextlib.contextmanager
def told_as_command_errors() -> Iterator[None]:
    """What the domain refuses, and a database that cannot be used, as one sentence and exit status 1."""
    try:
        yield
    except OrbitError as error:
        raise CommandError(error.message) from error
    except CommitOutcomeUnknown as error:
        raise CommandError(
            f"the database did not say whether it committed ({error}); run the command again to see"
        ) from error
    except (OperationalError, ProgrammingError) as error:
        if any(part in str(error) for part in _NO_SUCH_TABLE):
            raise CommandError(f"the database has no current schema ({error}); run: manage.py migrate") from error
        raise CommandError(f"the database cannot be used: {error}") from error
