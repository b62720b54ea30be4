"""The SDK imports nothing of the server, so its copies of the server's words are compared here."""

from __future__ import annotations

import ast
import inspect
from enum import Enum
from pathlib import Path

import pytest

import orbit_sdk
from orbit_sdk import AsyncOrbitClient, OrbitClient, errors, limits, states
from tasks_app import errors as server_errors
from tasks_app import limits as server_limits
from tasks_app import states as server_states

GROUPS = ("Conflict", "Exhausted")
SDK = Path(orbit_sdk.__file__).parent


def leaves(parent: type) -> dict[str, list[str]]:
    """Each class of the tree with the names of its bases up to the root."""
    found: dict[str, list[str]] = {}
    for child in parent.__subclasses__():
        found[child.__name__] = [base.__name__ for base in child.__mro__[1:] if base.__name__ in GROUPS]
        found |= leaves(child)
    return found


def test_the_error_tree_is_the_servers() -> None:
    server = {name: bases for name, bases in leaves(server_errors.OrbitError).items() if not name.startswith("_")}
    known = {child.__name__: child.code for child in all_classes(server_errors.OrbitError)}

    assert leaves(errors.ApiError).keys() == server.keys()
    assert leaves(errors.ApiError) == server
    for code, mirror in errors.ERROR_CLASSES.items():
        assert known[mirror.__name__] == code
    assert set(errors.ERROR_CLASSES.values()) == {getattr(errors, name) for name in server if name not in GROUPS}


def all_classes(parent: type[server_errors.OrbitError]) -> list[type[server_errors.OrbitError]]:
    children = parent.__subclasses__()
    return [*children, *(grandchild for child in children for grandchild in all_classes(child))]


def test_limits_have_the_servers_values() -> None:
    mine = {name: value for name, value in vars(limits).items() if name.isupper()}

    assert mine == {name: getattr(server_limits, name) for name in mine}


@pytest.mark.parametrize("name", ["TaskState", "EventType", "Policy", "RetryMode", "RetryPriority"])
def test_words_are_the_servers(name: str) -> None:
    mirror: type[Enum] = getattr(states, name)

    assert [word.value for word in mirror] == list(getattr(server_states, name).values)


def test_ends_are_the_servers() -> None:
    assert {str(state) for state in states.ENDS} == {state.value for state in server_states.ENDS}


def test_the_coroutine_client_has_the_same_verbs_with_the_same_parameters() -> None:
    def verbs(client: type) -> dict[str, list[tuple[str, object]]]:
        return {
            name: [(p.name, p.default) for p in inspect.signature(member).parameters.values() if p.name != "transport"]
            for name, member in vars(client).items()
            if inspect.isfunction(member) and not name.startswith("_")
        }

    assert verbs(AsyncOrbitClient) == verbs(OrbitClient)


def imports_of(path: Path) -> set[str]:
    roots: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.partition(".")[0])
    return roots


@pytest.mark.parametrize("path", sorted(SDK.rglob("*.py")), ids=lambda path: str(path.relative_to(SDK)))
def test_a_module_imports_only_what_its_part_may(path: Path) -> None:
    roots = imports_of(path)
    part = path.relative_to(SDK).parts[0]

    assert not roots & {"orbit_project", "tasks_app", "workers_app", "lifecycle_app", "MySQLdb", "sqlite3"}
    assert "django" not in roots and "django_tasks" not in roots or part == "contrib"
    assert not roots & {"typer", "rich"} or part == "cli"


def test_the_package_is_marked_as_typed() -> None:
    assert (SDK / "py.typed").exists()
