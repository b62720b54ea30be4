"""Typed handlers: a payload is checked against the annotation of the handler's second parameter.

Understood are dataclasses, TypedDicts, and what they are made of (`str int float bool None Any Literal Decimal`,
`list`, `tuple`, `dict`, unions, other dataclasses and TypedDicts); pydantic models where pydantic is installed.
Nothing is converted but JSON arrays to tuples, objects to dataclasses, and numbers to the `float` or `Decimal` that is
asked for.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from orbit_sdk.errors import ConfigError

Validator = Callable[[Any], Any]


class InvalidPayload(ValueError):
    """The payload does not have the type that the handler asks for. The message names the place."""


def validator_of(annotation: Any) -> Validator | None:
    """What turns a decoded payload into `annotation`, or None if everything is welcome.

    Raises ConfigError for an annotation that cannot be checked. The validator raises InvalidPayload.
    """
    if annotation in (Any, object):
        return None
    return _Checker(annotation)


class _Checker:
    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation
        _check_supported(annotation, ())

    def __call__(self, payload: Any) -> Any:
        return _convert(payload, self._annotation, "payload")


def _check_supported(annotation: Any, seen: tuple[Any, ...]) -> None:
    if annotation in seen or annotation in _SCALARS or annotation in (Any, object, None, type(None), list, dict, tuple):
        return
    seen = (*seen, annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if _is_pydantic(annotation) or origin is typing.Literal:
        return
    if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
        for hint in _hints(annotation).values():
            _check_supported(hint, seen)
        return
    if origin in (list, dict, tuple, typing.Union, types.UnionType, typing.Required, typing.NotRequired, Mapping):
        for argument in arguments:
            if argument is not Ellipsis:
                _check_supported(argument, seen)
        return
    if origin is typing.Annotated:
        _check_supported(arguments[0], seen)
        return
    raise ConfigError(f"a payload cannot be checked against {annotation!r}")


_SCALARS = (str, int, float, bool, Decimal)


def _hints(annotation: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(annotation)
    except NameError as error:
        raise ConfigError(f"the annotations of {annotation!r} cannot be resolved: {error}") from None


def _is_pydantic(annotation: Any) -> bool:
    return (
        isinstance(annotation, type) and hasattr(annotation, "model_validate") and hasattr(annotation, "model_fields")
    )


def _convert(value: Any, annotation: Any, place: str) -> Any:
    if annotation in (Any, object):
        return value
    if annotation in (None, type(None)):
        return _of_type(value, type(None), place)
    if annotation in _SCALARS:
        return _scalar(value, annotation, place)
    if annotation in (list, dict):
        return _of_type(value, annotation, place)
    if annotation is tuple:
        return tuple(_of_type(value, list, place))
    if _is_pydantic(annotation):
        return _pydantic(value, annotation, place)
    if dataclasses.is_dataclass(annotation):
        return _dataclass(value, annotation, place)
    if typing.is_typeddict(annotation):
        return _typed_dict(value, annotation, place)
    return _generic(value, annotation, place)


def _generic(value: Any, annotation: Any, place: str) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Required, typing.NotRequired, typing.Annotated):
        return _convert(value, arguments[0], place)
    if origin is typing.Literal:
        if not any(value == word and type(value) is type(word) for word in arguments):
            raise InvalidPayload(f"{place} must be one of {', '.join(map(repr, arguments))}")
        return value
    if origin is list:
        items = _of_type(value, list, place)
        return [_convert(item, arguments[0], f"{place}[{index}]") for index, item in enumerate(items)]
    if origin is tuple:
        return _tuple(_of_type(value, list, place), arguments, place)
    if origin in (dict, Mapping):
        members = _of_type(value, dict, place)
        return {key: _convert(item, arguments[1], f"{place}.{key}") for key, item in members.items()}
    return _union(value, arguments, place)


def _scalar(value: Any, kind: type, place: str) -> Any:
    if kind is float and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise InvalidPayload(f"{place} is too large for a float")
        return number
    if kind is Decimal and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    return _of_type(value, kind, place)


def _of_type(value: Any, kind: type, place: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        wanted = {"NoneType": "null", "dict": "an object", "list": "an array"}.get(kind.__name__, f"a {kind.__name__}")
        raise InvalidPayload(f"{place} must be {wanted}")
    return value


def _tuple(items: list[Any], arguments: tuple[Any, ...], place: str) -> tuple[Any, ...]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_convert(item, arguments[0], f"{place}[{index}]") for index, item in enumerate(items))
    if len(items) != len(arguments):
        raise InvalidPayload(f"{place} must have {len(arguments)} elements")
    pairs = zip(items, arguments, strict=True)
    return tuple(_convert(item, kind, f"{place}[{index}]") for index, (item, kind) in enumerate(pairs))


def _union(value: Any, arguments: tuple[Any, ...], place: str) -> Any:
    reasons: list[str] = []
    for argument in arguments:
        try:
            return _convert(value, argument, place)
        except InvalidPayload as error:
            reasons.append(str(error))
    raise InvalidPayload("; or ".join(reasons))


def _dataclass(value: Any, annotation: Any, place: str) -> Any:
    members = _of_type(value, dict, place)
    hints = _hints(annotation)
    fields = [field for field in dataclasses.fields(annotation) if field.init]
    _check_members(
        members,
        known={field.name for field in fields},
        required={
            field.name
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        },
        place=place,
    )
    given = {name: _convert(item, hints[name], f"{place}.{name}") for name, item in members.items()}
    try:
        return annotation(**given)
    except (TypeError, ValueError) as error:  # its own __post_init__ refuses it
        raise InvalidPayload(f"{place}: {error}") from error


def _typed_dict(value: Any, annotation: Any, place: str) -> Any:
    members = _of_type(value, dict, place)
    hints = _hints(annotation)
    _check_members(members, known=set(hints), required=_required_keys(annotation), place=place)
    return {name: _convert(item, hints[name], f"{place}.{name}") for name, item in members.items()}


def _required_keys(annotation: Any) -> set[str]:
    """`__required_keys__`, which misses NotRequired where a module postpones the evaluation of its annotations."""
    required = set(annotation.__required_keys__)
    for name, hint in typing.get_type_hints(annotation, include_extras=True).items():
        if typing.get_origin(hint) is typing.NotRequired:
            required.discard(name)
        elif typing.get_origin(hint) is typing.Required:
            required.add(name)
    return required


def _check_members(members: Mapping[str, Any], *, known: set[str], required: set[str], place: str) -> None:
    for name in sorted(required - members.keys()):
        raise InvalidPayload(f"{place}.{name} is missing")
    for name in sorted(members.keys() - known):
        raise InvalidPayload(f"{place}.{name} is not known")


def _pydantic(value: Any, annotation: Any, place: str) -> Any:
    try:
        return annotation.model_validate(value)
    except ValueError as error:  # pydantic's ValidationError is one
        raise InvalidPayload(f"{place}: {error}") from error
