"""A worker program as users write it; run by the tests as a process of its own."""

from __future__ import annotations

import sys
import time
from typing import Any

from orbit_sdk import Context, Worker

worker = Worker.from_env(queues=["reports"], concurrency=2, name="program", drain_timeout=float(sys.argv[1]))


@worker.handler("hold")
def hold(ctx: Context, payload: Any) -> str:
    ctx.progress(1)  # tells the test that the handler runs
    while not ctx.wait_cancelled(0.05):
        time.sleep(0)
    return "stopped when asked"


if __name__ == "__main__":
    sys.exit(worker.run(json="--json" in sys.argv))
