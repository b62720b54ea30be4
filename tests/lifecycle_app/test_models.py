"""The database refuses what must not exist: one test per CHECK and UNIQUE of the lifecycle (design 4.1)."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, OperationalError, connection, models

from lifecycle_app.models import (
    Favorite,
    LifecycleTask,
    Notification,
    OperationIntent,
    ReportReceipt,
    StorageNode,
    UsageEntry,
    WeeklyUsage,
)
from tests.lifecycle_app.conftest import empty_tables
from tests.lifecycle_app.site import Site

ID, OTHER = "0" * 31 + "1", "0" * 31 + "2"
NOW = 1_800_000_000_000_000


def task(site: Site, **columns: Any) -> LifecycleTask:
    return LifecycleTask.objects.create(
        **{
            "task_id": ID, "namespace_id": site.namespace_id, "gid": 7, "name": "n", "requester": "r",
            "status": "SUBMITTED", "created_at": NOW, "updated_at": NOW, **columns,
        }
    )  # fmt: skip


def intent(site: Site, **columns: Any) -> OperationIntent:
    return OperationIntent.objects.create(
        **{
            "intent_id": ID, "namespace_id": site.namespace_id, "gid": 7, "operation_id": ID, "state": "SUBMITTED",
            "task_id": ID, "owner_node_id": "-", "owner_incarnation": ID, "created_at": NOW, "updated_at": NOW,
            "submitted_at": NOW, **columns,
        }
    )  # fmt: skip


def storage_node(site: Site, **columns: Any) -> StorageNode:
    return StorageNode.objects.create(
        **{
            "storage_node_id": ID, "namespace_id": site.namespace_id, "name": "n",
            "credential_id": site.tenant.credential_id, "protocol": "V2", "orbit_node_id": "o", "orbit_incarnation": ID,
            "connected_at": NOW, "last_seen_at": NOW, "created_at": NOW, **columns,
        }
    )  # fmt: skip


def notification(site: Site, **columns: Any) -> Notification:
    return Notification.objects.create(
        **{
            "notification_id": ID, "namespace_id": site.namespace_id, "gid": 7, "operation_id": ID,
            "status": "SUBMITTED", "created_at": NOW, **columns,
        }
    )  # fmt: skip


def usage(site: Site, **columns: Any) -> UsageEntry:
    return UsageEntry.objects.create(
        **{
            "entry_id": ID, "operation_id": ID, "namespace_id": site.namespace_id, "gid": 7, "requester": "r",
            "week": "2026-W48", "quantity": 1, "created_at": NOW, **columns,
        }
    )  # fmt: skip


def week(site: Site, **columns: Any) -> WeeklyUsage:
    return WeeklyUsage.objects.create(
        **{"namespace_id": site.namespace_id, "requester": "r", "week": "2026-W48", "quantity": 0, **columns}
    )


def receipt(site: Site, **columns: Any) -> ReportReceipt:
    return ReportReceipt.objects.create(
        **{
            "receipt_id": ID,
            "storage_node_id": ID,
            "report_id": "r1",
            "result": "APPLIED",
            "created_at": NOW,
            **columns,
        }
    )


def favorite(site: Site, **columns: Any) -> Favorite:
    return Favorite.objects.create(
        **{"namespace_id": site.namespace_id, "gid": 7, "requester": "r", "created_at": NOW, **columns}
    )


MAKERS = [task, intent, storage_node, notification, usage, week, receipt, favorite]

REFUSED: list[tuple[str, Any, dict[str, Any]]] = [
    ("lifecycle_task_gid_positive", task, {"gid": 0}),
    ("lifecycle_task_status_known", task, {"status": "LOST"}),
    ("lifecycle_task_progress_is_percent", task, {"progress": 101}),
    ("lifecycle_task_progress_is_percent", task, {"progress": -1}),
    ("lifecycle_task_delivery_known", task, {"delivery": "SOON"}),
    ("lifecycle_task_uncertain_is_not_delivered", task, {"status": "SUBMITTING", "delivery": "WAITING"}),
    ("lifecycle_task_uncertain_is_not_delivered", task, {"status": "SUBMIT_UNKNOWN", "delivery": "SETTLED"}),
    ("lifecycle_task_sent_together", task, {"sent_connection_id": ID}),
    ("lifecycle_task_sent_together", task, {"sent_at": NOW}),
    ("intent_gid_positive", intent, {"gid": -1}),
    ("intent_state_known", intent, {"state": "LOST"}),
    ("intent_delete_operation_id_iff_deleting", intent, {"delete_operation_id": OTHER}),
    ("intent_delete_operation_id_iff_deleting", intent, {"state": "DELETE_PENDING"}),
    ("intent_delete_operation_id_iff_deleting", intent, {"state": "DELETED", "task_id": None}),
    ("intent_task_iff_not_deleted", intent, {"state": "DELETED", "delete_operation_id": OTHER}),
    ("intent_task_iff_not_deleted", intent, {"task_id": None}),
    ("intent_submitted_at_only_if_certain", intent, {"state": "UNKNOWN"}),
    ("intent_submitted_at_only_if_certain", intent, {"state": "RESERVED"}),
    ("intent_submitted_at_if_submitted", intent, {"submitted_at": None}),
    ("intent_tombstone_only_if_uncertain", intent, {"tombstone": "{}"}),
    ("intent_last_revision_not_negative", intent, {"last_revision": -1}),
    ("intent_quantity_in_range", intent, {"quantity": -1}),
    ("intent_quantity_in_range", intent, {"quantity": 2**53}),
    ("storage_node_protocol_known", storage_node, {"protocol": "V3"}),
    ("notification_status_known", notification, {"status": "SUBMITTING"}),
    ("notification_attempts_not_negative", notification, {"attempts": -1}),
    ("notification_received_or_to_send", notification, {"next_attempt_at": NOW, "delivered_at": NOW}),
    ("usage_entry_quantity_in_range", usage, {"quantity": -1}),
    ("weekly_usage_not_negative", week, {"quantity": -1}),
    ("report_receipt_result_known", receipt, {"result": "DUPLICATE"}),
]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_the_row_is_valid_as_it_stands(site: Site, make):
    make(site)
    empty_tables()  # a row alone need not add up to a whole life


@pytest.mark.parametrize(("name", "make", "columns"), REFUSED, ids=[f"{n}-{sorted(c)}" for n, _, c in REFUSED])
def test_the_database_refuses(site: Site, name, make, columns):
    with pytest.raises((IntegrityError, OperationalError)) as refused:
        make(site, **columns)
    assert name in str(refused.value)


UNIQUE: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    ("lifecycle_task_gid_unique", task, {"task_id": OTHER}, {"gid": 8}),
    ("intent_gid_unique", intent, {"intent_id": OTHER, "operation_id": OTHER}, {"gid": 8}),
    ("intent_operation_id_unique", intent, {"intent_id": OTHER, "gid": 8}, {"operation_id": OTHER}),
    ("storage_node_name_unique", storage_node, {"storage_node_id": OTHER}, {"name": "N"}),
    ("notification_told_once", notification, {"notification_id": OTHER}, {"status": "COMPLETE"}),
    ("usage_entry_operation_unique", usage, {"entry_id": OTHER}, {"operation_id": OTHER}),
    ("weekly_usage_unique", week, {}, {"requester": "R"}),
    ("report_receipt_unique", receipt, {"receipt_id": OTHER}, {"report_id": "R1"}),
    ("report_receipt_unique", receipt, {"receipt_id": OTHER}, {"report_id": "r1 "}),
    ("favorite_unique", favorite, {}, {"requester": "r\u0301"}),
]


@pytest.mark.parametrize(
    ("name", "make", "again", "different"), UNIQUE, ids=[f"{n}-{sorted(d)}" for n, _, _, d in UNIQUE]
)
def test_an_identity_is_unique_byte_for_byte(site: Site, name, make, again, different):
    make(site)
    with pytest.raises(IntegrityError):
        make(site, **again)
    make(site, **{**again, **different})
    empty_tables()


def test_every_constraint_has_its_test():
    named = {
        constraint.name
        for model in apps.get_app_config("lifecycle_app").get_models()
        for constraint in model._meta.constraints
    }
    tested = {name for name, *_ in REFUSED} | {name for name, *_ in UNIQUE} | {"intent_delete_operation_id_unique"}
    assert named == tested


def test_a_delete_id_stands_for_one_generation(site: Site):
    deleting = {"state": "DELETE_PENDING", "delete_operation_id": OTHER}
    intent(site, **deleting)
    with pytest.raises(IntegrityError):
        intent(site, intent_id=OTHER, operation_id=OTHER, gid=8, **deleting)
    OperationIntent.objects.all().delete()


def test_every_column_says_what_it_holds():
    for model in apps.get_app_config("lifecycle_app").get_models():
        for field in model._meta.local_fields:
            assert field.db_comment, f"{model.__name__}.{field.name}"


def test_no_foreign_key_locks_a_parent(site: Site):
    for model in apps.get_app_config("lifecycle_app").get_models():
        for field in model._meta.local_fields:
            if isinstance(field, models.ForeignKey):
                assert field.db_constraint is False
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, model._meta.db_table)
        assert not [name for name, about in found.items() if about["foreign_key"]]
