"""The command `orbit` (extra `cli`)."""

from __future__ import annotations

import sys


def main() -> None:
    """The console script."""
    try:
        from orbit_sdk.cli.root import run
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("orbit: the command line needs its extra: pip install 'orbit-sdk[cli]'", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
