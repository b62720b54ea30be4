"""How a connection ends (design, chapter 2)."""

from __future__ import annotations

import pytest

from tests.workers_app.protocol.frames import sent
from workers_app.protocol import messages
from workers_app.protocol.messages import CLOSE_CODES, ERROR_CODES, CloseCode, ProtocolError


def test_close_codes_are_those_of_the_protocol() -> None:
    assert {code.value for code in CloseCode} == {1000, 1009, 1012, 4400, 4401, 4403, 4408, 4409, 4429}


@pytest.mark.parametrize("code", [code for code in CloseCode if code != CloseCode.NORMAL])
def test_every_close_but_the_normal_one_has_an_error_to_go_before_it(code: CloseCode) -> None:
    error = ProtocolError("why", close_code=code)
    assert sent(messages.error(code=error.code, message=error.message))["code"] == ERROR_CODES[code]


@pytest.mark.parametrize(
    ("code", "close_code"),
    [("INVALID_ARGUMENT", 4400), ("UNAUTHENTICATED", 4401), ("PERMISSION_DENIED", 4403), ("NOT_FOUND", 4403)],
)
def test_errors_that_end_a_connection_have_one_close_code(code: str, close_code: int) -> None:
    assert CLOSE_CODES[code] == close_code


def test_an_unavailable_database_ends_no_connection() -> None:
    assert "UNAVAILABLE" not in CLOSE_CODES
