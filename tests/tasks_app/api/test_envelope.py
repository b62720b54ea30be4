import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.api.envelope import RawJson, dump, failure, success
from tasks_app.errors import InvalidArgument, QueueFull

ID = "0" * 31 + "1"
texts = st.text(st.characters(exclude_categories=["Cs"]))


def test_a_document_of_a_user_goes_out_digit_for_digit():
    stored = '{ "n": [9007199254740993, 1.10, 1e400, 0.1000000000000000055], "s": "\\u0000\\ud83d\\ude00 é" }'
    assert dump({"payload": RawJson(stored), "x": 1}) == f'{{"payload":{stored},"x":1}}'.encode()


def test_many_documents_keep_their_places():
    parts = [RawJson(str(n)) for n in range(12)]
    assert json.loads(dump(parts)) == list(range(12))


@given(texts, texts, st.lists(texts))
def test_no_text_beside_a_raw_document_is_taken_for_one(key, value, others):
    document = {"raw": RawJson('{"a": [1]}'), "k" + key: value, "list": others}
    assert json.loads(dump(document)) == {"raw": {"a": [1]}, "k" + key: value, "list": others}


def test_what_is_no_json_never_goes_out():
    with pytest.raises(TypeError):
        dump({"when": object()})
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump({"n": float("nan")})


def test_success_and_failure_have_the_members_of_the_contract_and_no_others():
    assert json.loads(success(ID, dump({"task": None}))) == {"request_id": ID, "data": {"task": None}}
    assert json.loads(failure(ID, InvalidArgument.field("items[3].task.priority", "must be 0 to 9", maximum=9))) == {
        "request_id": ID,
        "error": {
            "code": "INVALID_ARGUMENT",
            "message": "items[3].task.priority: must be 0 to 9",
            "details": [{"field": "items[3].task.priority", "reason": "must be 0 to 9", "maximum": 9}],
        },
    }
    full = json.loads(failure(ID, QueueFull()))["error"]
    assert full == {"code": "QUEUE_FULL", "message": full["message"], "retry_after_ms": 1000}
