"""A function as a task: how it is called, sent and run."""

from __future__ import annotations

import inspect
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from orbit_sdk.app.handles import TaskHandle
from orbit_sdk.errors import ConfigError
from orbit_sdk.models.tasks import RetryPolicy, SubmitTask
from orbit_sdk.names import checked_name
from orbit_sdk.worker.context import Context
from orbit_sdk.worker.outcomes import Fail

if TYPE_CHECKING:
    from orbit_sdk.app.app import App

P = ParamSpec("P")
R = TypeVar("R")

SUBMIT_SECONDS = 30.0  # how long a submit with an unknown outcome is repeated under its key


class AppTask(Generic[P, R]):
    """A function that can be sent. Called directly, it is the function itself.

    A first parameter named `ctx` is given the running attempt's context and is no argument of the task.
    """

    def __init__(
        self,
        app: App,
        function: Callable[P, R],
        *,
        name: str | None,
        queue: str | None,
        priority: int | None,
        version: str,
        retry: RetryPolicy | int | None,
    ) -> None:
        self.function = function
        self.name = checked_name(name or default_name(function), "a task's name")
        self.version = checked_name(version, "a task's version")
        self.queue = checked_name(queue or app.config.default_queue, "a task's queue")
        self.priority = app.config.checked_priority(priority, f"the priority of task {self.name!r}")
        self.retry = RetryPolicy.safe(retry) if isinstance(retry, int) else retry
        self.app = app
        self._takes_context, self._signature = _arguments(function, self.name)
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", self.name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<AppTask {self.name}@{self.version}, queue {self.queue}>"

    def delay(self, *args: Any, priority: int | None = None, **kwargs: Any) -> TaskHandle[R]:
        """Send the task with these arguments, under a key of its own.

        Twice called is twice accepted: where the same piece of business may be sent again (after a crash, by a retry),
        use `apply_async` with a `key` that you stored before.
        """
        return self.apply_async(args, kwargs, priority=priority)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay: float | timedelta | None = None,
        expires_in: float | timedelta | None = None,
        key: str | None = None,
        queue: str | None = None,
    ) -> TaskHandle[R]:
        """Send the task. `delay` and `expires_in` are seconds; of `priority` the larger is the more urgent.

        `key` is the identity of this piece of business: the same key and content is the same task. A submit whose
        outcome is not known is repeated for 30 s. Raises TypeError for arguments that the function does not take,
        ConfigError for a priority out of range, ApiError when Orbit refuses.
        """
        task = SubmitTask(
            queue=queue or self.queue,
            handler=self.name,
            handler_version=self.version,
            payload=self.payload(args, kwargs),
            priority=self.app.config.resolve_priority(
                call=self.app.config.checked_priority(priority, "priority"),
                task=self.priority,
                queue=queue or self.queue,
            ),
            delay_ms=_milliseconds(delay),
            expires_in_ms=_milliseconds(expires_in),
            retry=self.retry,
        )
        client = self.app.client
        accepted = client.submit_task_until_known(key or f"app:{secrets.token_hex(16)}", task, deadline=SUBMIT_SECONDS)
        return TaskHandle(self.app, accepted)

    def payload(self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The payload that stands for these arguments. Raises TypeError if the function does not take them."""
        self._signature.bind(*args, **(kwargs or {}))
        return {"args": list(args), "kwargs": dict(kwargs or {})}

    # -- In the worker

    def handler(self) -> Callable[[Context, Any], Any]:
        """The function as a worker's handler."""
        if inspect.iscoroutinefunction(self.function):

            async def run_coroutine(ctx: Context, payload: Any) -> Any:
                args, kwargs = self._read(ctx, payload)
                return await self.function(*args, **kwargs)  # type: ignore[misc]  # a coroutine function

            return run_coroutine

        def run(ctx: Context, payload: Any) -> Any:
            args, kwargs = self._read(ctx, payload)
            return self.function(*args, **kwargs)

        return run

    def _read(self, ctx: Context, payload: Any) -> tuple[Any, Any]:
        shaped = isinstance(payload, dict) and payload.keys() == {"args", "kwargs"}
        if not shaped or not isinstance(payload["args"], list) or not isinstance(payload["kwargs"], dict):
            raise Fail("INVALID_PAYLOAD", 'the payload must be {"args": […], "kwargs": {…}}')
        try:
            self._signature.bind(*payload["args"], **payload["kwargs"])
        except TypeError as error:
            raise Fail("INVALID_PAYLOAD", f"{self.name} does not take these arguments: {error}") from None
        args = [ctx, *payload["args"]] if self._takes_context else payload["args"]
        return args, payload["kwargs"]


def _arguments(function: Callable[..., Any], name: str) -> tuple[bool, inspect.Signature]:
    """Whether the context is wanted, and the signature without it. Raises ConfigError."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    takes_context = bool(parameters) and parameters[0].name == "ctx"
    rest = parameters[1:] if takes_context else parameters
    if any(parameter.name == "priority" for parameter in rest):
        # `delay(priority=…)` could mean either, and one of the two would be taken silently.
        raise ConfigError(f"{name}: a parameter cannot be called priority, which is an option of delay()")
    return takes_context, signature.replace(parameters=rest)


def default_name(function: Callable[..., Any]) -> str:
    """`module.qualname`; of a program that was started as a file, the file's name stands for the module."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        path = getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(path).stem if path else module
    return f"{module}.{function.__qualname__}"


def _milliseconds(duration: float | timedelta | None) -> int | None:
    if duration is None:
        return None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return round(seconds * 1000)
