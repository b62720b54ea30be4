"""A node with a tiny application, for tests of the server shell: no models, no database.

`python -m tests.orbit_project.serving.tiny_node` prints its URL when it is ready and serves until SIGTERM.
Limits that a test wants smaller come as `NAME=VALUE` arguments and replace the constants of `doors` and `limits`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

PAGE = b"0123456789abcdef" * 4096  # 64 KiB


class State:
    """What the views count; `/state` shows it."""

    calls = 0
    cancelled = 0
    revision = 1
    released = threading.Event()
    threads: set[int] = set()


def echo(request: HttpRequest) -> HttpResponse:
    State.calls += 1
    State.threads.add(threading.get_ident())
    return JsonResponse(
        {
            "method": request.method,
            "path": request.path,
            "query": request.META["QUERY_STRING"],
            "body_bytes": len(request.body),
            "address": request.META["REMOTE_ADDR"],
            "scheme": request.scheme,
            "script_name": request.META["SCRIPT_NAME"],
            "headers": dict(request.headers),
            "repeated": sorted(request.META["orbit.repeated_headers"]),
        }
    )


def hold(request: HttpRequest) -> HttpResponse:
    """Answers once `/release` was called, or SIGUSR1 came."""
    State.calls += 1
    State.released.wait(30)
    return JsonResponse({"held": True})


def release(request: HttpRequest) -> HttpResponse:
    State.released.set()
    return JsonResponse({})


def state(request: HttpRequest) -> HttpResponse:
    return JsonResponse(
        {"calls": State.calls, "threads": len(State.threads), "rss_kib": _rss_kib(), "revision": State.revision}
    )


def boom(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a view that fails")


def long(request: HttpRequest) -> HttpResponse:
    pages = int(request.GET["pages"])

    def body() -> Iterator[bytes]:
        for _ in range(pages):
            yield PAGE

    return StreamingHttpResponse(body(), content_type="application/octet-stream")


def whole(request: HttpRequest) -> HttpResponse:
    return HttpResponse(PAGE * int(request.GET["pages"]), content_type="application/octet-stream")


def empty(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=int(request.GET["status"]))


def waiting(request: HttpRequest) -> HttpResponse:
    """A long poll on the revision, as a view of the API does it."""
    State.calls += 1
    wait: dict[str, Any] | None = request.META.get("orbit.wait")
    known = int(wait["revision"]) if wait else int(request.GET.get("revision", State.revision))
    response = JsonResponse({"revision": State.revision, "final": bool(wait and wait["final"])})
    if State.revision <= known and not (wait and wait["final"]) and request.META.get("orbit.long_polls"):
        response["X-Orbit-Wait"] = json.dumps(
            {"kind": "task", "task_id": "a" * 32, "revision": known, "wait_ms": int(request.GET["wait_ms"])}
        )
    return response


def change(request: HttpRequest) -> HttpResponse:
    """Changes the revision; with `hint` it is told, else only a look at it shows."""
    from tasks_app.hints import Hint, HintKind, publish

    State.revision += 1
    if request.GET.get("hint"):
        publish(Hint(HintKind.TASK_CHANGED, task_id="a" * 32))
    return JsonResponse({})


urlpatterns = [
    path("v1/echo", echo),
    path("v1/tasks:batch", echo),
    path("v1/hold", hold),
    path("v1/boom", boom),
    path("v1/long", long),
    path("v1/whole", whole),
    path("v1/empty", empty),
    path("v1/wait", waiting),
    path("change", change),
    path("release", release),
    path("state", state),
    path("admin/", echo),
]


def changed(waits: Sequence[Any]) -> set[tuple[str, str]]:
    return {wait.key for wait in waits if State.revision > wait.seen}


async def websocket(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """`/v1/deny/CODE` refuses, `/v1/stuck` never decides, `/v1/flood/N` sends N pages, anything else echoes."""
    await receive()
    kind, _, argument = scope["path"].removeprefix("/v1/").partition("/")
    if kind == "deny":
        await send({"type": "websocket.close", "code": int(argument), "reason": "because"})
        return
    if kind == "stuck":
        await asyncio.sleep(60)
    if kind == "fail":
        raise RuntimeError("a socket that fails")
    protocols = scope["subprotocols"]
    await send({"type": "websocket.accept", "subprotocol": protocols[0] if protocols else None})
    if kind == "flood":
        for _ in range(int(argument)):
            await send({"type": "websocket.send", "bytes": PAGE})
    if kind == "pour":  # many senders at once, which is what back-pressure of one does not stop
        await asyncio.gather(*(send({"type": "websocket.send", "bytes": PAGE}) for _ in range(int(argument))))
    if kind == "lazy":
        await asyncio.sleep(float(argument))
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if kind == "close":
            await send({"type": "websocket.close", "code": int(argument), "reason": "asked"})
        elif kind == "sink":
            continue
        elif message.get("text") == "address?":
            answer = {"client": scope["client"][0], "headers": [name.decode() for name, _ in scope["headers"]]}
            await send({"type": "websocket.send", "text": json.dumps(answer)})
        elif message.get("text") is not None:
            await send({"type": "websocket.send", "text": message["text"]})
        else:
            await send({"type": "websocket.send", "bytes": message["bytes"]})


class StubbornPart:
    """Holds the drain up for as long as the environment says."""

    name = "stubborn"
    attempts_running = 0

    def __init__(self) -> None:
        self._left_at: float | None = None

    async def start(self) -> None:
        print("started", flush=True)

    def begin_drain(self) -> None:
        print("draining", flush=True)
        self._left_at = time.monotonic() + float(os.environ.get("TINY_DRAIN_SECONDS", "0"))

    @property
    def is_drained(self) -> bool:
        return self._left_at is not None and time.monotonic() > self._left_at

    async def stop(self) -> None:
        print("stopped", flush=True)


def _rss_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def main() -> None:
    settings.configure(
        DEBUG=False,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="tiny",
        ROOT_URLCONF=__name__,
        MIDDLEWARE=[],
        DATABASES={},
        DATA_UPLOAD_MAX_MEMORY_SIZE=None,
        LOGGING_CONFIG=None,
    )
    django.setup()
    from orbit_project.serving import doors
    from tasks_app import limits

    options: dict[str, float] = {}
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        module = doors if hasattr(doors, name) else limits if hasattr(limits, name) else None
        number = float(value) if "." in value else int(value)
        if module is None:
            options[name] = number
        else:
            setattr(module, name, number)

    from orbit_project.serving.node import Node, NodeOptions
    from workers_app.hint_relay import HintRelay

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(options.get("port", 0))))
    node = Node(
        NodeOptions(
            node_id="tiny",
            listener=listener,
            roles=os.environ.get("TINY_ROLES", "api,admin").split(","),
            drain_timeout_seconds=options.get("drain", 10),
            api_pool_threads=int(options.get("threads", 4)),
            silence_seconds=options.get("silence", 30),
            trusted_proxies=[ip_network(text) for text in os.environ.get("TINY_PROXIES", "").split() if text],
        ),
        wsgi_application=get_wsgi_application(),
        websocket_application=websocket,
        changed=changed,
        relay=HintRelay(),
        parts=[StubbornPart()],
        on_ready=lambda url: print(f"ready {url}", flush=True),
    )
    signal.signal(signal.SIGUSR1, lambda *_: State.released.set())
    node.run()


if __name__ == "__main__":
    sys.modules["tests.orbit_project.serving.tiny_node"] = sys.modules["__main__"]
    main()
