"""The published documents of the interfaces, kept in docs/api/ so that a change of one is seen in a review.

`make check` compares them with what the code says now; `make schemas` writes them anew.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tools.steps import ROOT, relative

FOLDER = ROOT / "docs" / "api"
DIFFERENCE_LINES_MAX = 60


def documents() -> dict[str, Callable[[], Any]]:
    """File name -> what makes the document. Django must be set up."""
    from tasks_app.api.docs_views import openapi_document
    from workers_app.protocol.schema import worker_asyncapi, worker_schema

    return {
        "openapi.json": lambda: json.loads(openapi_document()),
        "worker-schema.json": worker_schema,
        "worker-asyncapi.json": worker_asyncapi,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the published documents with the code.")
    parser.add_argument("--write", action="store_true", help="write them anew")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")
    import django

    django.setup()
    changed = False
    for name, make in documents().items():
        path = FOLDER / name
        # Sorted, so that the order of declarations in the code makes no difference.
        now = json.dumps(make(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        before = path.read_text() if path.exists() else ""
        if now == before:
            continue
        changed = True
        if options.write:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(now)
            print(f"{relative(path)}: written")
        else:
            lines = list(difflib.unified_diff(before.splitlines(), now.splitlines(), relative(path), "the code", n=1))
            print("\n".join(lines[:DIFFERENCE_LINES_MAX]))
    return 1 if changed and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
