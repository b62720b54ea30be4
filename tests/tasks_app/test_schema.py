"""What the tables are like beyond their rules: identities byte for byte, computed columns, no foreign keys."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction

from tasks_app.fields import AsciiField, DigestField, ExactTextField, InstantField, LongTextField
from tasks_app.models import Application, Handler, IdempotencyRecord, Namespace, Plan, Queue, ResourceKey, Task
from tasks_app.states import ENDS
from tests.tasks_app.factories import Tenant, now, row, submit
from tests.tasks_app.test_constraints import AT, RESERVED, RUNNING, STATES, VALID, Undo, an_id

MODELS = list(apps.get_app_config("tasks_app").get_models())

# -- identities compare byte for byte (faults C34)

DIFFERENT = ["A", "a", "á", "a\u0301", "é", "e", "a ", "ａ", "ß", "ss", "ﬁ", "fi", "i", "İ", "ı"]
EXACT = [
    (model, name)
    for model, name in (
        (Application, "name"),
        (Namespace, "name"),
        (Queue, "name"),
        (Handler, "handler"),
        (Handler, "handler_version"),
        (ResourceKey, "resource_key"),
        (Plan, "name"),
    )
]


@pytest.mark.parametrize(("model", "name"), EXACT, ids=lambda value: getattr(value, "__name__", value))
def test_names_that_look_alike_are_different_and_the_same_name_is_taken_once(
    database: None, model: type[models.Model], name: str
):
    key = model._meta.pk
    with pytest.raises(Undo), transaction.atomic():
        for number, text in enumerate(DIFFERENT):
            changes: dict[str, Any] = {name: text}
            if isinstance(key, AsciiField):
                changes[key.attname] = an_id(100 + number)
            model(**{**VALID[model], **changes}).save(force_insert=True)
        for text in DIFFERENT:
            assert model.objects.filter(**{name: text}).count() == 1, f"{text!r} finds others"
        for text in DIFFERENT:
            changes = {name: text} | ({key.attname: an_id(200)} if isinstance(key, AsciiField) else {})
            with pytest.raises(IntegrityError), transaction.atomic():
                model(**{**VALID[model], **changes}).save(force_insert=True)
        raise Undo


def test_idempotency_keys_differ_by_case(database: None):
    with pytest.raises(Undo), transaction.atomic():
        for number, key in enumerate(["key", "KEY", "Key"]):
            IdempotencyRecord(
                **{**VALID[IdempotencyRecord], "record_id": an_id(100 + number), "idempotency_key": key}
            ).save(force_insert=True)
        assert IdempotencyRecord.objects.get(idempotency_key="KEY").record_id == an_id(101)
        raise Undo


@pytest.mark.mariadb_only("SQLite compares bytes unless told otherwise")
def test_every_text_column_has_a_binary_collation_or_is_prose_for_people(database: None):
    prose = {"pause_reason", "progress_message", "reason", "note"}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name, collation_name FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND table_name LIKE 'orbit\\_%%' AND collation_name IS NOT NULL"
            " AND table_name IN %s",
            [[model._meta.db_table for model in MODELS]],
        )
        folding = {
            f"{table}.{column}"
            for table, column, collation in cursor.fetchall()
            if not collation.endswith("_bin") and column not in prose
        }
    assert folding == set()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_column_of_text_says_what_kind_of_text_it_is(model: type[models.Model]):
    prose = {"pause_reason", "progress_message", "reason", "note"}
    for field in model._meta.get_fields():
        if isinstance(field, models.CharField | models.TextField) and field.name not in prose:
            assert isinstance(field, ExactTextField | AsciiField | LongTextField), f"{model.__name__}.{field.name}"


# -- no foreign keys, comments, migrations


def test_there_are_no_foreign_key_constraints(database: None):
    """A parent that is hot must not be locked by its children."""
    tables = [model._meta.db_table for model in MODELS]
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "SELECT m.name FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) WHERE m.name LIKE 'orbit%%'"
            )
        else:
            cursor.execute(
                "SELECT table_name, constraint_name FROM information_schema.referential_constraints"
                " WHERE constraint_schema = DATABASE() AND table_name IN %s",
                [tables],
            )
        assert [found for found in cursor.fetchall() if found[0] in tables] == []


@pytest.mark.mariadb_only("SQLite has no column comments")
def test_every_column_has_a_comment(database: None):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND table_name IN %s AND column_comment = ''"
            # The surrogate key of a table whose identity is a UNIQUE: Django makes it and names it.
            " AND column_name <> 'id'",
            [[model._meta.db_table for model in MODELS]],
        )
        assert [name for (name,) in cursor.fetchall()] == []


def test_the_migrations_say_what_the_models_say(database: None):
    output = io.StringIO()
    call_command("makemigrations", "tasks_app", check=True, dry_run=True, stdout=output)
    assert "No changes" in output.getvalue()


def test_every_index_of_a_task_is_named_after_what_it_serves(database: None):
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name FROM pragma_index_list('orbit_task') WHERE origin = 'c'")
        else:
            cursor.execute(
                "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = DATABASE()"
                " AND table_name = 'orbit_task' AND index_name <> 'PRIMARY'"
            )
        named = {name for (name,) in cursor.fetchall()}
    assert named == {
        "task_to_claim",
        "task_to_wake",
        "task_waiting_for_resource",
        "task_in_namespace",
        "task_needing_attention",
    }


# -- computed columns


def stored(**changes: Any) -> Any:
    """A task row with these changes, as the database gives it back."""
    found: list[Any] = []
    with pytest.raises(Undo), transaction.atomic():
        Task(**{**VALID[Task], **changes}).save(force_insert=True)
        found.append(row(an_id(5)))
        raise Undo
    return found[0]


@pytest.mark.parametrize("priority", range(10))
def test_dispatch_at_is_30_s_earlier_for_each_level_in_an_aged_namespace(database: None, priority: int):
    task = stored(priority=priority, tier=0)
    assert task.dispatch_at == AT - priority * 30_000_000


@pytest.mark.parametrize("priority", range(-9, 10))
def test_dispatch_at_is_available_at_in_a_strict_namespace(database: None, priority: int):
    task = stored(priority=priority, tier=-priority)
    assert (task.dispatch_at, task.tier) == (AT, -priority)


@pytest.mark.parametrize("column", ["dispatch_at", "wake_at", "attention"])
def test_computed_columns_cannot_be_written(tenant: Tenant, column: str):
    task_id = submit(tenant)
    before = row(task_id)
    written = "'DEAD'" if column == "attention" else "1"
    with connection.cursor() as cursor, pytest.raises(Exception, match="(?i)generated"):
        cursor.execute(f"UPDATE orbit_task SET {column} = {written} WHERE task_id = %s", [task_id])
    assert row(task_id) == before


def test_dispatch_at_moves_with_available_at(tenant: Tenant):
    task_id = submit(tenant, priority=9)
    Task.objects.filter(pk=task_id).update(available_at=AT)
    assert row(task_id).dispatch_at == AT - 270_000_000


D, L, V = AT + 7, AT + 5, AT + 3  # deadline, lease, visible


@pytest.mark.parametrize(
    ("changes", "wake_at"),
    [
        ({"state": "SCHEDULED"}, AT),
        ({"state": "SCHEDULED", "deadline_at": D}, AT),
        ({"state": "SCHEDULED", "deadline_at": AT - 1}, AT - 1),
        ({}, None),
        ({"deadline_at": D}, D),
        ({"lane": 3, "visible_at": V}, V),
        ({"lane": 3, "visible_at": V, "deadline_at": D}, V),
        ({"lane": 3, "visible_at": V, "deadline_at": AT}, AT),
        ({"lane": 2, "resource_id": 1, "deadline_at": D}, D),
        ({**RESERVED, "lease_until": L}, L),
        ({**RESERVED, "lease_until": L, "deadline_at": D}, L),
        ({**RESERVED, "lease_until": L, "deadline_at": AT}, AT),
        ({**RUNNING, "lease_until": L}, L),
        # What runs is told of its deadline and may report: only its lease, which ends with the grace, is waited for.
        ({**RUNNING, "lease_until": L, "deadline_at": AT}, L),
        *(({**STATES[state], "deadline_at": D}, None) for state in ("UNKNOWN", *sorted(ENDS))),
    ],
)  # fmt: skip
def test_wake_at_is_when_maintenance_must_look(database: None, changes: dict[str, Any], wake_at: int | None):
    assert stored(**changes).wake_at == wake_at


@pytest.mark.parametrize(
    ("changes", "attention"),
    [
        *(({**changes}, None) for state, changes in STATES.items() if state not in ("UNKNOWN", "FAILED")),
        (STATES["UNKNOWN"], "UNKNOWN"),
        (STATES["FAILED"], "DEAD"),
        ({**STATES["FAILED"], "replayed_as": an_id(99)}, None),
        ({**STATES["FAILED"], "dismissed_at": AT}, None),
    ],
)
def test_attention_marks_what_waits_for_a_person(database: None, changes: dict[str, Any], attention: str | None):
    assert stored(**changes).attention == attention


# -- documents and instants come back as they were written


@pytest.mark.parametrize(
    "payload",
    [
        "9007199254740993",
        "1.10",
        "1e400",
        "0.1000000000000000055",
        '{"b": 1, "a": 2,  "a\\u00e9": "A"}',
        '"\U0001f680"',
    ],
)
def test_documents_are_stored_digit_for_digit(tenant: Tenant, payload: str):
    assert row(submit(tenant, payload=payload)).payload == payload


def test_the_largest_payload_fits(tenant: Tenant):
    payload = '"' + "x" * (256 * 1024 - 2) + '"'
    assert row(submit(tenant, payload=payload)).payload == payload


def test_instants_are_microseconds_in_the_table_and_aware_in_python(tenant: Tenant):
    before = now()
    task = Task.objects.get(pk=submit(tenant))
    raw = row(task.task_id)
    assert before <= raw.created_at <= now()
    assert task.created_at.utcoffset().total_seconds() == 0
    assert InstantField().get_prep_value(task.created_at) == raw.created_at


def test_a_digest_is_32_bytes(tenant: Tenant):
    submit(tenant)
    record = IdempotencyRecord.objects.get()
    assert len(bytes(record.digest)) == 32
    assert isinstance(IdempotencyRecord._meta.get_field("digest"), DigestField)
