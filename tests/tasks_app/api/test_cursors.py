import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks_app.api.cursors import seal, unseal
from tasks_app.errors import InvalidArgument

BINDING = ["tasks", "namespace", None, ["READY"], 3, True]


def refused(cursor: str, binding: list[object] = BINDING) -> bool:
    try:
        unseal(cursor, binding)
    except InvalidArgument as error:
        return [detail["field"] for detail in error.details] == ["cursor"]
    return False


@given(st.integers(0, 2**63) | st.text("0123456789abcdef", min_size=32, max_size=32))
def test_a_cursor_gives_back_its_position(position):
    cursor = seal(BINDING, position)
    assert unseal(cursor, BINDING) == position
    assert cursor.isascii()
    assert not set(cursor) & set("&=+ %?#/")


@pytest.mark.parametrize(
    "binding",
    [
        ["queues", *BINDING[1:]],
        ["tasks", "another namespace", *BINDING[2:]],
        [*BINDING[:-1], False],
        [*BINDING[:-1], None],
        BINDING[:-1],
    ],
)
def test_a_cursor_is_bound_to_its_list_namespace_and_filters(binding: list[object]):
    assert refused(seal(BINDING, 7), binding)


def test_a_cursor_that_was_changed_made_up_or_signed_by_others_is_refused(settings):
    cursor = seal(BINDING, 7)
    for index in range(len(cursor)):
        changed = cursor[:index] + ("A" if cursor[index] != "A" else "B") + cursor[index + 1 :]
        assert refused(changed) or unseal(changed, BINDING) == 7  # the last digit of base64 has bits that mean nothing
    forged = base64.urlsafe_b64encode(b'["0000000000000000",7]').decode().rstrip("=")
    for made_up in ("", ".", "x", "7", f"{forged}.{'A' * 43}", "x" * 10_000, "é", "\0"):
        assert refused(made_up)
    settings.SECRET_KEY = "another key than the one that signed it"
    assert refused(cursor)


def test_the_parameter_is_named_in_the_refusal():
    with pytest.raises(InvalidArgument) as caught:
        unseal("x", BINDING, field="after")
    assert caught.value.details[0]["field"] == "after"
