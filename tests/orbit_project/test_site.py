"""What every test of a real server stands on: a migrated site with three credentials, each of its own namespace."""

from __future__ import annotations

import contextlib

from tests.support import engine
from tests.support.databases import connect
from tests.support.fixtures import Site


def test_a_site_has_an_aged_a_strict_and_a_foreign_namespace(orbit_site: Site):
    assert orbit_site.aged.members["policy"] == "AGED"
    assert orbit_site.strict.members["policy"] == "STRICT"
    assert orbit_site.aged.application_id == orbit_site.strict.application_id != orbit_site.foreign.application_id
    assert len({site.namespace_id for site in (orbit_site.aged, orbit_site.strict, orbit_site.foreign)}) == 3
    for credentials in (orbit_site.aged, orbit_site.strict, orbit_site.foreign):
        assert credentials.path.stat().st_mode & 0o777 == 0o600


def test_a_sites_database_is_this_runs_own(orbit_site: Site):
    assert engine.database_name("site") in orbit_site.database_url
    with contextlib.closing(connect(orbit_site.database_url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM django_migrations")
        assert cursor.fetchone()[0] > 0
