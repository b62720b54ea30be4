"""Orbit nodes: server processes that share this database."""

from __future__ import annotations

from django.db import models

from tasks_app.fields import AsciiField, ExactTextField, IdField, InstantField
from tasks_app.models.constraints import is_member


class NodeState(models.TextChoices):
    STARTING = "STARTING", "Starting"
    SERVING = "SERVING", "Serving"
    DRAINING = "DRAINING", "Draining"
    STOPPED = "STOPPED", "Stopped"


class Node(models.Model):
    """One row per node name; a restarted process of the same name is a new incarnation and owns nothing of the old."""

    node_id = ExactTextField(primary_key=True, max_length=64, db_comment="ORBIT_NODE_ID")
    incarnation = IdField(db_comment="one per process start")
    state = AsciiField(max_length=8, choices=NodeState.choices, db_comment="of this incarnation")
    roles = AsciiField(max_length=128, db_comment="space-separated roles")
    version = AsciiField(max_length=32, db_comment="Orbit version")
    connections = models.IntegerField(default=0, db_comment="worker connections at the last heartbeat")
    started_at = InstantField(db_comment="microseconds since the epoch, UTC")
    heartbeat_at = InstantField(db_comment="last sign of life, by the database's clock")

    class Meta:
        db_table = "orbit_node"
        constraints = [is_member("node_state_known", "state", NodeState.values)]

    def __str__(self) -> str:
        return self.node_id
