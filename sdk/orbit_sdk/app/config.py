"""The settings of an App. What is out of range is refused while the App is built, never clamped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import ConfigError
from orbit_sdk.limits import (
    AGED_PRIORITY_MAX,
    AGED_PRIORITY_MIN,
    CAPACITY_MAX,
    QUEUE_WEIGHT_MAX,
    QUEUE_WEIGHT_MIN,
    STRICT_PRIORITY_MAX,
    STRICT_PRIORITY_MIN,
)
from orbit_sdk.names import checked_name
from orbit_sdk.states import Policy


class Priority:
    """Constants for priorities; any integer from −9 to 9 will do, and the larger is the more urgent."""

    LOW: Final = -5
    NORMAL: Final = 0
    HIGH: Final = 5
    CRITICAL: Final = 9


@dataclass(frozen=True)
class QueueConfig:
    """A queue of the app. `weight` (1 to 100) shares a tier of equal priority; it never beats a higher priority.

    `default_priority` is for tasks of the queue that name none themselves.
    """

    weight: int = 1
    default_priority: int | None = None


@dataclass(frozen=True)
class Config:
    """How an App reaches Orbit, and its defaults.

    `credentials` None: read from the environment when they are first needed. The priority of a submit is the first that
    is given of: the call, the task, `QueueConfig.default_priority`, `default_priority`; if none is, Orbit's own
    defaults of queue and namespace decide. `drain_timeout` is in seconds.
    """

    credentials: Credentials | None = None
    queues: Mapping[str, QueueConfig] = field(default_factory=dict)
    default_queue: str = "default"
    default_priority: int | None = None
    concurrency: int = 10
    drain_timeout: float = 30.0

    @classmethod
    def from_env(
        cls,
        *,
        queues: Mapping[str, QueueConfig] | None = None,
        default_queue: str = "default",
        default_priority: int | None = None,
        concurrency: int = 10,
        drain_timeout: float = 30.0,
    ) -> Config:
        """With the credentials of `ORBIT_URL` and `ORBIT_CREDENTIALS_FILE` | `ORBIT_TOKEN`, read now.

        Raises ConfigError.
        """
        return cls(
            credentials=Credentials.from_env(),
            queues=queues or {},
            default_queue=default_queue,
            default_priority=default_priority,
            concurrency=concurrency,
            drain_timeout=drain_timeout,
        )

    @property
    def policy(self) -> Policy | None:
        """The policy of the namespace, as far as it is known before anything is asked."""
        return None if self.credentials is None else self.credentials.policy

    def check(self) -> None:
        """Raises ConfigError for the first setting that is not valid."""
        checked_name(self.default_queue, "Config.default_queue")
        self.checked_priority(self.default_priority, "Config.default_priority")
        if type(self.concurrency) is not int or not 1 <= self.concurrency <= CAPACITY_MAX:
            raise ConfigError(f"Config.concurrency must be an integer from 1 to {CAPACITY_MAX}")
        for name, queue in self.queues.items():
            checked_name(name, "a queue's name")
            if not isinstance(queue, QueueConfig):
                raise ConfigError(f"Config.queues[{name!r}] must be a QueueConfig")
            if type(queue.weight) is not int or not QUEUE_WEIGHT_MIN <= queue.weight <= QUEUE_WEIGHT_MAX:
                raise ConfigError(
                    f"the weight of queue {name!r} must be an integer from {QUEUE_WEIGHT_MIN} to {QUEUE_WEIGHT_MAX}"
                )
            self.checked_priority(queue.default_priority, f"the default_priority of queue {name!r}")
            if self.policy is Policy.AGED and (queue.weight != 1 or queue.default_priority is not None):
                raise ConfigError(f"queue {name!r}: weights and default priorities need a STRICT namespace")

    def checked_priority(self, priority: object, what: str) -> int | None:
        """`priority` if it is None or in range. Raises ConfigError; nothing is clamped."""
        if priority is None:
            return None
        low, high = STRICT_PRIORITY_MIN, STRICT_PRIORITY_MAX
        if self.policy is Policy.AGED:
            low, high = AGED_PRIORITY_MIN, AGED_PRIORITY_MAX
        if type(priority) is not int or not low <= priority <= high:
            raise ConfigError(f"{what} must be an integer from {low} to {high}, not {priority!r}")
        return priority

    def resolve_priority(self, *, call: int | None, task: int | None, queue: str) -> int | None:
        """The first priority that is given: of the call, the task, the queue, the configuration."""
        configured = self.queues.get(queue)
        layers = (call, task, configured.default_priority if configured else None, self.default_priority)
        return next((priority for priority in layers if priority is not None), None)
