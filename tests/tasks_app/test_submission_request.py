"""Design 1.2 and 1.3: which fault is structural, semantic or of time, and what makes two requests the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.errors import InvalidArgument, PayloadTooLarge
from tasks_app.instants import parse_rfc3339
from tasks_app.retries import NEVER, RetryPolicy
from tasks_app.states import Policy, RetryMode
from tasks_app.strict_json import parse_document
from tasks_app.submission_request import (
    SubmitRequest,
    check_idempotency_key,
    digest,
    read_batch,
    read_task,
    resolve_times,
    semantic_fault,
    time_fault,
)

QUEUE = "11111111111111111111111111111111"
PARENT = "22222222222222222222222222222222"
NOW = parse_rfc3339("2026-09-17T00:00:00Z")
DAY_US = 86_400_000_000
TASK = {
    "queue_id": QUEUE,
    "handler": "file.convert",
    "handler_version": "v1",
    "payload_version": "v1",
    "payload": {"source_ref": "objects/input-001.txt"},
}


def request_of(*, without: tuple[str, ...] = (), **members: object) -> SubmitRequest:
    task = {**TASK, **members}
    return read_task(parse_document(json.dumps({name: task[name] for name in task if name not in without})))


def structural_fault(body: str) -> list[dict[str, object]]:
    with pytest.raises(InvalidArgument) as caught:
        read_task(parse_document(body))
    return caught.value.details


def with_member(name: str, text: str) -> str:
    """The valid task with the JSON text of one member exchanged."""
    parts = {key: json.dumps(value) for key, value in TASK.items()} | {name: text}
    return "{" + ",".join(f'"{key}":{value}' for key, value in parts.items()) + "}"


def semantic_details(policy: Policy = Policy.AGED, **members: object) -> list[dict[str, object]]:
    fault = semantic_fault(request_of(**members), policy)
    assert isinstance(fault, InvalidArgument)
    return fault.details


# -- reading


def test_a_minimal_task_has_the_defaults_of_the_contract():
    request = request_of()
    assert request == SubmitRequest(
        queue_id=QUEUE,
        handler="file.convert",
        handler_version="v1",
        payload_version="v1",
        payload='{"source_ref": "objects/input-001.txt"}',
        priority=None,
        available_at=None,
        delay_ms=None,
        expires_in_ms=None,
        attempt_timeout_ms=None,
        retry=NEVER,
        resource_key=None,
        parent_task_id=None,
        parent_fencing_token=None,
    )
    assert semantic_fault(request, Policy.AGED) is None
    assert time_fault(request, NOW) is None


def test_every_member_is_read():
    request = request_of(
        priority=9,
        delay_ms=1,
        expires_in_ms=2,
        attempt_timeout_ms=100,
        retry={"mode": "SAFE", "max_attempts": 4, "initial_backoff_ms": 5, "max_backoff_ms": 6, "multiplier": 7},
        resource_key="printer-1",
        parent_task_id=PARENT,
        parent_fencing_token="3",
    )
    assert request.priority == 9
    assert (request.delay_ms, request.expires_in_ms, request.attempt_timeout_ms) == (1, 2, 100)
    assert request.retry == RetryPolicy(RetryMode.SAFE, 4, 5, 6, 7)
    assert (request.resource_key, request.parent_task_id, request.parent_fencing_token) == ("printer-1", PARENT, "3")
    assert semantic_fault(request, Policy.AGED) is None


@pytest.mark.parametrize(
    "payload", ['{"n": 9007199254740993, "m": [1.10, 1e400]}', "null", '"\\u0000 \\ud83d\\ude00"', " [ 1 ] ", "0.10"]
)
def test_the_payload_is_kept_exactly_as_sent(payload: str):
    assert read_task(parse_document(with_member("payload", payload))).payload == payload.strip()


@pytest.mark.parametrize("name", list(TASK))
def test_each_required_member_is_required(name: str):
    with pytest.raises(InvalidArgument) as caught:
        request_of(without=(name,))
    assert caught.value.details == [{"field": name, "reason": "is required"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("queue_id", '"short"'),
        ("queue_id", "1"),
        ("queue_id", f'"{"A" * 32}"'),
        ("handler", "1"),
        ("handler", '"a\\u0000"'),
        ("handler_version", "1.0"),
        ("payload_version", "[]"),
        ("priority", "1.0"),
        ("priority", "1e0"),
        ("priority", '"1"'),
        ("priority", "true"),
        ("available_at", "0"),
        ("available_at", '"2026-09-17 00:00:00Z"'),
        ("available_at", '"2026-09-17T00:00:60Z"'),
        ("delay_ms", '"5"'),
        ("expires_in_ms", "1.5"),
        ("attempt_timeout_ms", "false"),
        ("resource_key", "7"),
        ("parent_task_id", '"x"'),
        ("parent_fencing_token", "7"),
        ("retry", '"SAFE"'),
        ("retry", "[]"),
    ],
)
def test_a_wrong_type_or_encoding_is_structural(name: str, text: str):
    assert structural_fault(with_member(name, text))[0]["field"] == name


@pytest.mark.parametrize(
    "name",
    [
        "queue_id",
        "handler",
        "handler_version",
        "payload_version",
        "priority",
        "available_at",
        "delay_ms",
        "expires_in_ms",
        "attempt_timeout_ms",
        "retry",
        "resource_key",
        "parent_task_id",
        "parent_fencing_token",
    ],
)
def test_null_is_structural_everywhere_but_in_the_payload(name: str):
    assert structural_fault(with_member(name, "null")) == [{"field": name, "reason": "must not be null"}]
    assert read_task(parse_document(with_member("payload", "null"))).payload == "null"


@pytest.mark.parametrize(
    ("retry", "field"),
    [
        ("{}", "retry.mode"),
        ('{"mode":null}', "retry.mode"),
        ('{"mode":1}', "retry.mode"),
        ('{"mode":"SAFE","max_attempts":"3"}', "retry.max_attempts"),
        ('{"mode":"SAFE","multiplier":2.0}', "retry.multiplier"),
        ('{"mode":"SAFE","Mode":"SAFE"}', "retry.Mode"),
        ('{"mode":"SAFE","jitter":1}', "retry.jitter"),
    ],
)
def test_the_shape_of_retry_is_structural(retry: str, field: str):
    assert structural_fault(with_member("retry", retry))[0]["field"] == field


def test_an_unknown_member_is_structural_and_a_case_slip_gets_a_hint():
    assert structural_fault(with_member("Priority", "1")) == [
        {"field": "Priority", "reason": "is not known here; did you mean priority?"}
    ]


def test_a_place_may_leave_members_out():
    with pytest.raises(InvalidArgument) as caught:
        read_task(parse_document(with_member("available_at", '"2026-09-17T00:00:00Z"')), without=("available_at",))
    assert caught.value.details == [{"field": "available_at", "reason": "is not known here"}]


# -- semantic faults


@pytest.mark.parametrize("name", ["handler", "handler_version", "payload_version", "resource_key"])
@pytest.mark.parametrize("text", ["", "x" * 129, " x", "x ", "a\tb", "a\u200bb"])
def test_names_are_1_to_128_printable_characters(name: str, text: str):
    assert [detail["field"] for detail in semantic_details(**{name: text})] == [name]
    assert semantic_fault(request_of(**{name: "x" * 128}), Policy.AGED) is None


@pytest.mark.parametrize(
    ("policy", "allowed", "refused"),
    [(Policy.AGED, [0, 1, 9], [-1, 10, 2**63, -(10**40)]), (Policy.STRICT, [-9, 0, 9], [-10, 10, 10**5000])],
)
def test_priority_has_the_range_of_the_policy_and_is_never_clamped(policy: Policy, allowed, refused):
    for priority in allowed:
        assert semantic_fault(read_task(parse_document(with_member("priority", str(priority)))), policy) is None
    for priority in refused:
        text = "1" + "0" * 5000 if priority == 10**5000 else str(priority)
        fault = semantic_fault(read_task(parse_document(with_member("priority", text))), policy)
        assert isinstance(fault, InvalidArgument)
        lowest, highest = (0, 9) if policy is Policy.AGED else (-9, 9)
        assert fault.details == [
            {
                "field": "priority",
                "reason": f"must be {lowest} to {highest}",
                "minimum": lowest,
                "maximum": highest,
            }
        ]


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [("delay_ms", 0, 2_678_400_000), ("expires_in_ms", 1, 2_678_400_000), ("attempt_timeout_ms", 100, 86_400_000)],
)
def test_durations_have_their_ranges(name: str, lowest: int, highest: int):
    for value in (lowest, highest):
        assert semantic_fault(request_of(**{name: value}), Policy.AGED) is None
    for value in (lowest - 1, highest + 1):
        assert [detail["field"] for detail in semantic_details(**{name: value})] == [name]


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [("max_attempts", 1, 100), ("initial_backoff_ms", 0, 86_400_000), ("multiplier", 1, 10)],
)
def test_members_of_a_safe_retry_have_their_ranges(name: str, lowest: int, highest: int):
    for value in (lowest, highest):
        assert semantic_fault(request_of(retry={"mode": "SAFE", name: value}), Policy.AGED) is None
    for value in (lowest - 1, highest + 1):
        assert [d["field"] for d in semantic_details(retry={"mode": "SAFE", name: value})] == [f"retry.{name}"]


def test_the_cap_of_the_back_off_is_at_least_its_beginning_and_at_most_a_day():
    for cap in (2_000, 86_400_000):
        retry = {"mode": "SAFE", "initial_backoff_ms": 2_000, "max_backoff_ms": cap}
        assert semantic_fault(request_of(retry=retry), Policy.AGED) is None
    for cap in (1_999, 86_400_001):
        retry = {"mode": "SAFE", "initial_backoff_ms": 2_000, "max_backoff_ms": cap}
        assert [d["field"] for d in semantic_details(retry=retry)] == ["retry.max_backoff_ms"]


def test_never_takes_no_other_member_but_one_attempt():
    assert semantic_fault(request_of(retry={"mode": "NEVER", "max_attempts": 1}), Policy.AGED) is None
    assert [d["field"] for d in semantic_details(retry={"mode": "NEVER", "max_attempts": 2})] == ["retry.max_attempts"]
    for name in ("initial_backoff_ms", "max_backoff_ms", "multiplier"):
        assert [d["field"] for d in semantic_details(retry={"mode": "NEVER", name: 1})] == [f"retry.{name}"]


@pytest.mark.parametrize("mode", ["", "safe", "ALWAYS", "never"])
def test_another_retry_mode_is_a_semantic_fault(mode: str):
    assert semantic_details(retry={"mode": mode})[0]["allowed"] == ["NEVER", "SAFE"]


def test_available_at_and_delay_ms_exclude_each_other():
    details = semantic_details(available_at="2026-09-17T00:00:00Z", delay_ms=0)
    assert [detail["field"] for detail in details] == ["delay_ms"]


def test_parent_and_token_go_together():
    assert [d["field"] for d in semantic_details(parent_task_id=PARENT)] == ["parent_fencing_token"]
    assert [d["field"] for d in semantic_details(parent_fencing_token="1")] == ["parent_task_id"]


def test_every_semantic_fault_is_named_at_once():
    details = semantic_details(handler="", priority=10, retry={"mode": "SAFE", "multiplier": 0})
    assert [detail["field"] for detail in details] == ["handler", "priority", "retry.multiplier"]


def test_a_payload_may_have_256_kib_as_sent_and_not_a_byte_more():
    exact = '"' + "é" * 131_071 + '"'
    assert len(exact.encode()) == 262_144
    assert semantic_fault(read_task(parse_document(with_member("payload", exact))), Policy.AGED) is None
    for larger in (exact[:-1] + 'x"', "[" + " " * 262_143 + "]"):
        fault = semantic_fault(read_task(parse_document(with_member("payload", larger))), Policy.AGED)
        assert isinstance(fault, PayloadTooLarge)
        assert fault.details[0]["field"] == "payload"
        assert fault.details[0]["limit"] == 262_144


# -- times


def test_available_at_lies_at_most_31_days_ahead():
    limit = NOW + 31 * DAY_US
    assert time_fault(request_of(available_at="2026-10-18T00:00:00Z"), NOW) is None
    assert resolve_times(request_of(available_at="2026-10-18T00:00:00Z"), NOW)[0] == limit
    fault = time_fault(request_of(available_at="2026-10-18T00:00:00.000001Z"), NOW)
    assert fault is not None
    assert fault.details[0]["field"] == "available_at"


def test_a_time_in_the_past_means_now():
    assert resolve_times(request_of(available_at="2020-01-01T00:00:00Z"), NOW) == (NOW, None)
    assert resolve_times(request_of(available_at="0001-01-01T00:00:00+23:59"), NOW) == (NOW, None)


def test_relative_times_count_from_acceptance():
    assert resolve_times(request_of(delay_ms=1_500, expires_in_ms=2_000), NOW) == (NOW + 1_500_000, NOW + 2_000_000)
    assert resolve_times(request_of(), NOW) == (NOW, None)


@pytest.mark.parametrize(
    ("members", "is_sound"),
    [
        ({"delay_ms": 1_000, "expires_in_ms": 1_001}, True),
        ({"delay_ms": 1_000, "expires_in_ms": 1_000}, False),
        ({"available_at": "2026-09-17T00:00:01Z", "expires_in_ms": 1_001}, True),
        ({"available_at": "2026-09-17T00:00:01Z", "expires_in_ms": 1_000}, False),
        ({"available_at": "2026-09-16T00:00:00Z", "expires_in_ms": 1}, True),
        ({"expires_in_ms": 1}, True),
    ],
)
def test_the_deadline_lies_after_the_start(members: dict[str, object], is_sound: bool):
    request = request_of(**members)
    assert semantic_fault(request, Policy.AGED) is None
    fault = time_fault(request, NOW)
    assert (fault is None) == is_sound
    assert fault is None or fault.details[0]["field"] == "expires_in_ms"


# -- digests


def digest_of(policy: Policy = Policy.AGED, **members: object) -> bytes:
    return digest(request_of(**members), policy)


def test_a_digest_has_32_bytes():
    assert len(digest_of()) == 32


def test_the_digest_of_the_normal_form_stays_what_it_was_for_90_days_of_records():
    assert digest_of().hex() == "75cf18f9327e58b2c6260d7c59ae41dd18283c13d65eff8a6c4e47a603c1783f"
    assert (
        digest(
            request_of(
                priority=-3,
                available_at="2026-09-17T02:00:00.5+02:00",
                expires_in_ms=60_000,
                attempt_timeout_ms=1_000,
                retry={"mode": "SAFE", "multiplier": 3},
                resource_key="é",
                payload={"b": 1.5, "a": ["\u4e2d", None]},
            ),
            Policy.STRICT,
        ).hex()
        == "8402868b7d56a91d1726be8650ba9d7b6fdfc86bc09000a9a7c3bb89c4369f54"
    )


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    "members",
    [
        {"delay_ms": 0},
        {"retry": {"mode": "NEVER"}},
        {"retry": {"mode": "NEVER", "max_attempts": 1}},
    ],
)
def test_a_default_written_out_equals_an_omitted_one(policy: Policy, members: dict[str, object]):
    assert digest_of(policy, **members) == digest_of(policy)


def test_defaults_of_a_safe_retry_written_out_equal_omitted_ones():
    written = {"mode": "SAFE", "max_attempts": 3, "initial_backoff_ms": 1000, "max_backoff_ms": 60_000, "multiplier": 2}
    assert digest_of(retry=written) == digest_of(retry={"mode": "SAFE"})
    late = {"mode": "SAFE", "initial_backoff_ms": 90_000}
    assert digest_of(retry=late) == digest_of(retry={**late, "max_backoff_ms": 90_000})


def test_priority_0_equals_omitted_in_an_aged_namespace_only_and_not_for_a_child():
    child = {"parent_task_id": PARENT, "parent_fencing_token": "1"}
    assert digest_of(priority=0) == digest_of()
    assert digest_of(Policy.STRICT, priority=0) != digest_of(Policy.STRICT)
    assert digest_of(priority=0, **child) != digest_of(**child)
    assert digest_of(Policy.STRICT, priority=0, **child) != digest_of(Policy.STRICT, **child)


def test_the_fencing_token_of_the_parent_is_no_part_of_the_digest():
    assert digest_of(parent_task_id=PARENT, parent_fencing_token="1") == digest_of(
        parent_task_id=PARENT, parent_fencing_token="2"
    )


def test_times_compare_as_instants_and_relative_times_stay_relative():
    assert digest_of(available_at="2026-09-17T02:00:00+02:00") == digest_of(available_at="2026-09-17T00:00:00.000Z")
    assert digest_of(available_at="2026-09-17T00:00:00Z") != digest_of(available_at="2026-09-17T00:00:00.000001Z")
    assert digest_of(available_at="2026-09-17T00:00:00Z") != digest_of()
    assert digest_of(delay_ms=1) != digest_of(delay_ms=2)


@pytest.mark.parametrize(
    ("left", "right", "is_same"),
    [
        ('{"a":1,"b":2}', ' { "b" : 2, "a" : 1 } ', True),
        ('"\\u0061"', '"a"', True),
        ("1.0", "1", False),
        ("1.10", "1.1", False),
        ("[1,2]", "[2,1]", False),
        ("null", '"null"', False),
    ],
)
def test_payloads_compare_by_their_canonical_form(left: str, right: str, is_same: bool):
    digests = [digest(read_task(parse_document(with_member("payload", text))), Policy.AGED) for text in (left, right)]
    assert (digests[0] == digests[1]) == is_same


def test_a_request_made_from_stored_text_has_the_digest_of_the_one_that_was_read():
    read = request_of(payload={"b": [1, 2.50], "a": "é"})
    made = SubmitRequest(
        queue_id=QUEUE, handler="file.convert", handler_version="v1", payload_version="v1", payload=read.payload
    )
    assert digest(made, Policy.AGED) == digest(read, Policy.AGED)


CHANGES: list[dict[str, object]] = [
    {"queue_id": PARENT},
    {"handler": "File.convert"},
    {"handler": "file.convert "},
    {"handler_version": "v2"},
    {"payload_version": "v2"},
    {"payload": {"source_ref": "objects/input-002.txt"}},
    {"priority": 1},
    {"delay_ms": 1},
    {"available_at": "2026-09-17T00:00:00Z"},
    {"expires_in_ms": 1},
    {"attempt_timeout_ms": 100},
    {"retry": {"mode": "SAFE"}},
    {"retry": {"mode": "SAFE", "max_attempts": 4}},
    {"retry": {"mode": "SAFE", "initial_backoff_ms": 1}},
    {"retry": {"mode": "SAFE", "max_backoff_ms": 60_001}},
    {"retry": {"mode": "SAFE", "multiplier": 3}},
    {"resource_key": "e"},
    {"resource_key": "é"},
    {"resource_key": "e\u0301"},
    {"parent_task_id": PARENT, "parent_fencing_token": "1"},
]


@pytest.mark.parametrize("policy", list(Policy))
def test_every_member_makes_a_difference(policy: Policy):
    digests = [digest_of(policy)] + [digest_of(policy, **change) for change in CHANGES]
    assert len(set(digests)) == len(CHANGES) + 1


@given(
    st.permutations([*TASK, "priority", "retry", "delay_ms"]),
    st.booleans(),
    st.sampled_from([None, 1, "\t"]),
)
def test_the_order_of_members_white_space_and_escapes_make_no_difference(order, is_ascii, indent):
    task = {
        **TASK,
        "payload": {"é": ["中", {"b": 1, "a": 2.5}]},
        "priority": 4,
        "retry": {"mode": "SAFE"},
        "delay_ms": 7,
    }
    text = json.dumps({name: task[name] for name in order}, ensure_ascii=is_ascii, indent=indent)
    plain = {name: task[name] for name in ("payload", "priority", "retry", "delay_ms")}
    assert digest(read_task(parse_document(text)), Policy.AGED) == digest_of(**plain)


# -- batches


def item(key: str = "k-1", **members: object) -> dict[str, object]:
    return {"idempotency_key": key, "task": {**TASK, **members}}


def batch_fault(document: object) -> list[dict[str, object]]:
    with pytest.raises(InvalidArgument) as caught:
        read_batch(parse_document(json.dumps(document)))
    return caught.value.details


def test_a_batch_keeps_the_order_of_its_items_and_their_keys():
    requests = read_batch(parse_document(json.dumps({"items": [item(f"k-{n}", priority=n) for n in range(32)]})))
    assert [(key, request.priority) for key, request in requests] == [(f"k-{n}", n) for n in range(32)]
    assert requests[3][1].path == "items[3].task"


@pytest.mark.parametrize("count", [0, 33])
def test_a_batch_has_1_to_32_items(count: int):
    assert batch_fault({"items": [item(f"k-{n}") for n in range(count)]})[0]["field"] == "items"


@pytest.mark.parametrize("key", ["", "x" * 129, "a b", "a\t", "é", "a\u0000", "\x7f"])
def test_a_key_of_an_item_is_1_to_128_printable_ascii_characters(key: str):
    assert batch_fault({"items": [item("ok"), item(key)]})[0]["field"] == "items[1].idempotency_key"
    assert read_batch(parse_document(json.dumps({"items": [item("x" * 128)]})))[0][0] == "x" * 128


def test_a_key_occurs_once_in_a_batch():
    detail = batch_fault({"items": [item("a"), item("b"), item("A"), item("a")]})[0]
    assert (detail["field"], detail["first"]) == ("items[3].idempotency_key", 0)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ([], ""),
        ({}, "items"),
        ({"items": None}, "items"),
        ({"items": {}}, "items"),
        ({"items": [item()], "atomic": True}, "atomic"),
        ({"items": [1]}, "items[0]"),
        ({"items": [{"task": TASK}]}, "items[0].idempotency_key"),
        ({"items": [{"idempotency_key": "a"}]}, "items[0].task"),
        ({"items": [{"idempotency_key": 1, "task": TASK}]}, "items[0].idempotency_key"),
        ({"items": [item("a"), {"idempotency_key": "b", "task": None}]}, "items[1].task"),
        ({"items": [item("a"), item("b", priority="9")]}, "items[1].task.priority"),
        ({"items": [item("a"), item("b", queue_id="x")]}, "items[1].task.queue_id"),
        ({"items": [item("a"), item("b", resource_key=None)]}, "items[1].task.resource_key"),
        ({"items": [item("a"), item("b", Queue_id=QUEUE)]}, "items[1].task.Queue_id"),
    ],
)
def test_a_structural_fault_of_any_item_refuses_the_batch_with_its_place(document: object, field: str):
    assert batch_fault(document)[0]["field"] == field


def test_a_semantic_fault_of_an_item_is_left_to_the_item_and_named_by_its_place():
    requests = read_batch(parse_document(json.dumps({"items": [item("a"), item("b", handler="", priority=10)]})))
    assert semantic_fault(requests[0][1], Policy.AGED) is None
    fault = semantic_fault(requests[1][1], Policy.AGED)
    assert fault is not None
    assert [detail["field"] for detail in fault.details] == ["items[1].task.handler", "items[1].task.priority"]


# -- the header


def test_the_idempotency_key_is_taken_as_it_is_quotes_included():
    assert check_idempotency_key(['"k"']) == '"k"'
    assert check_idempotency_key(["!" + "~" * 127]) == "!" + "~" * 127


@pytest.mark.parametrize("values", [[], ["a", "a"], [""], ["x" * 129], ["a b"], ["é"], ["a\x7f"], ["a\n"]])
def test_a_missing_repeated_or_malformed_idempotency_key_is_refused(values: list[str]):
    with pytest.raises(InvalidArgument) as caught:
        check_idempotency_key(values)
    assert caught.value.details[0]["field"] == "Idempotency-Key"
