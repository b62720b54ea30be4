"""Holds answers against the OpenAPI document: an undocumented status or shape is a failure wherever it is met."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from jsonschema import Draft202012Validator

from tasks_app.api.docs_views import openapi_document

Document = dict[str, Any]


@functools.cache
def document() -> Document:
    return dict(json.loads(openapi_document()))


@functools.cache
def _paths() -> list[tuple[re.Pattern[str], Document]]:
    # A parameter ends where a verb begins: `/v1/tasks/{task_id}` is not the path of `/v1/tasks/…:cancel`.
    return [
        (re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/:]+", re.escape(path))), methods)
        for path, methods in document()["paths"].items()
    ]


@functools.cache
def _validator(operation_id: str, status: str) -> Draft202012Validator | None:
    for methods in document()["paths"].values():
        for operation in methods.values():
            if operation["operationId"] == operation_id:
                content = operation["responses"][status].get("content")
                if content is None:
                    return None
                schema = {**content["application/json"]["schema"], "components": document()["components"]}
                return Draft202012Validator(schema)
    raise AssertionError(operation_id)


def assert_documented(method: str, path: str, status: int, body: bytes) -> None:
    """Fails if the document knows the operation and neither this status nor this shape of its answer."""
    found = next((methods for pattern, methods in _paths() if pattern.fullmatch(path)), None)
    operation = found and found.get("get" if method == "HEAD" else method.lower())
    if not operation:
        return
    responses = operation["responses"]
    assert str(status) in responses, f"{method} {path} answered {status}, which its document does not know"
    validator = _validator(operation["operationId"], str(status))
    if method == "HEAD" or validator is None:
        assert body == b""
        return
    # Digits are not the matter here, and some answers have thousands of them.
    shown = json.loads(body, parse_int=lambda text: int(text[:18]), parse_float=float)
    faults = [f"{list(fault.path)}: {fault.message}" for fault in validator.iter_errors(shown)]
    assert not faults, f"{method} {path} {status} is not as documented: {faults[:3]}"
