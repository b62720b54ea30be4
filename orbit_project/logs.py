"""How log lines leave the process: structlog in front, the standard library behind, one line per event on stderr.

Every library logs through `logging`, Orbit's own code through `tasks_app.telemetry`; both end in the same renderer.
"""

from __future__ import annotations

import sys
from typing import Any

import structlog

# What both kinds of record pass through before they are rendered.
_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def _without_request(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Django hands the whole request to its lines; its ids stand there already, and its query is nobody's business."""
    event.pop("request", None)
    return event


def _escape_line_breaks(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """A caller's text must not be able to forge a second line on a terminal (JSON escapes by itself)."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable() and key != "exception":
            event[key] = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)
    return event


def logging_settings(*, log_format: str, log_level: str) -> dict[str, Any]:
    """Django's LOGGING for the settings; configures structlog as a side effect."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    renderers: list[Any]
    if log_format == "json":
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    else:
        colors = sys.stderr.isatty()
        plain = structlog.dev.plain_traceback
        renderers = [_escape_line_breaks, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    of_the_library = [*_SHARED, structlog.stdlib.ExtraAdder(), _without_request]  # what a record carries in `extra`
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": of_the_library,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": log_level},
        "loggers": {
            # Django's own handlers would write the same lines twice, in another shape.
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            "django.server": {"handlers": [], "level": "INFO", "propagate": True},
            # One line per access with the full address, query included: ours is written with ids instead.
            "daphne": {"level": "WARNING"},
            "django.channels": {"level": "WARNING"},
        },
    }
