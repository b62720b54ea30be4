"""Database URLs and addresses: what is read, what is refused, what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_project.databases import database_settings
from orbit_project.setting_values import Address, DatabaseUrl, parse_address, parse_database_url, without_password


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("sqlite:///var/orbit.sqlite3", DatabaseUrl("sqlite", "var/orbit.sqlite3")),
        ("sqlite:////srv/orbit.sqlite3", DatabaseUrl("sqlite", "/srv/orbit.sqlite3")),
        (
            "mysql://orbit:p%40ss%2Fword@db.example:3307/orbit",
            DatabaseUrl("mysql", "orbit", "orbit", "p@ss/word", "db.example", 3307),
        ),
        ("mysql://orbit@[::1]/orbit", DatabaseUrl("mysql", "orbit", "orbit", "", "::1", None)),
        (
            "mysql://orbit@/orbit?unix_socket=/run/mysqld/mysqld.sock",
            DatabaseUrl("mysql", "orbit", "orbit", options=(("unix_socket", "/run/mysqld/mysqld.sock"),)),
        ),
        (
            "mysql://o@h/orbit?ssl_ca=/etc/ca.pem",
            DatabaseUrl("mysql", "orbit", "o", "", "h", None, (("ssl_ca", "/etc/ca.pem"),)),
        ),
    ],
)
def test_database_urls_are_read(text, read):
    assert parse_database_url(text) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///x?mode=ro",
        "sqlite:///dir/",
        "postgres://u@h/x",
        "mysql://h/x",
        "mysql://u@h",
        "mysql://u@h/",
        "mysql://u@h/a/b",
        "mysql://u@h:99999/x",
        "mysql://u@h/x?charset=latin1",
        "mysql://u@h/x?ssl_ca=/a&ssl_ca=/b",
        "mysql://u@h/x?ssl_ca=",
        "mysql://u@h/x?ssl_cert=/c",
        "mysql://u@/x",
        "mysql://u@h/x#f",
    ],
)
def test_other_database_urls_are_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        parse_database_url(text)


def test_a_shown_database_url_hides_its_password():
    shown = str(parse_database_url("mysql://orbit:hunter2@h:3306/orbit?ssl_ca=/etc/ca.pem"))

    assert shown == "mysql://orbit:***@h:3306/orbit?ssl_ca=/etc/ca.pem"
    assert "hunter2" not in repr(parse_database_url("mysql://orbit:hunter2@h/orbit"))


@given(st.text(min_size=1, max_size=30).filter(lambda text: text.isprintable()))
def test_no_text_around_a_password_shows_it(prefix):
    assert "hunter2hunter2" not in without_password(f"{prefix}:hunter2hunter2@host/name")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("[::1]:80", Address("::1", 80)),
        (":9090", Address("0.0.0.0", 9090)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_addresses_are_read(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        (":1", False),
        ("host:1", False),
    ],
)
def test_loopback_is_recognised(text, loopback):
    assert parse_address(text).is_loopback is loopback


def test_a_relative_sqlite_path_starts_at_the_project():
    read = database_settings(parse_database_url("sqlite:///var/x.sqlite3"), base=Path("/srv/orbit"))

    assert read["NAME"] == "/srv/orbit/var/x.sqlite3"
    assert read["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_a_mysql_url_becomes_a_session_with_time_outs_and_tls():
    read = database_settings(
        parse_database_url("mysql://o:p@h:3307/x?ssl_ca=/ca&ssl_cert=/c&ssl_key=/k"), base=Path("/")
    )

    assert (read["USER"], read["PASSWORD"], read["HOST"], read["PORT"], read["NAME"]) == ("o", "p", "h", "3307", "x")
    assert read["OPTIONS"]["ssl"] == {"ca": "/ca", "cert": "/c", "key": "/k"}
    assert (read["OPTIONS"]["connect_timeout"], read["OPTIONS"]["read_timeout"]) == (5, 30)
    assert read["OPTIONS"]["write_timeout"] == 30
    assert read["OPTIONS"]["isolation_level"] == "read committed"
    assert read["ATOMIC_REQUESTS"] is False
    assert read["CONN_MAX_AGE"] is None


def test_a_unix_socket_replaces_the_host():
    read = database_settings(parse_database_url("mysql://o@/x?unix_socket=/run/m.sock"), base=Path("/"))

    assert read["HOST"] == "/run/m.sock"
