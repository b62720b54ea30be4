import re

import pytest

from tasks_app.api.trace_context import continued

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_valid_traceparent_is_continued_with_a_span_of_our_own():
    context = continued(f"00-{TRACE}-{SPAN}-01")
    assert context is not None
    assert re.fullmatch(rf"00-{TRACE}-[0-9a-f]{{16}}-01", context.traceparent)
    assert context.span_id != SPAN


def test_a_later_version_is_continued_as_ours():
    context = continued(f"cc-{TRACE}-{SPAN}-00-what-the-future-adds")
    assert context is not None
    assert context.traceparent.startswith(f"00-{TRACE}-")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_an_invalid_traceparent_is_ignored(header: str | None):
    assert continued(header) is None
