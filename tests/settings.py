"""The settings of the test run: those of the product, on databases that this run makes for itself."""

import os

from tests.support import engine

# A developer's own settings have no say in a test.
for _name in [name for name in os.environ if name.startswith("ORBIT_") and not name.startswith("ORBIT_TEST_")]:
    del os.environ[_name]
os.environ["ORBIT_SECRET_KEY"] = "a-key-that-only-the-tests-use-" + os.environ["ORBIT_TEST_RUN_TOKEN"]
os.environ["ORBIT_DATABASE_URL"] = engine.database_url("main")
os.environ["ORBIT_LOG_LEVEL"] = "WARNING"
os.environ["ORBIT_LOG_FORMAT"] = "console"

from orbit_project.settings import *  # noqa: E402, F403
from orbit_project.settings import DATABASES, INSTALLED_APPS, STORAGES  # noqa: E402

# A file also on SQLite: tests of threads and processes need what an in-memory database does not have.
DATABASES["default"]["TEST"] = {"NAME": DATABASES["default"]["NAME"], "CHARSET": "utf8mb4"}

# Nothing in it: the pages need only its presence.
STATIC_ROOT = engine.directory() / "static"
STATIC_ROOT.mkdir(exist_ok=True)

# Pages are rendered without `collectstatic`.
STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}

# The strength of a password hash is Django's to test; a login per test would cost a fifth of a second.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# The SDK's outbox is tested in this project as in anybody's.
INSTALLED_APPS = [*INSTALLED_APPS, "orbit_sdk.contrib.django"]
