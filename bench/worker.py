"""The SDK worker that the drain and the pick-up are measured with: every task appends one line to a file."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from orbit_sdk import Worker


def main() -> None:
    queue, concurrency, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    worker = Worker.from_env(queues=[queue], concurrency=concurrency, prefetch=int(sys.argv[4]))

    @worker.handler("bench.noop", version="v1")
    def noop(ctx: Any, payload: Any) -> None:
        os.write(record, f"{payload['sent']} {time.monotonic_ns()}\n".encode())

    worker.run()


if __name__ == "__main__":
    main()
