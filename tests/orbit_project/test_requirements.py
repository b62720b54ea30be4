"""What is installed is what is pinned, and what is pinned is what pyproject.toml asks for."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = {"server": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}


def pins(group: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{group}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("group", GROUPS)
def test_every_direct_requirement_is_pinned_within_its_range(group):
    pinned = pins(group)

    for requirement in map(Requirement, GROUPS[group]):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version}"


@pytest.mark.parametrize("group", GROUPS)
def test_groups_agree_on_the_versions_that_they_share(group):
    for other in GROUPS:
        theirs = pins(other)
        clashes = {name for name, version in pins(group).items() if theirs.get(name, version) != version}
        assert clashes == set()


@pytest.mark.parametrize("group", ["build", "server", "sdk", "cli", "mysql", "dev"])
def test_the_environment_of_the_tests_is_the_pinned_one(group):
    assert {name: metadata.version(name) for name in pins(group)} == pins(group)


def test_floors_that_close_known_holes():
    from packaging.version import Version

    server = pins("server")
    assert Version(server["daphne"]) >= Version("4.2.3")
    assert Version(server["djangorestframework"]) >= Version("3.17.2")
    assert Version(server["django"]) >= Version("5.2.19")


def test_the_sdk_asks_for_the_versions_that_are_pinned_here():
    sdk = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]
    pinned = pins("sdk") | pins("cli")

    for requirement in map(Requirement, [*sdk["dependencies"], *sdk["optional-dependencies"]["cli"]]):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)], prereleases=True)


def test_the_sdk_needs_neither_django_nor_a_database():
    sdk = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]

    names = {canonicalize_name(Requirement(line).name) for line in sdk["dependencies"]}

    assert names == {"httpx2", "websockets"}
