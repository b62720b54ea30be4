"""The states of an operation intent: the enum, its groups and the one table of allowed moves (design 4.1 to 4.6).

Only `domain/transitions.py` changes an intent's state; nobody else spells a state as a string.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class IntentState(models.TextChoices):
    """Who enters a state and who leaves it."""

    RESERVED = "RESERVED", _("Reserved")  # in: create. out: submit begins; released (prepare failed, owner died)
    SUBMITTING = "SUBMITTING", _("Submitting")  # in: committed before the one call. out: its outcome; recovery
    SUBMITTED = "SUBMITTED", _("Submitted")  # in: the upstream accepted; an operator's word. out: delete
    UNKNOWN = "UNKNOWN", _("Unknown")  # in: the outcome of the call was lost. out: reconcile, the late owner's answer
    DELETE_PENDING = (
        "DELETE_PENDING",
        _("Delete pending"),
    )  # in: delete. out: the node's confirmation; an operator's word
    DELETED = "DELETED", _("Deleted")  # in: delete confirmed. out: an explicit create, as a new generation


S = IntentState

MOVES: dict[IntentState, frozenset[IntentState]] = {
    S.RESERVED: frozenset({S.SUBMITTING}),
    S.SUBMITTING: frozenset({S.SUBMITTED, S.UNKNOWN}),
    S.SUBMITTED: frozenset({S.DELETE_PENDING}),
    S.UNKNOWN: frozenset({S.SUBMITTED}),
    S.DELETE_PENDING: frozenset({S.DELETED}),
    S.DELETED: frozenset({S.RESERVED}),
}
# A release is no move: the generation is forgotten, because the upstream certainly does not know it. What was there
# before it comes back: nothing, or the tombstone of the generation before.
RELEASABLE = frozenset({S.RESERVED, S.SUBMITTING, S.UNKNOWN})

NOT_CERTAIN = frozenset({S.RESERVED, S.SUBMITTING, S.UNKNOWN})  # not metered: a storage node must not hear of it
CALL_MAY_BE_OPEN = frozenset({S.SUBMITTING, S.UNKNOWN})  # the owner of the one call may still bring its answer
OPEN_RESERVATIONS = NOT_CERTAIN  # count as 1 each towards the weekly limit
DELETING = frozenset({S.DELETE_PENDING, S.DELETED})  # carry a delete_operation_id
HAS_TASK = frozenset(set(S) - {S.DELETED})
DOWNLOADABLE = frozenset({S.SUBMITTED})


def is_move(before: IntentState, after: IntentState) -> bool:
    return after in MOVES[before]


class StorageProtocol(models.TextChoices):
    """What was negotiated on the node's last connection."""

    NEGOTIATING = "NEGOTIATING", _("Negotiating")  # authenticated; its hello may still come
    V2 = "V2", _("Version 2")
    LEGACY = "LEGACY", _("Legacy")  # types 1 to 3 only: reports are not acknowledged


class CommandAction(models.TextChoices):
    DOWNLOAD = "DOWNLOAD", _("Download")
    DELETE = "DELETE", _("Delete")


class AckResult(models.TextChoices):
    APPLIED = "APPLIED", _("Applied")  # something changed
    IGNORED = "IGNORED", _("Ignored")
    DUPLICATE = "DUPLICATE", _("Duplicate")


class Decision(models.TextChoices):
    """What an operator may decide (4.8)."""

    SUBMITTED = "SUBMITTED", _("It was submitted")
    NOT_SUBMITTED = "NOT_SUBMITTED", _("It was not submitted")
    LOOKUP = "LOOKUP", _("Ask the upstream")
    DELETED = "DELETED", _("The files are gone")
    REASSIGN = "REASSIGN", _("Give it to another storage node")


DECISIONS: dict[IntentState, frozenset[Decision]] = {
    S.RESERVED: frozenset(),
    S.SUBMITTING: frozenset(),
    S.SUBMITTED: frozenset({Decision.REASSIGN}),
    S.UNKNOWN: frozenset({Decision.SUBMITTED, Decision.NOT_SUBMITTED, Decision.LOOKUP}),
    S.DELETE_PENDING: frozenset({Decision.DELETED}),
    S.DELETED: frozenset(),
}
