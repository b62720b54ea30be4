"""Both engines are really there: a row goes in and comes out under the session that the design asks for."""

import pytest
from django.conf import settings
from django.db import connection

from tests.support import engine


@pytest.mark.django_db
def test_a_query_is_answered_by_the_engine_that_was_asked_for():
    wanted = {"sqlite": "sqlite", "mysql": "mysql"}[engine.chosen_engine()]

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 + 1")
        answer = cursor.fetchone()

    assert answer == (2,)
    assert connection.vendor == wanted


@pytest.mark.django_db
def test_the_test_database_belongs_to_this_run_alone():
    assert engine.database_name("main") in settings.DATABASES["default"]["NAME"]


@pytest.mark.sqlite_only("the session of the embedded database")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("pragma", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 0), ("busy_timeout", 20_000)]
)
def test_sqlite_session(pragma, value):
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {pragma}")
        assert cursor.fetchone() == (value,)


@pytest.mark.mariadb_only("the session of a server database")
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("@@session.time_zone", "+00:00"),
        ("@@session.innodb_lock_wait_timeout", 5),
        ("@@session.sql_mode", "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"),
        ("@@session.character_set_client", "utf8mb4"),
    ],
)
def test_mysql_session(variable, value):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {variable}")
        assert cursor.fetchone() == (value,)


@pytest.mark.mariadb_only("the isolation level of a server database")
@pytest.mark.django_db
def test_mysql_reads_committed_rows():
    name = "tx_isolation" if connection.mysql_is_mariadb else "transaction_isolation"

    with connection.cursor() as cursor:
        cursor.execute(f"SELECT @@session.{name}")
        assert cursor.fetchone() == ("READ-COMMITTED",)
