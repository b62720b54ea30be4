"""The root of the command `orbit`, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from orbit_sdk.cli.commands import dead_letters, plans, queues, setup, submitting, tasks, worker
from orbit_sdk.cli.session import ExitCode, Session, exit_code_of
from orbit_sdk.errors import OrbitError
from orbit_sdk.version import VERSION

HELP = """Orbit on the command line.

Needs ORBIT_URL and ORBIT_CREDENTIALS_FILE (or ORBIT_TOKEN). Of two priorities the larger is the more urgent.
--json, before or after the command, prints the API's data as it is.
Exit codes: 0 ok, 1 refused, 2 wrong usage, 3 the outcome is not known.
"""

app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(submitting.call)
app.command()(submitting.submit)
app.command()(submitting.batch)
app.add_typer(tasks.app, name="task")
app.add_typer(dead_letters.app, name="dlq")
app.command()(queues.status)
app.add_typer(queues.app, name="queue")
app.add_typer(plans.app, name="plan")
app.command()(worker.worker)
app.command()(setup.env)
app.command()(setup.doctor)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"orbit-sdk {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="For programs; before or after the command.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For one request.")] = 30.0,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    context.obj = Session(json=json, timeout=timeout)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    hoisted = _with_json_first(arguments)
    try:
        app(args=hoisted, prog_name="orbit")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except OrbitError as error:
        Session(json="--json" in hoisted[:1]).complain(error)
        return exit_code_of(error)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 128 + 2
    return ExitCode.OK


def _with_json_first(arguments: Sequence[str]) -> list[str]:
    """`--json` belongs to the root, and may be written anywhere before a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before = [argument for argument in arguments[:end] if argument != "--json"]
    flag = ["--json"] if len(before) < end else []
    return [*flag, *before, *arguments[end:]]
