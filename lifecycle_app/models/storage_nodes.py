"""Storage nodes: the machines that download and keep the files."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from lifecycle_app import limits
from lifecycle_app.states import StorageProtocol
from tasks_app.fields import AsciiField, ExactTextField, IdField, InstantField
from tasks_app.models import Credential, Namespace
from tasks_app.models.constraints import is_member


class StorageNode(models.Model):
    """One node by name, made at its first authenticated identity. `connection_id` is the one connection that counts."""

    storage_node_id = IdField(_("storage node id"), primary_key=True, db_comment="32 hex digits, time-ordered")
    namespace = models.ForeignKey(
        Namespace,
        verbose_name=_("namespace"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="tenant",
    )
    name = ExactTextField(
        _("name"), max_length=limits.STORAGE_NODE_NAME_LENGTH_MAX, db_comment="printable, unique in the namespace"
    )
    credential = models.ForeignKey(
        Credential,
        verbose_name=_("credential"),
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        db_comment="what it authenticated with last",
    )
    protocol = AsciiField(
        _("protocol"), max_length=11, choices=StorageProtocol.choices, db_comment="negotiated on its last connection"
    )
    connection_id = IdField(_("connection id"), null=True, db_comment="its newest connection; NULL: not connected")
    orbit_node_id = ExactTextField(
        _("orbit node id"), max_length=64, db_comment="Orbit node that holds, or held, the connection"
    )
    orbit_incarnation = IdField(_("orbit incarnation"), db_comment="incarnation of that node")
    connected_at = InstantField(_("connected at"), db_comment="when its newest connection was authenticated")
    last_seen_at = InstantField(_("last seen at"), db_comment="last frame, report or sign of life")
    disconnected_at = InstantField(
        _("disconnected at"), null=True, db_comment="when its last connection was seen to end"
    )
    created_at = InstantField(_("created at"), db_comment="microseconds since the epoch, UTC")

    class Meta:
        db_table = "orbit_storage_node"
        verbose_name = _("storage node")
        verbose_name_plural = _("storage nodes")
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="storage_node_name_unique"),
            is_member("storage_node_protocol_known", "protocol", StorageProtocol.values),
        ]
        indexes = [models.Index(fields=["orbit_node_id", "connection_id"], name="storage_node_of_orbit_node")]

    def __str__(self) -> str:
        return self.name
