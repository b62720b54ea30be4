"""Registered handlers: which function runs which task, and where."""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from orbit_sdk.errors import ConfigError
from orbit_sdk.limits import HELLO_HANDLERS_MAX
from orbit_sdk.names import checked_name
from orbit_sdk.worker.outcomes import Fail
from orbit_sdk.worker.payloads import InvalidPayload, Validator, validator_of

F = TypeVar("F", bound=Callable[..., Any])


class RunIn(enum.Enum):
    """Where a handler runs."""

    THREAD = "thread"
    COROUTINE = "coroutine"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Handler:
    """A function for one handler name in one version."""

    name: str
    version: str
    function: Callable[..., Any]
    run_in: RunIn
    validator: Validator | None

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"

    def checked_payload(self, payload: Any) -> Any:
        """The payload as the handler's annotation wants it. Raises Fail("INVALID_PAYLOAD"), which is not retryable."""
        if self.validator is None:
            return payload
        try:
            return self.validator(payload)
        except InvalidPayload as error:
            raise Fail("INVALID_PAYLOAD", str(error)) from error


class Handlers:
    """What a worker can run, compared byte for byte."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, str], Handler] = {}

    def __len__(self) -> int:
        return len(self._handlers)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())

    def get(self, name: str, version: str) -> Handler | None:
        return self._handlers.get((name, version))

    def add(self, function: Callable[..., Any], *, name: str, version: str, process: bool = False) -> Handler:
        """Raises ConfigError for a name that Orbit would refuse, a signature that does not fit, or a second
        function.
        """
        checked_name(name, "a handler's name")
        checked_name(version, "a handler's version")
        if (name, version) in self._handlers:
            raise ConfigError(f"there is a handler for {name!r} in version {version!r} already")
        if len(self._handlers) >= HELLO_HANDLERS_MAX:
            raise ConfigError(f"a worker has at most {HELLO_HANDLERS_MAX} handlers")
        is_coroutine = inspect.iscoroutinefunction(function)
        if is_coroutine and process:
            raise ConfigError(f"{name}: a coroutine does not run in a process of its own")
        run_in = RunIn.PROCESS if process else RunIn.COROUTINE if is_coroutine else RunIn.THREAD
        handler = Handler(name, version, function, run_in, _payload_validator(function, name))
        self._handlers[name, version] = handler
        return handler

    def decorator(self, name: str, *, version: str, process: bool) -> Callable[[F], F]:
        def register(function: F) -> F:
            self.add(function, name=name, version=version, process=process)
            return function

        return register


def _payload_validator(function: Callable[..., Any], name: str) -> Validator | None:
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    takes_any_number = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if (len(parameters) < 2 and not takes_any_number) or len(needed) > 2:
        raise ConfigError(f"{name}: a handler takes two arguments, the context and the payload")
    if takes_any_number or parameters[1].annotation is parameters[1].empty:
        return None
    # Only this one annotation is resolved: the others may name what is imported for type checkers alone.
    holder = type("Holder", (), {"__annotations__": {"payload": parameters[1].annotation}})
    namespace = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        annotation = typing.get_type_hints(holder, globalns=namespace)["payload"]
    except NameError as error:
        raise ConfigError(f"{name}: the annotation of its payload cannot be resolved: {error}") from None
    return validator_of(annotation)
