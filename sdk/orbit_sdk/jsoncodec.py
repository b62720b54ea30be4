"""JSON in and out, digit for digit.

Python's own `json` loses digits (`0.1000000000000000055` becomes `0.1`), accepts what Orbit refuses (`NaN`, duplicate
keys, lone surrogates) and turns keys that are not strings into strings. Here:

- integers of any size are `int`, in both directions;
- a number with a fraction or an exponent is read as `float` only where the shortest text of that float is the same
  number; anything else is read as `decimal.Decimal`, so nothing is ever rounded in silence. `Numbers.DECIMAL` reads all
  of them as `Decimal`, which also keeps trailing zeros (`1.10`); `Numbers.LITERAL` keeps every number as the text that
  was sent (`Literal`), for programs that pass documents on unchanged. An exponent that no `Decimal` holds is a
  `Literal` too;
- `Decimal` and `Literal` are written as the digits they hold.
"""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

DEPTH_MAX = 64  # levels of nesting that Orbit accepts in a document
_DIGITS_MAX = 4000  # what int() converts at once; above, Python refuses (a quadratic algorithm)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


class InvalidJson(ValueError):
    """The text is not strict JSON, or the value cannot be written as JSON."""


class Numbers(enum.Enum):
    """How numbers are read."""

    EXACT = "exact"
    DECIMAL = "decimal"
    LITERAL = "literal"


class Literal(str):
    """A number as the text that was sent; written back unchanged.

    Raises ValueError if the text is not a JSON number.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Literal:
        if _NUMBER.fullmatch(text) is None:
            raise ValueError(f"{text!r} is not a JSON number")
        return super().__new__(cls, text)


# -- Reading


def decode(data: bytes | str, *, numbers: Numbers = Numbers.EXACT) -> Any:
    """The value of one strict JSON document. Raises InvalidJson."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise InvalidJson("begins with a byte order mark")
    try:
        value = _DECODERS[numbers].decode(text)
    except RecursionError:
        raise InvalidJson("is nested too deeply") from None
    except InvalidJson:
        raise
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError):
            raise InvalidJson(str(error)) from None
        # The only other ValueError of the scanner: an integer with more digits than int() converts at once.
        value = _decode_long_integers(text, _LONG_INTEGER_DECODERS[numbers])
    if _SURROGATE_ESCAPE.search(text) is not None:
        _refuse_lone_surrogates(value)
    return value


def _decode_long_integers(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(text)
    except RecursionError:
        raise InvalidJson("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(str(error)) from None


def integer_from_digits(text: str) -> int:
    """`int(text)` for any number of digits, by halves: Python refuses more than 4300 at once."""
    if text.startswith("-"):
        return -integer_from_digits(text[1:])
    if len(text) <= _DIGITS_MAX:
        return int(text)
    low = len(text) // 2
    power: int = 10**low
    return integer_from_digits(text[:-low]) * power + integer_from_digits(text[-low:])


def _decimal_number(text: str) -> Decimal | Literal:
    try:
        return Decimal(text)
    except ArithmeticError:
        return Literal(text)


def _exact_number(text: str) -> float | Decimal | Literal:
    number = float(text)
    if repr(number) == text:
        return number
    exact = _decimal_number(text)
    if isinstance(exact, Literal) or math.isinf(number) or Decimal(repr(number)) != exact:
        return exact
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidJson(f"has the key {twice!r} twice in one object")
    return result


def _no_constant(name: str) -> Any:
    raise InvalidJson(f"{name} is not JSON")


def _decoder(parse_float: Callable[[str], Any], parse_int: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        parse_float=parse_float, parse_int=parse_int, parse_constant=_no_constant, object_pairs_hook=_object
    )


_DECODERS = {
    Numbers.EXACT: _decoder(_exact_number, int),
    Numbers.DECIMAL: _decoder(_decimal_number, int),
    Numbers.LITERAL: _decoder(Literal, Literal),
}
_LONG_INTEGER_DECODERS = {
    Numbers.EXACT: _decoder(_exact_number, integer_from_digits),
    Numbers.DECIMAL: _decoder(_decimal_number, integer_from_digits),
    Numbers.LITERAL: _DECODERS[Numbers.LITERAL],
}


def _refuse_lone_surrogates(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                raise InvalidJson("has a lone surrogate in a string") from None
        elif isinstance(item, dict):
            stack.extend(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


# -- Writing


def encode(value: Any) -> bytes:
    """The compact UTF-8 document of `value`: None, bool, int, float, Decimal, Literal, str, list, tuple, dict with str
    keys.

    Raises InvalidJson for anything else: other types, keys that are not strings, `nan`, infinities, lone surrogates,
    more than 64 levels (a circular value included).
    """
    return encode_text(value).encode("utf-8")


def encode_text(value: Any, *, level: int = 1) -> str:
    """Like `encode`, as a string that is sure to be valid UTF-8. `level` is that of the value in its document."""
    if _is_plain(value, level):
        text = _ENCODER.encode(value)
    else:
        pieces: list[str] = []
        _write(value, pieces.append)
        text = "".join(pieces)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidJson("has a lone surrogate in a string") from None
    return text


_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
_PLAIN_INTEGER_BITS = 8192  # below 4300 digits, whatever they are


def _is_plain(value: Any, level: int) -> bool:
    """Whether the C encoder writes `value` exactly; refuses what must not be written at all."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(value.bit_length() < _PLAIN_INTEGER_BITS)
    if kind is float:
        if not math.isfinite(value):
            raise InvalidJson(f"{value} is not JSON")
        return True
    if kind is dict:
        _check_level(level)
        plain = True
        for key, item in value.items():
            if type(key) is not str:
                if not isinstance(key, str):
                    raise InvalidJson(f"the key {key!r} is not a string")
                plain = False
            plain = _is_plain(item, level + 1) and plain
        return plain
    if kind is list or kind is tuple:
        _check_level(level)
        plain = True
        for item in value:
            plain = _is_plain(item, level + 1) and plain
        return plain
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise InvalidJson(f"{value} is not JSON")
        return False
    if isinstance(value, str | int | float):
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidJson(f"{value} is not JSON")
        return False
    if isinstance(value, dict):
        return _is_plain(dict(value), level) and False
    if isinstance(value, list | tuple):
        return _is_plain(list(value), level) and False
    raise InvalidJson(f"a {kind.__name__} cannot be written as JSON")


def _check_level(level: int) -> None:
    if level > DEPTH_MAX:
        raise InvalidJson(f"has more than {DEPTH_MAX} levels")


def _write(value: Any, put: Callable[[str], None]) -> None:
    """For what the C encoder cannot write: subclasses, Decimal, Literal, integers of thousands of digits."""
    if isinstance(value, Literal):
        put(str.__str__(value))
    elif isinstance(value, str):
        put(_ENCODER.encode(str.__str__(value)))
    elif value is None or isinstance(value, bool):
        put(_ENCODER.encode(value))
    elif isinstance(value, int):
        put(integer_digits(int(value)))
    elif isinstance(value, float):
        put(float.__repr__(value))
    elif isinstance(value, Decimal):
        put(_decimal_digits(value))
    elif isinstance(value, dict):
        put("{")
        for number, (key, item) in enumerate(value.items()):
            put("," if number else "")
            put(_ENCODER.encode(str.__str__(key)))
            put(":")
            _write(item, put)
        put("}")
    else:
        put("[")
        for number, item in enumerate(value):
            put("," if number else "")
            _write(item, put)
        put("]")


def integer_digits(number: int) -> str:
    """`str(number)` for any size: `Decimal` has no limit on digits."""
    return str(number) if number.bit_length() < _PLAIN_INTEGER_BITS else format(Decimal(number), "f")


def _decimal_digits(number: Decimal) -> str:
    text = str(number)
    return text if _NUMBER.fullmatch(text) is not None else format(number, "f")
