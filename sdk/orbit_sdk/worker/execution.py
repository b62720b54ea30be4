"""Running one handler in place: call it, and turn however it ends into a report."""

from __future__ import annotations

import asyncio
import logging

from orbit_sdk.worker.context import Context
from orbit_sdk.worker.handlers import Handler
from orbit_sdk.worker.outcomes import Cancelled, HandlerExit, Report, report_of_exception, report_of_result

_log = logging.getLogger("orbit_sdk.handler")


def execute(handler: Handler, context: Context, *, with_traceback: bool) -> Report:
    """Run a handler in this thread. Never raises, not even for SystemExit: a handler must not end its worker."""
    try:
        payload = handler.checked_payload(context.task.payload)
        return report_of_result(handler.function(context, payload))
    except BaseException as error:
        return _ended_badly(error, context, with_traceback=with_traceback)


async def execute_coroutine(handler: Handler, context: Context, *, with_traceback: bool) -> Report:
    """Run a coroutine handler. A cancellation that Orbit asked for is CANCELED; any other is a failure."""
    try:
        payload = handler.checked_payload(context.task.payload)
        return report_of_result(await handler.function(context, payload))
    except asyncio.CancelledError as error:
        ended: BaseException = Cancelled(context.cancel_reason or "") if context.cancelled else error
        return _ended_badly(ended, context, with_traceback=with_traceback)
    except BaseException as error:
        return _ended_badly(error, context, with_traceback=with_traceback)


def _ended_badly(error: BaseException, context: Context, *, with_traceback: bool) -> Report:
    if not isinstance(error, HandlerExit):
        context.log.error("the handler raised %s", type(error).__name__, exc_info=error)
    return report_of_exception(error, asked_to_stop=context.cancelled, with_traceback=with_traceback)
