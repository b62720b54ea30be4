"""The published documents describe the codec (design, chapter 2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.workers_app.protocol.frames import ATTEMPT_ID, CLIENT_FRAMES, fits_schema, held, with_items
from workers_app.protocol.client_messages import _READERS
from workers_app.protocol.schema import ANSWERS, UNASKED, server_message_names, worker_asyncapi, worker_schema


def references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(document, list):
        for value in document:
            yield from references(value)


def resolve(document: Any, reference: str) -> Any:
    assert reference.startswith("#/")
    for part in reference[2:].split("/"):
        document = document[part]
    return document


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


def test_schema_is_a_valid_2020_12_schema() -> None:
    Draft202012Validator.check_schema(worker_schema())


@pytest.mark.parametrize("document", [worker_schema(), worker_asyncapi()], ids=["json-schema", "asyncapi"])
def test_documents_are_json_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    assert json.loads(json.dumps(document)) == document
    for reference in references(document):
        assert resolve(document, reference)


def test_every_client_message_has_a_schema_an_example_and_a_reader() -> None:
    assert set(ANSWERS) == set(CLIENT_FRAMES) == {"hello", *_READERS}


def test_every_object_of_the_protocol_is_closed() -> None:
    assert all(schema["additionalProperties"] is False for schema in objects(worker_schema()["$defs"]))


def test_every_client_message_but_hello_carries_seq_and_every_answer_but_welcome_re() -> None:
    definitions = worker_schema()["$defs"]
    for question, answer in ANSWERS.items():
        assert ("seq" in definitions[question]["required"]) == (question != "hello")
        assert ("re" in definitions[answer]["required"]) == (answer != "welcome")
    assert not any("re" in definitions[name]["required"] for name in UNASKED)


def test_worker_and_server_messages_are_told_apart() -> None:
    assert fits_schema({"type": "drain", "seq": 1}, "worker_message")
    assert not fits_schema({"type": "drain", "seq": 1}, "server_message")
    assert fits_schema({"type": "drain"}, "server_message")
    assert not fits_schema({"type": "drain"}, "worker_message")


def test_schema_refuses_a_combination_that_is_invalid() -> None:
    assert not fits_schema(with_items("finish", held(outcome="FAILED")))
    assert not fits_schema(with_items("finish", held(outcome="SUCCEEDED", retryable=True)))


@pytest.mark.parametrize("ending", [{"state": "SUCCEEDED"}, {"revision": "3"}, {"state": "DONE", "revision": "3"}])
def test_schema_refuses_an_answer_that_tells_half(ending: dict[str, str]) -> None:
    item = {"attempt_id": ATTEMPT_ID, "status": "COMMITTED", **ending}
    assert not fits_schema({"type": "finished", "re": 1, "items": [item]}, "server_message")


def test_asyncapi_names_both_directions_of_the_one_address() -> None:
    document = worker_asyncapi()
    assert document["asyncapi"] == "3.1.0"
    assert {channel["address"] for channel in document["channels"].values()} == {"/v1/workers/connect"}
    assert set(document["channels"]["worker"]["messages"]) == set(ANSWERS)
    assert set(document["channels"]["server"]["messages"]) == set(server_message_names())


@pytest.mark.parametrize("name", ANSWERS)
def test_asyncapi_tells_what_answers_what_and_by_which_number(name: str) -> None:
    document = worker_asyncapi()
    operation = document["operations"][f"receive_{name}"]
    replies = [reference["$ref"].rsplit("/", 1)[1] for reference in operation["reply"]["messages"]]
    assert replies == [ANSWERS[name], "error"]
    if name != "hello":
        asked, answered = (document["components"]["messages"][word]["correlationId"] for word in (name, ANSWERS[name]))
        assert resolve(document, asked["$ref"])["location"] == "$message.payload#/seq"
        assert resolve(document, answered["$ref"])["location"] == "$message.payload#/re"


def test_asyncapi_validates_the_same_messages() -> None:
    document = worker_asyncapi()
    for name, frame in CLIENT_FRAMES.items():
        reference = document["components"]["messages"][name]["payload"]["$ref"]
        schema = {"$ref": reference, "components": document["components"]}
        assert Draft202012Validator(schema).is_valid(frame)
        assert not Draft202012Validator(schema).is_valid(frame | {"more": 1})
