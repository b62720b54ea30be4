"""The attempts' half of a connection's control loop: start, renew, finish and release, from message to answer.

Items that nobody could answer otherwise (no such id or token, a broken combination) are answered here; the others go to
the lanes of the node, which commit what arrives together in one transaction. What the answers say is what is held.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks_app.domain.attempts import Answer, FinishItem, Held, RenewItem, Result, Starter, StartItem
from tasks_app.endings import Report
from workers_app.control import UNKNOWN_TASK, ControlLanes, ReleaseItem
from workers_app.database_clock import DatabaseClock
from workers_app.held_attempts import HeldAttempt, HeldAttempts
from workers_app.protocol import messages
from workers_app.protocol.messages import StartRefusal

_REFUSALS = {
    Answer.LEASE_LOST: StartRefusal.LEASE_LOST,
    Answer.CANCELED: StartRefusal.CANCELED,
    Answer.EXPIRED: StartRefusal.EXPIRED,
    Answer.QUEUE_PAUSED: StartRefusal.QUEUE_PAUSED,
    Answer.LIMITED: StartRefusal.LIMITED,
}
_REPORTS = {
    messages.Outcome.SUCCEEDED: Report.SUCCEEDED,
    messages.Outcome.FAILED: Report.FAILED,
    messages.Outcome.CANCELED: Report.CANCELED,
}


class ControlLoop:
    """The control loop of one session. `held` is kept as the database answers."""

    def __init__(
        self, *, held: HeldAttempts, lanes: ControlLanes, clock: DatabaseClock, namespace_id: str, starter: Starter
    ) -> None:
        self._held = held
        self._lanes = lanes
        self._clock = clock
        self._namespace_id = namespace_id
        self._starter = starter

    async def start(self, message: messages.Start) -> str:
        items = [StartItem(self._name(item), self._starter) for item in message.items if not item.lost]
        results = iter(await self._lanes.start.run(items)) if items else iter(())
        answers: list[messages.StartAnswer] = []
        for item in message.items:
            if item.lost:
                answers.append(messages.StartRefused(item.attempt_id, StartRefusal.LEASE_LOST))
                continue
            result = next(results)
            if result.answer is Answer.STARTED and result.lease_until is not None:
                self._started(item, result.lease_until)
                answers.append(messages.Started(item.attempt_id, result.lease_until))
            else:
                self._held.drop(item.attempt_id)
                answers.append(messages.StartRefused(item.attempt_id, _REFUSALS[result.answer]))
        return messages.started(re=message.seq, items=answers)

    def _started(self, item: messages.HeldItem, lease_until: int) -> None:
        attempt = self._held.get(item.attempt_id)
        if attempt is None:
            # Started by another connection before, or revoked here while the start was under way and won.
            attempt = HeldAttempt(item.attempt_id, UNKNOWN_TASK, item.fencing_token or 0, "", 0, True, lease_until)
            self._held.add(attempt)
        self._held.started(attempt, lease_until=lease_until, started_at=self._clock.now_us())

    async def renew(self, message: messages.Renew) -> tuple[str, list[str]]:
        """The answer, and the attempts that turned out to be asked to stop."""
        items = [
            RenewItem(
                self._name(item),
                None if item.progress is None else item.progress.percent,
                None if item.progress is None else item.progress.message,
            )
            for item in message.items
            if not item.lost
        ]
        results = iter(await self._lanes.renew.run(items)) if items else iter(())
        answers: list[messages.RenewAnswer] = []
        asked_to_stop: list[str] = []
        for item in message.items:
            result = None if item.lost else next(results)
            if result is None or result.answer is not Answer.RENEWED or result.lease_until is None:
                self._held.drop(item.attempt_id)
                answers.append(messages.Lost(item.attempt_id))
                continue
            attempt = self._held.get(item.attempt_id)
            if attempt is not None:
                self._held.extended(attempt, lease_until=result.lease_until)
            if result.cancel_requested:
                asked_to_stop.append(item.attempt_id)
            answers.append(
                messages.Renewed(item.attempt_id, result.lease_until, result.cancel_requested, item.progress_fault)
            )
        return messages.renewed(re=message.seq, items=answers), asked_to_stop

    async def finish(self, message: messages.Finish) -> str:
        judged = [item for item in message.items if not item.lost and item.fault is None]
        items = [self._report(item) for item in judged]
        results = iter(await self._lanes.finish.run(items)) if items else iter(())
        answers: list[messages.FinishAnswer] = []
        for item in message.items:
            if item.lost:
                answers.append(messages.Lost(item.attempt_id))
            elif item.fault is not None:
                answers.append(messages.FinishInvalid(item.attempt_id, item.fault.code, item.fault.message))
            else:
                answers.append(self._finished(item.attempt_id, next(results)))
        return messages.finished(re=message.seq, items=answers)

    def _finished(self, attempt_id: str, result: Result) -> messages.FinishAnswer:
        if result.answer is Answer.INVALID:
            return messages.FinishInvalid(attempt_id, "INVALID_ARGUMENT", result.message or "the report was refused")
        self._held.drop(attempt_id)
        if result.state is None or result.revision is None:
            return messages.Lost(attempt_id)
        return messages.Finished(attempt_id, result.state, result.revision, repeated=result.answer is Answer.ALREADY)

    def _report(self, item: messages.FinishItem) -> FinishItem:
        return FinishItem(
            held=self._name(item),
            report=_REPORTS[item.outcome],
            result=item.result,
            error_code=None if item.error is None else item.error.code,
            error_message=None if item.error is None else item.error.message,
            error_details=None if item.error is None else item.error.details,
            retryable=item.retryable,
            retry_after_ms=item.retry_after_ms,
        )

    async def release(self, message: messages.Release) -> str:
        items = [ReleaseItem(self._name(item)) for item in message.items if not item.lost]
        results = iter(await self._lanes.release.run(items)) if items else iter(())
        answers: list[messages.ReleaseAnswer] = []
        for item in message.items:
            result = None if item.lost else next(results)
            if result is not None and result.answer is Answer.RELEASED:
                self._held.drop(item.attempt_id)
                answers.append(messages.Released(item.attempt_id))
            else:
                self._forget_reservation(item.attempt_id)
                answers.append(messages.Lost(item.attempt_id))
        return messages.released(re=message.seq, items=answers)

    async def give_back(self, attempts: Sequence[HeldAttempt]) -> list[str]:
        """Hand unstarted reservations back on the node's own account; the ids of those that really went back."""
        if not attempts:
            return []
        items = [
            ReleaseItem(Held(one.task_id, one.attempt_id, one.fencing_token, self._namespace_id)) for one in attempts
        ]
        results = await self._lanes.release.run(items)
        returned = []
        for result in results:
            if result.answer is Answer.RELEASED:
                self._held.drop(result.attempt_id)
                returned.append(result.attempt_id)
            else:
                self._forget_reservation(result.attempt_id)
        return returned

    def _forget_reservation(self, attempt_id: str) -> None:
        """It is nobody's reservation any more; if it started meanwhile it is held as running."""
        attempt = self._held.get(attempt_id)
        if attempt is not None and not attempt.is_running:
            self._held.drop(attempt_id)

    def _name(self, item: messages.HeldItem) -> Held:
        attempt = self._held.get(item.attempt_id)
        task_id = UNKNOWN_TASK if attempt is None else attempt.task_id
        return Held(task_id, item.attempt_id, item.fencing_token or 0, self._namespace_id)
