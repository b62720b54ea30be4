"""orbit_check: says what is wrong, exits with 1, repairs counters only (design 5.2)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tasks_app.models import AuditEntry, Queue, Task
from tests.support.databases import connect, private_database
from tests.support.server import manage
from tests.tasks_app.factories import Tenant, make_tenant, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    made = make_tenant()
    submit(made)
    return made


def run(*arguments: str) -> str:
    said = io.StringIO()
    call_command("orbit_check", *arguments, stdout=said, stderr=said)
    return said.getvalue()


def failing_run(*arguments: str) -> tuple[str, str]:
    """(what was printed, the error)."""
    said = io.StringIO()
    with pytest.raises(CommandError) as failed:
        call_command("orbit_check", *arguments, stdout=said, stderr=said)
    assert failed.value.returncode == 1
    return said.getvalue(), str(failed.value)


def break_counter() -> None:
    Queue.objects.update(unfinished=5)


def break_revision() -> None:
    Task.objects.update(revision=5)


def test_a_sound_database_passes(tenant: Tenant) -> None:
    said = run()
    assert "everything holds" in said
    for name in ("counters", "attempts", "leases", "ownership", "revisions", "receipts", "lanes", "feed"):
        assert f"{name}: OK" in said


def test_prints_what_is_wrong_and_fails(tenant: Tenant) -> None:
    break_counter()
    break_revision()
    said, error = failing_run()
    assert f"queue {tenant.queue_id}: unfinished is 5, the tasks say 1" in said
    assert "is at revision 5" in said
    assert error == "2 faults (counters, revisions)"
    assert Queue.objects.get().unfinished == 5, "without --repair nothing is changed"


def test_repairs_counters_and_nothing_else(tenant: Tenant) -> None:
    break_counter()
    break_revision()
    said, error = failing_run("--repair")
    assert f"repaired: queue {tenant.queue_id}" in said
    assert error == "1 faults (revisions)"
    assert Queue.objects.get().unfinished == 1
    assert Task.objects.get().revision == 5


def test_passes_when_everything_wrong_was_repaired(tenant: Tenant) -> None:
    break_counter()
    assert "everything holds" in run("--repair")
    assert "everything holds" in run()


def test_looks_at_one_check_alone(tenant: Tenant) -> None:
    break_counter()
    assert "counters" not in run("--only", "revisions")
    with pytest.raises(CommandError):
        run("--only", "nothing")


def test_json_is_for_programs(tenant: Tenant) -> None:
    assert json.loads(run("--json"))["counters"] == []
    break_counter()
    said, _ = failing_run("--json")
    (finding,) = json.loads(said)["counters"]
    assert finding["object_id"] == f"queue {tenant.queue_id}"
    assert (finding["is_note"], finding["repaired"]) == (False, False)


def test_shows_the_first_of_many(tenant: Tenant) -> None:
    for _ in range(55):
        submit(tenant)
    break_revision()
    said, error = failing_run("--only", "revisions")
    assert said.count("is at revision 5") == 50 and "… and 6 more" in said
    assert error == "56 faults (revisions)"


def test_each_whole_run_leaves_an_audit_entry(tenant: Tenant) -> None:
    run()
    break_counter()
    failing_run()
    run("--only", "revisions")
    run("--repair")
    entries = AuditEntry.objects.filter(action="check.run").order_by("audit_id")
    found = [json.loads(entry.data or "") for entry in entries]
    assert [(data["faults"], data["repaired"]) for data in found] == [(0, 0), (1, 0), (0, 1)]
    assert AuditEntry.objects.get(action="counter.repair").object_id == tenant.queue_id


@pytest.mark.slow
def test_exit_status_as_a_program_sees_it(tmp_path: Path) -> None:
    with private_database("check") as url:
        manage(url, "migrate", "--verbosity", "0")
        bootstrap = ("orbit_bootstrap", "--application", "a", "--namespace", "n", "--environment", "e", "--queue", "q")
        manage(url, *bootstrap, "--output", str(tmp_path / "c"))
        assert manage(url, "orbit_check").returncode == 0
        connection = connect(url)
        connection.cursor().execute("UPDATE orbit_queue SET unfinished = 5")
        broken = manage(url, "orbit_check", check=False)
        assert broken.returncode == 1 and "unfinished is 5" in broken.stdout and "Traceback" not in broken.stderr
        assert manage(url, "orbit_check", "--repair").returncode == 0
        assert manage(url, "orbit_check").returncode == 0
        connection.close()
