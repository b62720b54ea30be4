"""Query parameters: unknown, repeated and malformed ones are refused (design 1.1)."""

import pytest

from tasks_app.api.query import Query, parse_query
from tasks_app.errors import InvalidArgument
from tasks_app.instants import parse_rfc3339

ID = "0123456789abcdef0123456789abcdef"


def query(text: str, *, known: str = "a b limit", repeatable: str = "") -> Query:
    return parse_query(text, known=known.split(), repeatable=repeatable.split())


def fields_refused(act) -> list[str]:
    with pytest.raises(InvalidArgument) as caught:
        act()
    return [detail["field"] for detail in caught.value.details]


def test_an_empty_query_has_nothing():
    assert query("").text("a") is None
    assert query("&&").text("a") is None


def test_values_are_decoded_as_utf_8():
    assert query("a=%C3%A9+%2B").text("a") == "é +"
    assert query("a=é".encode().decode("latin-1")).text("a") == "é"


@pytest.mark.parametrize("text", ["A=1", "c=1", "a=1&c=", "c", "%00=1", "a%20=1"])
def test_an_unknown_parameter_is_refused(text: str):
    assert len(fields_refused(lambda: query(text))) == 1


def test_every_fault_is_named_and_a_hostile_name_is_escaped_and_cut():
    assert fields_refused(lambda: query("x=1&y=2&a=1&a=2")) == ["x", "y", "a"]
    (name,) = fields_refused(lambda: query("%0A" + "x" * 500 + "=1"))
    assert len(name) <= 64
    assert name.isprintable()


@pytest.mark.parametrize("text", ["a=1&a=1", "a=1&b=2&a=3", "a&a"])
def test_a_parameter_given_twice_is_refused_where_that_has_no_meaning(text: str):
    assert fields_refused(lambda: query(text)) == ["a"]
    assert len(query(text, repeatable="a").texts("a")) == 2


@pytest.mark.parametrize("text", ["a=%FF", "a=%C0%80", "a=%ED%A0%80", "%FF=1", "a=\xff"])
def test_what_is_not_utf_8_is_refused(text: str):
    with pytest.raises(InvalidArgument, match="UTF-8"):
        query(text)


def test_too_many_and_too_long_are_refused():
    with pytest.raises(InvalidArgument, match="at most 64"):
        query("&".join(["a=1"] * 65), repeatable="a")
    assert fields_refused(lambda: query("a=" + "x" * 2049)) == ["a"]
    assert fields_refused(lambda: query("a=%00")) == ["a"]


@pytest.mark.parametrize("value", ["", "0", "201", "-1", "1.0", "1e1", "+5", "05", " 5", "x", "5 ", "١", "9" * 30])
def test_a_limit_outside_its_range_is_refused_never_clamped(value: str):
    assert fields_refused(query(f"limit={value}".encode().decode("latin-1")).page_limit) == ["limit"]


def test_a_limit_is_1_to_200_and_50_by_default():
    assert query("").page_limit() == 50
    assert [query(f"limit={value}").page_limit() for value in (1, 200)] == [1, 200]


def test_integers_ids_instants_and_flags_are_read_strictly():
    assert query("a=-9").integer("a", minimum=-9, maximum=9) == -9
    assert query(f"a={ID}").identity("a") == ID
    assert query("a=2026-09-17T02:00:00%2B02:00").instant("a") == parse_rfc3339("2026-09-17T00:00:00Z")
    assert [query(f"a={text}").flag("a") for text in ("true", "false")] == [True, False]
    assert fields_refused(lambda: query("a=-10").integer("a", minimum=-9, maximum=9)) == ["a"]
    assert fields_refused(lambda: query(f"a={ID.upper()}").identity("a")) == ["a"]
    assert fields_refused(lambda: query("a=2026-09-17T02:00:00+02:00").instant("a")) == ["a"]  # a blank
    for text in ("", "1", "True", "yes"):
        assert fields_refused(lambda text=text: query(f"a={text}").flag("a")) == ["a"]


def test_choices_are_of_the_list_in_its_order_and_once():
    asked = query("a=Z&a=X&a=Z", repeatable="a")
    assert asked.choices("a", ["X", "Y", "Z"]) == ["X", "Z"]
    assert fields_refused(lambda: query("a=x", repeatable="a").choices("a", ["X"])) == ["a"]
    assert query("").choices("a", ["X"]) == []
