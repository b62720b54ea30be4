"""Write docs/settings.md from the settings' own table (`make settings-page`); a test holds the two together."""

from __future__ import annotations

import sys
from pathlib import Path

from orbit_project.configuration import FOREIGN_NAMES, FOREIGN_PREFIXES, RELATIONS, VARIABLES, Variable

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings

Every setting is an environment variable, read once at start. A wrong value, an unknown `ORBIT_…` name or a broken
relation ends every command with exit status 2 and says what was expected and what was found. `manage.py orbit_settings`
shows the values in force and where they come from. This page is written by `make settings-page`.

| variable | default | unit | values | meaning |
|---|---|---|---|---|
"""

DATABASE = """
## Databases

- `sqlite:///var/orbit.sqlite3` is a file below the project's folder, `sqlite:////srv/orbit.sqlite3` one anywhere. It
  must lie on a local disk. One node at a time is what it is for; several processes on one machine work.
- `mysql://user:password@host:port/name` is MariaDB ≥ 10.6 or MySQL ≥ 8.0.17. Special characters of user and password
  are percent-encoded. `?ssl_ca=FILE` asks for TLS and checks the server; `ssl_cert` and `ssl_key` are the client's own;
  `unix_socket=FILE` replaces host and port. With the host `localhost` the driver takes the machine's socket: write
  `127.0.0.1` for TCP.
"""


def page() -> str:
    """The page's text."""
    rows = "".join(_row(variable) for variable in VARIABLES)
    relations = "".join(f"- `{relation.name}`: {relation.expected}.\n" for relation in RELATIONS)
    others = ", ".join(f"`{name}`" for name in [*sorted(FOREIGN_NAMES), *(f"{prefix}…" for prefix in FOREIGN_PREFIXES)])
    return (
        f"{HEAD}{rows}\n## Relations that must hold\n\n{relations}{DATABASE}\n## Variables of others\n\n"
        f"Known and ignored here, because clients, tests, examples and benchmarks read them: {others}.\n"
    )


def _row(variable: Variable) -> str:
    default = variable.default_text if variable.default is None else f"`{variable.default}`"
    secret = "; a secret, never shown" if variable.secret else ""
    cells = (f"`{variable.name}`", default, variable.unit, variable.kind.expected, variable.meaning + secret)
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
