"""Handlers that a child process imports."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from orbit_sdk import Context


def tell_pid(ctx: Context, payload: Any) -> dict[str, Any]:
    ctx.progress(50, "half way")
    return {"pid": os.getpid(), "attempt": ctx.attempt, "payload": payload}


def wait_for_cancel(ctx: Context, payload: Any) -> None:
    ctx.wait_cancelled(10)
    ctx.raise_if_cancelled()


def die(ctx: Context, payload: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stubborn(ctx: Context, payload: Any) -> None:
    time.sleep(60)


def fail(ctx: Context, payload: Any) -> None:
    raise ValueError("in the child")
