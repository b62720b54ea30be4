"""The one-time login: once, in time, from this machine, in debug; otherwise it does not exist."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
import time_machine
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import Client

from orbit_project.configuration import Configuration
from orbit_project.one_time_login import SECONDS_MAX, make_link
from orbit_project.setting_values import Address

pytestmark = pytest.mark.django_db


@pytest.fixture
def debug(settings):
    settings.DEBUG = True
    return settings


def follow(link: str, **meta: str):
    return Client().get(link.removeprefix("http://127.0.0.1:8080"), **meta)


def test_a_link_logs_in_and_leads_to_the_operators_site(debug):
    browser = Client()

    answer = browser.get(make_link("http://127.0.0.1:8080").removeprefix("http://127.0.0.1:8080"))

    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert browser.get("/admin/").status_code == 200


def test_the_account_that_is_made_has_no_password(debug):
    make_link("http://127.0.0.1:8080")

    user = get_user_model().objects.get()
    assert user.is_superuser
    assert not user.has_usable_password()


def test_a_second_use_finds_nothing(debug):
    link = make_link("http://127.0.0.1:8080")

    assert follow(link).status_code == 302
    assert follow(link).status_code == 404


def test_a_link_is_good_for_ten_minutes(debug):
    with time_machine.travel(0, tick=False) as clock:
        link = make_link("http://127.0.0.1:8080")
        clock.shift(timedelta(seconds=SECONDS_MAX + 1))
        assert follow(link).status_code == 404
        clock.shift(timedelta(seconds=-1))
        assert follow(link).status_code == 302


def test_a_changed_link_finds_nothing(debug):
    assert follow(make_link("http://127.0.0.1:8080") + "x").status_code == 404
    assert follow("/admin/one-time-login").status_code == 404


def test_a_link_works_from_this_machine_only(debug):
    assert follow(make_link("http://127.0.0.1:8080"), REMOTE_ADDR="10.0.0.1").status_code == 404


def test_a_link_does_nothing_outside_debug(settings):
    settings.DEBUG = True
    link = make_link("http://127.0.0.1:8080")
    settings.DEBUG = False

    assert follow(link).status_code == 404
    with pytest.raises(CommandError, match="ORBIT_DEBUG"):
        call_command("orbit_login_link", url="http://127.0.0.1:8080")


def test_a_link_does_nothing_on_a_node_that_others_can_reach(debug):
    configuration: Configuration = debug.ORBIT
    link = make_link("http://127.0.0.1:8080")
    debug.ORBIT = dataclasses.replace(configuration, http_addr=Address("0.0.0.0", 8080))

    assert follow(link).status_code == 404


def test_an_account_that_lost_its_rights_cannot_use_its_link(debug):
    link = make_link("http://127.0.0.1:8080")
    get_user_model().objects.update(is_superuser=False)

    assert follow(link).status_code == 404
