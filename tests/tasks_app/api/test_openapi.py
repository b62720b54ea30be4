"""The OpenAPI document (design 1, first paragraph) says what the views do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator

from tasks_app import submission_request
from tasks_app.api.endpoints import contract_of
from tasks_app.domain.queues import QUEUE_SETTINGS
from tests.tasks_app.api.openapi_conformance import document
from tests.tasks_app.api.test_common_rules import endpoints

OPERATIONS = [
    (path, method, operation) for path, methods in document()["paths"].items() for method, operation in methods.items()
]
every_operation = pytest.mark.parametrize(
    ("path", "method", "operation"), OPERATIONS, ids=[f"{method} {path}" for path, method, _ in OPERATIONS]
)


def test_the_document_is_openapi_3_1_and_valid():
    assert document()["openapi"].startswith("3.1")
    validate_schema(document())


def test_every_shape_is_a_valid_json_schema_and_every_reference_leads_somewhere():
    shapes = document()["components"]["schemas"]
    for name, schema in shapes.items():
        Draft202012Validator.check_schema(schema)
        assert re.fullmatch("[A-Z][A-Za-z]+", name)
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document())))
    assert references <= set(shapes)


def test_every_method_of_every_endpoint_is_in_the_document():
    served = {
        (re.sub(r"<segment:(\w+)>", r"{\1}", f"/{route}"), method)
        for route, view in endpoints()
        for method in ("get", "post", "put", "patch", "delete")
        if contract_of(view, method) is not None
    }
    assert served <= {(path, method) for path, method, _ in OPERATIONS}


def test_operation_ids_are_unique_words_without_a_colon():
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", name) for name in names)


@every_operation
def test_an_operation_lists_every_status_that_any_request_may_meet(path: str, method: str, operation: Any):
    statuses = set(operation["responses"])
    assert {"400", "401", "403", "408", "413", "415", "429", "500", "503"} <= statuses
    assert any(status.startswith("2") for status in statuses)
    if "_id}" in path:
        assert "404" in statuses
    assert "Retry-After" in operation["responses"]["503"]["headers"]
    assert operation["security"] == [{"bearer": []}]


@every_operation
def test_the_ids_of_a_path_are_its_parameters(path: str, method: str, operation: Any):
    named = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
    assert named == re.findall(r"\{(\w+)\}", path)


def test_the_query_parameters_of_a_view_are_those_of_its_document():
    documented = {
        operation["operationId"]: {p["name"] for p in operation["parameters"] if p["in"] == "query"}
        for _, _, operation in OPERATIONS
    }
    for _, view in endpoints():
        for method in ("get", "post", "patch"):
            contract = contract_of(view, method)
            if contract is not None:
                assert documented[contract.operation_id] == set(contract.query)


def test_the_shape_of_a_request_has_the_members_that_are_read():
    shapes = document()["components"]["schemas"]
    task = shapes["TaskRequest"]
    assert set(task["required"]) == set(submission_request.REQUIRED)
    assert set(task["properties"]) == {*submission_request.REQUIRED, *submission_request.OPTIONAL}
    assert set(shapes["QueueRequest"]["properties"]) == {"name", *QUEUE_SETTINGS}
    assert set(shapes["QueueChange"]["properties"]) == {"revision", *QUEUE_SETTINGS}
    for name in ("TaskRequest", "Retry", "BatchRequest", "QueueRequest", "QueueChange", "CancelRequest"):
        assert shapes[name]["additionalProperties"] is False
