"""The kinds of value that a setting can have: parse, show, and say what is expected.

A parser raises ValueError; the text of what was expected belongs to the kind, so that every message reads alike.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tasks_app.printable import printable_fault

HIDDEN: Final = "(hidden)"
FOUND_LENGTH_MAX: Final = 120
EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (what an operator asks for with an empty host)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of value is read from text, shown again, and described.

    `found` words a wrong value for an error message; kinds whose text may carry a password give their own.
    """

    expected: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    found: Callable[[str], str] | None = None

    def shown_when_wrong(self, text: str, secret: bool) -> str:
        if secret:
            return f"{len(text)} characters (not shown)"
        if self.found is not None:
            return self.found(text)
        cut = text if len(text) <= FOUND_LENGTH_MAX else text[:FOUND_LENGTH_MAX] + "…"
        return repr(cut)


def integer(low: int, high: int) -> Kind:
    """A decimal integer within a range; no sign, no blanks, no underscores."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return Kind(f"an integer from {low} to {high}", parse)


def choice(*words: str) -> Kind:
    """One of a few words, as written."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Kind("one of " + ", ".join(words), parse)


def text(shortest: int, longest: int) -> Kind:
    """Printable ASCII without blanks: secrets and tokens."""

    def parse(value: str) -> str:
        if not re.fullmatch(r"[\x21-\x7e]+", value) or not shortest <= len(value) <= longest:
            raise ValueError
        return value

    return Kind(f"{shortest} to {longest} printable ASCII characters without blanks", parse)


def printable(longest: int) -> Kind:
    """A name: printable characters, no blank at either end."""

    def parse(value: str) -> str:
        if printable_fault(value, length_max=longest) is not None:
            raise ValueError
        return value

    return Kind(f"1 to {longest} printable characters", parse)


def _parse_boolean(value: str) -> bool:
    if value not in ("0", "1"):
        raise ValueError
    return value == "1"


BOOLEAN: Final = Kind("0 or 1", _parse_boolean, lambda value: "1" if value else "0")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host (an IPv6 one without its brackets) and a port; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(value: str) -> Address:
    """`host:port`, `[v6]:port` or `:port` (every address of the machine); ValueError for anything else."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]*)):([0-9]{1,5})", value, re.ASCII)
    if not match or int(match[3]) > 65_535:
        raise ValueError(f"not an address: {value!r}")
    if match[1] is not None:
        ipaddress.IPv6Address(match[1])
    return Address(match[1] or match[2] or EVERY_ADDRESS, int(match[3]))


ADDRESS: Final = Kind("host:port", parse_address)


def _parse_list(value: str, one: Callable[[str], Any]) -> tuple[Any, ...]:
    parts = [part.strip() for part in value.split(",")]
    if not all(parts):
        raise ValueError
    return tuple(one(part) for part in parts)


def _show_list(items: tuple[Any, ...]) -> str:
    return ",".join(str(item) for item in items)


def _parse_host(value: str) -> str:
    if not re.fullmatch(r"\*|\.?[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]", value, re.ASCII):
        raise ValueError
    return value.lower()


def _parse_origin(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError
    if parts.path or parts.query or parts.fragment:
        raise ValueError
    port = f":{parts.port}" if parts.port is not None else ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}"


HOST_LIST: Final = Kind("host names, separated by commas", lambda value: _parse_list(value, _parse_host), _show_list)
NETWORK_LIST: Final = Kind(
    "addresses or networks (10.0.0.0/8), separated by commas",
    lambda value: _parse_list(value, ipaddress.ip_network),
    _show_list,
)
ORIGIN_LIST: Final = Kind(
    "origins (https://host[:port]), separated by commas", lambda value: _parse_list(value, _parse_origin), _show_list
)


def without_password(url: str) -> str:
    """A URL with its password replaced; text that is no URL is not shown at all, since it may be one misspelt."""
    try:
        parts = urlsplit(url)
        if parts.password is None:
            return url if "@" not in url else HIDDEN
        return url.replace(f":{parts.password}@", ":***@", 1)
    except ValueError:
        return HIDDEN


def _parse_url(value: str, schemes: tuple[str, ...]) -> str:
    parts = urlsplit(value)
    if parts.scheme not in schemes or not parts.hostname or parts.fragment or not value.isprintable():
        raise ValueError
    if parts.port == 0 or " " in value:
        raise ValueError
    return value


def _parse_web_url(value: str) -> str:
    parts = urlsplit(_parse_url(value, ("http", "https")))
    if parts.username is not None or parts.query:
        raise ValueError  # credentials have a setting of their own, and paths are appended to it
    return value.rstrip("/")


WEB_URL: Final = Kind(
    "http://host/… or https://host/…, without user, query or fragment", _parse_web_url, found=without_password
)
REDIS_URL: Final = Kind(
    "redis://host:port/n or rediss://…",
    lambda value: _parse_url(value, ("redis", "rediss")),
    without_password,
    without_password,
)

MYSQL_FILE_OPTIONS: Final = ("ssl_ca", "ssl_cert", "ssl_key", "unix_socket")


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """Which database: `engine` is "sqlite" (`name` is its path) or "mysql" (MySQL and MariaDB)."""

    engine: str
    name: str
    user: str = ""
    password: str = ""
    host: str = ""
    port: int | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def option(self) -> dict[str, str]:
        return dict(self.options)

    def __str__(self) -> str:
        """The URL without its password."""
        if self.engine == "sqlite":
            return f"sqlite:///{self.name}"
        login = quote(self.user, safe="") + (":***" if self.password else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = host + (f":{self.port}" if self.port is not None else "")
        query = "&".join(f"{key}={quote(value, safe='/')}" for key, value in self.options)
        return f"mysql://{login}@{place}/{quote(self.name, safe='')}" + (f"?{query}" if query else "")

    def __repr__(self) -> str:
        return f"DatabaseUrl({self})"


def parse_database_url(value: str) -> DatabaseUrl:
    """`sqlite:///relative`, `sqlite:////absolute` or `mysql://user[:password]@host[:port]/name[?option=…]`.

    Options of mysql: ssl_ca, ssl_cert, ssl_key (files) and unix_socket. Raises ValueError for anything else.
    """
    if value.startswith("sqlite:///"):
        path = value.removeprefix("sqlite:///")
        if not path or path.endswith("/") or "?" in path or "#" in path or not path.isprintable() or path == ":memory:":
            raise ValueError("a SQLite URL names a file")
        return DatabaseUrl("sqlite", path)
    parts = urlsplit(value)
    name = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "mysql" or parts.fragment or not parts.username:
        raise ValueError("not a database URL")
    if not re.fullmatch(r"[^/\x00-\x1f`]{1,64}", name):
        raise ValueError("not a database name")
    options = tuple(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)) if parts.query else ()
    keys = [key for key, _ in options]
    if len(set(keys)) != len(keys) or not set(keys) <= set(MYSQL_FILE_OPTIONS) or not all(text for _, text in options):
        raise ValueError("unknown or repeated option")
    if not parts.hostname and "unix_socket" not in keys:
        raise ValueError("no host")
    if ("ssl_cert" in keys) != ("ssl_key" in keys):
        raise ValueError("ssl_cert and ssl_key go together")
    return DatabaseUrl(
        "mysql", name, unquote(parts.username), unquote(parts.password or ""), parts.hostname or "", parts.port, options
    )


DATABASE_URL: Final = Kind(
    "sqlite:///path or mysql://user:password@host:port/name[?ssl_ca=…&ssl_cert=…&ssl_key=…&unix_socket=…]",
    parse_database_url,
    str,
    without_password,
)
