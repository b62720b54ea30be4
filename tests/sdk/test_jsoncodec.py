"""Digits survive, and what is not strict JSON is refused in both directions."""

from __future__ import annotations

from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_sdk.jsoncodec import InvalidJson, Literal, Numbers, decode, encode


@pytest.mark.parametrize("text", ["9007199254740993", "-1", "0", "1" * 4400, "-" + "9" * 20000], ids=len)
def test_integers_of_any_size_survive(text: str) -> None:
    value = decode(text)

    assert type(value) is int
    assert encode(value) == text.encode()


@pytest.mark.parametrize("text", ["1.5", "-0.1", "1e3", "2.50"])
def test_numbers_that_a_float_holds_are_floats(text: str) -> None:
    value = decode(text)

    assert type(value) is float
    assert Decimal(repr(value)) == Decimal(text)


@pytest.mark.parametrize("text", ["0.1000000000000000055", "1e400", "-1E-400", "123456789012345678901234567890.5"])
def test_numbers_that_a_float_would_round_are_decimals(text: str) -> None:
    assert decode(text) == Decimal(text)
    assert type(decode(text)) is Decimal


@pytest.mark.parametrize("text", ["1.10", "0.1000000000000000055", "1E+400", "0E-10", "-0.0", "12.50"])
def test_decimals_on_request_keep_every_digit(text: str) -> None:
    assert encode(decode(text, numbers=Numbers.DECIMAL)).decode() == text


@pytest.mark.parametrize("text", ["1e99999999999999999999", "-1E-99999999999999999999"])
@pytest.mark.parametrize("numbers", list(Numbers))
def test_an_exponent_that_no_decimal_holds_is_kept_as_text(text: str, numbers: Numbers) -> None:
    assert encode(decode(text, numbers=numbers)).decode() == text


def test_literal_numbers_pass_through_unchanged() -> None:
    text = '{"a":[1e0,1.10,1E+5,-0,0.0,12345678901234567890]}'

    assert encode(decode(text, numbers=Numbers.LITERAL)).decode() == text


@pytest.mark.parametrize("text", ["1.", "01", "+1", "0x1", "NaN", "", "1 "])
def test_a_literal_must_be_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="not a JSON number"):
        Literal(text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xef\xbb\xbf{}",
        b'{"a":1} x',
        b'{"a":1,"a":2}',
        b'{"x":{"a":1,"a":2}}',
        b"NaN",
        b"[Infinity]",
        b"[-Infinity]",
        b'"\xff"',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'["a", "\\uDBFF"]',
        b"[1,]",
        b"{'a':1}",
        b'"\x01"',
        b"[" * 100000,
        b'{"a":1' + b"1" * 5000 + b"x}",
    ],
)
@pytest.mark.parametrize("numbers", list(Numbers))
def test_what_is_not_strict_json_is_refused(data: bytes, numbers: Numbers) -> None:
    with pytest.raises(InvalidJson):
        decode(data, numbers=numbers)


def test_surrogate_pairs_written_as_escapes_are_one_character() -> None:
    assert decode(rb'"\ud83d\ude00"') == "😀"


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1.10"), "1.10"),
        (Decimal("1E+400"), "1E+400"),
        ({"a": (1, 2.5, None, True), "b": Decimal("-0.50")}, '{"a":[1,2.5,null,true],"b":-0.50}'),
        ({"c": Colour.RED, "l": Level.HIGH, Colour.RED: []}, '{"c":"red","l":5,"red":[]}'),
        ("ü😀\u2028", '"ü😀\u2028"'),
        (1e22, "1e+22"),
    ],
)
def test_values_are_written_exactly(value: Any, text: str) -> None:
    assert encode(value).decode() == text


def test_integers_of_thousands_of_digits_are_written_whole() -> None:
    assert encode([10**5000, -(10**5000)]).decode() == "[1" + "0" * 5000 + ",-1" + "0" * 5000 + "]"


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("-Infinity"),
        {1: "a"},
        {None: 1},
        {"a": {1, 2}},
        b"bytes",
        object(),
        "\ud800",
        {"\udfff": 1},
        [Decimal("1"), "\ud800"],
    ],
)
def test_values_that_are_not_json_are_refused(value: Any) -> None:
    with pytest.raises(InvalidJson):
        encode(value)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_64_levels_are_written_and_65_are_not() -> None:
    encode(nested(64))
    with pytest.raises(InvalidJson, match="64 levels"):
        encode(nested(65))


def test_a_circular_value_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(InvalidJson):
        encode(value)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(alphabet=st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def comparable(value: Any) -> Any:
    """`value` with every number as a Decimal: 0.1 the float and 0.1 the Decimal are the same JSON number."""
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return Decimal(repr(value))


@given(json_values)
def test_what_is_written_is_read_back_as_the_same_value(value: Any) -> None:
    text = encode(value)

    assert comparable(decode(text)) == comparable(value)
    assert encode(decode(text, numbers=Numbers.LITERAL)) == text


@given(st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?\Z"))
def test_no_number_is_ever_rounded(text: str) -> None:
    value = decode(text)

    assert Decimal(repr(value) if isinstance(value, float) else value) == Decimal(text)
