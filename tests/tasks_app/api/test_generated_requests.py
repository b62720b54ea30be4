"""Requests that schemathesis makes up from the OpenAPI document: none is answered with 500, nor with what the document
does not say (design 7.1). The long run is over a real server; this one is within the process."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from django.core.handlers.wsgi import WSGIHandler
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.tasks_app import factories
from tests.tasks_app.api.openapi_conformance import document
from tests.tasks_app.factories import Tenant

pytestmark = pytest.mark.slow
TAGS = {"tasks", "events", "queues", "dead letters"}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def operations() -> list[Any]:
    found = schemathesis.openapi.from_dict(document())
    found.app = WSGIHandler()
    return [operation for result in found.get_all_operations() if TAGS & set((operation := result.ok()).tags or ())]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["valid", "invalid"])
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_no_request_is_answered_with_500_or_with_what_is_not_documented(
    operation: Any, mode: GenerationMode, tenant: Tenant
):
    task_id = factories.submit(tenant)

    @seed(1)
    @settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Case) -> None:
        # Made-up ids lead nowhere: some requests meet what is there.
        for name, identity in (("task_id", task_id), ("queue_id", tenant.queue_id)):
            if mode is GenerationMode.POSITIVE and name in (case.path_parameters or {}):
                case.path_parameters[name] = identity
        case.call_and_validate(headers={"Authorization": f"Bearer {tenant.token}"}, checks=CHECKS)

    send()
