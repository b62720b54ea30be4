"""Claim time at a backlog, in a process with Orbit's settings: `python -m bench.claims SAMPLES` prints JSON.

Each sample claims 8 tasks through `domain.claims.claim` and hands them back, beside the bare index read of the same
ids.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")
    import django

    django.setup()
    from tasks_app import ids
    from tasks_app.domain import attempts, claims

    order_json: dict[str, Any] = json.loads(sys.argv[1])
    session_id = ids.new_id(time.time_ns() // 1000)
    order = claims.ClaimOrder(
        application_id=order_json["application_id"],
        namespace_id=order_json["namespace_id"],
        queue_ids=(order_json["queue_id"],),
        handler_refs=tuple(order_json["handler_refs"]),
        resource_keys=True,
        limit=8,
        session_id=session_id,
    )
    times: list[float] = []
    claimed = 0
    for _ in range(order_json["samples"]):
        begin = time.perf_counter()
        outcome = claims.claim(order)
        times.append((time.perf_counter() - begin) * 1000)
        claimed += len(outcome.offers)
        attempts.release(
            [
                attempts.Held(
                    offer.task.task_id, str(offer.task.attempt_id), offer.task.fencing_token, offer.task.namespace_id
                )
                for offer in outcome.offers
            ]
        )
    print(json.dumps({"ms": times, "claimed": claimed}))


if __name__ == "__main__":
    main()
