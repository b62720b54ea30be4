"""orbit_bootstrap: idempotent, honest about what differs, silent about the token (design 5.2)."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.db import connection

from tasks_app.domain.tenancy import authenticate
from tasks_app.errors import Unauthenticated
from tasks_app.models import Application, AuditEntry, Credential, Namespace, Queue
from tests.support.databases import private_database
from tests.support.server import manage

pytestmark = pytest.mark.django_db

BASE = ("--application", "shop", "--namespace", "orders", "--environment", "test")
STRICT = (*BASE, "--policy", "STRICT", "--default-priority", "2", "--resource-limit", "3", "--weekly-limit", "7")
LIMITED = ("--app-max-unfinished", "10", "--app-max-running", "5", "--app-start-rate", "20/1000")


def run(path: Path, *arguments: str) -> str:
    """Everything that the command says."""
    said = io.StringIO()
    call_command("orbit_bootstrap", *arguments, "--output", str(path), stdout=said, stderr=said)
    return said.getvalue()


def made(path: Path, *arguments: str) -> dict[str, Any]:
    run(path, *arguments)
    return json.loads(path.read_text())


def refusal(path: Path, *arguments: str) -> str:
    with pytest.raises(CommandError) as refused:
        run(path, *arguments)
    assert refused.value.returncode == 1
    return str(refused.value)


def test_makes_everything_that_is_missing(tmp_path: Path) -> None:
    members = made(tmp_path / "c", *STRICT, *LIMITED, "--queue", "mail", "--queue", "Mail")

    application = Application.objects.get(name="shop")
    assert (application.max_unfinished, application.max_running) == (10, 5)
    assert (application.start_rate_starts, application.start_rate_per_ms) == (20, 1000)
    assert application.start_level == 20 * 1000 * 1000, "a new bucket is full"
    namespace = Namespace.objects.get(name="orders")
    assert (namespace.environment, namespace.policy, namespace.default_priority) == ("test", "STRICT", 2)
    assert (namespace.resource_limit, namespace.weekly_limit) == (3, 7)
    assert members["application_id"] == application.application_id
    assert members["namespace_id"] == namespace.namespace_id
    assert members["queues"] == {queue.name: queue.queue_id for queue in Queue.objects.all()}
    assert sorted(members["queues"]) == ["Mail", "mail"]


def test_writes_exactly_the_members_of_the_contract(tmp_path: Path) -> None:
    members = made(tmp_path / "c", *BASE)
    wanted = {"url", "application_id", "namespace_id", "policy", "queues", "credential_id", "token", "actions"}
    assert set(members) == wanted
    assert members["policy"] == "AGED"
    principal = authenticate(members["token"])
    assert principal.credential_id == members["credential_id"]
    assert sorted(principal.actions) == members["actions"]


def test_second_run_changes_nothing_but_issues_another_credential(tmp_path: Path) -> None:
    first = made(tmp_path / "1", *STRICT, *LIMITED, "--queue", "mail")
    second = made(tmp_path / "2", *STRICT, *LIMITED, "--queue", "mail")
    same = ("application_id", "namespace_id", "policy", "queues", "actions")
    assert [first[name] for name in same] == [second[name] for name in same]
    assert first["credential_id"] != second["credential_id"]
    assert authenticate(first["token"]) and authenticate(second["token"])


def test_what_is_not_said_may_have_any_value(tmp_path: Path) -> None:
    first = made(tmp_path / "1", *STRICT, *LIMITED)
    second = made(tmp_path / "2", *BASE)
    assert second["policy"] == "STRICT"
    assert second["namespace_id"] == first["namespace_id"]


def test_a_later_run_adds_what_is_new(tmp_path: Path) -> None:
    first = made(tmp_path / "1", *BASE, "--queue", "mail")
    second = made(tmp_path / "2", *BASE, "--queue", "print")
    assert second["queues"]["mail"] == first["queues"]["mail"]
    assert sorted(second["queues"]) == ["mail", "print"]


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        (("--environment", "production"), "namespace environment is test, not production"),
        (("--policy", "AGED"), "namespace policy is STRICT, not AGED"),
        (("--default-priority", "5"), "namespace default_priority is 2, not 5"),
        (("--resource-limit", "4"), "namespace resource_limit is 3, not 4"),
        (("--weekly-limit", "8"), "namespace weekly_limit is 7, not 8"),
        (("--app-max-unfinished", "11"), "application max_unfinished is 10, not 11"),
        (("--app-max-running", "6"), "application max_running is 5, not 6"),
        (("--app-start-rate", "20/999"), "application start_rate is 20/1000, not 20/999"),
    ],
)
def test_what_exists_with_another_value_refuses_everything(
    tmp_path: Path, arguments: tuple[str, ...], difference: str
) -> None:
    made(tmp_path / "1", *STRICT, *LIMITED)

    said = refusal(tmp_path / "2", *BASE, "--queue", "new", *arguments)

    assert difference in said
    assert not (tmp_path / "2").exists()
    assert Credential.objects.count() == 1
    assert not Queue.objects.filter(name="new").exists()


def test_names_every_difference_at_once(tmp_path: Path) -> None:
    made(tmp_path / "1", *BASE)
    said = refusal(tmp_path / "2", *BASE, "--resource-limit", "2", "--app-max-running", "1")
    assert "application max_running is none, not 1" in said
    assert "namespace resource_limit is 1, not 2" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("--default-priority", "1"),  # AGED knows none
        ("--policy", "STRICT", "--default-priority", "10"),
        ("--policy", "STRICT", "--default-priority", "-10"),
        ("--resource-limit", "0"),
        ("--resource-limit", "10001"),
        ("--expires-in", "0"),
        ("--app-start-rate", "5"),
        ("--app-start-rate", "0/1000"),
        ("--app-max-running", "-1"),
        ("--app-max-running", "9007199254740992"),
        ("--actions", "tasks:read,tasks:eat"),
        ("--policy", "FIFO"),
        ("--queue", " blank at one end"),
        ("--queue", ""),
        ("--queue-scope", "no such queue"),
        ("--superuser", "root"),  # without its password
    ],
)
def test_refuses_values_out_of_range_and_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        run(tmp_path / "c", *BASE, *arguments)
    assert not (tmp_path / "c").exists()
    assert not Application.objects.exists()


@pytest.mark.parametrize("name", ["", "trailing ", "zero\u200bwidth", "x" * 129])
@pytest.mark.parametrize("option", ["--application", "--namespace", "--environment"])
def test_names_must_be_printable(tmp_path: Path, option: str, name: str) -> None:
    refusal(tmp_path / "c", *BASE, option, name)
    assert not Application.objects.exists()


def test_file_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run(tmp_path / "open", *BASE)
        os.umask(0o777)
        run(tmp_path / "closed", *BASE)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("open", "closed")] == [0o600, 0o600]


def test_refuses_to_overwrite_a_file_and_issues_nothing(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("mine")
    assert "not overwritten" in refusal(tmp_path / "c", *BASE)
    assert (tmp_path / "c").read_text() == "mine"
    assert not Application.objects.exists()


def test_refuses_to_follow_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "c").symlink_to(tmp_path / "elsewhere")
    refusal(tmp_path / "c", *BASE)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_does_not_exist_costs_no_credential(tmp_path: Path) -> None:
    assert "cannot be made" in refusal(tmp_path / "no" / "c", *BASE)
    assert not Credential.objects.exists()


def test_a_credential_that_cannot_be_written_down_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    said = refusal(tmp_path / "c", *BASE)
    assert "No space left" in said and "revoked" in said
    assert not (tmp_path / "c").exists()
    assert Credential.objects.get().revoked_at is not None


def test_never_prints_the_token(tmp_path: Path) -> None:
    said = run(tmp_path / "c", *BASE, "--queue", "mail")
    token = json.loads((tmp_path / "c").read_text())["token"]
    assert "orbit_" not in said and token not in said
    assert str(tmp_path / "c") in said and "mail" in said


ALL = {
    "tasks:submit", "tasks:read", "tasks:cancel", "tasks:reconcile", "tasks:replay", "queues:read", "queues:manage",
    "plans:read", "plans:manage", "operations:read", "operations:write",
}  # fmt: skip
WORKERS, NODES = {"workers:connect", "workers:consume"}, {"nodes:connect"}


@pytest.mark.parametrize(
    ("arguments", "actions"),
    [
        ((), ALL),
        (("--worker-access",), ALL | WORKERS),
        (("--node-access",), ALL | NODES),
        (("--worker-access", "--node-access"), ALL | WORKERS | NODES),
        (("--actions", "tasks:read"), {"tasks:read"}),
        (("--actions", "tasks:read, queues:read"), {"tasks:read", "queues:read"}),
        (("--actions", "tasks:read", "--worker-access"), {"tasks:read"} | WORKERS),
    ],
)
def test_actions(tmp_path: Path, arguments: tuple[str, ...], actions: set[str]) -> None:
    members = made(tmp_path / "c", *BASE, *arguments)
    assert set(members["actions"]) == actions == authenticate(members["token"]).actions


def test_scope_is_every_queue_unless_one_is_named(tmp_path: Path) -> None:
    everything = made(tmp_path / "1", *BASE, "--queue", "mail", "--queue", "print")
    confined = made(tmp_path / "2", *BASE, "--queue-scope", "mail", "--queue-scope", "mail")
    assert authenticate(everything["token"]).queue_scope is None
    assert authenticate(confined["token"]).queue_scope == {everything["queues"]["mail"]}
    assert confined["queues"] == {"mail": everything["queues"]["mail"]}


def test_expiry_is_counted_from_now(tmp_path: Path) -> None:
    members = made(tmp_path / "c", *BASE, "--expires-in", "60")
    credential = Credential.objects.get()
    assert credential.expires_at is not None
    assert (credential.expires_at - credential.created_at).total_seconds() == 60
    Credential.objects.update(created_at=0, expires_at=1)
    with pytest.raises(Unauthenticated):
        authenticate(members["token"])


def test_superuser_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a long and unlikely one\nsecond line\n")
    more = ("--superuser", "root", "--superuser-password-file", str(tmp_path / "password"))

    said = run(tmp_path / "1", *BASE, *more) + run(tmp_path / "2", *BASE, *more)

    user = get_user_model().objects.get()
    assert (user.username, user.is_staff, user.is_superuser) == ("root", True, True)
    assert user.check_password("a long and unlikely one")
    assert "unlikely" not in said
    assert AuditEntry.objects.filter(action="user.create", object_id="root").count() == 1


def test_superuser_with_another_password_or_fewer_rights_differs(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a long and unlikely one")
    more = ("--superuser", "root", "--superuser-password-file", str(tmp_path / "password"))
    run(tmp_path / "1", *BASE, *more)
    get_user_model().objects.update(is_superuser=False)
    assert "superuser root is a user without a superuser's rights" in refusal(tmp_path / "2", *BASE, *more)
    get_user_model().objects.update(is_superuser=True)
    (tmp_path / "password").write_text("another long and unlikely one")
    said = refusal(tmp_path / "2", *BASE, *more)
    assert "superuser root is a user with another password" in said
    assert "unlikely" not in said


@pytest.mark.parametrize("content", ["", "\nlater", "short", "password123"])
def test_a_weak_or_missing_password_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "password").write_text(content)
    refusal(tmp_path / "c", *BASE, "--superuser", "root", "--superuser-password-file", str(tmp_path / "password"))
    assert not get_user_model().objects.exists()
    assert not Application.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_at_once_make_one_application(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            barrier.wait(10)
            run(tmp_path / str(number), *BASE, "--queue", "mail")
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not failures
    answers = [json.loads((tmp_path / str(number)).read_text()) for number in range(4)]
    assert len({(a["application_id"], a["namespace_id"], a["queues"]["mail"]) for a in answers}) == 1
    assert len({a["credential_id"] for a in answers}) == 4


@pytest.mark.slow
def test_exit_status_and_output_as_a_person_sees_them(tmp_path: Path) -> None:
    with private_database("bootstrap") as url:
        missing = manage(url, "orbit_bootstrap", *BASE, "--output", str(tmp_path / "0"), check=False)
        assert missing.returncode == 1
        assert "manage.py migrate" in missing.stderr and "Traceback" not in missing.stderr
        manage(url, "migrate", "--verbosity", "0")
        done = manage(url, "orbit_bootstrap", *BASE, "--output", str(tmp_path / "1"))
        token = json.loads((tmp_path / "1").read_text())["token"]
        assert token not in done.stdout + done.stderr
        again = manage(url, "orbit_bootstrap", *BASE, "--output", str(tmp_path / "1"), check=False)
        assert again.returncode == 1
        differs = manage(
            url, "orbit_bootstrap", *BASE, "--policy", "STRICT", "--output", str(tmp_path / "2"), check=False
        )
        assert differs.returncode == 1
        assert "namespace policy is AGED, not STRICT" in differs.stderr
        usage = manage(url, "orbit_bootstrap", "--output", str(tmp_path / "3"), check=False)
        assert usage.returncode == 2
