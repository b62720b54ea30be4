"""Long polls (`wait_ms`): a view never waits itself, it asks the node to keep its answer back (design 1.4).

The answer as of now goes out with the header `X-Orbit-Wait`, which says what it is about. A node holds it in its event
loop, where waiting costs no thread, runs the request again when something changed or time is up, and strips the header.
Under plain WSGI nobody waits: the answer as of now is the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

HEADER: Final = "X-Orbit-Wait"
ENVIRON_WAIT: Final = "orbit.wait"  # on a run after a wait: what the header said, and "final"
ENVIRON_ENABLED: Final = "orbit.long_polls"


def at_arrival(request: HttpRequest, name: str) -> Any:
    """What `about` said of `name` when this request asked to be kept back; None on its first run."""
    wait: Mapping[str, Any] = request.META.get(ENVIRON_WAIT) or {}
    return wait.get(name)


def hold(
    request: HttpRequest, response: HttpResponse, *, wait_ms: int | None, about: Mapping[str, Any]
) -> HttpResponse:
    """Asks the node to keep `response` back for up to `wait_ms` since the request arrived; `about` says what to
    watch."""
    is_final = (request.META.get(ENVIRON_WAIT) or {}).get("final", False)
    if wait_ms and request.META.get(ENVIRON_ENABLED) and not is_final:
        response[HEADER] = json.dumps({**about, "wait_ms": wait_ms})
    return response
