"""Every logged or measured event of tasks_app. Other modules emit them and never compose log prose or metric names.

Base units, `orbit_…_total` and `orbit_…_seconds`; labels come from closed sets only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Histogram

logger = logging.getLogger("orbit")

ACCEPTED = Counter("orbit_tasks_accepted_total", "Tasks accepted", ["deduplicated"])
REJECTED = Counter("orbit_tasks_rejected_total", "Submits refused, by error code", ["code"])
CLAIMS = Counter("orbit_claims_total", "Claim operations, by result", ["result"])
CLAIMED = Counter("orbit_tasks_claimed_total", "Tasks reserved by claims")
STARTED = Counter("orbit_attempts_started_total", "Attempts started")
ENDED = Counter("orbit_tasks_ended_total", "Tasks that reached an end or UNKNOWN", ["state"])
LEASES_LOST = Counter("orbit_leases_lost_total", "Running leases that ran out")
YIELDS = Counter("orbit_yields_total", "Reservations that gave way to more urgent work")
WAIT_SECONDS = Histogram(
    "orbit_task_wait_seconds",
    "From available to started",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)
RUN_SECONDS = Histogram(
    "orbit_task_run_seconds",
    "From started to reported",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)
CLAIM_SECONDS = Histogram(
    "orbit_claim_seconds",
    "Time of one claim operation",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
API_REFUSALS = Counter("orbit_api_refusals_total", "Requests under /v1 that were refused, by error code", ["code"])
DATABASE_RETRIES = Counter("orbit_database_retries_total", "Units run again, by the database's error code", ["code"])
COMMITS_UNKNOWN = Counter("orbit_commit_outcomes_unknown_total", "Commits whose answer was lost")

PRUNED = Counter("orbit_rows_pruned_total", "Rows deleted by retention, by kind", ["kind"])
PLAN_FIRINGS = Counter("orbit_plan_firings_total", "Fire times of plans, by what became of them", ["status"])


def database_retried(code: int) -> None:
    DATABASE_RETRIES.labels(code=str(code)).inc()
    logger.info("database unit retried", extra={"code": code})


def commit_outcome_unknown() -> None:
    COMMITS_UNKNOWN.inc()
    logger.warning("the answer to COMMIT was lost; the identity is looked up on a new connection")


def task_ended(states: Iterable[str]) -> None:
    for state in states:
        ENDED.labels(state=state).inc()


def api_refused(code: str) -> None:
    API_REFUSALS.labels(code=code).inc()


def batch_item_failed(error: Exception) -> None:
    logger.error("an item of a batch failed; its outcome is reported as unknown", exc_info=error)


def plan_fired(statuses: Mapping[str, int]) -> None:
    for status, count in statuses.items():
        PLAN_FIRINGS.labels(status=status).inc(count)


def plan_failed(plan_id: str, error: Exception) -> None:
    logger.error("a plan could not be fired; it is tried again", extra={"plan_id": plan_id}, exc_info=error)
