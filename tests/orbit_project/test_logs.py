"""Log lines: one event is one line, with its ids as fields, whoever logged it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import logging, logging.config, structlog
from orbit_project.logs import logging_settings
logging.config.dictConfig(logging_settings(log_format={format!r}, log_level={level!r}))
{statement}
"""


def lines_of(statement: str, *, log_format: str = "json", level: str = "INFO") -> list[str]:
    """What a process writes to stderr that logs by `statement`."""
    program = PROGRAM.format(format=log_format, level=level, statement=statement)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_json_line_carries_level_logger_time_and_fields():
    (line,) = lines_of("logging.getLogger('orbit').warning('lease lost', extra={'task_id': 'ab', 'losses': 2})")

    read = json.loads(line)
    assert (read["event"], read["level"], read["logger"]) == ("lease lost", "warning", "orbit")
    assert (read["task_id"], read["losses"]) == ("ab", 2)
    assert read["timestamp"].endswith("Z")


def test_ids_bound_to_a_request_stand_on_lines_of_libraries_too():
    (line,) = lines_of(
        "structlog.contextvars.bind_contextvars(request_id='0123')\nlogging.getLogger('django').error('no %s', 'luck')"
    )

    assert json.loads(line)["request_id"] == "0123"
    assert json.loads(line)["event"] == "no luck"


def test_a_request_object_is_not_written():
    (line,) = lines_of("logging.getLogger('django.request').warning('no', extra={'request': 'GET /?secret', 'a': 1})")

    assert "secret" not in line
    assert json.loads(line)["a"] == 1


def test_structlog_and_logging_write_alike():
    (line,) = lines_of("structlog.get_logger('orbit').info('accepted', task_id='ab')")

    read = json.loads(line)
    assert (read["event"], read["task_id"], read["logger"], read["level"]) == ("accepted", "ab", "orbit", "info")


def test_an_error_is_one_line_with_its_traceback():
    (line,) = lines_of("try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.getLogger('orbit').exception('broken')")

    assert "ZeroDivisionError" in json.loads(line)["exception"]


def test_nobody_can_forge_a_line():
    text = "'x\\n2026-01-01 [info] forged\\x1b[31m'"

    assert len(lines_of(f"logging.getLogger('orbit').warning('said', extra={{'text': {text}}})")) == 1
    (line,) = lines_of(f"logging.getLogger('orbit').warning({text})", log_format="console")
    assert "\x1b" not in line


def test_less_grave_lines_than_asked_for_are_not_written():
    assert lines_of("logging.getLogger('orbit').info('quiet')", level="WARNING") == []
    assert len(lines_of("logging.getLogger('orbit').info('heard')", level="INFO")) == 1
