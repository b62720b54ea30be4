"""Where Orbit is and who is asking: a URL, a bearer token and, from a credentials file, the names of queues.

The token never appears in `repr`, in messages or in logs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbit_sdk.errors import ConfigError, InvalidRequest
from orbit_sdk.jsoncodec import InvalidJson, decode
from orbit_sdk.states import Policy

URL_VARIABLE = "ORBIT_URL"
TOKEN_VARIABLE = "ORBIT_TOKEN"  # noqa: S105 (the name of a variable)
FILE_VARIABLE = "ORBIT_CREDENTIALS_FILE"

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)


def is_id(text: object) -> bool:
    """Whether `text` has the form of an Orbit id: 32 lower-case hex digits."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


@dataclass(frozen=True)
class Credentials:
    """One credential of one namespace.

    `queues` maps names to ids, `policy` is that of the namespace; both are known only from a credentials file. `path`
    is that file: a worker reads it again when the token is refused, so that a rotated token is taken up.
    """

    url: str
    token: str = field(repr=False)
    queues: Mapping[str, str] = field(default_factory=dict)
    policy: Policy | None = None
    application_id: str | None = None
    namespace_id: str | None = None
    credential_id: str | None = None
    actions: tuple[str, ...] = ()
    path: Path | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"the URL must begin with http:// or https://, not {self.url!r}")
        if _TOKEN.fullmatch(self.token) is None:
            raise ConfigError("the token must be printable ASCII without blanks (it is not shown here)")
        object.__setattr__(self, "url", self.url.rstrip("/"))

    def queue_id(self, queue: str, *, place: str = "queue") -> str:
        """The id of a queue given by name or id. Raises InvalidRequest for a name that the credentials file lacks."""
        if queue in self.queues:
            return self.queues[queue]
        if is_id(queue):
            return queue
        if not self.queues:
            raise InvalidRequest(place, f"{queue!r} is not a queue id, and names need a credentials file")
        known = ", ".join(sorted(self.queues))
        raise InvalidRequest(place, f"{queue!r} is neither a queue id nor one of the names known here: {known}")

    def queue_name(self, queue_id: str) -> str:
        """The name of a queue, or its id where the name is not known."""
        return next((name for name, known in self.queues.items() if known == queue_id), queue_id)

    def with_queues(self, queues: Mapping[str, str]) -> Credentials:
        """The same credential with more names of queues."""
        return Credentials(**{**self.__dict__, "queues": {**self.queues, **queues}})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, url: str | None = None) -> Credentials:
        """What `orbit_bootstrap` and `orbit_credential` write. `url` beats the one in the file; one of them is needed.

        Raises ConfigError, naming the file and what is wrong with it.
        """
        place = Path(path)
        try:
            document = decode(place.read_bytes())
        except OSError as error:
            raise ConfigError(f"the credentials file {place} cannot be read: {error.strerror}") from None
        except InvalidJson as error:
            raise ConfigError(f"the credentials file {place} {error}") from None
        if not isinstance(document, dict):
            raise ConfigError(f"the credentials file {place} must hold a JSON object")
        address = url or _text(document, "url", place, optional=True)
        if not address:
            raise ConfigError(f"set {URL_VARIABLE}: the credentials file {place} names no url")
        queues = document.get("queues", {})
        if not isinstance(queues, dict) or not all(is_id(value) for value in queues.values()):
            raise ConfigError(f"the credentials file {place}: queues must map names to ids")
        actions = document.get("actions", [])
        policy = _text(document, "policy", place, optional=True)
        if policy is not None and policy not in list(Policy):
            raise ConfigError(f"the credentials file {place}: policy must be AGED or STRICT, not {policy!r}")
        return cls(
            url=address,
            token=_text(document, "token", place) or "",
            queues=queues,
            policy=Policy(policy) if policy else None,
            application_id=_text(document, "application_id", place, optional=True),
            namespace_id=_text(document, "namespace_id", place, optional=True),
            credential_id=_text(document, "credential_id", place, optional=True),
            actions=tuple(str(action) for action in actions) if isinstance(actions, list) else (),
            path=place,
        )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Credentials:
        """`ORBIT_URL` with `ORBIT_CREDENTIALS_FILE` or `ORBIT_TOKEN` (the file wins; its own url is used if ORBIT_URL
        is unset).

        Raises ConfigError, naming the variable that is missing.
        """
        values = os.environ if environ is None else environ
        url = values.get(URL_VARIABLE)
        if values.get(FILE_VARIABLE):
            return cls.from_file(values[FILE_VARIABLE], url=url)
        if not values.get(TOKEN_VARIABLE):
            raise ConfigError(f"set {FILE_VARIABLE} (or {TOKEN_VARIABLE})")
        if not url:
            raise ConfigError(f"set {URL_VARIABLE}")
        return cls(url=url, token=values[TOKEN_VARIABLE])

    def read_again(self) -> Credentials:
        """The credentials as their file says now; the same ones if there is no file or it cannot be read."""
        if self.path is None:
            return self
        try:
            fresh = Credentials.from_file(self.path, url=self.url)
        except ConfigError:
            return self
        return fresh.with_queues({**self.queues, **fresh.queues})


def _text(document: Mapping[str, Any], name: str, place: Path, *, optional: bool = False) -> str | None:
    value = document.get(name)
    if value is None and optional:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigError(f"the credentials file {place}: {name} must be a string that is not empty")
    return value
