"""The two loops that may ask again, as decisions without clocks: an opted-in submit, and waiting for a task."""

from __future__ import annotations

from orbit_sdk.backoff import jittered
from orbit_sdk.calls import tasks
from orbit_sdk.errors import OrbitError, WaitTimeout, _Refusal
from orbit_sdk.limits import WAIT_MS_MAX
from orbit_sdk.models.tasks import Task
from orbit_sdk.states import TaskState
from orbit_sdk.wire import Call

FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 5.0
SHORTEST_TIMEOUT_SECONDS = 0.5
INTERRUPTION_SECONDS_MAX = 60.0  # how long a wait without a time limit puts up with a server that does not answer
POLL_SECONDS_MIN = 0.1  # between two looks at a task that did not change, if the server does not hold its answer back


class Repetition:
    """Repeats one request while its outcome is unknown, up to `deadline` on the monotonic clock."""

    def __init__(self, *, deadline: float) -> None:
        self._deadline = deadline
        self._failures = 0

    def timeout(self, usual: float, *, now: float) -> float:
        """No single exchange waits much longer than the deadline."""
        return max(SHORTEST_TIMEOUT_SECONDS, min(usual, self._deadline - now))

    def delay_after(self, error: OrbitError, *, now: float) -> float:
        """Seconds to wait before the same request again. Raises `error` if its outcome is known or the time is up."""
        if not error.outcome_unknown or now >= self._deadline:
            raise error
        self._failures += 1
        delay = jittered(self._failures, first=FIRST_DELAY_SECONDS, longest=LONGEST_DELAY_SECONDS)
        if isinstance(error, _Refusal) and error.retry_after is not None:
            delay = max(delay, error.retry_after)
        return min(delay, max(0.0, self._deadline - now))


class TaskWait:
    """Waits for the end of one task by long polls."""

    def __init__(self, task_id: str, *, started: float, timeout: float | None) -> None:
        self._task_id = task_id
        self._started = started
        self._timeout = timeout
        self._deadline = None if timeout is None else started + timeout
        self._revision: str | None = None
        self._state = "not seen yet"
        self._asked_at = started
        self._changed = True
        self._failures = 0
        self._failing_since: float | None = None

    def next_call(self, *, now: float) -> Call[Task]:
        """The next look. The first one does not wait: the task may have ended long ago."""
        self._asked_at = now
        if self._revision is None:
            return tasks.get_task(self._task_id)
        left_ms = WAIT_MS_MAX if self._deadline is None else int(max(0.0, self._deadline - now) * 1000)
        return tasks.get_task(self._task_id, wait_ms=min(WAIT_MS_MAX, left_ms), revision=self._revision)

    def is_over(self, task: Task) -> bool:
        self._failures, self._failing_since = 0, None
        self._changed = task.revision != self._revision
        self._revision, self._state = task.revision, str(task.state)
        return task.ended or task.state is TaskState.UNKNOWN

    def pause(self, *, now: float) -> float:
        """Seconds until the next look: none if the server waited. Raises WaitTimeout when the time is up."""
        self._check_deadline(now)
        if self._changed:
            return 0.0
        return max(0.0, POLL_SECONDS_MIN - (now - self._asked_at))

    def delay_after(self, error: OrbitError, *, now: float) -> float:
        """Seconds until the next look after a failed one. Raises `error` unless reading again may help."""
        if not error.outcome_unknown:
            raise error
        self._failing_since = now if self._failing_since is None else self._failing_since
        if self._deadline is None and now - self._failing_since > INTERRUPTION_SECONDS_MAX:
            raise error
        if self._deadline is not None and now >= self._deadline:
            raise error
        self._failures += 1
        delay = jittered(self._failures, first=FIRST_DELAY_SECONDS, longest=LONGEST_DELAY_SECONDS)
        return delay if self._deadline is None else min(delay, max(0.0, self._deadline - now))

    def _check_deadline(self, now: float) -> None:
        if self._deadline is not None and now >= self._deadline:
            raise WaitTimeout(self._task_id, self._state, self._timeout or 0.0)
