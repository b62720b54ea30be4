"""Columns that the database computes: plain SQL that every engine reads alike."""

from __future__ import annotations

from typing import Any

from django.db.models import Field, Func, GeneratedField

from tasks_app.limits import AGED_STEP_SECONDS


class ColumnSql(Func):
    """An SQL expression over columns of the same row, written out."""

    arity = 0

    def __init__(self, sql: str, *, output_field: Field[Any, Any]) -> None:
        super().__init__(output_field=output_field)
        self.sql_text = sql

    def deconstruct(self) -> Any:
        return (
            "tasks_app.models.generated.ColumnSql",
            (self.sql_text,),
            {"output_field": self.output_field},
        )

    def as_sql(self, *args: Any, **extra: Any) -> tuple[str, tuple[str | int, ...]]:
        # A literal % would be read as a placeholder by some engines' DDL path; none of our expressions needs one.
        return self.sql_text, ()


def computed(sql: str, *, output_field: Field[Any, Any], db_comment: str) -> GeneratedField:
    return GeneratedField(
        expression=ColumnSql(sql, output_field=output_field),
        output_field=output_field,
        db_persist=True,
        db_comment=db_comment,
    )


# AGED: tier is 0, so this is available_at - priority x 30 s. STRICT: tier is minus the priority: available_at.
DISPATCH_AT = f"available_at - (priority + tier) * {AGED_STEP_SECONDS * 1_000_000}"

# When maintenance must look at the row; one narrow index instead of one per kind of sweep.
WAKE_AT = (
    "CASE"
    " WHEN state = 'SCHEDULED' THEN (CASE WHEN deadline_at < available_at THEN deadline_at ELSE available_at END)"
    " WHEN state = 'READY' AND lane = 3"
    " THEN (CASE WHEN deadline_at < visible_at THEN deadline_at ELSE visible_at END)"
    " WHEN state = 'READY' THEN deadline_at"
    " WHEN state = 'RESERVED' THEN (CASE WHEN deadline_at < lease_until THEN deadline_at ELSE lease_until END)"
    " WHEN state = 'RUNNING' THEN lease_until"
    " END"
)

# What needs a person: outcomes to reconcile and dead letters. NULL for everything else, so that the index stays small.
ATTENTION = (
    "CASE WHEN state = 'UNKNOWN' THEN 'UNKNOWN'"
    " WHEN state = 'FAILED' AND replayed_as IS NULL AND dismissed_at IS NULL THEN 'DEAD' END"
)
