"""The product's settings for mypy's plugin, which looks at the models and opens no database."""

import os

os.environ.setdefault("ORBIT_DEBUG", "1")

from orbit_project.settings import *  # noqa: E402, F403
