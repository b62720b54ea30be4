"""What a worker may say, and what becomes of it where it is wrong (design, chapter 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.limits import HORIZON_MS_MAX, JSON_DEPTH_MAX, RESULT_BYTES_MAX
from tasks_app.states import Policy
from tests.workers_app.protocol.frames import (
    ATTEMPT_ID,
    CLIENT_FRAMES,
    OTHER_ATTEMPT_ID,
    QUEUE_ID,
    SESSION_ID,
    Frame,
    canceled,
    failed,
    fits_schema,
    held,
    hello,
    parse,
    refusal,
    succeeded,
    with_items,
)
from workers_app.protocol.messages import (
    Capability,
    CloseCode,
    Drain,
    ErrorReport,
    Finish,
    FinishItem,
    Heartbeat,
    HeldItem,
    Hello,
    Outcome,
    Progress,
    ProtocolError,
    Release,
    Renew,
    RenewItem,
    Resize,
    Start,
    parse_client_message,
)


def one_finish(item: Frame) -> FinishItem:
    message = parse(with_items("finish", item))
    assert isinstance(message, Finish)
    return message.items[0]


def one_renew(item: Frame) -> RenewItem:
    message = parse(with_items("renew", item))
    assert isinstance(message, Renew)
    return message.items[0]


def one_start(item: Frame) -> HeldItem:
    message = parse(with_items("start", item))
    assert isinstance(message, Start)
    return message.items[0]


# -- Every message


@pytest.mark.parametrize("name", CLIENT_FRAMES)
def test_every_message_is_taken_and_fits_the_published_schema(name: str) -> None:
    assert fits_schema(CLIENT_FRAMES[name])
    assert type(parse(CLIENT_FRAMES[name])).__name__.lower() == name


def test_hello_carries_all_that_the_worker_said() -> None:
    frame = hello(resource_keys=True, normal_reserved_slots=2, session_id=SESSION_ID, sdk="orbit-sdk/1.0")
    assert fits_schema(frame)
    assert parse(frame) == Hello(
        worker_name="reports-1",
        capacity=8,
        queue_ids=(QUEUE_ID,),
        handlers=(Capability("object.prepare", "v1"),),
        resource_keys=True,
        normal_reserved_slots=2,
        session_id=SESSION_ID,
        sdk="orbit-sdk/1.0",
    )


def test_hello_without_its_optional_fields_takes_their_defaults() -> None:
    message = parse(hello())
    assert isinstance(message, Hello)
    assert (message.resource_keys, message.normal_reserved_slots, message.session_id, message.sdk) == (
        False,
        0,
        None,
        None,
    )


def test_simple_messages_carry_their_sequence_number() -> None:
    assert parse(CLIENT_FRAMES["heartbeat"]) == Heartbeat(seq=5)
    assert parse(CLIENT_FRAMES["resize"]) == Resize(seq=5, capacity=4)
    assert parse(CLIENT_FRAMES["drain"]) == Drain(seq=5)
    assert parse(CLIENT_FRAMES["start"]) == Start(seq=5, items=(HeldItem(ATTEMPT_ID, 7),))
    assert parse(CLIENT_FRAMES["release"]) == Release(seq=5, items=(HeldItem(ATTEMPT_ID, 7),))


@pytest.mark.parametrize("seq", [1, 2**53, 2**63 - 1])
def test_sequence_numbers_may_come_in_any_order_and_size(seq: int) -> None:
    assert parse({"type": "heartbeat", "seq": seq}) == Heartbeat(seq=seq)


def test_items_keep_their_order() -> None:
    message = parse(with_items("start", held(attempt_id=OTHER_ATTEMPT_ID), held()))
    assert isinstance(message, Start)
    assert [item.attempt_id for item in message.items] == [OTHER_ATTEMPT_ID, ATTEMPT_ID]


# -- Faults that end the connection


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"hello"',
        "7",
        '{"type":"heartbeat","seq":1} x',
        '{"type":"heartbeat","seq":1,"seq":2}',
        '{"type":"heartbeat","seq":NaN}',
        '\ufeff{"type":"heartbeat","seq":1}',
        '{"type":"heartbeat\\ud800","seq":1}',
        '{"type":"finish","seq":1,"items":[{"attempt_id":"a","result":{"k":1,"k":2}}]}',
    ],
)
def test_text_that_is_not_strict_json_ends_the_connection(text: str) -> None:
    assert refusal(text).close_code == CloseCode.PROTOCOL == 4400


def test_nesting_deeper_than_the_limit_ends_the_connection() -> None:
    # The frame, its items, the item and the result are four levels already.
    deepest: Any = json.loads("[" * (JSON_DEPTH_MAX - 3) + "]" * (JSON_DEPTH_MAX - 3))
    assert one_finish(succeeded(result=deepest)).fault is None
    assert "nested" in refusal(with_items("finish", succeeded(result=[deepest]))).message


SPOILED: list[tuple[str, Frame]] = [
    ("unknown type", {"type": "hallo", "seq": 5}),
    ("a server's word", {"type": "welcome", "seq": 5}),
    ("type in another case", {"type": "Heartbeat", "seq": 5}),
    ("type missing", {"seq": 5}),
    ("type not a string", {"type": 5, "seq": 5}),
    ("seq missing", {"type": "heartbeat"}),
    ("seq 0", {"type": "heartbeat", "seq": 0}),
    ("seq negative", {"type": "heartbeat", "seq": -1}),
    ("seq a string", {"type": "heartbeat", "seq": "5"}),
    ("seq a float", {"type": "heartbeat", "seq": 5.5}),
    ("seq true", {"type": "heartbeat", "seq": True}),
    ("seq null", {"type": "heartbeat", "seq": None}),
    ("seq past 64 bits", {"type": "heartbeat", "seq": 2**63}),
    ("unknown field", {"type": "heartbeat", "seq": 5, "note": "x"}),
    ("hello with seq", hello(seq=5)),
    ("hello unknown field", hello(queue=QUEUE_ID)),
    ("hello field in another case", hello(SDK="x")),
    ("protocol 2", hello(protocol=2)),
    ("protocol a string", hello(protocol="1")),
    ("worker_name empty", hello(worker_name="")),
    ("worker_name of 129", hello(worker_name="w" * 129)),
    ("worker_name with a control character", hello(worker_name="a\nb")),
    ("worker_name with a blank at its end", hello(worker_name="a ")),
    ("worker_name a number", hello(worker_name=7)),
    ("capacity 0", hello(capacity=0)),
    ("capacity 1001", hello(capacity=1001)),
    ("capacity a float", hello(capacity=1.5)),
    ("no queues", hello(queues=[])),
    ("65 queues", hello(queues=[f"{n:032x}" for n in range(65)])),
    ("a queue by name", hello(queues=["reports"])),
    ("a queue twice", hello(queues=[QUEUE_ID, QUEUE_ID])),
    ("queues null", hello(queues=None)),
    ("no handlers", hello(handlers=[])),
    ("257 handlers", hello(handlers=[{"handler": f"h{n}", "handler_version": "1"} for n in range(257)])),
    ("a handler without version", hello(handlers=[{"handler": "h"}])),
    ("a handler as string", hello(handlers=["h"])),
    ("a handler twice", hello(handlers=[{"handler": "h", "handler_version": "1"}] * 2)),
    ("an empty handler", hello(handlers=[{"handler": "", "handler_version": "1"}])),
    ("a handler_version of 129", hello(handlers=[{"handler": "h", "handler_version": "v" * 129}])),
    ("resource_keys a string", hello(resource_keys="yes")),
    ("resource_keys null", hello(resource_keys=None)),
    ("normal_reserved_slots negative", hello(normal_reserved_slots=-1)),
    ("session_id not an id", hello(session_id="x")),
    ("session_id null", hello(session_id=None)),
    ("sdk of 129", hello(sdk="s" * 129)),
    ("resize without capacity", {"type": "resize", "seq": 5}),
    ("resize to -1", {"type": "resize", "seq": 5, "capacity": -1}),
    ("resize to 1001", {"type": "resize", "seq": 5, "capacity": 1001}),
    ("drain with a field", {"type": "drain", "seq": 5, "running": 1}),
    ("start without items", {"type": "start", "seq": 5}),
    ("start with no item", with_items("start")),
    ("start with 65 items", with_items("start", *[held()] * 65)),
    ("renew with 65 items", with_items("renew", *[held()] * 65)),
    ("finish with 65 items", with_items("finish", *[succeeded()] * 65)),
    ("release with 65 items", with_items("release", *[held()] * 65)),
    ("items an object", {"type": "start", "seq": 5, "items": {}}),
    ("an item that is no object", {"type": "start", "seq": 5, "items": ["x"]}),
    ("an item without token", with_items("start", {"attempt_id": ATTEMPT_ID})),
    ("an item without attempt", with_items("release", {"fencing_token": "1"})),
    ("an item with more", with_items("start", held(outcome="SUCCEEDED"))),
    ("a token as number", with_items("start", held(fencing_token=7))),
    ("an attempt as number", with_items("start", held(attempt_id=7))),
    ("progress without percent", with_items("renew", held(progress={"message": "x"}))),
    ("progress with more", with_items("renew", held(progress={"percent": 1, "eta": 2}))),
    ("progress null", with_items("renew", held(progress=None))),
    ("percent a string", with_items("renew", held(progress={"percent": "50"}))),
    ("percent a float", with_items("renew", held(progress={"percent": 50.5}))),
    ("progress message a number", with_items("renew", held(progress={"percent": 1, "message": 2}))),
    ("outcome missing", with_items("finish", held())),
    ("outcome unknown", with_items("finish", held(outcome="DONE"))),
    ("outcome in another case", with_items("finish", held(outcome="succeeded"))),
    ("outcome null", with_items("finish", held(outcome=None))),
    ("finish with more", with_items("finish", succeeded(output=1))),
    ("error null", with_items("finish", failed(error=None))),
    ("error a string", with_items("finish", failed(error="boom"))),
    ("error without code", with_items("finish", failed(error={"message": "m"}))),
    ("error without message", with_items("finish", failed(error={"code": "C"}))),
    ("error with more", with_items("finish", failed(error={"code": "C", "message": "m", "trace": 1}))),
    ("error code a number", with_items("finish", failed(error={"code": 5, "message": "m"}))),
    ("retryable a string", with_items("finish", failed(retryable="no"))),
    ("retryable null", with_items("finish", failed(retryable=None))),
    ("retry_after_ms a float", with_items("finish", failed(retry_after_ms=1.5))),
    ("retry_after_ms null", with_items("finish", failed(retry_after_ms=None))),
]


@pytest.mark.parametrize("frame", [frame for _, frame in SPOILED], ids=[name for name, _ in SPOILED])
def test_what_does_not_validate_ends_the_connection(frame: Frame) -> None:
    error = refusal(frame)
    assert error.close_code == CloseCode.PROTOCOL
    assert error.code == "INVALID_ARGUMENT"
    assert error.message


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (hello(capacity=0), "capacity"),
        (hello(queues=["x"]), "queues[0]"),
        (with_items("start", held(), held(attempt_id=7)), "items[1].attempt_id"),
        (with_items("finish", failed(error={"code": "C"})), "items[0].error.message"),
        ({"type": "heartbeat", "seq": 5, "Seq": 6}, "Seq"),
    ],
)
def test_refusal_names_the_field(frame: Frame, field: str) -> None:
    assert refusal(frame).message.startswith(f"{field}: ")


@pytest.mark.parametrize("spoiled", ["2.0", "1e0"])
def test_integers_written_otherwise_are_refused(spoiled: str) -> None:
    assert refusal(f'{{"type":"heartbeat","seq":{spoiled}}}').seq is None
    assert refusal(f'{{"type":"resize","seq":5,"capacity":{spoiled}}}').seq == 5


@pytest.mark.parametrize(
    ("frame", "seq"),
    [
        ({"type": "nonsense", "seq": 9}, 9),
        ({"type": "start", "seq": 9, "items": []}, 9),
        ({"type": "heartbeat", "seq": 9, "note": 1}, 9),
        ({"seq": 9}, 9),
        ({"type": "start", "seq": "9", "items": []}, None),
        ({"type": "start", "items": []}, None),
        (hello(capacity=0), None),
    ],
)
def test_refusal_answers_the_sequence_number_where_it_could_be_read(frame: Frame, seq: int | None) -> None:
    assert refusal(frame).seq == seq


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("slots", [0, 1, 7, 8])
def test_normal_reserved_slots_fit_the_policy(policy: Policy, slots: int) -> None:
    message = parse(hello(capacity=8, normal_reserved_slots=slots))
    assert isinstance(message, Hello)
    allowed = slots < 8 if policy == Policy.STRICT else slots == 0
    if allowed:
        message.check_policy(policy)
    else:
        with pytest.raises(ProtocolError) as refused:
            message.check_policy(policy)
        assert refused.value.close_code == CloseCode.PROTOCOL


# -- Faults of one item


@pytest.mark.parametrize(
    "change",
    [
        {"attempt_id": "x"},
        {"attempt_id": ""},
        {"attempt_id": ATTEMPT_ID.upper()},
        {"fencing_token": ""},
        {"fencing_token": "0"},
        {"fencing_token": "07"},
        {"fencing_token": "-7"},
        {"fencing_token": "7.0"},
        {"fencing_token": " 7"},
        {"fencing_token": "٧"},
        {"fencing_token": "x\0"},
        {"fencing_token": str(2**63)},
        {"fencing_token": "9" * 5000},
    ],
)
@pytest.mark.parametrize("kind", ["start", "renew", "release", "finish"])
def test_ids_and_tokens_that_orbit_never_issued_are_lost_and_spoil_no_other_item(
    kind: str, change: dict[str, str]
) -> None:
    base = succeeded() if kind == "finish" else held()
    message = parse(with_items(kind, base | change, base))
    assert isinstance(message, Start | Renew | Release | Finish)
    assert [item.lost for item in message.items] == [True, False]


@pytest.mark.parametrize("token", [1, 10**18 - 1, 10**18, 2**63 - 1])
def test_tokens_reach_to_63_bits(token: int) -> None:
    assert one_start(held(fencing_token=str(token))).fencing_token == token


def test_an_unusual_item_changes_nothing_for_the_usual_ones_beside_it() -> None:
    usual = [succeeded(), succeeded(result=None), succeeded(attempt_id=OTHER_ATTEMPT_ID, fencing_token="12")]
    alone = parse(with_items("finish", *usual))
    mixed = parse(with_items("finish", usual[0], failed(), usual[1], succeeded(result=7), usual[2]))
    assert isinstance(alone, Finish)
    assert isinstance(mixed, Finish)
    assert [mixed.items[place] for place in (0, 2, 4)] == list(alone.items)
    assert mixed.items[3].result == "7"


def test_escaped_names_and_values_are_read_as_what_they_mean() -> None:
    text = (
        f'{{"t\u0079pe":"st\u0061rt","seq":5,"items":[{{"attempt\u005fid":"{ATTEMPT_ID}","fencing_token":"\u0037"}}]}}'
    )
    assert parse_client_message(text) == Start(seq=5, items=(HeldItem(ATTEMPT_ID, 7),))


def test_an_attempt_id_that_is_none_is_echoed_cut_short() -> None:
    assert one_start(held(attempt_id="x" * 1000)).attempt_id == "x" * 64


def test_renew_carries_its_progress() -> None:
    assert one_renew(held(progress={"percent": 50, "message": "half way"})).progress == Progress(50, "half way")
    assert one_renew(held(progress={"percent": 0})).progress == Progress(0, None)
    assert one_renew(held()).progress is None


@pytest.mark.parametrize(
    ("progress", "taken"),
    [
        ({"percent": 0}, True),
        ({"percent": 100}, True),
        ({"percent": -1}, False),
        ({"percent": 101}, False),
        ({"percent": 1, "message": "m" * 1000}, True),
        ({"percent": 1, "message": "m" * 1001}, False),
        ({"percent": 1, "message": "a\0b"}, False),
    ],
)
def test_a_progress_out_of_its_bounds_is_not_taken_and_the_lease_is_renewed_all_the_same(
    progress: Frame, taken: bool
) -> None:
    item = one_renew(held(progress=progress))
    assert not item.lost
    assert (item.progress is not None, item.progress_fault is None) == (taken, taken)


# (item, code of INVALID or None, JSON text of the result)
FINISHES: list[tuple[str, Frame, str | None]] = [
    ("SUCCEEDED", succeeded(), None),
    ("SUCCEEDED with result", succeeded(result=[1]), None),
    ("SUCCEEDED with null", succeeded(result=None), None),
    ("SUCCEEDED with error", succeeded(error={"code": "C", "message": "m"}), "INVALID_ARGUMENT"),
    ("SUCCEEDED with retryable", succeeded(retryable=True), "INVALID_ARGUMENT"),
    ("SUCCEEDED with retry_after_ms", succeeded(retry_after_ms=1), "INVALID_ARGUMENT"),
    ("SUCCEEDED with 256 KiB", succeeded(result="x" * (RESULT_BYTES_MAX - 2)), None),
    ("SUCCEEDED with more than 256 KiB", succeeded(result="x" * (RESULT_BYTES_MAX - 1)), "PAYLOAD_TOO_LARGE"),
    ("FAILED", failed(), None),
    ("FAILED, not retryable", failed(retryable=False), None),
    ("FAILED without error", held(outcome="FAILED"), "INVALID_ARGUMENT"),
    ("FAILED with result", failed(result=1), "INVALID_ARGUMENT"),
    ("FAILED with result null", failed(result=None), "INVALID_ARGUMENT"),
    ("FAILED, code empty", failed(error={"code": "", "message": "m"}), "INVALID_ARGUMENT"),
    ("FAILED, code of 128", failed(error={"code": "C" * 128, "message": "m"}), None),
    ("FAILED, code of 129", failed(error={"code": "C" * 129, "message": "m"}), "INVALID_ARGUMENT"),
    ("FAILED, code not printable", failed(error={"code": "a\tb", "message": "m"}), "INVALID_ARGUMENT"),
    ("FAILED, message empty", failed(error={"code": "C", "message": ""}), None),
    ("FAILED, message of 4096", failed(error={"code": "C", "message": "é" * 4096}), None),
    ("FAILED, message of 4097", failed(error={"code": "C", "message": "é" * 4097}), "INVALID_ARGUMENT"),
    ("FAILED, message with lines", failed(error={"code": "C", "message": "line 1\nline 2\t"}), None),
    ("FAILED, message with U+0000", failed(error={"code": "C", "message": "a\0b"}), "INVALID_ARGUMENT"),
    ("FAILED, details of 64 KiB", failed(error={"code": "C", "message": "m", "details": "x" * 65534}), None),
    (
        "FAILED, details of more",
        failed(error={"code": "C", "message": "m", "details": "x" * 65535}),
        "PAYLOAD_TOO_LARGE",
    ),
    ("FAILED, retry_after_ms 0", failed(retry_after_ms=0), None),
    ("FAILED, retry_after_ms of 31 days", failed(retry_after_ms=HORIZON_MS_MAX), None),
    ("FAILED, retry_after_ms past them", failed(retry_after_ms=HORIZON_MS_MAX + 1), "INVALID_ARGUMENT"),
    ("FAILED, retry_after_ms negative", failed(retry_after_ms=-1), "INVALID_ARGUMENT"),
    ("FAILED, retry_after_ms of 5000 digits", failed(retry_after_ms=10**300), "INVALID_ARGUMENT"),
    ("CANCELED", canceled(), None),
    ("CANCELED with error", canceled(error={"code": "C", "message": "m"}), None),
    ("CANCELED with result", canceled(result=1), "INVALID_ARGUMENT"),
    ("CANCELED with retryable", canceled(retryable=False), "INVALID_ARGUMENT"),
    ("CANCELED with retry_after_ms", canceled(retry_after_ms=1), "INVALID_ARGUMENT"),
]


@pytest.mark.parametrize(("item", "code"), [case[1:] for case in FINISHES], ids=[case[0] for case in FINISHES])
def test_finish_is_judged_item_by_item(item: Frame, code: str | None) -> None:
    message = parse(with_items("finish", item, succeeded(attempt_id=OTHER_ATTEMPT_ID)))
    assert isinstance(message, Finish)
    fault = message.items[0].fault
    assert (None if fault is None else fault.code) == code
    assert message.items[1].fault is None


def test_a_size_is_counted_in_bytes_as_sent() -> None:
    at_the_limit = '"' + "é" * (RESULT_BYTES_MAX // 2 - 1) + '"'
    for raw, code in ((at_the_limit, None), (at_the_limit[:-1] + 'é"', "PAYLOAD_TOO_LARGE")):
        item = f'{{"attempt_id":"{ATTEMPT_ID}","fencing_token":"7","outcome":"SUCCEEDED","result":{raw}}}'
        message = parse_client_message(f'{{"type":"finish","seq":5,"items":[{item}]}}')
        assert isinstance(message, Finish)
        fault = message.items[0].fault
        assert (None if fault is None else fault.code) == code


def test_finish_takes_its_defaults() -> None:
    assert one_finish(succeeded()).result == "null"
    assert one_finish(failed()).retryable is True
    assert one_finish(failed()).retry_after_ms is None
    assert one_finish(failed()).result is None
    assert one_finish(canceled()).error is None
    assert one_finish(canceled()).result is None


def test_finish_carries_the_error_report() -> None:
    item = one_finish(
        failed(error={"code": "C", "message": "m", "details": {"a": 1}}, retryable=False, retry_after_ms=9)
    )
    assert item.outcome is Outcome.FAILED
    assert item.error == ErrorReport(code="C", message="m", details='{"a": 1}')
    assert (item.retryable, item.retry_after_ms) == (False, 9)


@pytest.mark.parametrize("digits", ["9007199254740993", "1.10", "1e400", "0.1000000000000000055", "-0", "1" * 5000])
def test_result_and_details_survive_digit_for_digit(digits: str) -> None:
    value = f'{{ "n" : [{digits}] , "s": "\\u00e9\\u0000"}}'
    finish = (
        f'{{"type":"finish","seq":1,"items":['
        f'{{"attempt_id":"{ATTEMPT_ID}","fencing_token":"7","outcome":"SUCCEEDED","result": {value} }},'
        f'{{"attempt_id":"{ATTEMPT_ID}","fencing_token":"7","outcome":"FAILED",'
        f'"error":{{"code":"C","message":"m","details":{value}}}}}]}}'
    )
    message = parse_client_message(finish)
    assert isinstance(message, Finish)
    assert message.items[0].result == value
    assert message.items[1].error is not None
    assert message.items[1].error.details == value


# -- Properties

_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_json = st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
_words = st.sampled_from(
    [
        "type",
        "seq",
        "items",
        "attempt_id",
        "fencing_token",
        "outcome",
        "result",
        "error",
        "progress",
        "percent",
        "queues",
    ]
)


@given(st.text() | st.builds(json.dumps, _json))
def test_no_text_does_more_than_refuse(text: str) -> None:
    try:
        parse_client_message(text)
    except ProtocolError as error:
        assert error.close_code == CloseCode.PROTOCOL


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every member and element of a frame."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in children for place in ((*path, key), *_places(child, (*path, key)))]


def _parent_of(frame: Any, place: tuple[Any, ...]) -> Any:
    for key in place[:-1]:
        frame = frame[key]
    return frame


def _is_clean(frame: Frame) -> bool:
    """Taken, and nothing of it refused."""
    try:
        message = parse(frame)
    except ProtocolError:
        return False
    items = getattr(message, "items", ())
    return not any(item.lost or getattr(item, "fault", None) or getattr(item, "progress_fault", None) for item in items)


@given(data=st.data())
def test_codec_and_schema_agree_on_frames_spoiled_in_one_place(data: st.DataObject) -> None:
    """What is printable stands in no schema, so new strings are plain here."""
    frame = json.loads(json.dumps(data.draw(st.sampled_from(list(CLIENT_FRAMES.values())))))
    place = data.draw(st.sampled_from(_places(frame)))
    parent = _parent_of(frame, place)
    act = data.draw(st.sampled_from(["drop", "replace", "add", "rename"]))
    plain = (
        st.none() | st.booleans() | st.integers(-3, 2000) | st.sampled_from(["", "x", "7", "07", QUEUE_ID, "FAILED"])
    )
    value = data.draw(plain | st.lists(plain, max_size=2) | st.dictionaries(_words, plain, max_size=2))
    if act == "replace":
        parent[place[-1]] = value
    elif act == "drop":
        del parent[place[-1]]
    elif isinstance(parent, dict):
        name = data.draw(_words)
        parent[name] = parent.pop(place[-1]) if act == "rename" else value
    assert _is_clean(frame) == fits_schema(frame)
