"""The strict JSON reader of every door: HTTP bodies and frames (design 1.1, "Strict JSON").

`parse_document` reads a whole document once and refuses what the design lists; the `Node` it returns knows the exact
text of each value, so that a payload comes back digit for digit, and opens its members only when they are asked for.
`json_fields.py` reads typed members; `canonical` is what digests are made of.

The work is done by the standard library's scanner in C. What it would let through is caught around it: bytes that are
not UTF-8, a byte order mark and lone surrogates before it, duplicate keys and `NaN` in its hooks, and depth before it
starts, so that no depth of nesting can reach its recursion.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Final, NoReturn

from tasks_app.errors import InvalidArgument
from tasks_app.limits import JSON_DEPTH_MAX

# A number is kept as its text behind this mark. No string of a document can begin with it: lone surrogates are refused.
# So numbers and strings stay apart in parsed values and in the canonical form, without an object per number.
_NUMBER_MARK: Final = "\ud800"

_BRACKET_STEPS = bytes.maketrans(b"[{]}", bytes([1, 1, 255, 255]))  # 255 is -1 in a signed byte
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_NOT_WHITE_SPACE = re.compile(r"[^ \t\n\r]")
_SURROGATE_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
_KEY_SHOWN_MAX = 64
_ROOT_MEMBERS_OPENED_MAX = 64
_PATH_LEVELS_MAX = 6  # how deep the place of a fault is looked for; deeper, its nearest ancestor is named

_KINDS = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null"}


class _Fault(ValueError):
    """What the hooks refuse."""


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Fault(f"the key {_shown(key)} occurs twice in one object")
            seen.add(key)
    return members


def _refuse_constant(word: str) -> NoReturn:
    raise _Fault(f"{word} is not a JSON value")


# `scan_once` is the scanner itself: from (text, where) to (value, where it ends).
_Scanner = Callable[[str, int], tuple[Any, int]]
_scan: _Scanner = json.JSONDecoder(
    object_pairs_hook=_object_of,
    parse_int=_NUMBER_MARK.__add__,
    parse_float=_NUMBER_MARK.__add__,
    parse_constant=_refuse_constant,
).scan_once  # type: ignore[attr-defined]
# Finds the end of a value that `_scan` has read before. `len` stands where a number would be built at a cost.
_skip: _Scanner = json.JSONDecoder(parse_int=len, parse_float=len).scan_once  # type: ignore[attr-defined]
_scan_string: Callable[[str, int, bool], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]


class Node:
    """One value of a document: its kind, its exact text, its place, and its members or elements on demand."""

    __slots__ = ("_end", "_members", "_start", "_text", "_value", "path")

    def __init__(self, text: str, start: int, end: int, value: Any, path: str) -> None:
        self._text, self._start, self._end, self._value, self.path = text, start, end, value, path
        self._members: dict[str, Node] | None = None

    @property
    def kind(self) -> str:
        """`object`, `array`, `string`, `number`, `boolean` or `null`."""
        return _KINDS.get(self._text[self._start], "number")

    @property
    def raw(self) -> str:
        """The value exactly as it was sent, without the white space around it."""
        return self._text[self._start : self._end]

    @property
    def plain(self) -> Any:
        """The value as parsed, for readers of many small objects, to whom a node per member costs more than the parse.
        A number is its text behind a mark that no string can begin with."""
        return self._value

    @property
    def size(self) -> int:
        """How many members or elements an object or array has."""
        return len(self._value)

    def keys(self) -> list[str]:
        """The names of an object's members, without opening them."""
        return list(self._value)

    @property
    def text(self) -> str:
        """The value of a string node, escapes resolved."""
        self._require("string")
        return str(self._value)

    @property
    def truth(self) -> bool:
        """The value of a boolean node."""
        self._require("boolean")
        return self._value is True

    def members(self) -> dict[str, Node]:
        """The members of an object node, in the order sent."""
        self._require("object")
        if self._members is None:
            self._members = dict(_members(self._text, self._start, self.path, self._value))
        return self._members

    def elements(self) -> list[Node]:
        """The elements of an array node. One node each: look at `size` first."""
        self._require("array")
        return _elements(self._text, self._start, self.path, self._value)

    def _require(self, kind: str) -> None:
        """A reader of one kind on a node of another is a fault of the program, not of the document."""
        if self.kind != kind:
            raise TypeError(f"{self.path or 'the document'} is of kind {self.kind}, not {kind}")


def parse_document(body: bytes | str, *, depth_max: int = JSON_DEPTH_MAX) -> Node:
    """The one value that `body` is, read to its end. Raises InvalidArgument; `details` name the place and the rule.

    A `str` is a frame whose UTF-8 was checked by the transport.
    """
    text, encoded = _decode(body)
    start = _after_white_space(text, 0)
    if start == len(text):
        raise InvalidArgument.field("", "the body is required and must not be empty")
    without_pairs = encoded.replace(rb"\\", b"") if b"\\" in encoded else encoded
    _check_surrogates(without_pairs)
    _check_depth(without_pairs, depth_max)
    node = _read(text, start)
    end = _after_white_space(text, node._end)
    if end != len(text):
        raise InvalidArgument.field("", "must be one JSON value, with nothing behind it", offset=end)
    return node


def raw(node: Node) -> str:
    """The exact text of a value (`Node.raw` as a function)."""
    return node.raw


def canonical(node: Node) -> bytes:
    """Equal for two values that mean the same, different otherwise: an injective form for digests.

    Members are sorted, white space is gone, escapes are resolved; numbers stand as they were written, each as a string
    behind a mark that no string can begin with (so `1` and `"1"` differ, and so do `1` and `1.0`).
    """
    return json.dumps(node._value, sort_keys=True, separators=(",", ":")).encode("ascii")


def child_path(path: str, key: str) -> str:
    """The place of member `key` of the object at `path`: `items[3].task.priority`."""
    if _PLAIN_KEY.fullmatch(key) is None:
        return f"{path}[{_shown(key)}]"
    return f"{path}.{key}" if path else key


def element_path(path: str, index: int) -> str:
    return f"{path}[{index}]"


def _decode(body: bytes | str) -> tuple[str, bytes]:
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
        encoded = text.encode("utf-8") if isinstance(body, str) else body
    except UnicodeDecodeError as fault:
        raise InvalidArgument.field("", "must be valid UTF-8", offset=fault.start) from None
    except UnicodeEncodeError as fault:
        raise InvalidArgument.field("", "must not contain a lone surrogate", offset=fault.start) from None
    if text.startswith("\ufeff"):
        raise InvalidArgument.field("", "must not begin with a byte order mark")
    return text, encoded


def _check_surrogates(encoded: bytes) -> None:
    """`encoded` without its escaped backslashes: each backslash left begins an escape."""
    if b"\\ud" not in encoded and b"\\uD" not in encoded:
        return
    if _SURROGATE.search(_SURROGATE_PAIR.sub(" ", encoded.decode("utf-8"))):
        raise InvalidArgument.field("", "must not contain a lone surrogate")


def _check_depth(encoded: bytes, depth_max: int) -> None:
    """Before the scanner starts, by counting brackets outside strings.

    The scanner stops at the first fault, and up to there it cuts strings as this does; what follows a fault may be
    counted wrongly, and then one 400 takes the place of another.
    """
    if encoded.count(b"[") + encoded.count(b"{") <= depth_max:
        return
    outside = b"".join(encoded.replace(rb"\"", b"").split(b'"')[::2])
    steps = array("b", outside.translate(_BRACKET_STEPS, _NOT_BRACKETS))
    if max(accumulate(steps), default=0) > depth_max:
        raise InvalidArgument.field("", f"must not be nested deeper than {depth_max} levels", limit=depth_max)


def _read(text: str, start: int) -> Node:
    """The root. An object is opened at once, so that most requests find their members in the same pass; one with more
    members than any message of Orbit is somebody's data and is scanned as one value."""
    try:
        members = _open_root(text, start) if text[start] == "{" else None
        if members is None:
            value, end = _value_at(text, start)
            return Node(text, start, end, value, "")
    except (json.JSONDecodeError, _Fault) as fault:
        raise InvalidArgument.field(*_place_and_reason(text, start, fault)) from None
    last_end = next(reversed(members.values()))._end if members else start + 1
    node = Node(
        text, start, _after_white_space(text, last_end) + 1, {key: child._value for key, child in members.items()}, ""
    )
    node._members = members
    return node


def _open_root(text: str, start: int) -> dict[str, Node] | None:
    pairs: list[tuple[str, Node]] = []
    for pair in _members(text, start, "", None):
        pairs.append(pair)
        if len(pairs) > _ROOT_MEMBERS_OPENED_MAX:
            return None
    return _object_of(pairs)


def _value_at(text: str, at: int) -> tuple[Any, int]:
    try:
        return _scan(text, at)
    except StopIteration as stop:
        raise json.JSONDecodeError("Expecting value", text, stop.value) from None


def _members(text: str, start: int, path: str, values: dict[str, Any] | None) -> Iterator[tuple[str, Node]]:
    """(key, node) of the object that begins at `start`; `values` are those of an earlier scan, None before one."""
    at = _after_white_space(text, start + 1)
    if text[at : at + 1] == "}":
        return
    while True:
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, at = _scan_string(text, at + 1, True)
        at = _after_white_space(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = _after_white_space(text, at + 1)
        if values is None:
            value, end = _value_at(text, at)
        else:
            value, end = values[key], _skip(text, at)[1]
        yield key, Node(text, at, end, value, child_path(path, key))
        at = _after_white_space(text, end)
        if text[at : at + 1] == "}":
            return
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
        at = _after_white_space(text, at + 1)


def _elements(text: str, start: int, path: str, values: list[Any]) -> list[Node]:
    nodes: list[Node] = []
    at = start
    for index, value in enumerate(values):
        at = _after_white_space(text, at + 1)  # behind the bracket or the comma
        end = _skip(text, at)[1]
        nodes.append(Node(text, at, end, value, element_path(path, index)))
        at = _after_white_space(text, end)
    return nodes


def _after_white_space(text: str, at: int) -> int:
    """Where the next character is that is not white space; `len(text)` at the end."""
    found = _NOT_WHITE_SPACE.search(text, at)
    return len(text) if found is None else found.start()


def _shown(key: str) -> str:
    """A key as it may stand in a message: escaped and short, whatever was sent."""
    return json.dumps(key if len(key) <= _KEY_SHOWN_MAX else key[:_KEY_SHOWN_MAX] + "…")


def _place_and_reason(text: str, start: int, fault: Exception) -> tuple[str, str]:
    """Where the first fault is and what it is. Only a refused request pays for the search."""
    if isinstance(fault, json.JSONDecodeError):
        return "", f"is not valid JSON (line {fault.lineno}, column {fault.colno}): {fault.msg}"
    return _faulty_path(text, start), str(fault)


def _faulty_path(text: str, start: int) -> str:
    """The innermost object or value, up to a few levels down, that the scanner refuses by itself."""
    path = ""
    for _ in range(_PATH_LEVELS_MAX):
        inner = _first_faulty_child(text, start, path)
        if inner is None:
            return path
        start, path = inner
    return path


def _first_faulty_child(text: str, start: int, path: str) -> tuple[int, str] | None:
    """Up to the fault the text is sound: the scanner has been there."""
    opening = text[start]
    if opening not in "[{":
        return None
    at, index = _after_white_space(text, start + 1), 0
    while text[at] not in "]}":
        place = element_path(path, index)
        if opening == "{":
            key, at = _scan_string(text, at + 1, True)
            place = child_path(path, key)
            at = _after_white_space(text, _after_white_space(text, at) + 1)
        try:
            _, end = _value_at(text, at)
        except _Fault:
            return at, place
        at = _after_white_space(text, end)
        if text[at] == ",":
            at = _after_white_space(text, at + 1)
        index += 1
    return None
