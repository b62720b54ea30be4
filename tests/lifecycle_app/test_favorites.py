"""Favourites (design 4.1, 4.3, 4.8)."""

import pytest

from lifecycle_app.domain import favorites
from tasks_app.errors import NotFound
from tests.lifecycle_app.site import Site, confirm, count


def test_marking_and_taking_back_may_be_repeated(site: Site):
    site.submitted(7)
    assert favorites.add(site.namespace_id, 7, "ana").made_now is True
    again = favorites.add(site.namespace_id, 7, "ana")
    assert again.made_now is False
    assert favorites.add(site.namespace_id, 7, "Ana").made_now is True
    assert count("orbit_favorite") == 2
    assert favorites.remove(site.namespace_id, 7, "ana") is True
    assert favorites.remove(site.namespace_id, 7, "ana") is False
    assert count("orbit_favorite") == 1


def test_what_is_not_there_cannot_be_liked(site: Site):
    with pytest.raises(NotFound):
        favorites.add(site.namespace_id, 7, "ana")
    site.deleted(7)
    with pytest.raises(NotFound):
        favorites.add(site.namespace_id, 7, "ana")


def test_they_go_when_the_delete_is_confirmed_and_not_before(site: Site):
    site.submitted(7)
    site.submitted(8)
    favorites.add(site.namespace_id, 7, "ana")
    favorites.add(site.namespace_id, 8, "ana")
    node = site.connect()
    site.told(node)
    delete_id = site.delete(7).delete_operation_id
    assert count("orbit_favorite") == 2
    site.report(node, confirm(7, delete_id))
    assert count("orbit_favorite") == 1
