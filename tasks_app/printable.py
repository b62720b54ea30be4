"""The "printable" rule of names and keys (design 1.1).

Letters, marks, numbers, punctuation, symbols and inner blanks; no control, format (joiners included), private or
unassigned characters; no blank at either end. The only blank is U+0020: two names that differ in the width of a blank
would look the same to the person who has to choose between them.
"""

BLANK = " "


def printable_fault(text: str, *, length_max: int) -> str | None:
    """Why `text` is not a printable name of 1 to `length_max` characters, as a sentence for the caller; None if it
    is."""
    if not text:
        return "must not be empty"
    if len(text) > length_max:
        return f"must be at most {length_max} characters long"
    # `str.isprintable` is this very rule: it refuses the categories "other" and "separator", U+0020 excepted.
    if not text.isprintable():
        return "must not contain control, format, private or unassigned characters, nor blanks other than U+0020"
    if text[0] == BLANK or text[-1] == BLANK:
        return "must not begin or end with a blank"
    return None
