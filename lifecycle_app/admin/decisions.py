"""What an operator may decide, in words: what will happen, and what to check first."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from lifecycle_app.states import Decision

Words = str | Promise


@dataclass(frozen=True)
class DecisionWords:
    """`check` is what the operator confirms by a tick; empty for what changes nothing."""

    title: Words
    effect: Words
    check: Words = ""


WORDS: dict[Decision, DecisionWords] = {
    Decision.LOOKUP: DecisionWords(
        title=_("Ask the upstream"),
        effect=_(
            "The upstream is asked, by a read-only request, whether it knows a submission of this gid. The operation "
            "stays as it is; the answer is kept as evidence."
        ),
    ),
    Decision.SUBMITTED: DecisionWords(
        title=_("It was submitted"),
        effect=_(
            "The operation becomes Submitted and is metered once. It is then given to a storage node. Nothing is sent "
            "to the upstream."
        ),
        check=_("I have made sure that the upstream has accepted this operation."),
    ),
    Decision.NOT_SUBMITTED: DecisionWords(
        title=_("It was not submitted"),
        effect=_(
            "The operation and its row are forgotten, and nothing is metered. The gid can be created again, which "
            "submits it to the upstream again. If the upstream does know it, it will be there twice."
        ),
        check=_("I have made sure that the upstream does not know this operation and never will."),
    ),
    Decision.DELETED: DecisionWords(
        title=_("The files are gone"),
        effect=_(
            "The row and its favourites are removed and a tombstone stays, without waiting for the storage node. Files "
            "that are still there will not be deleted by Orbit any more."
        ),
        check=_("I have made sure that the files do not exist on the storage node."),
    ),
    Decision.REASSIGN: DecisionWords(
        title=_("Give it to another storage node"),
        effect=_(
            "Another connected storage node downloads it from the beginning. Whatever the old node reports about it is "
            "ignored from now on; its files are not deleted."
        ),
        check=_("I have made sure that the old storage node will not be needed for this gid."),
    ),
}
