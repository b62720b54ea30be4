"""Worker sessions: what a worker announced, where it is connected, and since when it is not.

A session outlives its connection: a worker that comes back with its `session_id` goes on with what it holds. It owns
nothing by its name; what it holds stands in the task rows.
"""

from __future__ import annotations

from django.db import models

from tasks_app import limits
from tasks_app.fields import ExactTextField, IdField, InstantField, LongTextField
from tasks_app.models.constraints import exactly_when, in_range
from tasks_app.models.tenancy import Namespace


class WorkerSession(models.Model):
    """One session of a worker. Only the connection that `connection_id` names speaks for it."""

    session_id = IdField(primary_key=True, db_comment="32 hex digits, time-ordered")
    namespace = models.ForeignKey(
        Namespace, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, db_comment="tenant"
    )
    credential_id = IdField(db_comment="the credential that opened it; only the same one resumes it")
    worker_name = ExactTextField(max_length=128, db_comment="as announced; owns nothing")
    sdk = ExactTextField(max_length=128, null=True, db_comment="as announced")
    capacity = models.IntegerField(db_comment="most attempts held at once; 0: paused by the worker")
    queue_ids = LongTextField(db_comment="JSON list of queue ids")
    handlers = LongTextField(db_comment="JSON list of [handler, handler_version]")
    resource_keys = models.BooleanField(db_comment="can hold tasks with a resource key")
    normal_reserved_slots = models.IntegerField(default=0, db_comment="STRICT: slots kept for priorities up to 0")
    draining = models.BooleanField(default=False, db_comment="the worker asked for no more offers")
    node_id = ExactTextField(max_length=64, db_comment="Orbit node of the last connection")
    connection_id = IdField(null=True, db_comment="the connection that speaks for it; NULL: none")
    opened_at = InstantField(db_comment="first hello (microseconds since the epoch, UTC)")
    connected_at = InstantField(db_comment="last hello")
    seen_at = InstantField(db_comment="last sign of the node that holds the connection")
    disconnected_at = InstantField(null=True, db_comment="when the last connection was lost; NULL while connected")

    class Meta:
        db_table = "orbit_worker_session"
        constraints = [
            in_range("worker_session_capacity_in_range", "capacity", 0, limits.CAPACITY_MAX),
            in_range("worker_session_reserved_slots_in_range", "normal_reserved_slots", 0, limits.CAPACITY_MAX),
            exactly_when(
                "worker_session_disconnected_at_iff_unconnected",
                "disconnected_at",
                condition=models.Q(connection_id__isnull=True),
            ),
        ]
        indexes = [
            models.Index(fields=["namespace", "session_id"], name="worker_session_in_namespace"),
            # Retention: sessions without a connection, longest first.
            models.Index(fields=["disconnected_at"], name="worker_session_to_prune"),
        ]

    def __str__(self) -> str:
        return f"{self.worker_name} ({self.session_id})"
