"""Task files: the API's own objects, with `queue` (a name) allowed beside `queue_id`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from orbit_sdk.cli.session import fail, json_of, text_of_file
from orbit_sdk.instants import parse_instant
from orbit_sdk.jsoncodec import Numbers
from orbit_sdk.models.batches import BatchItem
from orbit_sdk.models.tasks import RetryPolicy, SubmitTask
from orbit_sdk.states import RetryMode

_FIELDS = {field.name for field in fields(SubmitTask)} | {"queue_id"}
_RETRY_FIELDS = {field.name for field in fields(RetryPolicy)}


@dataclass(frozen=True)
class _Document:
    """The same document twice: numbers as Python reads them, and as they were written (for the payload)."""

    plain: Any
    literal: Any


def _read(path: Path) -> _Document:
    text = text_of_file(path)
    return _Document(json_of(text, str(path), numbers=Numbers.EXACT), json_of(text, str(path)))


def read_task_file(path: Path, key: str | None) -> tuple[str, SubmitTask]:
    """A task object with `--key`, or `{"idempotency_key", "task"}`. Anything else is wrong usage."""
    document = _read(path)
    _check_object(document.plain, str(path))
    if document.plain.keys() == {"idempotency_key", "task"}:
        if key is not None and key != document.plain["idempotency_key"]:
            raise fail(f"{path} names the key {document.plain['idempotency_key']!r}, --key another one")
        literal = document.literal["task"]
        return str(document.plain["idempotency_key"]), _task(document.plain["task"], literal, f"{path}: task")
    if key is None:
        raise fail('give --key, or a file {"idempotency_key": …, "task": …}: the identity is yours to keep')
    return key, _task(document.plain, document.literal, str(path))


def read_batch_file(path: Path) -> list[BatchItem]:
    """`{"items": [{"idempotency_key", "task"}]}`, or just the list. Anything else is wrong usage."""
    document = _read(path)
    plain, literal = document.plain, document.literal
    if isinstance(plain, dict):
        if plain.keys() != {"items"}:
            raise fail(f'{path} must be {{"items": […]}}')
        plain, literal = plain["items"], literal["items"]
    if not isinstance(plain, list):
        raise fail(f"{path}: items must be a list")
    items = []
    for index, item in enumerate(plain):
        place = f"{path}: items[{index}]"
        _check_object(item, place)
        if item.keys() != {"idempotency_key", "task"}:
            raise fail(f"{place} must have idempotency_key and task, and nothing else")
        items.append(BatchItem(item["idempotency_key"], _task(item["task"], literal[index]["task"], f"{place}.task")))
    return items


def task_of_definition(plain: Any, literal: Any, place: str) -> SubmitTask:
    """The task of a plan's definition."""
    return _task(plain, literal, place)


def _task(plain: Any, literal: Any, place: str) -> SubmitTask:
    _check_object(plain, place)
    unknown = sorted(plain.keys() - _FIELDS)
    if unknown:
        raise fail(f"{place}: {unknown[0]} is not a member of a task")
    for name in ("handler", "payload"):
        if name not in plain:
            raise fail(f"{place}: {name} is missing")
    if ("queue" in plain) == ("queue_id" in plain):
        raise fail(f"{place}: give queue (a name) or queue_id, one of them")
    members = {name: value for name, value in plain.items() if name not in ("queue_id", "retry", "available_at")}
    members["queue"] = plain.get("queue_id", plain.get("queue"))
    members["payload"] = literal["payload"]
    if "available_at" in plain:
        try:
            members["available_at"] = parse_instant(plain["available_at"])
        except (TypeError, ValueError):
            raise fail(f"{place}.available_at is not an RFC 3339 time") from None
    if "retry" in plain:
        members["retry"] = _retry(plain["retry"], f"{place}.retry")
    return SubmitTask(**members)


def _retry(document: Any, place: str) -> RetryPolicy:
    _check_object(document, place)
    unknown = sorted(document.keys() - _RETRY_FIELDS)
    if unknown:
        raise fail(f"{place}.{unknown[0]} is not known")
    try:
        return RetryPolicy(**{**document, "mode": RetryMode(document.get("mode"))})
    except ValueError:
        raise fail(f"{place}.mode must be NEVER or SAFE") from None


def _check_object(value: Any, place: str) -> None:
    if not isinstance(value, dict):
        raise fail(f"{place} must be a JSON object")
