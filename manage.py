#!/usr/bin/env python3
"""Orbit's command line: `manage.py help` lists the commands, `docs/` explains them."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orbit_project.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as missing:
        raise SystemExit(
            f"manage.py: Django cannot be imported ({missing}). Type `make run` first, or use .venv/bin/python."
        ) from missing
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
