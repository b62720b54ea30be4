"""The worker protocol's documents: open, cacheable, and what the code says."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from workers_app.protocol.schema import worker_asyncapi, worker_schema

DOCUMENTS = {"/v1/worker-schema.json": worker_schema, "/v1/worker-asyncapi.json": worker_asyncapi}


@pytest.mark.parametrize("path", DOCUMENTS)
def test_documents_are_served_without_a_credential(path):
    answer = Client().get(path)

    assert answer.status_code == 200
    assert "json" in answer["Content-Type"]
    assert json.loads(answer.content) == json.loads(json.dumps(DOCUMENTS[path]()))


@pytest.mark.parametrize("path", DOCUMENTS)
def test_who_has_a_document_is_told_that_it_is_the_same(path):
    etag = Client().get(path)["ETag"]

    assert Client().get(path, headers={"If-None-Match": etag}).status_code == 304


@pytest.mark.parametrize("path", DOCUMENTS)
def test_documents_can_only_be_read(path):
    answer = Client(enforce_csrf_checks=True).post(path)

    assert (answer.status_code, answer["Allow"]) == (405, "GET, HEAD")
    assert answer.json()["error"]["code"] == "METHOD_NOT_ALLOWED"
