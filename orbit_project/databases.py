"""Django's DATABASES from `ORBIT_DATABASE_URL`: what every connection is told when it opens (design 0, Database)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from orbit_project.setting_values import DatabaseUrl

CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 30
LOCK_WAIT_SECONDS: Final = 5
SQLITE_BUSY_SECONDS: Final = 20

SQL_MODE: Final = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"


def database_settings(url: DatabaseUrl, *, base: Path) -> dict[str, Any]:
    """The entry `default` of DATABASES. A relative SQLite path starts at `base`."""
    common = {
        # Threads of bounded pools hold their connection; the back ends look at idle ones themselves.
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": False,
        "ATOMIC_REQUESTS": False,
    }
    if url.engine == "sqlite":
        return {
            **common,
            "ENGINE": "tasks_app.databases.sqlite",
            "NAME": str(base / url.name),
            "OPTIONS": {
                # A transaction that begins as a reader and then writes fails at once, whatever the time-out.
                "transaction_mode": "IMMEDIATE",
                "timeout": SQLITE_BUSY_SECONDS,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=OFF",
            },
        }
    option = url.option
    files = {name.removeprefix("ssl_"): path for name, path in option.items() if name.startswith("ssl_")}
    return {
        **common,
        "ENGINE": "tasks_app.databases.mysql",
        "NAME": url.name,
        "USER": url.user,
        "PASSWORD": url.password,
        "HOST": option.get("unix_socket", url.host),
        "PORT": "" if url.port is None else str(url.port),
        "OPTIONS": {
            "charset": "utf8mb4",
            "isolation_level": "read committed",
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "write_timeout": READ_SECONDS,
            "init_command": (
                f"SET time_zone = '+00:00', sql_mode = '{SQL_MODE}', innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}"
            ),
            **({"ssl": files} if files else {}),
        },
    }
