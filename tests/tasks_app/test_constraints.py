"""Every named rule of the tables is refused by the database itself, whoever writes.

One row per rule that breaks this rule and no other. A constraint that has no such row here fails the suite.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction

from tasks_app import limits
from tasks_app.models import (
    Application,
    Attempt,
    AuditEntry,
    Credential,
    CredentialQueue,
    Event,
    Handler,
    IdempotencyRecord,
    Namespace,
    Node,
    Plan,
    PlanFiring,
    PlanVersion,
    Queue,
    ResourceKey,
    Task,
)
from tasks_app.states import ENDS, TaskState

AT = 1_800_000_000_000_000
Row = dict[str, Any]


def an_id(number: int) -> str:
    return f"{number:032x}"


# A valid row of each table. Those of tasks are READY; `STATES` says what else the other states need.
VALID: dict[type[models.Model], Row] = {
    Application: {"application_id": an_id(1), "name": "app", "created_at": AT},
    Namespace: {
        "namespace_id": an_id(2), "application_id": an_id(1), "name": "ns", "environment": "test", "policy": "AGED",
        "created_at": AT,
    },
    Queue: {
        "queue_id": an_id(3), "namespace_id": an_id(2), "application_id": an_id(1), "name": "queue", "created_at": AT,
        "updated_at": AT,
    },
    Credential: {
        "credential_id": an_id(4), "namespace_id": an_id(2), "token_digest": b"d" * 32, "token_prefix": "orbit_abc",
        "actions": "tasks:read", "created_at": AT,
    },
    CredentialQueue: {"credential_id": an_id(4), "queue_id": an_id(3)},
    Handler: {"namespace_id": an_id(2), "handler": "h", "handler_version": "1"},
    ResourceKey: {"namespace_id": an_id(2), "resource_key": "k"},
    Task: {
        "task_id": an_id(5), "namespace_id": an_id(2), "application_id": an_id(1), "queue_id": an_id(3),
        "handler_id": 1, "payload_version": "1", "payload": "1", "priority": 0, "tier": 0, "state": "READY",
        "max_attempts": 3, "retry_mode": "SAFE", "available_at": AT, "created_at": AT, "updated_at": AT,
    },
    Attempt: {
        "attempt_id": an_id(6), "task_id": an_id(5), "number": 1, "fencing_token": 1, "session_id": an_id(7),
        "worker_name": "w", "node_id": "n", "state": "RUNNING", "started_at": AT,
    },
    IdempotencyRecord: {
        "record_id": an_id(8), "namespace_id": an_id(2), "operation": "task.submit", "idempotency_key": "key",
        "digest": b"d" * 32, "task_id": an_id(5), "queue_id": an_id(3), "created_at": AT,
    },
    Event: {
        "event_id": an_id(9), "namespace_id": an_id(2), "task_id": an_id(5), "queue_id": an_id(3), "type": "ACCEPTED",
        "revision": 1, "state": "READY", "created_at": AT, "position": 1,
    },
    AuditEntry: {
        "audit_id": an_id(10), "actor_kind": "SYSTEM", "actor": "orbit", "action": "task.submit", "object_type": "task",
        "object_id": an_id(5), "created_at": AT,
    },
    Plan: {
        "plan_id": an_id(11), "namespace_id": an_id(2), "name": "plan", "activated_at": AT, "created_at": AT,
        "updated_at": AT,
    },
    PlanVersion: {"plan_id": an_id(11), "version": 1, "definition": "{}", "created_at": AT},
    PlanFiring: {
        "plan_id": an_id(11), "version": 1, "fire_time": AT, "status": "SKIPPED", "created_at": AT,
    },
    Node: {
        "node_id": "node", "incarnation": an_id(12), "state": "SERVING", "roles": "web", "version": "1",
        "started_at": AT, "heartbeat_at": AT,
    },
}  # fmt: skip

LEASE: Row = {"attempt_id": an_id(6), "session_id": an_id(7), "lease_until": AT, "fencing_token": 1}
RESERVED: Row = {"state": "RESERVED", **LEASE}
RUNNING: Row = {"state": "RUNNING", **LEASE, "started_at": AT, "attempts": 1}
SUCCEEDED: Row = {"state": "SUCCEEDED", "finished_at": AT, "result": "1", "attempts": 1}
FAILED: Row = {"state": "FAILED", "finished_at": AT, "error": "{}", "error_code": "X", "attempts": 1}
STATES: dict[str, Row] = {
    "SCHEDULED": {"state": "SCHEDULED"},
    "READY": {},
    "RESERVED": RESERVED,
    "RUNNING": RUNNING,
    "UNKNOWN": {"state": "UNKNOWN", "attempts": 1},
    "SUCCEEDED": SUCCEEDED,
    "FAILED": FAILED,
    "CANCELED": {"state": "CANCELED", "finished_at": AT},
    "EXPIRED": {"state": "EXPIRED", "finished_at": AT},
}

# What breaks each CHECK and nothing else, and, for those of a range, what just does not.
QUEUE_AND_APPLICATION: dict[str, list[Row]] = {
    "{0}_max_unfinished_not_negative": [{"max_unfinished": -1}],
    "{0}_max_running_not_negative": [{"max_running": -1}],
    "{0}_unfinished_not_negative": [{"unfinished": -1}],
    "{0}_running_not_negative": [{"running": -1}],
    "{0}_start_rate_is_whole": [
        {"start_rate_starts": 1},
        {"start_rate_per_ms": 1},
        {"start_rate_starts": 0, "start_rate_per_ms": 1},
        {"start_rate_starts": 1, "start_rate_per_ms": 0},
        {"start_rate_starts": limits.START_RATE_STARTS_MAX + 1, "start_rate_per_ms": 1},
        {"start_rate_starts": 1, "start_rate_per_ms": limits.START_RATE_PER_MS_MAX + 1},
    ],
}
BROKEN: dict[str, list[Row]] = {
    **{name.format("application"): rows for name, rows in QUEUE_AND_APPLICATION.items()},
    **{name.format("queue"): rows for name, rows in QUEUE_AND_APPLICATION.items()},
    "namespace_policy_known": [{"policy": "aged", "default_priority": 0}],
    "namespace_default_priority_fits_policy": [
        {"default_priority": 1},
        {"policy": "STRICT", "default_priority": 10},
        {"policy": "STRICT", "default_priority": -10},
    ],
    "namespace_resource_limit_in_range": [{"resource_limit": 0}, {"resource_limit": limits.RESOURCE_LIMIT_MAX + 1}],
    "namespace_weekly_limit_not_negative": [{"weekly_limit": -1}],
    "queue_revision_positive": [{"revision": 0}],
    "queue_weight_in_range": [{"weight": 0}, {"weight": 101}],
    "queue_default_priority_in_range": [{"default_priority": 10}, {"default_priority": -10}],
    "queue_retry_priority_known": [{"retry_priority": "RAISE"}],
    "queue_pause_reason_only_when_paused": [{"paused": False, "pause_reason": "tired"}],
    "credential_expires_after_creation": [{"expires_at": AT}],
    "resource_key_held_not_negative": [{"held": -1}],
    "task_state_known": [{"state": "LOST"}],
    "task_retry_mode_known": [{"retry_mode": "MAYBE"}],
    "task_lane_known": [{"lane": -1, "resource_id": 1}, {"lane": 4, "resource_id": 1}],
    "task_priority_in_range": [{"priority": 10}, {"priority": -10, "tier": 10}],
    "task_tier_is_zero_or_minus_priority": [{"priority": 5, "tier": 5}, {"priority": -5, "tier": 0}],
    "task_revision_positive": [{"revision": 0}],
    "task_attempts_not_negative": [{"attempts": -1, "losses": -1}],
    "task_losses_not_negative": [{"losses": -1}],
    "task_yields_not_negative": [{"yields": -1}],
    "task_fencing_token_not_negative": [{"fencing_token": -1}],
    "task_attempts_within_max": [{"attempts": 4}, {"max_attempts": 0}],
    "task_losses_within_attempts": [{"attempts": 1, "losses": 2}],
    "task_back_off_in_range": [
        {"initial_backoff_ms": -1},
        {"initial_backoff_ms": 2, "max_backoff_ms": 1},
        {"max_backoff_ms": limits.RETRY_BACKOFF_MS_MAX + 1},
        {"multiplier": 0},
        {"multiplier": 11},
    ],
    "task_attempt_timeout_in_range": [
        {"attempt_timeout_ms": limits.ATTEMPT_TIMEOUT_MS_MIN - 1},
        {"attempt_timeout_ms": limits.ATTEMPT_TIMEOUT_MS_MAX + 1},
    ],
    "task_lease_iff_leased": [
        *({**STATES[state], "lease_until": None} for state in ("RESERVED", "RUNNING")),
        *({**row, "lease_until": AT} for state, row in STATES.items() if state not in ("RESERVED", "RUNNING")),
    ],
    "task_attempt_id_iff_leased": [
        *({**STATES[state], "attempt_id": None} for state in ("RESERVED", "RUNNING")),
        *({**row, "attempt_id": an_id(6)} for state, row in STATES.items() if state not in ("RESERVED", "RUNNING")),
    ],
    "task_session_iff_leased": [
        *({**STATES[state], "session_id": None} for state in ("RESERVED", "RUNNING")),
        *({**row, "session_id": an_id(7)} for state, row in STATES.items() if state not in ("RESERVED", "RUNNING")),
    ],
    "task_started_at_iff_running": [
        {**RUNNING, "started_at": None},
        *({**row, "started_at": AT} for state, row in STATES.items() if state != "RUNNING"),
    ],
    "task_finished_at_iff_ended": [
        *({**STATES[state], "finished_at": None} for state in sorted(ENDS)),
        *({**row, "finished_at": AT} for state, row in STATES.items() if TaskState(state) not in ENDS),
    ],
    "task_visible_at_iff_yielded": [{"lane": 3}, {"visible_at": AT}, {"state": "SCHEDULED", "visible_at": AT}],
    "task_lane_only_when_ready": [
        {"state": "SCHEDULED", "lane": 1, "resource_id": 1},
        {**RESERVED, "lane": 2, "resource_id": 1},
    ],
    "task_keyed_lane_needs_resource": [{"lane": 1}, {"lane": 2}],
    "task_ready_with_resource_is_not_open": [{"resource_id": 1, "lane": 0}],
    "task_cancel_requested_only_once_started": [
        {**STATES[state], "cancel_requested_at": AT} for state in ("SCHEDULED", "READY", "RESERVED")
    ],
    "task_result_only_when_succeeded": [
        {**row, "result": "1"} for state, row in STATES.items() if state != "SUCCEEDED"
    ],
    "task_error_code_iff_error": [{"error": "{}"}, {"error_code": "X"}],
    "task_failed_has_error": [{**FAILED, "error": None, "error_code": None}],
    "task_replayed_only_from_an_unsuccessful_end": [
        {**row, "replayed_as": an_id(99)}
        for state, row in STATES.items()
        if state not in ("FAILED", "EXPIRED", "CANCELED")
    ],
    "task_dismissed_only_when_failed": [
        {**row, "dismissed_at": AT} for state, row in STATES.items() if state != "FAILED"
    ],
    "attempt_state_known": [{"state": "OVER", "finished_at": AT}],
    "attempt_number_positive": [{"number": 0}],
    "attempt_fencing_token_positive": [{"fencing_token": 0}],
    "attempt_finished_at_iff_over": [{"finished_at": AT}, {"state": "LOST"}],
    "attempt_progress_in_range": [{"progress_percent": -1}, {"progress_percent": 101}],
    "attempt_late_report_has_time": [{"late_report": "{}"}, {"late_report_at": AT}],
    "idempotency_operation_known": [{"operation": "task.steal"}],
    "idempotency_record_has_receipt_or_selection": [
        {"task_id": None},
        {"queue_id": None},
        {"selection": "[]"},
        {"task_id": None, "queue_id": None},
    ],
    "event_type_known": [{"type": "CLAIMED"}],
    "event_state_known": [{"state": "LOST"}],
    "event_revision_positive": [{"revision": 0}],
    "audit_actor_kind_known": [{"actor_kind": "GHOST"}],
    "plan_revision_positive": [{"revision": 0}],
    "plan_active_version_exists": [{"active_version": 2, "versions": 1}, {"active_version": 0}],
    "plan_paused_fires_nothing": [{"paused": True, "next_fire_at": AT}],
    "plan_version_positive": [{"version": 0}],
    "plan_firing_status_known": [{"status": "LATE"}],
    "plan_firing_accepted_has_task": [{"status": "ACCEPTED"}, {"status": "MISSED", "task_id": an_id(5)}],
    "plan_firing_refused_has_error": [{"status": "REFUSED"}, {"status": "MISSED", "error": "{}"}],
    "node_state_known": [{"state": "DEAD"}],
}  # fmt: skip
# The very edge of the ranges is allowed.
ALLOWED: dict[type[models.Model], list[Row]] = {
    Application: [{"start_rate_starts": 1, "start_rate_per_ms": 1}, {"max_unfinished": 0, "max_running": 0}],
    Queue: [
        {"start_rate_starts": limits.START_RATE_STARTS_MAX, "start_rate_per_ms": limits.START_RATE_PER_MS_MAX,
         "start_level": limits.START_RATE_STARTS_MAX * limits.START_RATE_PER_MS_MAX * 1000},
        {"weight": 100, "default_priority": -9, "retry_priority": "LOWER"},
        {"paused": True, "pause_reason": "tired"},
    ],
    Namespace: [
        {"policy": "STRICT", "default_priority": -9, "resource_limit": limits.RESOURCE_LIMIT_MAX},
        {"policy": "STRICT", "default_priority": 9, "weekly_limit": 0},
    ],
    Credential: [{"expires_at": AT + 1}],
    Task: [
        *STATES.values(),
        {"priority": 9, "tier": 0},
        {"priority": -9, "tier": 9},
        {"priority": 9, "tier": -9},
        {"resource_id": 1, "lane": 1},
        {"resource_id": 1, "lane": 2},
        {"resource_id": 1, "lane": 3, "visible_at": AT},
        {"lane": 3, "visible_at": AT},
        {**RESERVED, "resource_id": 1},
        {"attempts": 3, "losses": 3},
        {"max_backoff_ms": limits.RETRY_BACKOFF_MS_MAX, "initial_backoff_ms": 86_400_000, "multiplier": 10},
        {"attempt_timeout_ms": limits.ATTEMPT_TIMEOUT_MS_MIN},
        {"attempt_timeout_ms": limits.ATTEMPT_TIMEOUT_MS_MAX},
        {**RUNNING, "cancel_requested_at": AT},
        {**STATES["UNKNOWN"], "cancel_requested_at": AT},
        {**FAILED, "replayed_as": an_id(99), "dismissed_at": AT},
        {"error": "{}", "error_code": "X"},
    ],
    Attempt: [
        {"state": "LOST", "finished_at": AT, "late_report": "{}", "late_report_at": AT},
        {"progress_percent": 0},
        {"progress_percent": 100},
    ],
    IdempotencyRecord: [{"task_id": None, "queue_id": None, "selection": "[]"}],
    Plan: [{"paused": True}, {"active_version": 2, "versions": 2, "next_fire_at": AT}],
    PlanFiring: [{"status": "ACCEPTED", "task_id": an_id(5)}, {"status": "REFUSED", "error": "{}"}],
}  # fmt: skip

MODELS = [model for model in apps.get_app_config("tasks_app").get_models() if model._meta.constraints]
CHECKS = [
    (model, constraint)
    for model in MODELS
    for constraint in model._meta.constraints
    if isinstance(constraint, models.CheckConstraint)
]
UNIQUES = [
    (model, constraint)
    for model in MODELS
    for constraint in model._meta.constraints
    if isinstance(constraint, models.UniqueConstraint)
]


class Undo(Exception):
    """Rolls the inserted row back."""


def insert(model: type[models.Model], *rows: Row) -> None:
    """Inserts valid rows with these changes, and takes them back."""
    try:
        with transaction.atomic():
            for row in rows:
                model(**{**VALID[model], **row}).save(force_insert=True)
            raise Undo
    except Undo:
        pass


def broken_rows() -> list[Any]:
    return [
        pytest.param(model, constraint.name, row, id=f"{constraint.name}-{number}")
        for model, constraint in CHECKS
        for number, row in enumerate(BROKEN.get(constraint.name, ()))
    ]


def test_every_check_has_a_row_that_it_refuses_and_no_row_is_for_a_check_that_is_gone():
    assert {constraint.name for _, constraint in CHECKS} == set(BROKEN)
    assert set(MODELS) == set(VALID)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_row_that_keeps_the_rules_is_taken(database: None, model: type[models.Model]):
    for row in [{}, *ALLOWED.get(model, ())]:
        insert(model, row)


@pytest.mark.parametrize(("model", "name", "row"), broken_rows())
def test_a_row_that_breaks_a_rule_is_refused_by_that_rule(
    database: None, model: type[models.Model], name: str, row: Row
):
    with pytest.raises(IntegrityError, match=rf"\b{name}\b"):
        insert(model, row)


@pytest.mark.parametrize(("model", "constraint"), UNIQUES, ids=lambda value: getattr(value, "name", None))
def test_an_identity_is_taken_once(database: None, model: type[models.Model], constraint: models.UniqueConstraint):
    """A second row that differs in everything else is refused; one that differs in any part of the identity is not."""
    columns = [model._meta.get_field(field).attname for field in constraint.fields]
    with pytest.raises(IntegrityError) as refused:
        insert(model, {}, _another(model, number=1, but=columns))
    named = constraint.name in str(refused.value)
    listed = all(f".{model._meta.get_field(field).column}" in str(refused.value) for field in constraint.fields)
    assert named if connection.vendor == "mysql" else listed
    for column in columns:
        insert(model, {}, _another(model, number=2, but=[other for other in columns if other != column]))


_numbers = itertools.count(1_000)


def _another(model: type[models.Model], *, number: int, but: list[str]) -> Row:
    """A row that shares nothing with the valid one that could be an identity, but for the columns in `but`."""
    row: Row = {}
    identities = {
        model._meta.get_field(field).attname
        for constraint in model._meta.constraints
        if isinstance(constraint, models.UniqueConstraint)
        for field in constraint.fields
    } | {model._meta.pk.attname}
    for name in identities - set(but):
        value = VALID[model].get(name)
        if isinstance(value, int):
            row[name] = value + next(_numbers)
        elif isinstance(value, bytes):
            row[name] = bytes([number]) * 32
        elif name == "operation":
            row[name] = "task.replay"
        elif isinstance(value, str):
            row[name] = an_id(next(_numbers))
    return row
