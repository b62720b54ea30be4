"""Typed handlers: what fits the annotation is converted, what does not is refused with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NotRequired, TypedDict

import pydantic
import pytest

from orbit_sdk import ConfigError
from orbit_sdk.worker.handlers import Handlers
from orbit_sdk.worker.outcomes import Fail
from orbit_sdk.worker.payloads import InvalidPayload, validator_of


@dataclass
class Line:
    text: str
    amount: Decimal = Decimal(1)


@dataclass
class Invoice:
    order: int
    lines: list[Line]
    note: str | None = None
    tags: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.order < 0:
            raise ValueError("order must not be negative")


class Address(TypedDict):
    city: str
    zip: NotRequired[str]


class Model(pydantic.BaseModel):
    n: int
    inner: Line


def checked(payload: Any, annotation: Any) -> Any:
    validator = validator_of(annotation)
    assert validator is not None
    return validator(payload)


def test_a_dataclass_is_made_of_an_object() -> None:
    payload = {"order": 4711, "lines": [{"text": "a", "amount": 1.5}, {"text": "b"}], "tags": {"x": 1}}

    assert checked(payload, Invoice) == Invoice(4711, [Line("a", Decimal("1.5")), Line("b")], None, {"x": 1})


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"lines": []}, "payload.order is missing"),
        ({"order": 1, "lines": [], "more": 1}, "payload.more is not known"),
        ({"order": "1", "lines": []}, "payload.order must be a int"),
        ({"order": True, "lines": []}, "payload.order must be a int"),
        ({"order": 1, "lines": {}}, "payload.lines must be an array"),
        ({"order": 1, "lines": [{"text": 5}]}, r"payload.lines\[0\].text must be a str"),
        ({"order": 1, "lines": [], "tags": {"x": "y"}}, "payload.tags.x must be a int"),
        ({"order": -1, "lines": []}, "order must not be negative"),
        ([], "payload must be an object"),
        (None, "payload must be an object"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(payload: Any, complaint: str) -> None:
    with pytest.raises(InvalidPayload, match=complaint):
        checked(payload, Invoice)


def test_a_typed_dict_stays_a_dict() -> None:
    assert checked({"city": "Ulm"}, Address) == {"city": "Ulm"}
    with pytest.raises(InvalidPayload, match="zip must be a str"):
        checked({"city": "Ulm", "zip": 1}, Address)
    with pytest.raises(InvalidPayload, match="city is missing"):
        checked({}, Address)


def test_a_pydantic_model_is_validated_by_pydantic() -> None:
    assert checked({"n": 1, "inner": {"text": "a"}}, Model).inner == Line("a")
    with pytest.raises(InvalidPayload):
        checked({"n": "x", "inner": {"text": "a"}}, Model)


@pytest.mark.parametrize(
    ("payload", "annotation", "value"),
    [
        (1, float, 1.0),
        (Decimal("1.25"), float, 1.25),
        (1, Decimal, Decimal(1)),
        (0.1, Decimal, Decimal("0.1")),
        ([1, "a"], tuple[int, str], (1, "a")),
        ([1, 2], tuple[int, ...], (1, 2)),
        ("a", Literal["a", "b"], "a"),
        ({"a": [1]}, Mapping[str, list[int]], {"a": [1]}),
        ([1, {}], list, [1, {}]),
        (None, int | None, None),
        (None, None, None),
    ],
)
def test_plain_types(payload: Any, annotation: Any, value: Any) -> None:
    result = checked(payload, annotation)

    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("payload", "annotation"),
    [
        (Decimal("1e400"), float),
        (10**400, float),
        (True, float),
        ("1", int),
        (1.0, int),
        ([1], tuple[int, str]),
        ("c", Literal["a", "b"]),
        (1, Literal[True]),
        ("x", int | None),
        (1, bool),
    ],
)
def test_plain_types_that_do_not_fit(payload: Any, annotation: Any) -> None:
    with pytest.raises(InvalidPayload):
        checked(payload, annotation)


@pytest.mark.parametrize("annotation", [Any, object])
def test_what_welcomes_everything_is_not_checked(annotation: Any) -> None:
    assert validator_of(annotation) is None


@pytest.mark.parametrize("annotation", [set[int], bytes, complex, list[bytes]])
def test_what_json_cannot_hold_is_refused_when_the_handler_is_registered(annotation: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be checked"):
        validator_of(annotation)


def test_the_annotation_of_the_second_parameter_counts() -> None:
    handlers = Handlers()

    def handle(ctx: UnknownToTheRuntime, payload: Invoice) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    handler = handlers.add(handle, name="h", version="v1")

    with pytest.raises(Fail) as failure:
        handler.checked_payload({})
    assert (failure.value.code, failure.value.retryable) == ("INVALID_PAYLOAD", False)


def test_an_annotation_that_cannot_be_resolved_is_refused() -> None:
    def handle(ctx: Any, payload: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match="resolved"):
        Handlers().add(handle, name="h", version="v1")
