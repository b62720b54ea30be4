"""Typed members of strict JSON documents: what REST bodies, worker frames and node frames read with.

Everything refused here is a *structural* fault (design 1.3): unknown and missing members, JSON types, `null`, the
encodings of ids and times. Ranges, lengths, characters and enums are judged by whoever knows the field.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from tasks_app.errors import Detail, InvalidArgument
from tasks_app.ids import is_id
from tasks_app.instants import parse_rfc3339
from tasks_app.strict_json import Node, child_path

# An integer with more digits than this stands for one far outside every range of Orbit: 64-bit columns end at 19
# digits.
_INTEGER_DIGITS_MAX: Final = 30
_UNKNOWN_MEMBERS_NAMED_MAX: Final = 20


class Fields:
    """The members of one object, read by name and type. A reader of an absent member gives None.

    `read_object` makes them; what it called required is there, so `required_…` readers never give None.
    """

    def __init__(self, node: Node, members: dict[str, Node]) -> None:
        self.node = node
        self._members = members

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def names(self) -> frozenset[str]:
        return frozenset(self._members)

    def path(self, name: str) -> str:
        return child_path(self.node.path, name)

    def is_null(self, name: str) -> bool:
        """True if the member was sent as `null`: for the few fields where that means something."""
        member = self._members.get(name)
        return member is not None and member.kind == "null"

    def node_of(self, name: str) -> Node | None:
        """Any JSON value, `null` included."""
        return self._members.get(name)

    def string(self, name: str) -> str | None:
        member = self._members.get(name)
        return None if member is None else read_string(member)

    def integer(self, name: str) -> int | None:
        member = self._members.get(name)
        return None if member is None else read_integer(member)

    def boolean(self, name: str) -> bool | None:
        member = self._members.get(name)
        return None if member is None else read_boolean(member)

    def identity(self, name: str) -> str | None:
        member = self._members.get(name)
        return None if member is None else read_identity(member)

    def instant(self, name: str) -> int | None:
        """Microseconds since the epoch."""
        member = self._members.get(name)
        return None if member is None else read_instant(member)

    def object(self, name: str, *, required: Collection[str] = (), optional: Collection[str] = ()) -> Fields | None:
        member = self._members.get(name)
        return None if member is None else read_object(member, required=required, optional=optional)

    def elements(self, name: str, *, at_least: int = 0, at_most: int) -> list[Node] | None:
        member = self._members.get(name)
        return None if member is None else read_array(member, at_least=at_least, at_most=at_most)

    def required_node(self, name: str) -> Node:
        return self._members[name]

    def required_string(self, name: str) -> str:
        return read_string(self._members[name])

    def required_integer(self, name: str) -> int:
        return read_integer(self._members[name])

    def required_identity(self, name: str) -> str:
        return read_identity(self._members[name])

    def required_elements(self, name: str, *, at_least: int = 0, at_most: int) -> list[Node]:
        return read_array(self._members[name], at_least=at_least, at_most=at_most)


def read_object(node: Node, *, required: Collection[str] = (), optional: Collection[str] = ()) -> Fields:
    """The members of an object that may have just these. Names every unknown and missing member in one refusal."""
    _require(node, "object", "must be an object")
    keys = node.keys()
    known = {*required, *optional}
    faults: list[Detail] = []
    for key in keys:
        if key not in known:
            faults.append({"field": child_path(node.path, key), "reason": _unknown(key, known)})
            if len(faults) == _UNKNOWN_MEMBERS_NAMED_MAX:
                break
    faults += [
        {"field": child_path(node.path, name), "reason": "is required"} for name in required if name not in set(keys)
    ]
    if faults:
        raise refusal(faults)
    return Fields(node, node.members())


def read_array(node: Node, *, at_least: int = 0, at_most: int) -> list[Node]:
    _require(node, "array", "must be an array")
    if not at_least <= node.size <= at_most:
        raise InvalidArgument.field(
            node.path, f"must have {at_least} to {at_most} elements", minimum=at_least, maximum=at_most
        )
    return node.elements()


def read_string(node: Node) -> str:
    """A string that Orbit interprets: U+0000 is refused here."""
    _require(node, "string", "must be a string")
    if "\0" in node.text:
        raise InvalidArgument.field(node.path, "must not contain U+0000")
    return node.text


def read_integer(node: Node) -> int:
    """An integer written as one: no point, no exponent, no quotes. Past 30 digits it is cut to a value of 31 digits,
    which every range refuses, so that thousands of digits cost nothing and are no special case for anybody."""
    _require(node, "number", "must be an integer")
    written = node.raw
    if not written.lstrip("-").isdigit():
        raise InvalidArgument.field(node.path, "must be an integer, written without point and exponent")
    if len(written) > _INTEGER_DIGITS_MAX + 1:
        return -(10**_INTEGER_DIGITS_MAX) if written[0] == "-" else 10**_INTEGER_DIGITS_MAX
    return int(written)


def read_boolean(node: Node) -> bool:
    _require(node, "boolean", "must be true or false")
    return node.truth


def read_identity(node: Node) -> str:
    text = read_string(node)
    if not is_id(text):
        raise InvalidArgument.field(node.path, "must be an id: 32 lower-case hex digits")
    return text


def read_instant(node: Node) -> int:
    """Microseconds since the epoch."""
    try:
        return parse_rfc3339(read_string(node))
    except ValueError as fault:
        raise InvalidArgument.field(node.path, str(fault)) from None


def refusal(faults: Sequence[Detail]) -> InvalidArgument:
    """One refusal for several faults; the message is that of the first."""
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return InvalidArgument(f"{first['field']}: {first['reason']}{more}", details=faults)


def _require(node: Node, kind: str, reason: str) -> None:
    if node.kind == kind:
        return
    raise InvalidArgument.field(node.path, "must not be null" if node.kind == "null" else reason)


def _unknown(key: str, known: Collection[str]) -> str:
    meant = next((name for name in known if name.casefold() == key.casefold()), None)
    return f"is not known here; did you mean {meant}?" if meant else "is not known here"
