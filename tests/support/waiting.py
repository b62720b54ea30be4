"""Waiting for a condition with a deadline: the only way a test waits."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.01
DEFAULT_TIMEOUT_SECONDS = 20.0


def eventually(
    predicate: Callable[[], T],
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    *,
    describe: Callable[[], object] | None = None,
) -> T:
    """The first truthy answer of `predicate`, asked again and again; AssertionError when `timeout` seconds are over.

    `describe` adds what was seen last to the failure.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() > deadline:
            seen = f"; seen last: {describe()!r}" if describe is not None else f"; answer: {answer!r}"
            try:
                wanted = inspect.getsource(predicate).strip()
            except (OSError, TypeError):
                wanted = repr(predicate)
            raise AssertionError(f"not within {timeout} s: {wanted}{seen}")
        time.sleep(POLL_SECONDS)
