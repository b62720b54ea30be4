"""Whatever a handler returns or raises becomes a report that Orbit takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_sdk import ConfigError, Fail, Retry
from orbit_sdk.worker.outcomes import Report, report_of_exception, report_of_result
from workers_app.protocol import messages as wire


def as_the_server_reads_it(report: Report) -> wire.FinishItem:
    text = f'{{"type":"finish","seq":1,"items":[{report.item("a" * 32, "1")}]}}'
    message = wire.parse_client_message(text)
    assert isinstance(message, wire.Finish)
    return message.items[0]


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@given(st.text(), st.text())
def test_no_message_of_an_error_is_ever_refused(first: str, second: str) -> None:
    for error in (ValueError(first), Fail("CODE", second), Retry(first + second)):
        report = report_of_exception(error, asked_to_stop=False, with_traceback=True)
        assert as_the_server_reads_it(report).fault is None


@pytest.mark.parametrize("message", ["\ud800 lone", "nul\0nul", "x" * 10_000, ""])
def test_odd_messages_are_cleaned(message: str) -> None:
    report = report_of_exception(ValueError(message), asked_to_stop=False, with_traceback=True)

    assert as_the_server_reads_it(report).fault is None


def test_a_long_traceback_keeps_its_end() -> None:
    def recurse(n: int) -> None:
        if n == 0:
            raise ValueError("y" * 50_000)
        recurse(n - 1)

    try:
        recurse(50)
    except ValueError as error:
        report = report_of_exception(error, asked_to_stop=False, with_traceback=True)

    assert report.details is not None
    assert len(report.details) < 20_000
    assert as_the_server_reads_it(report).fault is None


@pytest.mark.parametrize("details", [{"a": "x" * 70_000}, {1, 2}, nested(61)])
def test_details_that_do_not_fit_are_left_out_with_a_word(details: Any) -> None:
    report = report_of_exception(Fail("E", "m", details=details), asked_to_stop=False, with_traceback=True)

    item = as_the_server_reads_it(report)
    assert item.fault is None
    assert item.error is not None
    assert "left_out" in (item.error.details or "")


def test_the_deepest_result_and_details_that_fit_are_sent() -> None:
    assert as_the_server_reads_it(report_of_result(nested(61))).outcome == "SUCCEEDED"
    assert as_the_server_reads_it(report_of_result(nested(62))).outcome == "FAILED"
    deepest = report_of_exception(Fail("E", details=nested(60)), asked_to_stop=False, with_traceback=False)
    assert as_the_server_reads_it(deepest).fault is None


@pytest.mark.parametrize("code", ["", " A", "A ", "A\n", "x" * 129, "a\u200bb", 5])
def test_a_code_is_printable(code: Any) -> None:
    with pytest.raises(ConfigError):
        Fail(code, "m")
    with pytest.raises(ConfigError):
        Retry(code=code)


@pytest.mark.parametrize("after", [-1, 2_678_401])
def test_retry_after_has_a_range(after: float) -> None:
    with pytest.raises(ConfigError, match="after"):
        Retry(after=after)


def test_fail_may_be_retryable() -> None:
    report = report_of_exception(Fail("E", "m", retryable=True), asked_to_stop=False, with_traceback=False)

    assert as_the_server_reads_it(report).retryable
