"""What operators may do to one task."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from tasks_app.admin.verbs import Outcome, ReasonForm, Verb, VerbForm
from tasks_app.domain import operators
from tasks_app.domain.operators import Operator, Right
from tasks_app.domain.reconciliation import Decision, Verdict
from tasks_app.errors import OrbitError
from tasks_app.models import Task
from tasks_app.states import NOT_STARTED, REPLAYABLE, Policy, TaskState
from tasks_app.strict_json import parse_document
from tasks_app.submission_request import priority_range


class ReconcileForm(ReasonForm):
    field_order = ("decision", "result", "reason")

    decision = forms.ChoiceField(
        label=_("Decision"),
        choices=[
            ("", _("Choose what is true")),
            (Decision.SUCCEEDED.value, _("It succeeded: the work was done")),
            (Decision.FAILED.value, _("It failed: it becomes a dead letter")),
            (Decision.RETRY.value, _("It was not done: run it again")),
        ],
        widget=UnfoldAdminSelectWidget,
    )
    result = forms.CharField(
        label=_("Result (JSON)"),
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("For a task that succeeded. It is kept exactly as written here; empty means null."),
    )

    def clean_result(self) -> str | None:
        text = self.cleaned_data["result"].strip()
        if not text:
            return None
        try:
            return parse_document(text).raw
        except OrbitError as error:
            raise forms.ValidationError(error.message) from error

    def clean(self) -> dict[str, Any]:
        said = super().clean() or self.cleaned_data
        if said.get("result") is not None and said.get("decision") != Decision.SUCCEEDED.value:
            self.add_error("result", _("Only a task that succeeded has a result."))
        return said


class ReplayForm(VerbForm):
    priority = forms.IntegerField(
        label=_("Priority"),
        required=False,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text=_("Empty: the priority that it had."),
    )

    def clean_priority(self) -> int | None:
        priority: int | None = self.cleaned_data["priority"]
        if priority is None or self.target is None:
            return priority
        lowest, highest = priority_range(Policy(self.target.namespace.policy))
        if not lowest <= priority <= highest:
            raise forms.ValidationError(
                _("Must be %(lowest)s to %(highest)s."), params={"lowest": lowest, "highest": highest}
            )
        return priority


def _cancel(operator: Operator, task: Task, said: dict[str, Any]) -> Outcome:
    row = operators.cancel_task(operator, task.task_id, revision=_revision(said), reason=said["reason"])
    if row.state is TaskState.CANCELED:
        return Outcome(_("The task is canceled."))
    return Outcome(_("The worker is asked to stop. The task ends when it says so, or when its lease does."))


def _reconcile(operator: Operator, task: Task, said: dict[str, Any]) -> Outcome:
    verdict = Verdict(Decision(said["decision"]), said["reason"].strip(), result=said["result"])
    operators.reconcile_task(operator, task.task_id, verdict, revision=_revision(said))
    return Outcome(_("Decided. The task goes on as you said."))


def _replay(operator: Operator, task: Task, said: dict[str, Any]) -> Outcome:
    accepted = operators.replay_task(operator, task.task_id, key=said["key"], priority=said["priority"])
    return Outcome(_("Accepted again as task %(task)s.") % {"task": accepted.receipt.task_id})


def _dismiss(operator: Operator, task: Task, said: dict[str, Any]) -> Outcome:
    operators.dismiss_task(operator, task.task_id, revision=_revision(said), reason=said["reason"])
    return Outcome(_("Dismissed: it is no dead letter any more."))


def seen(task: Task) -> str:
    return f"{task.state} · {task.revision}"


def _revision(said: dict[str, Any]) -> int:
    """The revision that the operator saw, judged again by the domain on the locked row."""
    return int(said["seen"].rpartition(" ")[2])


def is_dead_letter(task: Task) -> bool:
    return task.state == TaskState.FAILED and task.replayed_as is None and task.dismissed_at is None


def _can_be_canceled(task: Task) -> bool:
    running = task.state == TaskState.RUNNING and task.cancel_requested_at is None
    return running or TaskState(task.state) in NOT_STARTED


TASK_VERBS = (
    Verb(
        name="reconcile",
        title=_("Reconcile"),
        effect=_(
            "Nobody knows whether this task was done. Look at the evidence, ask whoever can know, then say what is "
            "true. If it was done and you run it again, it is done twice."
        ),
        right=Right.RECONCILE,
        form=ReconcileForm,
        run=_reconcile,
        fits=lambda task: task.state == TaskState.UNKNOWN,
        seen=seen,
        is_dangerous=True,
    ),
    Verb(
        name="cancel",
        title=_("Cancel"),
        effect=_("A task that has not started never will. A running one is asked to stop and may still finish."),
        right=Right.CANCEL,
        run=_cancel,
        fits=_can_be_canceled,
        seen=seen,
        is_dangerous=True,
    ),
    Verb(
        name="replay",
        title=_("Replay"),
        effect=_("The same work is accepted again as a new task, in the same queue. This one stays as it is."),
        right=Right.REPLAY,
        form=ReplayForm,
        run=_replay,
        fits=lambda task: task.replayed_as is None and TaskState(task.state) in REPLAYABLE,
        seen=seen,
    ),
    Verb(
        name="dismiss",
        title=_("Dismiss"),
        effect=_("It leaves the dead letters and will not be run again. The task and its error are kept."),
        right=Right.DISMISS,
        run=_dismiss,
        fits=is_dead_letter,
        seen=seen,
        is_dangerous=True,
    ),
)
