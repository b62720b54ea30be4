"""Finding a user's App, Worker or task by the name given on the command line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from orbit_sdk.app import App, AppTask
from orbit_sdk.cli.session import fail
from orbit_sdk.worker.worker import Worker


def load_worker_target(spec: str) -> App | Worker:
    """`module:attribute` (`module` alone: its `app`, else its `worker`)."""
    module_name, _, attribute = spec.partition(":")
    module = _import(module_name)
    names = [attribute] if attribute else ["app", "worker"]
    for name in names:
        found = _attribute(module, name)
        if isinstance(found, App | Worker):
            return found
    raise fail(f"{spec}: no App or Worker there (looked for {' and '.join(names)})")


def load_task(spec: str) -> AppTask[Any, Any]:
    """`package.module.task` or `module:task`, a function that was made a task with @app.task."""
    module_name, separator, attribute = spec.partition(":")
    if not separator:
        module_name, _, attribute = spec.rpartition(".")
    if not module_name or not attribute:
        raise fail(f"{spec}: give module.task")
    found = _attribute(_import(module_name), attribute)
    if not isinstance(found, AppTask):
        raise fail(f"{spec} is not a task: decorate the function with @app.task(…)")
    return found


def _import(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise fail(f"there is no module {error.name!r} in {here} or on the path") from None
        raise


def _attribute(module: Any, path: str) -> Any:
    found = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found
