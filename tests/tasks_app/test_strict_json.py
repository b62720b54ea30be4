"""Design 1.1, "Strict JSON": what is refused, what comes back digit for digit, what is the same value."""

import json
import string
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.errors import InvalidArgument
from tasks_app.strict_json import Node, canonical, parse_document, raw


def refusal_of(body: bytes | str) -> dict[str, object]:
    with pytest.raises(InvalidArgument) as caught:
        parse_document(body)
    assert len(caught.value.details) == 1
    return caught.value.details[0]


def payload_of(body: str) -> Node:
    return parse_document(body.encode()).members()["payload"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is required and must not be empty"),
        (b" \n", "the body is required and must not be empty"),
        (b"\xef\xbb\xbf{}", "must not begin with a byte order mark"),
        (b'{"a": "\xff"}', "must be valid UTF-8"),
        (b'{"a": "\xc0\x80"}', "must be valid UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "must be valid UTF-8"),
        (b'{"a": "\xf4\x90\x80\x80"}', "must be valid UTF-8"),
        (b'{"a": "\\ud800"}', "must not contain a lone surrogate"),
        (b'{"a": "\\uDC00"}', "must not contain a lone surrogate"),
        (b'{"a": "\\ud800\\ud800\\udc00"}', "must not contain a lone surrogate"),
        (b'{"a": "\\udc00\\ud800"}', "must not contain a lone surrogate"),
        (b'{"a": "\\ud800x\\udc00"}', "must not contain a lone surrogate"),
        (b'{"\\ud800": 1}', "must not contain a lone surrogate"),
        (b'{"payload": {"a": ["\\udfff"]}}', "must not contain a lone surrogate"),
        (b"{} {}", "must be one JSON value, with nothing behind it"),
        (b"{}x", "must be one JSON value, with nothing behind it"),
        (b"{}\0", "must be one JSON value, with nothing behind it"),
        (b"1 2", "must be one JSON value, with nothing behind it"),
        (b"01", "must be one JSON value, with nothing behind it"),
    ],
)
def test_what_is_no_strict_document_is_refused_with_its_reason(body: bytes, reason: str):
    detail = refusal_of(body)
    assert detail["field"] == ""
    assert detail["reason"] == reason


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[",
        b'{"a"',
        b'{"a":',
        b'{"a":1',
        b'{"a":1,',
        b'{"a":1,}',
        b"{,}",
        b"[1,]",
        b"[1 2]",
        b'{"a" 1}',
        b'{"a":1 "b":2}',
        b"{a: 1}",
        b"{'a': 1}",
        b"{1: 1}",
        b"[01]",
        b"[1.]",
        b"[.5]",
        b"[+1]",
        b"[-]",
        b"[1e]",
        b"[0x1]",
        b"tru",
        b"nul",
        b"True",
        b'"',
        b'"\\"',
        b'"\\x41"',
        b'"\\u12g4"',
        b'"\\u123',
        b'"a\nb"',
        b'"a\tb"',
        b'"\x00"',
        b"// c\n{}",
        b"{} // c",
        b"\xc2\xa0{}",
        b"\x0c{}",
        b"]",
        b"}",
        b"\xd9\xa1",
    ],
)
def test_broken_syntax_is_refused(body: bytes):
    assert refusal_of(body)["field"] == ""


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("template", "place"),
    [("%s", ""), ("[1, %s]", "[1]"), ('{"a": %s}', "a"), ('{"payload": {"x": [{"y": %s}]}}', "payload.x[0].y")],
)
def test_numbers_that_json_does_not_have_are_refused_where_they_stand(word: str, template: str, place: str):
    detail = refusal_of(template % word)
    assert detail == {"field": place, "reason": f"{word} is not a JSON value"}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ('{"a":1,"a":2}', ""),
        ('{"a":1,"\\u0061":2}', ""),
        ('{"task":{"x":1,"x":1}}', "task"),
        ('{"items":[{},{},{},{"task":{"payload":{"deep":[0,{"k":1,"k":2}]}}}]}', "items[3].task.payload.deep[1]"),
        ('[{"ok":1},[{"b":{"k":1,"c":2,"k":3}}]]', "[1][0].b"),
        ('{"a b":{"k":1,"k":2}}', '["a b"]'),
        ("{" + ",".join(f'"m{n}":1' for n in range(100)) + ',"m5":1}', ""),
    ],
)
def test_a_key_that_occurs_twice_is_refused_anywhere_with_its_place(body: str, place: str):
    detail = refusal_of(body)
    assert detail["field"] == place
    assert "occurs twice" in str(detail["reason"])


def test_the_place_of_a_deep_fault_is_its_nearest_named_ancestor():
    body = '{"a":' * 20 + '{"k":1,"k":2}' + "}" * 20
    assert refusal_of(body)["field"] == ".".join("a" * 6)


def test_a_hostile_key_is_escaped_and_cut_in_the_message():
    detail = refusal_of('{"%s\\u0000\\u202e":{"k":1,"k":2}}' % ("x" * 10_000))
    assert len(str(detail["field"])) < 120
    assert str(detail["field"]).isprintable()


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_the_root_is_level_one_and_level_64_is_the_last(opening: str):
    closing = "]" if opening == "[" else "}"
    assert parse_document(opening * 63 + "[1]" + closing * 63).raw
    detail = refusal_of(opening * 64 + "[1]" + closing * 64)
    assert detail == {"field": "", "reason": "must not be nested deeper than 64 levels", "limit": 64}


@pytest.mark.parametrize("depth", [65, 100, 900, 1_000, 2_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize("is_closed", [True, False])
def test_no_depth_reaches_the_recursion_of_the_interpreter(depth: int, opening: str, is_closed: bool):
    closing = "".join({"[": "]", "{": "}"}.get(character, "") for character in reversed(opening))
    assert refusal_of(opening * depth + "1" + closing * depth * is_closed)["reason"] == (
        "must not be nested deeper than 64 levels"
    )


def test_brackets_inside_strings_are_no_levels():
    text = json.dumps({"a": "[{" * 200, "b": '\\"[[[[' * 50, "c": "\\", "d": "[" * 100})
    assert raw(parse_document(text)) == text


def test_siblings_are_no_levels():
    text = "[" + ",".join(["[[]]"] * 5_000) + "]"
    assert parse_document(text).size == 5_000


NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "9007199254740993",
    "1.10",
    "1e400",
    "1E+2",
    "1e-7",
    "0.1000000000000000055",
    "-1.0e-400",
    "9" * 5_000,
    "0." + "3" * 5_000,
]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_in_a_payload_come_back_digit_for_digit(number: str):
    body = f'{{"task":{{"payload" : {{"n": [ {number} ,{number}]}} }} }}'
    payload = parse_document(body.encode()).members()["task"].members()["payload"]
    assert raw(payload) == f'{{"n": [ {number} ,{number}]}}'
    assert payload.members()["n"].elements()[1].raw == number
    assert payload.members()["n"].elements()[0].kind == "number"


@pytest.mark.parametrize(
    "text", ['"\\u0000"', '"a\\u0000b"', '"\\ud83d\\ude00"', '"\\\\ud800"', '"\U0001f600"', '"\\u2028\\/\\b"', '""']
)
def test_strings_in_a_payload_may_hold_anything_that_is_unicode_and_keep_their_escapes(text: str):
    payload = payload_of(f'{{"payload":{text}}}')
    assert payload.raw == text
    assert payload.text == json.loads(text)


@pytest.mark.parametrize("value", ["null", "true", "false", "0", '"x"', "[]", "{}", " [ ] "])
def test_any_json_value_may_be_a_payload(value: str):
    assert payload_of(f'{{"payload":{value}}}').raw == value.strip()


def test_a_document_may_be_a_frame_of_text():
    node = parse_document('{"type":"hello","n":1}')
    assert node.members()["type"].text == "hello"
    assert refusal_of('{"a":"\ud800"}')["reason"] == "must not contain a lone surrogate"


def test_members_and_elements_know_their_places():
    root = parse_document('{"items":[{"task":{"retry":{"mode":"SAFE"}}}, {"a b":1}], "a.b":[true]}')
    items = root.members()["items"].elements()
    assert items[0].members()["task"].members()["retry"].members()["mode"].path == "items[0].task.retry.mode"
    assert items[1].members()["a b"].path == 'items[1]["a b"]'
    assert root.members()["a.b"].elements()[0].path == '["a.b"][0]'
    assert root.members()["a.b"].elements()[0].truth is True


json_text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(json_text, inner, max_size=5),
    max_leaves=30,
)
white_space = st.text(" \t\r\n", max_size=3)


def rebuilt(node: Node) -> object:
    """The value by way of members, elements and raw slices alone."""
    if node.kind == "object":
        return {key: rebuilt(member) for key, member in node.members().items()}
    if node.kind == "array":
        return [rebuilt(element) for element in node.elements()]
    return json.loads(node.raw)


@given(json_values, st.booleans(), st.sampled_from([None, 1, "\t"]), white_space, white_space)
def test_what_the_standard_library_writes_is_read_back_slice_by_slice(value, is_ascii, indent, before, after):
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    node = parse_document((before + text + after).encode())
    assert node.raw == text
    assert rebuilt(node) == value


@given(json_values)
def test_the_order_of_members_white_space_and_escapes_do_not_change_the_canonical_form(value):
    def reordered(part):
        if isinstance(part, dict):
            return {key: reordered(part[key]) for key in reversed(list(part))}
        return [reordered(element) for element in part] if isinstance(part, list) else part

    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    other = json.dumps(reordered(value), ensure_ascii=True, indent=2)
    assert canonical(parse_document(plain)) == canonical(parse_document(other))


@given(json_values, json_values)
def test_two_values_have_one_canonical_form_only_if_they_are_one_value(left, right):
    texts = [json.dumps(value, sort_keys=True) for value in (left, right)]
    forms = [canonical(parse_document(text)) for text in texts]
    assert (forms[0] == forms[1]) == (texts[0] == texts[1])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1", "1.0"),
        ("1", '"1"'),
        ("1", "1e0"),
        ("1.0", "1.00"),
        ("1E2", "1e2"),
        ("0", "-0"),
        ("0", "null"),
        ("[1,2]", "[2,1]"),
        ("[12]", "[1,2]"),
        ('{"a":1}', '{"A":1}'),
        ('"é"', '"e\u0301"'),
        ("null", '"null"'),
        ("true", "1"),
    ],
)
def test_numbers_compare_as_written_and_kinds_stay_apart(left: str, right: str):
    assert canonical(parse_document(left)) != canonical(parse_document(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"a":1,"b":[1.10]}', ' { "b" : [ 1.10 ] , "a" : 1 } '),
        ('"\\u0061\\/"', '"a/"'),
        ('"\\ud83d\\ude00"', '"\U0001f600"'),
        ('{"\\u0061":{}}', '{"a":{ }}'),
    ],
)
def test_one_value_written_in_two_ways_has_one_canonical_form(left: str, right: str):
    assert canonical(parse_document(left)) == canonical(parse_document(right))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_document_or_an_invalid_argument(body: bytes):
    try:
        parse_document(body)
    except InvalidArgument as refusal:
        assert refusal.details[0]["reason"]


@given(st.text(string.printable[:20] + '[]{}":,\\ud8', max_size=60))
def test_any_text_that_is_accepted_is_json_for_the_standard_library_too(text: str):
    try:
        node = parse_document(text)
    except InvalidArgument:
        return
    assert rebuilt(node) == json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[" + "[]," * 100_000 + "[]]",
        "{" + ",".join(f'"{n}":1' for n in range(50_000)) + "}",
        '"' + '\\"[' * 100_000 + '"',
        "[" + ",".join(["1"] * 200_000) + "]",
    ],
)
def test_hostile_shapes_of_half_a_mebibyte_cost_no_more_memory_than_their_values(text: str):
    tracemalloc.start()
    try:
        parse_document(text)
    except InvalidArgument:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 60 * max(len(text), 1)
    assert sys.getrecursionlimit() >= 1000
