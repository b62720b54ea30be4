"""Typed members: every structural fault of design 1.1 and 1.3 has a place and a reason."""

import pytest

from tasks_app.errors import InvalidArgument
from tasks_app.instants import parse_rfc3339
from tasks_app.json_fields import Fields, read_array, read_integer, read_object
from tasks_app.strict_json import parse_document

ID = "0123456789abcdef0123456789abcdef"


def fields_of(body: str) -> Fields:
    node = parse_document(body)
    return read_object(node, optional=node.keys())


def details_of(act, *args, **kwargs) -> list[dict[str, object]]:
    with pytest.raises(InvalidArgument) as caught:
        act(*args, **kwargs)
    return caught.value.details


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("-0", 0), ("9", 9), ("-9", -9), ("9007199254740993", 2**53 + 1)]
)
def test_an_integer_is_read_exactly(text: str, value: int):
    assert fields_of(f'{{"n":{text}}}').integer("n") == value


@pytest.mark.parametrize("text", ["1.0", "1e0", "1E2", '"1"', "true", "[1]", "{}", "-1.5"])
def test_an_integer_field_takes_nothing_but_integers(text: str):
    details = details_of(fields_of(f'{{"n":{text}}}').integer, "n")
    assert details[0]["field"] == "n"
    assert str(details[0]["reason"]).startswith("must be an integer")


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("digits", [20, 30, 31, 32, 4_301, 5_000])
def test_an_integer_of_any_length_is_read_as_one_outside_every_range(sign: str, digits: int):
    value = read_integer(parse_document(sign + "9" * digits))
    assert abs(value) > 2**63
    assert (value < 0) == bool(sign)


@pytest.mark.parametrize("reader", ["string", "integer", "boolean", "identity", "instant"])
def test_null_is_refused_where_a_field_is_not_nullable(reader: str):
    assert details_of(getattr(fields_of('{"n":null}'), reader), "n") == [{"field": "n", "reason": "must not be null"}]


def test_null_can_be_asked_for_where_it_means_something():
    fields = fields_of('{"max_running":null,"weight":1}')
    assert fields.is_null("max_running")
    assert not fields.is_null("weight")
    assert not fields.is_null("absent")


@pytest.mark.parametrize("reader", ["string", "integer", "boolean", "identity", "instant", "object"])
def test_an_absent_member_is_none(reader: str):
    assert getattr(fields_of("{}"), reader)("n") is None


@pytest.mark.parametrize("text", ["1", "true", "[]", "{}"])
def test_a_string_field_takes_nothing_but_strings(text: str):
    assert details_of(fields_of(f'{{"s":{text}}}').string, "s")[0]["reason"] == "must be a string"


def test_u_0000_is_refused_in_a_string_that_orbit_interprets():
    assert details_of(fields_of('{"s":"a\\u0000"}').string, "s")[0]["reason"] == "must not contain U+0000"


@pytest.mark.parametrize("text", ["1", "0", '"true"', "{}"])
def test_a_boolean_field_takes_nothing_but_booleans(text: str):
    assert details_of(fields_of(f'{{"b":{text}}}').boolean, "b")[0]["reason"] == "must be true or false"
    assert fields_of('{"b":false}').boolean("b") is False
    assert fields_of('{"b":true}').boolean("b") is True


@pytest.mark.parametrize("text", ["", ID.upper(), ID[:-1], ID + "0", f" {ID}", f"{ID}\\n", "g" * 32, "１" * 32])
def test_a_malformed_id_is_refused(text: str):
    assert "32 lower-case hex digits" in str(details_of(fields_of(f'{{"id":"{text}"}}').identity, "id")[0]["reason"])
    assert fields_of(f'{{"id":"{ID}"}}').identity("id") == ID


def test_a_time_is_read_as_an_instant_and_a_wrong_one_says_why():
    assert fields_of('{"t":"2026-09-17T02:00:00+02:00"}').instant("t") == parse_rfc3339("2026-09-17T00:00:00Z")
    assert details_of(fields_of('{"t":"2026-02-30T00:00:00Z"}').instant, "t") == [
        {"field": "t", "reason": "is not a moment that exists"}
    ]
    assert "RFC 3339" in str(details_of(fields_of('{"t":"2026-09-17"}').instant, "t")[0]["reason"])


def test_every_unknown_and_missing_member_is_named_and_a_member_in_another_case_gets_a_hint():
    node = parse_document('{"items":[{"Queue_id":"x","extra":1}]}').members()["items"].elements()[0]
    details = details_of(read_object, node, required=("queue_id", "handler"), optional=("priority",))
    assert details == [
        {"field": "items[0].Queue_id", "reason": "is not known here; did you mean queue_id?"},
        {"field": "items[0].extra", "reason": "is not known here"},
        {"field": "items[0].queue_id", "reason": "is required"},
        {"field": "items[0].handler", "reason": "is required"},
    ]


def test_a_flood_of_unknown_members_is_refused_without_naming_them_all():
    body = "{" + ",".join(f'"k{n}":1' for n in range(20_000)) + "}"
    assert len(details_of(read_object, parse_document(body), required=("a",))) == 21


@pytest.mark.parametrize("text", ["[]", "1", '"{}"', "null"])
def test_an_object_is_required_where_one_is(text: str):
    reason = "must not be null" if text == "null" else "must be an object"
    assert details_of(read_object, parse_document(text)) == [{"field": "", "reason": reason}]


def test_an_array_has_its_bounds():
    assert len(read_array(parse_document("[1,2]"), at_least=1, at_most=2)) == 2
    for text in ("[]", "[1,2,3]"):
        assert details_of(read_array, parse_document(text), at_least=1, at_most=2) == [
            {"field": "", "reason": "must have 1 to 2 elements", "minimum": 1, "maximum": 2}
        ]
    assert details_of(read_array, parse_document("{}"), at_most=2)[0]["reason"] == "must be an array"


def test_an_object_member_is_read_with_its_own_members():
    fields = fields_of('{"retry":{"mode":"SAFE"}}').object("retry", required=("mode",))
    assert fields is not None
    assert "mode" in fields
    assert fields.names() == frozenset({"mode"})
    assert fields.required_string("mode") == "SAFE"
    assert fields.path("mode") == "retry.mode"
