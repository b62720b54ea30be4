"""Plans: definitions, versions, activation, pause, trigger, firings (design 1.6)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection

from tasks_app.domain import plan_firing, plans
from tasks_app.domain.audit import SYSTEM
from tasks_app.domain.plan_definitions import PlanDefinition, read_definition
from tasks_app.domain.plan_firing import fire_due, trigger
from tasks_app.domain.plans import PlanView
from tasks_app.domain.tenancy import Principal
from tasks_app.errors import (
    AlreadyExists,
    IdempotencyConflict,
    InvalidArgument,
    NotFound,
    OrbitError,
    PayloadTooLarge,
    PermissionDenied,
    QueueFull,
    RevisionConflict,
    Unauthenticated,
    Unavailable,
)
from tasks_app.instants import format_rfc3339
from tasks_app.states import TaskState
from tasks_app.strict_json import parse_document
from tasks_app.transactions import Tx
from tests.tasks_app.factories import (
    Tenant,
    change_queue,
    finish,
    make_credential,
    make_tenant,
    now,
    pause,
    revoke,
    row,
    rows_of,
    run_one,
    set_quotas,
    snapshot,
    submit,
)

SECOND = 1_000_000
MINUTE = 60 * SECOND


def members(tenant: Tenant, *, task: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A definition that is valid as it stands; a change to None leaves the member out."""
    whole: dict[str, Any] = {
        "schedule": {"interval_ms": 60_000},
        "misfire": "SKIP",
        "overlap": "ALLOW",
        "task": {
            "queue_id": tenant.queue_id,
            "handler": "h",
            "handler_version": "1",
            "payload_version": "1",
            "payload": {"n": 1},
            **(task or {}),
        },
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def read(document: dict[str, Any]) -> PlanDefinition:
    return read_definition(parse_document(json.dumps(document)))


def definition(tenant: Tenant, **changes: Any) -> PlanDefinition:
    return read(members(tenant, **changes))


def make(tenant: Tenant, name: str = "nightly", *, principal: Principal | None = None, **changes: Any) -> PlanView:
    return plans.create(principal or tenant.principal, name, definition(tenant, **changes), actor=SYSTEM)


def get(tenant: Tenant, plan: PlanView) -> PlanView:
    return plans.get(tenant.principal, plan.plan_id)


def fire_times(tenant: Tenant, plan: PlanView) -> list[tuple[int, str]]:
    """(fire time, status), oldest first."""
    found, _ = plans.firings(tenant.principal, plan.plan_id, limit=200, before=None)
    return [(firing.fire_time, firing.status) for firing in reversed(found)]


def statuses(tenant: Tenant, plan: PlanView) -> list[str]:
    return [status for _, status in fire_times(tenant, plan)]


def come_due(plan: PlanView, *, ago_us: int = 0, **columns: Any) -> int:
    """As if time had passed: the next fire time is `ago_us` before now. Returns it."""
    at = now() - ago_us
    wanted = {"next_fire_at": at, "activated_at": at - MINUTE, **columns}
    with connection.cursor() as cursor:
        assignments = ", ".join(f"{name} = %s" for name in wanted)
        cursor.execute(f"UPDATE orbit_plan SET {assignments} WHERE plan_id = %s", [*wanted.values(), plan.plan_id])
    return at


def tasks_of(plan: PlanView) -> list[Any]:
    return rows_of("orbit_task", "plan_id = %s ORDER BY task_id", [plan.plan_id])


def refusal(act: Callable[[], Any], kind: type[OrbitError]) -> OrbitError:
    """The error of an act that changes nothing."""

    def everything() -> Any:
        tables = ("orbit_plan", "orbit_plan_version", "orbit_plan_firing")
        return snapshot(), {table: sorted(map(repr, rows_of(table))) for table in tables}

    before = everything()
    with pytest.raises(kind) as refused:
        act()
    assert everything() == before
    return refused.value


# -- definitions


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": None},
        {"misfire": None},
        {"overlap": None},
        {"task": "none"},
        {"schedule": {}},
        {"schedule": {"cron": "* * * * *"}},
        {"schedule": {"timezone": "UTC"}},
        {"schedule": {"cron": "* * * * *", "timezone": "UTC", "interval_ms": 1000}},
        {"schedule": {"interval_ms": "1000"}},
        {"schedule": {"interval_ms": 1000.0}},
        {"schedule": {"every": "day"}},
        {"schedule": "* * * * *"},
        {"misfire": 1},
        {"catch_up_limit": "5", "misfire": "CATCH_UP"},
        {"colour": "red"},
        {"Overlap": "ALLOW"},
    ],
)
def test_structural_faults_are_refused_when_read(tenant: Tenant, changes: dict[str, Any]) -> None:
    document = members(tenant)
    document.update(changes)
    document = {name: value for name, value in document.items() if value is not None}
    with pytest.raises(InvalidArgument):
        read(document)


@pytest.mark.parametrize("name", ["available_at", "parent_task_id", "parent_fencing_token"])
def test_the_task_of_a_plan_names_no_moment_and_no_parent(tenant: Tenant, name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        definition(tenant, task={name: "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schedule": {"cron": "* * * *", "timezone": "UTC"}}, "schedule.cron"),
        ({"schedule": {"cron": "0 0 30 2 *", "timezone": "UTC"}}, "schedule.cron"),
        ({"schedule": {"cron": "* * * * * *", "timezone": "UTC"}}, "schedule.cron"),
        ({"schedule": {"cron": "0 0 * * " + "1," * 60 + "1", "timezone": "UTC"}}, "schedule.cron"),
        ({"schedule": {"cron": "* * * * *", "timezone": "Mars/Olympus"}}, "schedule.timezone"),
        ({"schedule": {"interval_ms": 999}}, "schedule.interval_ms"),
        ({"misfire": "skip"}, "misfire"),
        ({"overlap": "QUEUE"}, "overlap"),
        ({"misfire": "CATCH_UP", "catch_up_limit": 0}, "catch_up_limit"),
        ({"misfire": "CATCH_UP", "catch_up_limit": 1001}, "catch_up_limit"),
        ({"misfire": "FIRE_ONCE", "catch_up_limit": 5}, "catch_up_limit"),
        ({"task": {"priority": 10}}, "task.priority"),
        ({"task": {"handler": ""}}, "task.handler"),
        ({"task": {"delay_ms": 5000, "expires_in_ms": 5000}}, "task.expires_in_ms"),
    ],
)
def test_values_that_mean_nothing_are_refused(tenant: Tenant, changes: dict[str, Any], field: str) -> None:
    error = refusal(lambda: make(tenant, **changes), InvalidArgument)
    assert [detail["field"] for detail in error.details] == [field]


def test_every_fault_of_a_schedule_is_told(tenant: Tenant) -> None:
    error = refusal(lambda: make(tenant, schedule={"cron": "x", "timezone": "y"}, misfire="z"), InvalidArgument)
    assert {detail["field"] for detail in error.details} == {"schedule.cron", "schedule.timezone", "misfire"}


def test_a_payload_that_is_too_large_is_refused(tenant: Tenant) -> None:
    refusal(lambda: make(tenant, task={"payload": "x" * (256 * 1024)}), PayloadTooLarge)


# -- making and changing


def test_a_new_plan_has_version_1_active(tenant: Tenant) -> None:
    plan = make(tenant, schedule={"interval_ms": 90_000})
    assert (plan.name, plan.active_version, plan.versions, plan.revision) == ("nightly", 1, 1, 1)
    assert (plan.paused, plan.note, plan.last_fired_at, plan.missed) == (False, None, None, 0)
    first = plan.created_at + 90 * SECOND
    assert plan.next_fire_times == tuple(first + n * 90 * SECOND for n in range(5))
    assert get(tenant, plan) == plan
    (entry,) = rows_of("orbit_audit_entry", "action = 'plan.create'")
    assert entry.object_id == plan.plan_id


def test_the_definition_comes_back_digit_for_digit(tenant: Tenant) -> None:
    raw = json.dumps(members(tenant)).replace('{"n": 1}', '{"n": 9007199254740993, "f":1.10 }')
    plan = plans.create(tenant.principal, "exact", read_definition(parse_document(raw)), actor=SYSTEM)
    assert plan.definition == raw
    come_due(plan)
    fire_due()
    assert tasks_of(plan)[0].payload == '{"n": 9007199254740993, "f":1.10 }'


def test_names_are_unique_in_the_namespace_and_compare_byte_for_byte(tenant: Tenant) -> None:
    plan = make(tenant, "nightly")
    error = refusal(lambda: make(tenant, "nightly"), AlreadyExists)
    assert error.details[0]["plan_id"] == plan.plan_id
    make(tenant, "Nightly")
    make(make_tenant(), "nightly")


@pytest.mark.parametrize("name", ["", " x", "x\u200by", "x" * 129])
def test_names_must_be_printable(tenant: Tenant, name: str) -> None:
    refusal(lambda: make(tenant, name), InvalidArgument)


def test_two_of_one_name_at_once_make_one(tenant: Tenant) -> None:
    answers = at_once([lambda: make(tenant)] * 4)
    assert sum(isinstance(answer, PlanView) for answer in answers) == 1
    assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 3


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each of the acts gave or raised, all started together."""
    barrier = threading.Barrier(len(acts))
    answers: list[Any] = [None] * len(acts)

    def run(number: int, act: Callable[[], Any]) -> None:
        try:
            barrier.wait(20)
            answers[number] = act()
        except Exception as error:
            answers[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def test_foreign_and_closed_queues_are_refused(tenant: Tenant) -> None:
    other = make_tenant()
    refusal(lambda: make(tenant, task={"queue_id": other.queue_id}), NotFound)
    confined = make_credential(tenant, queue_ids=[tenant.queue()])
    refusal(lambda: make(tenant, principal=confined), PermissionDenied)


def test_a_new_version_fires_once_it_is_activated(tenant: Tenant) -> None:
    plan = make(tenant, task={"payload": "one"})
    version = plans.add_version(
        tenant.principal, plan.plan_id, definition(tenant, task={"payload": "two"}), actor=SYSTEM
    )
    assert (version.version, json.loads(version.definition)["task"]["payload"]) == (2, "two")
    after = get(tenant, plan)
    assert (after.active_version, after.versions, after.revision) == (1, 2, 2)
    come_due(plan)
    fire_due()

    active = plans.activate(tenant.principal, plan.plan_id, version=2, revision=2, actor=SYSTEM)

    assert (active.active_version, active.revision) == (2, 3)
    assert active.definition == version.definition
    come_due(plan)
    fire_due()
    assert [task.payload for task in tasks_of(plan)] == ['"one"', '"two"']
    assert [f.version for f in plans.firings(tenant.principal, plan.plan_id, limit=9, before=None)[0]] == [2, 1]


def test_intervals_count_from_the_activation(tenant: Tenant) -> None:
    plan = make(tenant)
    come_due(plan, ago_us=-30 * SECOND)
    plans.add_version(tenant.principal, plan.plan_id, definition(tenant, schedule={"interval_ms": 5000}), actor=SYSTEM)
    before = now()
    active = plans.activate(tenant.principal, plan.plan_id, version=2, revision=2, actor=SYSTEM)
    assert before + 5 * SECOND <= active.next_fire_times[0] <= now() + 5 * SECOND
    again = plans.activate(tenant.principal, plan.plan_id, version=2, revision=3, actor=SYSTEM)
    assert again == active, "the active version is not started anew"


def test_activation_needs_the_revision_and_a_version_that_exists(tenant: Tenant) -> None:
    plan = make(tenant)
    plans.add_version(tenant.principal, plan.plan_id, definition(tenant), actor=SYSTEM)

    def activate(version: int, revision: int) -> Callable[[], PlanView]:
        return lambda: plans.activate(tenant.principal, plan.plan_id, version=version, revision=revision, actor=SYSTEM)

    assert refusal(activate(2, 1), RevisionConflict).details[0]["current"] == "2"
    for version in (0, 3, -1):
        refusal(activate(version, 2), NotFound)


def test_versions_are_listed_first_to_last(tenant: Tenant) -> None:
    plan = make(tenant)
    for _ in range(3):
        plans.add_version(tenant.principal, plan.plan_id, definition(tenant), actor=SYSTEM)
    first, after = plans.versions(tenant.principal, plan.plan_id, limit=3, after=None)
    rest, end = plans.versions(tenant.principal, plan.plan_id, limit=3, after=after)
    assert [version.version for version in [*first, *rest]] == [1, 2, 3, 4]
    assert end is None


def test_a_paused_plan_fires_nothing_and_its_times_do_not_count(tenant: Tenant) -> None:
    plan = make(tenant, misfire="CATCH_UP")
    paused = plans.pause(tenant.principal, plan.plan_id, note="holidays", actor=SYSTEM)
    assert (paused.paused, paused.note, paused.next_fire_times, paused.revision) == (True, "holidays", (), 2)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_plan SET activated_at = %s", [now() - 90 * MINUTE - 30 * SECOND])
    assert fire_due() == 0

    resumed = plans.resume(tenant.principal, plan.plan_id, note=None, actor=SYSTEM)

    assert (resumed.paused, resumed.note, resumed.missed, resumed.revision) == (False, None, 0, 3)
    assert 0 < resumed.next_fire_times[0] - now() <= 30 * SECOND, "in its even steps, the next one"
    assert fire_due() == 0 and fire_times(tenant, plan) == []


def test_pause_and_resume_can_be_repeated(tenant: Tenant) -> None:
    plan = make(tenant)
    first = plans.pause(tenant.principal, plan.plan_id, note="a", actor=SYSTEM)
    assert plans.pause(tenant.principal, plan.plan_id, note="a", actor=SYSTEM) == first
    assert plans.pause(tenant.principal, plan.plan_id, note=None, actor=SYSTEM) == first
    assert plans.pause(tenant.principal, plan.plan_id, note="b", actor=SYSTEM).note == "b"
    again = plans.resume(tenant.principal, plan.plan_id, note="back", actor=SYSTEM)
    assert plans.resume(tenant.principal, plan.plan_id, note=None, actor=SYSTEM) == again
    refusal(lambda: plans.pause(tenant.principal, plan.plan_id, note="", actor=SYSTEM), InvalidArgument)
    refusal(lambda: plans.pause(tenant.principal, plan.plan_id, note="x" * 1001, actor=SYSTEM), InvalidArgument)


def test_activating_a_version_of_a_paused_plan_does_not_resume_it(tenant: Tenant) -> None:
    plan = make(tenant)
    plans.add_version(tenant.principal, plan.plan_id, definition(tenant), actor=SYSTEM)
    plans.pause(tenant.principal, plan.plan_id, note=None, actor=SYSTEM)
    active = plans.activate(tenant.principal, plan.plan_id, version=2, revision=3, actor=SYSTEM)
    assert active.paused and active.next_fire_times == ()


def test_rights_are_looked_at_in_the_unit(tenant: Tenant) -> None:
    plan = make(tenant)
    reader = make_credential(tenant, actions=["plans:read", "tasks:submit"])
    for act in (
        lambda: make(tenant, "other", principal=reader),
        lambda: plans.add_version(reader, plan.plan_id, definition(tenant), actor=SYSTEM),
        lambda: plans.activate(reader, plan.plan_id, version=1, revision=1, actor=SYSTEM),
        lambda: plans.pause(reader, plan.plan_id, note=None, actor=SYSTEM),
        lambda: plans.resume(reader, plan.plan_id, note=None, actor=SYSTEM),
        lambda: trigger(reader, plan.plan_id, key="k"),
    ):
        refusal(act, PermissionDenied)
    revoke(tenant)
    refusal(lambda: make(tenant, "other"), Unauthenticated)


def test_plans_of_others_are_not_found_and_those_out_of_scope_are_closed(tenant: Tenant) -> None:
    plan = make(tenant)
    stranger = make_tenant().principal
    confined = make_credential(tenant, queue_ids=[tenant.queue()])
    for principal, kind in ((stranger, NotFound), (confined, PermissionDenied)):
        for act in (
            lambda who: plans.get(who, plan.plan_id),
            lambda who: plans.versions(who, plan.plan_id, limit=1, after=None),
            lambda who: plans.firings(who, plan.plan_id, limit=1, before=None),
            lambda who: plans.add_version(who, plan.plan_id, definition(tenant), actor=SYSTEM),
            lambda who: plans.activate(who, plan.plan_id, version=1, revision=1, actor=SYSTEM),
            lambda who: plans.pause(who, plan.plan_id, note=None, actor=SYSTEM),
            lambda who: trigger(who, plan.plan_id, key="k"),
        ):
            refusal(lambda act=act, principal=principal: act(principal), kind)


def test_lists_hold_what_is_in_scope_in_pages(tenant: Tenant) -> None:
    other = tenant.queue()
    made = [make(tenant, f"plan {n}", task={"queue_id": other if n % 3 else tenant.queue_id}) for n in range(7)]
    make(make_tenant(), "foreign")

    def walk(principal: Principal, limit: int) -> list[str]:
        seen: list[str] = []
        after = None
        while True:
            items, after = plans.page(principal, limit=limit, after=after)
            seen += [plan.name for plan in items]
            if after is None:
                return seen

    assert walk(tenant.principal, 3) == [plan.name for plan in made]
    confined = make_credential(tenant, queue_ids=[tenant.queue_id])
    for limit in (1, 2, 3, 50):
        assert walk(confined, limit) == ["plan 0", "plan 3", "plan 6"]


# -- by the clock


def test_a_plan_fires_when_its_time_has_come(tenant: Tenant) -> None:
    plan = make(tenant, task={"priority": 7})
    assert fire_due() == 0
    at = come_due(plan)

    assert fire_due() == 1

    (task,) = tasks_of(plan)
    assert (task.state, task.priority, task.queue_id) == (TaskState.READY, 7, tenant.queue_id)
    assert fire_times(tenant, plan) == [(at, "ACCEPTED")]
    (firing,) = plans.firings(tenant.principal, plan.plan_id, limit=9, before=None)[0]
    assert (firing.task_id, firing.version, firing.error) == (task.task_id, 1, None)
    after = get(tenant, plan)
    assert (after.last_fired_at, after.missed, after.revision) == (at, 0, 1)
    assert after.next_fire_times[0] == at + MINUTE
    assert fire_due() == 0


def test_a_firing_is_a_submit_with_an_identity_of_its_own(tenant: Tenant) -> None:
    plan = make(tenant)
    at = come_due(plan)
    fire_due()
    (record,) = rows_of("orbit_idempotency_record", "operation = 'plan.fire'")
    assert record.idempotency_key == f"{plan.plan_id}:{format_rfc3339(at)}"
    assert record.task_id == tasks_of(plan)[0].task_id
    (entry,) = rows_of("orbit_audit_entry", "action = 'plan.fire'")
    assert (entry.actor_kind, entry.object_id) == ("SYSTEM", record.task_id)


def test_many_nodes_fire_once(tenant: Tenant) -> None:
    made = [make(tenant, f"plan {n}") for n in range(3)]
    for plan in made:
        come_due(plan)
    answers = at_once([fire_due] * 5)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    for plan in made:
        assert len(tasks_of(plan)) == 1
        assert statuses(tenant, plan) == ["ACCEPTED"]
        assert get(tenant, plan).next_fire_times[0] > now()


def test_a_crash_between_acceptance_and_the_next_time_fires_nothing_twice(tenant: Tenant, points: Any) -> None:
    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    plan = make(tenant, misfire="FIRE_ONCE")
    come_due(plan)
    points.once("plan.fired", crash)
    with pytest.raises(Crash):
        fire_due()
    assert len(tasks_of(plan)) == 1
    assert fire_due() == 1
    assert len(tasks_of(plan)) == 1 and statuses(tenant, plan) == ["ACCEPTED"]
    assert fire_due() == 0


def test_what_was_fired_before_a_crash_is_not_counted_as_missed(tenant: Tenant, points: Any) -> None:
    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    plan = make(tenant, misfire="SKIP")
    at = come_due(plan)
    points.once("plan.fired", crash)
    with pytest.raises(Crash):
        fire_due()
    earlier = 2 * MINUTE + 30 * SECOND  # the node comes back minutes later: the accepted time is a misfire by now
    with connection.cursor() as cursor:
        for table, column in (("orbit_plan_firing", "fire_time"), ("orbit_plan", "next_fire_at")):
            cursor.execute(f"UPDATE {table} SET {column} = %s", [at - earlier])
        cursor.execute("UPDATE orbit_plan SET activated_at = activated_at - %s", [earlier])
    fire_due()
    assert statuses(tenant, plan) == ["ACCEPTED", "MISSED", "MISSED"]
    assert get(tenant, plan).missed == 2


@pytest.mark.parametrize(
    ("misfire", "more", "wanted"),
    [
        ("SKIP", {}, ["MISSED"] * 4),
        ("FIRE_ONCE", {}, ["MISSED"] * 3 + ["ACCEPTED"]),
        ("CATCH_UP", {}, ["ACCEPTED"] * 4),
        ("CATCH_UP", {"catch_up_limit": 2}, ["MISSED"] * 2 + ["ACCEPTED"] * 2),
    ],
)
def test_after_an_outage_the_rule_decides(
    tenant: Tenant, misfire: str, more: dict[str, Any], wanted: list[str]
) -> None:
    plan = make(tenant, misfire=misfire, **more)
    first = come_due(plan, ago_us=3 * MINUTE + 30 * SECOND)

    fire_due()

    assert fire_times(tenant, plan) == [(first + n * MINUTE, status) for n, status in enumerate(wanted)]
    assert get(tenant, plan).missed == wanted.count("MISSED")
    assert len(tasks_of(plan)) == wanted.count("ACCEPTED")
    assert get(tenant, plan).next_fire_times[0] == first + 4 * MINUTE


def test_of_very_many_missed_times_all_are_counted_and_the_newest_recorded(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_firing, "MISSED_ROWS_MAX", 3)
    plan = make(tenant)
    first = come_due(plan, ago_us=9 * MINUTE + 30 * SECOND)
    fire_due()
    assert get(tenant, plan).missed == 10
    assert fire_times(tenant, plan) == [(first + n * MINUTE, "MISSED") for n in (7, 8, 9)]


def test_overlap_skip_leaves_a_firing_out_while_a_task_is_unfinished(tenant: Tenant) -> None:
    plan = make(tenant, overlap="SKIP", misfire="CATCH_UP")
    come_due(plan, ago_us=MINUTE + 30 * SECOND)
    fire_due()
    assert statuses(tenant, plan) == ["ACCEPTED", "SKIPPED"]
    assert get(tenant, plan).missed == 0

    finish(run_one(tenant))
    come_due(plan)
    fire_due()
    assert statuses(tenant, plan) == ["ACCEPTED", "SKIPPED", "ACCEPTED"]


def test_overlap_allow_fires_beside_unfinished_tasks(tenant: Tenant) -> None:
    plan = make(tenant, misfire="CATCH_UP")
    come_due(plan, ago_us=2 * MINUTE + 30 * SECOND)
    fire_due()
    assert len(tasks_of(plan)) == 3


def test_overlap_looks_at_the_tasks_of_this_plan_alone(tenant: Tenant) -> None:
    first, second = make(tenant, "one", overlap="SKIP"), make(tenant, "two", overlap="SKIP")
    submit(tenant)
    for plan in (first, second):
        come_due(plan)
    fire_due()
    assert statuses(tenant, first) == statuses(tenant, second) == ["ACCEPTED"]


def test_a_refused_firing_is_recorded_and_shown(tenant: Tenant) -> None:
    plan = make(tenant)
    change_queue(tenant, max_unfinished=0)
    at = come_due(plan)

    fire_due()

    (firing,) = plans.firings(tenant.principal, plan.plan_id, limit=9, before=None)[0]
    assert (firing.fire_time, firing.status, firing.task_id) == (at, "REFUSED", None)
    assert json.loads(firing.error or "")["code"] == "QUEUE_FULL"
    after = get(tenant, plan)
    assert (after.last_fired_at, after.missed) == (None, 0)
    assert after.next_fire_times[0] == at + MINUTE
    change_queue(tenant, max_unfinished=None)
    assert fire_due() == 0, "what was refused is not fired later"


def test_a_paused_queue_accepts_firings(tenant: Tenant) -> None:
    plan = make(tenant)
    pause(tenant)
    come_due(plan)
    fire_due()
    assert statuses(tenant, plan) == ["ACCEPTED"]


def test_a_plan_outlives_the_credential_that_made_it(tenant: Tenant) -> None:
    plan = make(tenant)
    revoke(tenant)
    come_due(plan)
    fire_due()
    assert len(tasks_of(plan)) == 1


def test_an_unknown_outcome_is_asked_again_with_the_same_identity(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make(tenant)
    at = come_due(plan)
    with monkeypatch.context() as patch:
        patch.setattr(plan_firing, "accept", lambda *args, **kwargs: (_ for _ in ()).throw(Unavailable()))
        fire_due()
    assert fire_times(tenant, plan) == [] and get(tenant, plan).next_fire_times[0] == at
    fire_due()
    assert fire_times(tenant, plan) == [(at, "ACCEPTED")]


def test_one_plan_that_fails_does_not_hold_the_others_up(tenant: Tenant) -> None:
    broken, sound = make(tenant, "broken"), make(tenant, "sound")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_plan_version SET definition = '{' WHERE plan_id = %s", [broken.plan_id])
    come_due(broken, ago_us=SECOND)
    come_due(sound)
    assert fire_due() == 2
    assert len(tasks_of(sound)) == 1
    assert fire_due() == 1, "it is tried again"


@pytest.mark.parametrize("change", ["pause", "activate", "moved on"])
def test_a_plan_that_changed_since_it_was_read_fires_nothing(
    tenant: Tenant, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node has read the plan as due; then somebody else is first."""
    plan = make(tenant)
    plans.add_version(tenant.principal, plan.plan_id, definition(tenant, task={"payload": "two"}), actor=SYSTEM)
    at = come_due(plan)
    real = plan_firing._fire

    def late(read: Any) -> None:
        monkeypatch.setattr(plan_firing, "_fire", real)
        if change == "pause":
            plans.pause(tenant.principal, plan.plan_id, note=None, actor=SYSTEM)
        elif change == "activate":
            plans.activate(tenant.principal, plan.plan_id, version=2, revision=2, actor=SYSTEM)
        else:
            come_due(plan, ago_us=-MINUTE)
        real(read)

    monkeypatch.setattr(plan_firing, "_fire", late)
    fire_due()
    assert tasks_of(plan) == [] and fire_times(tenant, plan) == []
    assert at not in get(tenant, plan).next_fire_times


def test_the_most_overdue_plans_come_first(tenant: Tenant) -> None:
    late, later = make(tenant, "late"), make(tenant, "later")
    come_due(late, ago_us=SECOND)
    come_due(later, ago_us=2 * SECOND)
    assert fire_due(limit=1) == 1
    assert (len(tasks_of(later)), len(tasks_of(late))) == (1, 0)


def test_cron_plans_fire_at_whole_minutes_of_their_zone(tenant: Tenant) -> None:
    plan = make(tenant, schedule={"cron": "*/5 * * * *", "timezone": "Asia/Shanghai"}, misfire="FIRE_ONCE")
    assert all(at % (5 * MINUTE) == 0 for at in plan.next_fire_times)
    moment = now()
    at = moment - moment % (5 * MINUTE)
    come_due(plan, next_fire_at=at)
    fire_due()
    assert fire_times(tenant, plan) == [(at, "ACCEPTED")]
    assert get(tenant, plan).next_fire_times[0] == at + 5 * MINUTE


def test_firings_are_listed_newest_first_in_pages(tenant: Tenant) -> None:
    plan = make(tenant, misfire="CATCH_UP")
    first = come_due(plan, ago_us=4 * MINUTE + 30 * SECOND)
    fire_due()
    newest, before = plans.firings(tenant.principal, plan.plan_id, limit=3, before=None)
    rest, end = plans.firings(tenant.principal, plan.plan_id, limit=3, before=before)
    assert [f.fire_time for f in [*newest, *rest]] == [first + n * MINUTE for n in (4, 3, 2, 1, 0)]
    assert end is None


# -- by hand


def test_trigger_is_one_firing_now(tenant: Tenant) -> None:
    plan = make(tenant, overlap="SKIP")
    before = get(tenant, plan)

    accepted, request = trigger(tenant.principal, plan.plan_id, key="now")

    (task,) = tasks_of(plan)
    assert accepted.receipt.task_id == task.task_id and not accepted.receipt.deduplicated
    assert request.queue_id == tenant.queue_id and accepted.task is not None
    assert fire_times(tenant, plan) == [(task.created_at, "ACCEPTED")]
    after = get(tenant, plan)
    assert after.last_fired_at == task.created_at
    assert after.next_fire_times == before.next_fire_times
    trigger(tenant.principal, plan.plan_id, key="again")
    assert len(tasks_of(plan)) == 2, "a person's word stands above the overlap rule"


def test_trigger_fires_a_paused_plan_too(tenant: Tenant) -> None:
    plan = make(tenant)
    plans.pause(tenant.principal, plan.plan_id, note=None, actor=SYSTEM)
    trigger(tenant.principal, plan.plan_id, key="now")
    assert len(tasks_of(plan)) == 1


def test_same_key_gives_the_same_receipt_whatever_version_is_active(tenant: Tenant) -> None:
    plan = make(tenant)
    first, _ = trigger(tenant.principal, plan.plan_id, key="now")
    plans.add_version(tenant.principal, plan.plan_id, definition(tenant, task={"payload": "two"}), actor=SYSTEM)
    plans.activate(tenant.principal, plan.plan_id, version=2, revision=2, actor=SYSTEM)
    second, _ = trigger(tenant.principal, plan.plan_id, key="now")
    assert second.receipt.deduplicated and second.receipt.task_id == first.receipt.task_id
    assert len(tasks_of(plan)) == 1


def test_a_key_stands_for_one_plan(tenant: Tenant) -> None:
    first, second = make(tenant, "one"), make(tenant, "two")
    trigger(tenant.principal, first.plan_id, key="now")
    refusal(lambda: trigger(tenant.principal, second.plan_id, key="now"), IdempotencyConflict)


def test_a_refused_trigger_is_told_and_leaves_nothing(tenant: Tenant) -> None:
    plan = make(tenant)
    change_queue(tenant, max_unfinished=0)
    refusal(lambda: trigger(tenant.principal, plan.plan_id, key="now"), QueueFull)
    change_queue(tenant, max_unfinished=None)
    set_quotas(tenant, max_unfinished=0)
    refusal(lambda: trigger(tenant.principal, plan.plan_id, key="now"), OrbitError)
    set_quotas(tenant, max_unfinished=None)
    trigger(tenant.principal, plan.plan_id, key="now")


def test_one_key_many_times_at_once_fires_once(tenant: Tenant) -> None:
    plan = make(tenant)
    answers = at_once([lambda: trigger(tenant.principal, plan.plan_id, key="now")[0].receipt.task_id] * 5)
    assert len(set(answers)) == 1 and len(tasks_of(plan)) == 1


def test_triggers_of_one_moment_are_two_firings(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make(tenant)
    trigger(tenant.principal, plan.plan_id, key="one")
    (task,) = tasks_of(plan)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orbit_plan_firing SET fire_time = %s", [task.created_at + 3600 * SECOND])
    monkeypatch.setattr(Tx, "now_us", property(lambda self: task.created_at + 3600 * SECOND))
    trigger(tenant.principal, plan.plan_id, key="two")
    found = fire_times(tenant, plan)
    assert [at - found[0][0] for at, _ in found] == [0, 1]


def test_a_version_activated_while_a_trigger_is_on_its_way_is_the_one_that_fires(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make(tenant)
    plans.add_version(tenant.principal, plan.plan_id, definition(tenant, task={"payload": "two"}), actor=SYSTEM)
    real = plan_firing.accept

    def late(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(plan_firing, "accept", real)
        plans.activate(tenant.principal, plan.plan_id, version=2, revision=2, actor=SYSTEM)
        return real(*args, **kwargs)

    monkeypatch.setattr(plan_firing, "accept", late)
    trigger(tenant.principal, plan.plan_id, key="now")
    assert [task.payload for task in tasks_of(plan)] == ['"two"']


def test_an_unknown_plan_is_not_found(tenant: Tenant) -> None:
    refusal(lambda: trigger(tenant.principal, "0" * 32, key="now"), NotFound)
    assert row(submit(tenant)).plan_id is None
