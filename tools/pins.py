"""Rewrite requirements/*.txt from the ranges in pyproject.toml and the versions installed here (`make pins`).

Each file is the whole closure of one group, so that an install never resolves anything by itself. A group whose
packages are not installed is left as it is, and said so.
"""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("build", "server", "sdk", "cli", "mysql", "redis", "otel", "dev", "browser", "audit")


def direct_requirements(group: str) -> list[Requirement]:
    """What pyproject.toml asks for in one group; `server` is the project's own list."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] if group == "server" else project["optional-dependencies"][group]
    return [Requirement(line) for line in lines]


def closure(requirements: list[Requirement]) -> dict[str, str]:
    """Every installed distribution that the requirements pull in: canonical name -> version."""
    pins: dict[str, str] = {}
    open_ones = [(requirement, frozenset(requirement.extras)) for requirement in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while open_ones:
        requirement, extras = open_ones.pop()
        name = canonicalize_name(requirement.name)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        distribution = metadata.distribution(name)
        pins[name] = distribution.version
        for line in distribution.requires or []:
            child = Requirement(line)
            environments = [{"extra": extra} for extra in extras] or [{"extra": ""}]
            if child.marker is None or any(child.marker.evaluate(environment) for environment in environments):
                open_ones.append((child, frozenset(child.extras)))
    return pins


def main() -> int:
    for group in GROUPS:
        target = ROOT / "requirements" / f"{group}.txt"
        try:
            pins = closure(direct_requirements(group))
        except metadata.PackageNotFoundError as missing:
            print(f"{target.relative_to(ROOT)}: left as it is ({missing.name} is not installed here)")
            continue
        lines = [f"# Everything that the group `{group}` of pyproject.toml pulls in. Written by `make pins`."]
        lines += [f"{name}=={version}" for name, version in sorted(pins.items())]
        target.write_text("\n".join(lines) + "\n")
        print(f"{target.relative_to(ROOT)}: {len(pins)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
