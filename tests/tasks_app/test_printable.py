"""The "printable" rule of design 1.1, against the categories of every Unicode character."""

import sys
import unicodedata

import pytest

from tasks_app.printable import printable_fault


def is_printable(text: str) -> bool:
    return printable_fault(text, length_max=128) is None


def test_every_character_is_allowed_exactly_if_its_category_is_letter_mark_number_punctuation_symbol_or_it_is_a_blank():
    wrong = [
        f"U+{code:04X}"
        for code in range(sys.maxunicode + 1)
        if (printable_fault(f"a{chr(code)}b", length_max=3) is None)
        != (unicodedata.category(chr(code))[0] in "LMNPS" or code == 0x20)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text", ["a", "file.convert", "订单-4711", "e\u0301", "a b", "§5 → ½", "👍", '"quoted"', "\u0301"]
)
def test_ordinary_names_are_printable(text: str):
    assert is_printable(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " a",
        "a ",
        " ",
        "a\tb",
        "a\nb",
        "a\0b",
        "a\u200db",  # zero-width joiner
        "a\u200bb",  # zero-width space
        "a\u202eb",  # right-to-left override
        "\ufeffa",
        "a\u00adb",  # soft hyphen
        "a\ue000b",  # private use
        "a\u0378b",  # unassigned
        "a\u00a0b",  # a blank of another kind
        "a\u2028b",
        "a\x7fb",
        "a\x85b",
    ],
)
def test_invisible_and_ambiguous_names_are_refused(text: str):
    assert not is_printable(text)


def test_length_counts_characters_not_bytes():
    assert printable_fault("é" * 128, length_max=128) is None
    assert printable_fault("é" * 129, length_max=128) == "must be at most 128 characters long"
