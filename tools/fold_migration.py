"""Move the constraints and indexes of a migration into the models that it creates: `make fold-migrations`.

Django writes one operation for each constraint and replays the state of every model for each; on SQLite it copies the
table as well. An initial migration with a hundred constraints takes three times as long as the same schema in one
statement per table. The schema is the same afterwards, name by name. Only for migrations that nobody has applied yet.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

APPS = ("tasks_app", "workers_app", "lifecycle_app")


def fold(operations: list[Any]) -> list[Any]:
    """The operations with constraints and indexes inside CreateModel where the model is complete when it is made."""
    from django.db.migrations.operations import AddConstraint, AddField, AddIndex, CreateModel

    created: dict[str, Any] = {}
    completed_later: set[str] = set()
    kept = []
    for operation in operations:
        if isinstance(operation, CreateModel):
            created[operation.name_lower] = operation
        elif isinstance(operation, AddField):
            completed_later.add(operation.model_name_lower)
        elif isinstance(operation, (AddConstraint, AddIndex)):
            model = operation.model_name_lower
            if model in created and model not in completed_later:
                options = created[model].options
                if isinstance(operation, AddConstraint):
                    options.setdefault("constraints", []).append(operation.constraint)
                else:
                    options.setdefault("indexes", []).append(operation.index)
                continue
        kept.append(operation)
    return kept


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")
    import django

    django.setup()
    from django.db.migrations.writer import MigrationWriter

    for app in APPS:
        for path in sorted(Path(app, "migrations").glob("0*.py")):
            module = importlib.import_module(f"{app}.migrations.{path.stem}")
            migration = module.Migration(path.stem, app)
            before = len(migration.operations)
            migration.operations = fold(migration.operations)
            if len(migration.operations) < before:
                path.write_text(MigrationWriter(migration, include_header=False).as_string())
                print(f"{path}: {before} operations became {len(migration.operations)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
