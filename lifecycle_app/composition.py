"""What the settings make of the lifecycle in this process: the upstream, and who owns the calls to it."""

from __future__ import annotations

import threading
from functools import cache

from django.conf import settings

from lifecycle_app import telemetry
from lifecycle_app.domain import ownership, recovery
from lifecycle_app.domain.ownership import Owner
from lifecycle_app.limits import HEARTBEAT_SECONDS
from lifecycle_app.loops import Loop
from lifecycle_app.upstream import HttpUpstream, Upstream

_lock = threading.Lock()


@cache
def configured_upstream() -> Upstream | None:
    """The upstream of the settings; None when there is none."""
    orbit = settings.ORBIT
    if orbit.upstream_url is None:
        return None
    return HttpUpstream(url=orbit.upstream_url, timeout_ms=orbit.upstream_timeout_ms, token=orbit.upstream_token)


def current_owner() -> Owner:
    """Who makes calls in this process. Under a server that composed no node, a heartbeat begins with the first call."""
    owner = ownership.registered()
    if owner is not None:
        return owner
    with _lock:
        owner = ownership.registered()
        if owner is None:
            owner = ownership.new_process_owner()
            ownership.beat(owner, roles="api", take_name=True)
            ownership.register(owner)
            Loop("heartbeat", lambda: _beat_and_sweep(owner), every_seconds=HEARTBEAT_SECONDS).start()
    return owner


def _beat_and_sweep(owner: Owner) -> None:
    if not ownership.beat(owner, roles="api"):
        telemetry.fenced(owner.node_id)
    recovered = recovery.sweep(owner)
    telemetry.intents_recovered(unknown=recovered.unknown, released=recovered.released)
