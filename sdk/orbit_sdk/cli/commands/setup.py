"""`orbit env` and `orbit doctor`: is everything in place, and if not, what to do."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
import typer

from orbit_sdk.cli.session import ExitCode, Session, session_of
from orbit_sdk.credentials import FILE_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, Credentials
from orbit_sdk.errors import ConfigError, OrbitError, PermissionDenied
from orbit_sdk.version import VERSION

SKEW_SECONDS_MAX = 5.0
PYTHON_MIN = (3, 11)


def env(context: typer.Context) -> None:
    """Print the exports that programs need. The token itself is never printed."""
    session = session_of(context)
    credentials = session.credentials
    exports = {URL_VARIABLE: credentials.url}
    if credentials.path is not None:
        exports[FILE_VARIABLE] = str(credentials.path.absolute())
    if session.json:
        session.show_json(exports)
        return
    for name, value in exports.items():
        session.line(f"export {name}={shlex.quote(value)}")
    if credentials.path is None:
        session.line(f"# {TOKEN_VARIABLE} is set, and not shown")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor. `fix` is empty where all is well."""

    what: str
    found: str
    fix: str = ""


def doctor(context: typer.Context) -> None:
    """Look at what this program needs of Orbit: each line OK, or FIX with what to do."""
    session = session_of(context)
    findings = list(_examine(session))
    if session.json:
        session.show_json({"items": [finding.__dict__ for finding in findings]})
    else:
        for finding in findings:
            mark = "FIX" if finding.fix else "OK "
            session.line(f"{mark}  {finding.what:<12} {finding.found}")
            if finding.fix:
                session.line(f"     {finding.fix}")
    raise typer.Exit(ExitCode.REFUSED if any(finding.fix for finding in findings) else ExitCode.OK)


def _examine(session: Session) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info[:2] < PYTHON_MIN
    yield Finding("python", f"{version}, orbit-sdk {VERSION}", "use Python 3.11 or newer" if old else "")
    try:
        credentials = session.credentials
    except ConfigError as error:
        fix = f"run `orbit_bootstrap … --output FILE`, then export {FILE_VARIABLE}=FILE and {URL_VARIABLE}"
        yield Finding("credentials", str(error), fix)
        return
    yield _credentials(credentials)
    yield from _node(credentials)
    yield _rights(session)


def _credentials(credentials: Credentials) -> Finding:
    if credentials.path is None:
        return Finding("credentials", f"{TOKEN_VARIABLE} (queues by id only)")
    mode = os.stat(credentials.path).st_mode & 0o777
    found = f"{credentials.path}, {len(credentials.queues)} queues by name"
    if mode & 0o077:
        return Finding("credentials", f"{found}, mode {mode:04o}", f"chmod 600 {credentials.path}")
    return Finding("credentials", found)


def _node(credentials: Credentials) -> Iterator[Finding]:
    try:
        answer = httpx2.get(f"{credentials.url}/readyz", timeout=10.0)
    except httpx2.HTTPError as error:
        yield Finding("node", f"{credentials.url}: {error}", f"start the node, or set {URL_VARIABLE} to where it is")
        return
    if answer.status_code != httpx2.codes.OK:
        fix = f"look at {credentials.url}/readyz?verbose and at the node's log"
        yield Finding("node", f"{credentials.url} is not ready ({answer.status_code})", fix)
        return
    yield Finding("node", f"{credentials.url} is ready")
    if "date" in answer.headers:
        skew = abs((datetime.now(UTC) - parsedate_to_datetime(answer.headers["date"])).total_seconds())
        late = skew > SKEW_SECONDS_MAX
        fix = "let NTP set this machine's clock: deadlines are shown wrongly" if late else ""
        yield Finding("clock", f"{skew:.0f} s from the node's", fix)


def _rights(session: Session) -> Finding:
    try:
        queues = sum(1 for _ in session.client.list_queues(page_size=200))
    except PermissionDenied:
        return Finding("credential", "valid, without queues:read")
    except OrbitError as error:
        return Finding("credential", str(error), "issue a new one: orbit_credential issue … --output FILE")
    actions = ", ".join(session.credentials.actions)
    return Finding("credential", f"valid, sees {queues} queues" + (f"; may {actions}" if actions else ""))
